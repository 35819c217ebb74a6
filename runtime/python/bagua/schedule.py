"""Schedules by algorithm name, schedule file or algorithm source."""

import ctypes
import errno
import hashlib
import json
import os
import signal
import subprocess
import tempfile

from . import _capi, _config


class Schedule:
    """A loaded and validated schedule file. Immutable."""

    def __init__(self, path):
        handle = ctypes.c_void_p()
        _capi.call("bagua_schedule_load", os.fsencode(path), ctypes.byref(handle))
        self._handle = handle
        self.path = path
        self.info = json.loads(_capi.call("bagua_schedule_info", handle))

    def __del__(self):
        if getattr(self, "_handle", None):
            _capi.call("bagua_schedule_free", self._handle)
            self._handle = None

    @property
    def name(self):
        return self.info["name"]

    @property
    def digest(self):
        return self.info["digest"]

    def wire_bytes(self, event, world, rank, length, dtype):
        """Payload bytes that `rank` sends for one run of `event`'s program: the compiler's formula."""
        result = ctypes.c_int64()
        _capi.call(
            "bagua_schedule_wire_bytes",
            self._handle,
            _capi.EVENTS[event],
            world,
            rank,
            length,
            dtype,
            ctypes.byref(result),
        )
        return result.value


def algorithms_folder():
    """Where the compiled algorithms lie: BAGUA_ALGORITHMS, else this build's or install's folder."""
    return os.environ.get("BAGUA_ALGORITHMS") or _config.ALGORITHMS


def shipped_algorithms():
    """Names of the algorithms that need no compiler."""
    try:
        files = os.listdir(algorithms_folder())
    except FileNotFoundError:
        return []
    return sorted(f[: -len(".bsched")] for f in files if f.endswith(".bsched"))


def find_schedule(algorithm):
    """Loads `algorithm`: a shipped name, a `.bsched` file, or a `.mlir` file (compiled in a child process
    and cached by content). Raises InvalidArgumentError with the alternatives or the compiler's messages."""
    if not isinstance(algorithm, (str, os.PathLike)):
        raise _capi.InvalidArgumentError(f"algorithm expects a name or the path of a file, got {algorithm!r}")
    algorithm = os.fspath(algorithm)
    for suffix, what in ((".bsched", "schedule"), (".mlir", "algorithm")):
        if algorithm.endswith(suffix) and not os.path.isfile(algorithm):
            found = "a folder" if os.path.isdir(algorithm) else "no file" if not os.path.exists(algorithm) else "no regular file"
            raise _capi.InvalidArgumentError(f"{what} file {algorithm!r}: there is {found} of that name")
    if algorithm.endswith(".bsched"):
        return Schedule(algorithm)
    if algorithm.endswith(".mlir"):
        return _compile(algorithm)
    path = os.path.join(algorithms_folder(), algorithm + ".bsched")
    if os.sep in algorithm or not os.path.exists(path):
        names = ", ".join(shipped_algorithms()) or f"none found in {algorithms_folder()}"
        raise _capi.InvalidArgumentError(
            f"no algorithm {algorithm!r}: expected one of the shipped ones ({names}), a .mlir file or a .bsched file"
        )
    return Schedule(path)


def _cache_folder():
    """BAGUA_CACHE, else this user's cache folder; made if it is not there."""
    chosen = os.environ.get("BAGUA_CACHE")
    base = chosen or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache"), "bagua"
    )
    try:
        os.makedirs(base, exist_ok=True)
        if not os.access(base, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        which = f"BAGUA_CACHE expects a folder that can be written or made, got {chosen!r}"
        if not chosen:
            which = f"the cache of compiled algorithms cannot be at {base!r} (set BAGUA_CACHE to another folder)"
        raise _capi.InvalidArgumentError(f"{which}: {error.strerror}") from None
    return base


def _compile(source):
    compiler = os.environ.get("BAGUA_OPT") or _config.COMPILER
    if not os.path.exists(compiler):
        raise _capi.InvalidArgumentError(
            f"{source}: an algorithm's source needs the compiler, which is not at {compiler}: set BAGUA_OPT, "
            "or compile it elsewhere with bagua-opt --emit=schedule and pass the .bsched file"
        )
    key = hashlib.sha256()
    stat = os.stat(compiler)
    key.update(f"{stat.st_size}:{stat.st_mtime_ns}:{os.path.basename(source)}\n".encode())
    with open(source, "rb") as file:
        key.update(file.read())
    target = os.path.join(_cache_folder(), key.hexdigest()[:32] + ".bsched")
    if os.path.exists(target):
        try:
            return Schedule(target)
        except _capi.Error:  # Damaged: compiled again.
            pass
    try:
        descriptor, partial = tempfile.mkstemp(dir=os.path.dirname(target), suffix=".partial")
    except OSError as error:
        raise _capi.InvalidArgumentError(
            f"the cache of compiled algorithms at {os.path.dirname(target)!r} takes no file (set BAGUA_CACHE to "
            f"another folder): {error.strerror}"
        ) from None
    os.close(descriptor)
    try:
        done = subprocess.run(
            [compiler, "--emit=schedule", "-o", partial, os.path.basename(source)],
            cwd=os.path.dirname(os.path.abspath(source)),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
        if done.returncode < 0:
            raise _capi.InternalError(
                f"the compiler {compiler} was ended by {signal.Signals(-done.returncode).name} on {source}: a fault of "
                f"Bagua's, not of the algorithm\n{done.stderr.strip()}"
            )
        if done.returncode != 0:
            raise _capi.InvalidArgumentError(f"{source} does not compile:\n{done.stderr.strip()}")
        try:
            Schedule(partial)
        except _capi.Error as error:
            raise _capi.InvalidArgumentError(f"{source}: the compiler {compiler} wrote no schedule: {error}") from None
        os.replace(partial, target)  # Ranks of one host may race: each writes the same bytes.
    finally:
        if os.path.exists(partial):
            os.unlink(partial)
    return Schedule(target)
