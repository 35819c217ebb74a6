"""One rank's context, its transport memory, and bindings of schedules to buckets."""

import contextlib
import ctypes
import json
import os
import threading

from . import _capi

_WAIT_SLICE_MS = 100  # Python sees signals this often.


def interruptible(function, abort=None):
    """Result of a function that blocks outside Python, run in a thread, so that this one sees signals. Where a
    signal handler raises (Ctrl-C), `abort` makes the function return."""
    if threading.current_thread() is not threading.main_thread():
        return function()  # Signal handlers run in the main thread only.
    results, failures = [], []
    # Not Thread.join: interrupted, it takes the thread for ended in Python 3.10 to 3.12 (CPython issue 90882).
    returned = threading.Event()

    def body():
        try:
            results.append(function())
        except BaseException as error:  # pylint: disable=broad-except
            failures.append(error)
        finally:
            returned.set()

    threading.Thread(target=body, daemon=True).start()
    try:
        while not returned.wait(_WAIT_SLICE_MS / 1000):
            pass
    except BaseException:
        if abort is not None:
            abort()
            returned.wait()  # The context must not be freed below it; another Ctrl-C ends this, too.
        raise
    if failures:
        raise failures[0]
    return results[0]


def all_finite(pointer, length, dtype):
    """Whether no element at `pointer` is a NaN or an infinity."""
    result = ctypes.c_int()
    _capi.call("bagua_all_finite", pointer, length, dtype, ctypes.byref(result))
    return bool(result.value)


class Memory:
    """Transport memory: peers on this host read it in place. Lives until the last reference is gone, also
    after Context.shutdown()."""

    def __init__(self, context, size):
        pointer = ctypes.c_void_p()
        _capi.call("bagua_alloc", context.handle_for("alloc"), max(size, 1), ctypes.byref(pointer))
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


def _milliseconds(name, seconds):
    """For the C interface: 0 where the environment decides."""
    if seconds is None:
        return 0
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0.001 <= seconds <= 1e9:
        raise _capi.InvalidArgumentError(f"{name} expects seconds between 0.001 and 1e9, got {seconds!r}")
    return int(seconds * 1000)


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
            step_timeout_ms=_milliseconds("step_timeout", step_timeout),
            bootstrap_timeout_ms=_milliseconds("bootstrap_timeout", bootstrap_timeout),
        )
        handle = ctypes.c_void_p()
        interruptible(lambda: _capi.call("bagua_init", ctypes.byref(options), ctypes.byref(handle)))
        self._handle = handle
        self._pid = os.getpid()
        self.bindings = []
        self.rounds = []  # Of async handlers (bagua.torch): they look after each other.

    def handle_for(self, call):
        """The handle, for a call of this name; raises where the context cannot be used any more."""
        if self._handle is None:
            raise _capi.FailedPreconditionError(
                f"{call}: bagua has been shut down; call it before shutdown(), or init() (and wrap()) again first"
            )
        if self._pid != os.getpid():
            raise _capi.FailedPreconditionError(
                f"{call}: the context belongs to process {self._pid}; a forked child cannot use it"
            )
        return self._handle

    def _collective(self, call, name, *arguments):
        """A call that blocks until other ranks make it, too."""
        handle = self.handle_for(call)
        if self.world == 1:
            return _capi.call(name, handle, *arguments)
        return interruptible(
            lambda: _capi.call(name, handle, *arguments), lambda: self.abort(f"was interrupted in {call}")
        )

    @property
    def rank(self):
        return _capi.call("bagua_rank", self.handle_for("rank"))

    @property
    def world(self):
        return _capi.call("bagua_world", self.handle_for("world"))

    @property
    def local_rank(self):
        return _capi.call("bagua_local_rank", self.handle_for("local_rank"))

    @property
    def local_size(self):
        return _capi.call("bagua_local_size", self.handle_for("local_size"))

    @property
    def source(self):
        """Where rank and world came from."""
        return _capi.call("bagua_source", self.handle_for("source")).decode()

    def agree(self, what, value):
        """Raises MismatchError unless `value` (JSON-serializable) is the same on all ranks. Collective."""
        self._collective(f"agree {what!r}", "bagua_agree", what.encode(), json.dumps(value).encode())

    def barrier(self, what="barrier"):
        self._collective(f"barrier {what!r}", "bagua_barrier", what.encode())

    def count(self, name, delta=0):
        """Adds to the group's counter, which begins at 0; its new value. Waits for no other rank."""
        value = ctypes.c_int64()
        _capi.call("bagua_count", self.handle_for("count"), name.encode(), delta, ctypes.byref(value))
        return value.value

    def broadcast(self, pointer, size, root=0):
        """Root's `size` bytes at `pointer` to all. Collective."""
        self.handle_for("broadcast")
        if size:
            self._collective("broadcast", "bagua_broadcast", pointer, size, root)

    def bind(
        self,
        schedule,
        name,
        length,
        dtype,
        gradient=None,
        weight=None,
        index=0,
        parameters=None,
        is_async=False,
        description=None,
    ):
        """Binds `schedule` to bucket number `index`, with values for some of its parameters by name. Collective, in one
        order on all ranks. Memory must outlive the binding. is_async: for the async program alone; description: in
        messages instead of the bucket and the schedule's line; see bagua.h."""
        binding = Binding(
            self, schedule, name, length, dtype, gradient, weight, index, parameters or {}, is_async, description
        )
        self.bindings.append(binding)
        return binding

    def abort(self, reason):
        """Fails what communicates, on every rank, with "rank R (host H, pid P) `reason`". A no-op after shutdown."""
        if self._handle is not None and self._pid == os.getpid():
            _capi.call("bagua_abort", self._handle, reason.encode())

    @contextlib.contextmanager
    def pause_timeout(self):
        """Deadlines do not run inside: for long work outside communication, such as a checkpoint."""
        _capi.call("bagua_pause_timeout", self.handle_for("pause_timeout"), 1)
        try:
            yield
        finally:
            if self._handle is not None and self._pid == os.getpid():
                _capi.call("bagua_pause_timeout", self._handle, -1)

    def write_trace(self, path):
        _capi.call("bagua_trace_write", self.handle_for("write_trace"), os.fsencode(path))

    def shutdown(self):
        """Says goodbye and frees everything but memory still in use. Idempotent; a no-op in a forked child."""
        handle, self._handle = self._handle, None
        if handle is None or self._pid != os.getpid():
            return
        _capi.call("bagua_shutdown", handle)  # First: it tells the peers where a running program was.
        for binding in self.bindings:
            binding.close()
        self.bindings = []


class Binding:
    """A schedule on one bucket; its programs run one after the other."""

    def __init__(
        self, context, schedule, name, length, dtype, gradient, weight, index, parameters, is_async, description
    ):
        values = [_capi.Parameter.of(*item) for item in parameters.items()]
        bucket = _capi.Bucket(
            struct_size=ctypes.sizeof(_capi.Bucket),
            name=name.encode(),
            length=length,
            dtype=dtype,
            gradient=gradient,
            weight=weight,
            index=index,
            parameters=(_capi.Parameter * len(values))(*values),
            parameter_count=len(values),
            is_async=int(is_async),
            description=description and description.encode(),
        )
        handle = ctypes.c_void_p()
        context._collective(  # pylint: disable=protected-access
            f"bind {name!r}",
            "bagua_bind",
            schedule._handle,  # pylint: disable=protected-access
            ctypes.byref(bucket),
            ctypes.byref(handle),
        )
        self._handle = handle
        self._pid = os.getpid()
        self.name = name

    def handle_for(self, call):
        if self._handle is None:
            raise _capi.FailedPreconditionError(
                f"{call} of bucket {self.name!r}: bagua has been shut down; call init() and wrap() again first"
            )
        return self._handle

    def compare(self, text):
        """Compares `text` on all ranks while the next program runs, which raises MismatchError if they differ."""
        _capi.call("bagua_compare", self.handle_for("compare"), text.encode())

    def start(self, event, step):
        _capi.call("bagua_start", self.handle_for("start"), event, step)

    def set_parameter(self, name, value):
        """Sets a per-step parameter for programs that start from now on."""
        parameter = _capi.Parameter.of(name, value)
        _capi.call("bagua_set_parameter", self.handle_for("set_parameter"), ctypes.byref(parameter))

    def open_gate(self, gate, finite=True):
        _capi.call("bagua_open_gate", self.handle_for("open_gate"), gate, int(finite))

    def wait(self):
        """Drives communication until the running program has finished."""
        handle = self.handle_for("wait")
        while _capi.call("bagua_wait", handle, _WAIT_SLICE_MS) == _capi.PENDING:
            pass

    def wait_for(self, milliseconds):
        """wait(), but not longer than so; whether no program runs any more. 0: does not block. Raises what the program,
        or the group, has failed with."""
        return _capi.call("bagua_wait", self.handle_for("wait_for"), milliseconds) == _capi.OK

    def wait_gate(self):
        """The same, or until it can get no further before a gate is opened."""
        handle = self.handle_for("wait_gate")
        while _capi.call("bagua_wait_gate", handle, _WAIT_SLICE_MS) == _capi.PENDING:
            pass

    def states(self):
        """What is kept from step to step: a dict for each state, in the schedule's order."""
        handle, count = self.handle_for("states"), ctypes.c_size_t()
        _capi.call("bagua_state_count", handle, ctypes.byref(count))
        result = []
        for index in range(count.value):
            state = _capi.State(struct_size=ctypes.sizeof(_capi.State))
            _capi.call("bagua_state_info", handle, index, ctypes.byref(state))
            result.append(
                {
                    "index": index,
                    "name": state.name.decode(),
                    "domain": _capi.DOMAINS[state.domain],
                    "on_resize": _capi.ON_RESIZE[state.on_resize],
                    "elements": state.elements,
                    "offset": state.offset,
                }
            )
        return result

    def read_state(self, index, pointer, size):
        _capi.call("bagua_state_read", self.handle_for("read_state"), index, pointer, size)

    def write_state(self, index, pointer, size):
        _capi.call("bagua_state_write", self.handle_for("write_state"), index, pointer, size)

    def wire_bytes(self, event, step):
        """The compiler's formula: payload bytes that the program of `event` sends in one run of `step`."""
        result = ctypes.c_int64()
        handle = self.handle_for("wire_bytes")
        _capi.call("bagua_binding_wire_bytes", handle, _capi.EVENTS[event], step, ctypes.byref(result))
        return result.value

    def every(self):
        """Of an async binding: (interval between rounds, steps before the first)."""
        every, after = ctypes.c_int64(), ctypes.c_int64()
        _capi.call("bagua_binding_every", self.handle_for("every"), ctypes.byref(every), ctypes.byref(after))
        return every.value, after.value

    def communicates(self, event, step):
        """Whether the program of `event` sends anything in `step` on any rank: the same on all."""
        result = ctypes.c_int()
        handle = self.handle_for("communicates")
        _capi.call("bagua_binding_communicates", handle, _capi.EVENTS[event], step, ctypes.byref(result))
        return bool(result.value)

    def statistics(self):
        result = _capi.Statistics(struct_size=ctypes.sizeof(_capi.Statistics))
        _capi.call("bagua_binding_statistics", self.handle_for("statistics"), ctypes.byref(result))
        return {name: getattr(result, name) for name, _ in _capi.Statistics._fields_[1:]}

    def close(self):
        handle, self._handle = self._handle, None
        if handle is not None and self._pid == os.getpid():
            _capi.call("bagua_unbind", handle)
