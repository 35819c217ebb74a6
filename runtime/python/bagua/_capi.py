"""ctypes declarations of the C interface (runtime/include/bagua/bagua.h) and its error codes."""

import ctypes
import os

from . import _config

OK, PENDING = 0, 1
F32, F64 = 0, 1
GRADIENT, BEFORE_FORWARD, AFTER_UPDATE, ASYNC = 0, 1, 2, 3
EVENTS = {"gradient": GRADIENT, "before_forward": BEFORE_FORWARD, "after_update": AFTER_UPDATE, "async": ASYNC}
BEFORE_UPDATE = 0
DOMAINS = ("bucket", "shard", "scalar", "neighbors")
ON_RESIZE = ("mean", "zero", "repartition")


class Error(RuntimeError):
    """A failed call of the runtime; the message says what is wrong."""


class InvalidArgumentError(Error, ValueError):
    """Bad input: a file, an option, an environment variable."""


class FailedPreconditionError(Error):
    """A call in the wrong state."""


class MismatchError(Error):
    """Ranks disagree; the message names the first difference."""


class PeerLostError(Error):
    """A rank died or left; the message names it."""


class TimeoutError(Error, TimeoutError):  # pylint: disable=redefined-builtin
    """A rank did not answer in time; the message names it."""


class UnimplementedError(Error, NotImplementedError):
    """A valid request that this build cannot serve."""


class ResourceExhaustedError(Error, MemoryError):
    """Memory, descriptors or slots ran out."""


class InternalError(Error):
    """A library below the runtime failed."""


_ERRORS = {
    2: InvalidArgumentError,
    3: FailedPreconditionError,
    4: MismatchError,
    5: PeerLostError,
    6: TimeoutError,
    7: UnimplementedError,
    8: ResourceExhaustedError,
    9: InternalError,
}


class InitOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("rank", ctypes.c_int),
        ("world", ctypes.c_int),
        ("local_rank", ctypes.c_int),
        ("local_size", ctypes.c_int),
        ("store", ctypes.c_char_p),
        ("transport", ctypes.c_char_p),
        ("step_timeout_ms", ctypes.c_int64),
        ("bootstrap_timeout_ms", ctypes.c_int64),
    ]


class Parameter(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("is_float", ctypes.c_int),
        ("integer", ctypes.c_int64),
        ("real", ctypes.c_double),
    ]

    @classmethod
    def of(cls, name, value):
        """An int is an integer, any other number an f64."""
        if isinstance(value, int):
            return cls(name.encode(), 0, value, 0.0)
        return cls(name.encode(), 1, 0, float(value))


class Bucket(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("length", ctypes.c_int64),
        ("dtype", ctypes.c_int),
        ("gradient", ctypes.c_void_p),
        ("weight", ctypes.c_void_p),
        ("index", ctypes.c_int64),
        ("parameters", ctypes.POINTER(Parameter)),
        ("parameter_count", ctypes.c_size_t),
        ("is_async", ctypes.c_int),
        ("description", ctypes.c_char_p),
    ]


class State(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("domain", ctypes.c_int),
        ("on_resize", ctypes.c_int),
        ("elements", ctypes.c_int64),
        ("offset", ctypes.c_int64),
    ]


class Statistics(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("runs", ctypes.c_uint64),
        ("bytes_raw", ctypes.c_uint64),
        ("bytes_wire", ctypes.c_uint64),
        ("wait_ns", ctypes.c_uint64),
        ("busy_ns", ctypes.c_uint64),
    ]


_P = ctypes.c_void_p
_PP = ctypes.POINTER(ctypes.c_void_p)
_S = ctypes.c_char_p
_I = ctypes.c_int
_L = ctypes.c_int64
_Z = ctypes.c_size_t

# name -> (result, arguments); a result of "code" is checked.
_FUNCTIONS = {
    "bagua_last_error": (_S, []),
    "bagua_version": (_S, []),
    "bagua_store_listen": ("code", [_S, _S, ctypes.c_size_t]),
    "bagua_init": ("code", [ctypes.POINTER(InitOptions), _PP]),
    "bagua_shutdown": (None, [_P]),
    "bagua_rank": (_I, [_P]),
    "bagua_world": (_I, [_P]),
    "bagua_local_rank": (_I, [_P]),
    "bagua_local_size": (_I, [_P]),
    "bagua_source": (_S, [_P]),
    "bagua_alloc": ("code", [_P, ctypes.c_size_t, _PP]),
    "bagua_free": (None, [_P]),
    "bagua_agree": ("code", [_P, _S, _S]),
    "bagua_barrier": ("code", [_P, _S]),
    "bagua_count": ("code", [_P, _S, _L, ctypes.POINTER(_L)]),
    "bagua_broadcast": ("code", [_P, _P, ctypes.c_size_t, _I]),
    "bagua_abort": ("code", [_P, _S]),
    "bagua_schedule_load": ("code", [_S, _PP]),
    "bagua_schedule_free": (None, [_P]),
    "bagua_schedule_info": (_S, [_P]),
    "bagua_schedule_wire_bytes": ("code", [_P, _I, _I, _I, _L, _I, ctypes.POINTER(_L)]),
    "bagua_bind": ("code", [_P, _P, ctypes.POINTER(Bucket), _PP]),
    "bagua_unbind": (None, [_P]),
    "bagua_start": ("code", [_P, _I, _L]),
    "bagua_compare": ("code", [_P, _S]),
    "bagua_set_parameter": ("code", [_P, ctypes.POINTER(Parameter)]),
    "bagua_open_gate": ("code", [_P, _I, _I]),
    "bagua_wait": ("code", [_P, _L]),
    "bagua_wait_gate": ("code", [_P, _L]),
    "bagua_state_count": ("code", [_P, ctypes.POINTER(_Z)]),
    "bagua_state_info": ("code", [_P, _Z, ctypes.POINTER(State)]),
    "bagua_state_read": ("code", [_P, _Z, _P, _Z]),
    "bagua_state_write": ("code", [_P, _Z, _P, _Z]),
    "bagua_all_finite": ("code", [_P, _L, _I, ctypes.POINTER(_I)]),
    "bagua_binding_statistics": ("code", [_P, ctypes.POINTER(Statistics)]),
    "bagua_binding_wire_bytes": ("code", [_P, _I, _L, ctypes.POINTER(_L)]),
    "bagua_binding_every": ("code", [_P, ctypes.POINTER(_L), ctypes.POINTER(_L)]),
    "bagua_binding_communicates": ("code", [_P, _I, _L, ctypes.POINTER(_I)]),
    "bagua_pause_timeout": (None, [_P, _I]),
    "bagua_trace_write": ("code", [_P, _S]),
}


def _load():
    path = os.environ.get("BAGUA_LIBRARY") or _config.LIBRARY
    if not os.path.exists(path):
        raise ImportError(
            f"the runtime library is not at {path}: build the project, or set BAGUA_LIBRARY to libbagua_runtime.so"
        )
    library = ctypes.CDLL(path)
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.argtypes = arguments
        function.restype = _I if result == "code" else result
    return library


_library = _load()


def call(name, *arguments):
    """Calls a function; raises the matching Error for a failure code, else returns its result."""
    result = getattr(_library, name)(*arguments)
    if _FUNCTIONS[name][0] == "code" and result > PENDING:
        message = _library.bagua_last_error().decode(errors="replace")
        raise _ERRORS.get(result, InternalError)(message)
    return result
