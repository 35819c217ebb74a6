"""One rank's context, its transport memory, and bindings of schedules to buckets."""

import contextlib
import ctypes
import json
import os
import threading

from . import _capi

_WAIT_SLICE_MS = 100  # Python sees signals this often.


def _interruptible(function):
    """Calls a function that blocks outside Python in a thread, so that this one sees signals."""
    failure = []

    def body():
        try:
            function()
        except _capi.Error as error:
            failure.append(error)

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_WAIT_SLICE_MS / 1000)
    if failure:
        raise failure[0]


class Memory:
    """Transport memory: peers on this host read it in place. Lives until the last reference is gone, also
    after Context.shutdown()."""

    def __init__(self, context, size):
        pointer = ctypes.c_void_p()
        _capi.call("bagua_alloc", context.handle, max(size, 1), ctypes.byref(pointer))
        self.pointer = pointer.value
        self.size = size

    def __del__(self):
        if getattr(self, "pointer", None):
            _capi.call("bagua_free", self.pointer)
            self.pointer = None

    def buffer(self):
        """A writable buffer over the memory, which keeps it alive."""
        array = (ctypes.c_ubyte * max(self.size, 1)).from_address(self.pointer)
        array._memory = self  # pylint: disable=protected-access
        return array


class Context:
    """One rank of one group. Arguments left out come from the environment (see bagua.h, bagua_init_options)."""

    def __init__(
        self,
        rank=None,
        world=None,
        local_rank=None,
        local_size=None,
        store=None,
        transport=None,
        step_timeout=None,
        bootstrap_timeout=None,
    ):
        options = _capi.InitOptions(
            struct_size=ctypes.sizeof(_capi.InitOptions),
            rank=-1 if rank is None else rank,
            world=-1 if world is None else world,
            local_rank=-1 if local_rank is None else local_rank,
            local_size=-1 if local_size is None else local_size,
            store=store.encode() if store else None,
            transport=transport.encode() if transport else None,
            step_timeout_ms=0 if step_timeout is None else max(1, int(step_timeout * 1000)),
            bootstrap_timeout_ms=0 if bootstrap_timeout is None else max(1, int(bootstrap_timeout * 1000)),
        )
        handle = ctypes.c_void_p()
        _interruptible(lambda: _capi.call("bagua_init", ctypes.byref(options), ctypes.byref(handle)))
        self._handle = handle
        self._pid = os.getpid()
        self.bindings = []

    @property
    def handle(self):
        if self._handle is None:
            raise _capi.FailedPreconditionError("the context has been shut down")
        if self._pid != os.getpid():
            raise _capi.FailedPreconditionError(
                f"the context belongs to process {self._pid}; a forked child cannot use it"
            )
        return self._handle

    @property
    def rank(self):
        return _capi.call("bagua_rank", self.handle)

    @property
    def world(self):
        return _capi.call("bagua_world", self.handle)

    @property
    def local_rank(self):
        return _capi.call("bagua_local_rank", self.handle)

    @property
    def local_size(self):
        return _capi.call("bagua_local_size", self.handle)

    @property
    def source(self):
        """Where rank and world came from."""
        return _capi.call("bagua_source", self.handle).decode()

    def agree(self, what, value):
        """Raises MismatchError unless `value` (JSON-serializable) is the same on all ranks. Collective."""
        _capi.call("bagua_agree", self.handle, what.encode(), json.dumps(value).encode())

    def barrier(self, what="barrier"):
        _capi.call("bagua_barrier", self.handle, what.encode())

    def broadcast(self, pointer, size, root=0):
        """Root's `size` bytes at `pointer` to all. Collective."""
        if size:
            _capi.call("bagua_broadcast", self.handle, pointer, size, root)

    def bind(self, schedule, name, length, dtype, gradient=None, weight=None):
        """Binds `schedule` to a bucket. Collective, in one order on all ranks. Memory must outlive the binding."""
        binding = Binding(self, schedule, name, length, dtype, gradient, weight)
        self.bindings.append(binding)
        return binding

    @contextlib.contextmanager
    def pause_timeout(self):
        """Deadlines do not run inside: for long work outside communication, such as a checkpoint."""
        _capi.call("bagua_pause_timeout", self.handle, 1)
        try:
            yield
        finally:
            _capi.call("bagua_pause_timeout", self.handle, -1)

    def write_trace(self, path):
        _capi.call("bagua_trace_write", self.handle, os.fsencode(path))

    def shutdown(self):
        """Says goodbye and frees everything but memory still in use. Idempotent; a no-op in a forked child."""
        handle, self._handle = self._handle, None
        if handle is None or self._pid != os.getpid():
            return
        for binding in self.bindings:
            binding.close()
        self.bindings = []
        _capi.call("bagua_shutdown", handle)


class Binding:
    """A schedule on one bucket; its programs run one after the other."""

    def __init__(self, context, schedule, name, length, dtype, gradient, weight):
        bucket = _capi.Bucket(
            struct_size=ctypes.sizeof(_capi.Bucket),
            name=name.encode(),
            length=length,
            dtype=dtype,
            gradient=gradient,
            weight=weight,
        )
        handle = ctypes.c_void_p()
        _capi.call(
            "bagua_bind",
            context.handle,
            schedule._handle,  # pylint: disable=protected-access
            ctypes.byref(bucket),
            ctypes.byref(handle),
        )
        self._handle = handle
        self._pid = os.getpid()
        self.name = name

    @property
    def handle(self):
        if self._handle is None:
            raise _capi.FailedPreconditionError(f"bucket {self.name!r} has been closed: bagua.shutdown() was called")
        return self._handle

    def start(self, event, step):
        _capi.call("bagua_start", self.handle, event, step)

    def open_gate(self, gate):
        _capi.call("bagua_open_gate", self.handle, gate)

    def wait(self):
        """Drives communication until the running program has finished."""
        handle = self.handle
        while _capi.call("bagua_wait", handle, _WAIT_SLICE_MS) == _capi.PENDING:
            pass

    def statistics(self):
        result = _capi.Statistics(struct_size=ctypes.sizeof(_capi.Statistics))
        _capi.call("bagua_binding_statistics", self.handle, ctypes.byref(result))
        return {name: getattr(result, name) for name, _ in _capi.Statistics._fields_[1:]}

    def close(self):
        handle, self._handle = self._handle, None
        if handle is not None and self._pid == os.getpid():
            _capi.call("bagua_unbind", handle)
