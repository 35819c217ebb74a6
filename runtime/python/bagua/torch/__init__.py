"""Bagua in a PyTorch training job.

    import bagua.torch as bagua
    bagua.init()
    model, optimizer = bagua.wrap(model, optimizer, algorithm="bytegrad")

The loop does not change. Under torchrun, bagua-run, or alone.
"""

import atexit
import contextlib
import os
import sys

from .. import _capi
from .._capi import (
    Error,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    MismatchError,
    PeerLostError,
    ResourceExhaustedError,
    TimeoutError,
    UnimplementedError,
)
from ..context import Context
from .launch import store_address
from .wrap import wrap as _wrap

_context = None
_jobs = []
_was_shut_down = False


def init(**options):
    """Joins the group; blocks until every rank has. Options: rank, world, local_rank, local_size, store,
    transport ("auto", "window", "ucx"), step_timeout and bootstrap_timeout in seconds; what is left out comes from
    torchrun's or bagua-run's environment, else this process is alone. Once per process."""
    global _context, _was_shut_down  # pylint: disable=global-statement
    if _context is not None:
        raise FailedPreconditionError("bagua.init() has been called already")
    if options.get("store") is None and options.get("rank") is None:
        options["store"] = store_address(options.get("bootstrap_timeout"))
    _context = Context(**options)
    _was_shut_down = False
    atexit.unregister(_at_exit)
    atexit.register(_at_exit)


def _named(error):
    lines = str(error).strip().splitlines()
    return type(error).__name__ + (f": {lines[0][:300]}" if lines else "")


def _at_exit():
    """The last thing of a script: peers that wait for one that failed learn why."""
    error = getattr(sys, "last_value", None)  # Set by the interpreter for an exception that nobody caught.
    failed = error is not None and _context is not None and not hasattr(sys, "ps1")
    if failed:
        _context.abort(f"ended with {_named(error)}")
    _shut_down(stop_rounds=not failed)


def _current(call):
    if _context is None:
        if _was_shut_down:
            raise FailedPreconditionError(
                f"bagua.{call}: bagua has been shut down; call it before bagua.shutdown(), or bagua.init() again first"
            )
        raise FailedPreconditionError(f"bagua.{call}: call bagua.init() first")
    return _context


def rank():
    return _current("rank()").rank


def world():
    return _current("world()").world


def local_rank():
    return _current("local_rank()").local_rank


def local_size():
    return _current("local_size()").local_size


def source():
    """Where rank and world came from, in words."""
    return _current("source()").source


def wrap(
    model,
    optimizer,
    algorithm="gradient_allreduce",
    bucket_bytes=None,
    broadcast_buffers=True,
    algorithm_options=None,
    **options,
):
    """Makes training of `model` communicate. Returns the same model and optimizer.

    algorithm: a shipped name, a `.mlir` or a `.bsched` file. Its parameters are options: `beta1=0.95`, or
    `algorithm_options={"beta1": 0.95}`; those that it declares per_step come from the optimizer's parameter group at
    each step where the group has them by that name (lr, weight_decay, …; betas as beta1 and beta2) and no option says
    otherwise. bucket_bytes: size of a bucket, 10 MiB or
    BAGUA_BUCKET_BYTES. Collective: ranks must pass equal models; the error names the first difference. Parameters
    and buffers of rank 0 go to all. Model and optimizer keep their types; `model.no_sync()` skips communication,
    `optimizer.state_dict()` gains an entry "bagua" with step and bucket plan.

    broadcast_buffers: as DDP's. Before each training forward outside no_sync(), rank 0's buffers (BatchNorm's running
    statistics) go to all; False leaves them to each rank, as does an algorithm without a `gradient` handler
    (decentralized), whose replicas differ anyway. Optimizer state is never sent: it stays equal because the gradients
    are; load a checkpoint on every rank.

    Where an algorithm has a `gradient` or an `after_update` handler, ranks must have made equally many backward passes
    and calls of `optimizer.step()`: a rank that skipped or repeated one is named by a MismatchError on all ranks in
    the next backward. With other algorithms a rank may skip its own update.

    An algorithm that owns the update moves the weights itself: `optimizer.step()` then counts, for schedulers and
    hooks, but does not update, and optimizer state stays empty. It uses gradients as soon as they are there, so clipping
    or unscaling them afterwards is an error. Where an algorithm keeps state or moves weights, a step in which some
    rank's gradients are not finite changes neither, on any rank, and skips the optimizer's update; so does a step whose
    `optimizer.step()` is skipped. `stats()["non_finite"]` counts such steps. After three in a row a warning names the
    first state or parameter that is not finite itself, if any is: later steps do not mend it. Other algorithms pass
    such gradients on, as plain training does.

    Where an algorithm has an `async` handler, its rounds run beside the steps from here on, and ranks need not make
    equally many steps, but for those in which another handler sends something (a warm-up): see asynchronous().
    Buffers are left to each rank.

    Parameters may be float16, bfloat16, float32, float64, complex64 and complex128, mixed in one module; each dtype has
    buckets of its own. Handlers see 16 bits widened to float32, and what they write is rounded once; so those parameters
    travel as float32 where no codec packs them, while `stats()["bytes_raw"]` counts them with two bytes. Complex numbers
    are two real ones. State is float32, or float64 for float64 and complex128, which algorithms with a codec refuse. An
    algorithm that owns the update rounds 16-bit weights in every step: for small steps keep them in float32. Buffers may
    be of any dtype. Sparse and quantized tensors are refused.

    Algorithm state is this rank's and lies in `optimizer.state_dict()["bagua"]`: save and load a file for each rank.
    Loading is collective; with as many ranks training goes on bit for bit, else each state's on_resize decides."""
    algorithm_options = {**(algorithm_options or {}), **options}
    context = _current("wrap()")
    _refuse_beside_rounds("wrap()")
    _jobs.append(_wrap(context, model, optimizer, algorithm, bucket_bytes, broadcast_buffers, algorithm_options))
    return model, optimizer


def job(model):
    """The communication state of a wrapped model."""
    if not hasattr(model, "_bagua_job"):
        raise FailedPreconditionError("the model is not wrapped")
    return model._bagua_job  # pylint: disable=protected-access


def stats(model=None):
    """Bytes, wait and overlap of a wrapped model (default: the last one), in total and per bucket."""
    if model is not None:
        return job(model).stats()
    _current("stats()")
    if not _jobs:
        raise FailedPreconditionError("call bagua.wrap() first")
    return _jobs[-1].stats()


def no_sync(model):
    """Context in which backward passes accumulate locally."""
    return job(model).no_sync()


def _refuse_beside_rounds(call):
    for rounds in _current(call).rounds:
        rounds.refuse_collective(f"bagua.{call}")


@contextlib.contextmanager
def asynchronous(model):
    """Scope in which the rounds of the model's `async` handler run beside its steps; on leaving it, stop(model). Rounds
    run from wrap() on: the scope begins them again where they have been stopped.

    A rank that leaves the scope with an exception tells the others, which then fail with its name; it waits for nobody.
    Nothing else where the algorithm has no `async` handler."""
    this = job(model)
    this.start_rounds()
    try:
        yield model
    except BaseException as error:
        if this.rounds is not None and not (isinstance(error, SystemExit) and not error.code):
            this.context.abort(f"left bagua.asynchronous with {_named(error)}")
            raise
        this.stop_rounds()
        raise
    this.stop_rounds()


def stop(model):
    """Ends the rounds of the model's `async` handler on all ranks. Collective; idempotent; shutdown() does it for every
    model. A rank that has stopped takes part in rounds, with weights at rest, until all ranks have; what rounds have
    brought is then in the weights, on all ranks, and the last one was of the final weights of all. Ranks may have made
    different numbers of steps. It waits at most the step timeout for the others' next round."""
    job(model).stop_rounds()


def pause_timeout():
    """Context in which deadlines do not run, for long work outside communication (a checkpoint, an evaluation)."""
    return _current("pause_timeout()").pause_timeout()


def barrier(what="barrier"):
    """Blocks until every rank is here."""
    _refuse_beside_rounds("barrier()")
    _current("barrier()").barrier(what)


def broadcast(tensor, root=0):
    """Root's tensor to all, in place. Collective; the tensor must be contiguous and on the CPU."""
    context = _current("broadcast()")
    _refuse_beside_rounds("broadcast()")
    if not tensor.is_contiguous() or tensor.device.type != "cpu":
        raise InvalidArgumentError("broadcast expects a contiguous tensor on the CPU")
    context.broadcast(tensor.data_ptr(), tensor.numel() * tensor.element_size(), root)


def write_trace(path):
    """Writes this rank's Chrome trace so far (open it with Perfetto)."""
    _current("write_trace()").write_trace(path)


def shutdown():
    """Stops the rounds of all models (see stop()) and says goodbye to the peers; also at exit. Idempotent. While an
    exception is on its way, in a `finally`, it stops no rounds but tells the others of the exception."""
    error = sys.exc_info()[1]
    if error is not None and _context is not None and any(rounds.active for rounds in _context.rounds):
        _context.abort(f"shut down because of {_named(error)}")
    _shut_down(stop_rounds=error is None)


def _shut_down(stop_rounds):
    global _context, _was_shut_down  # pylint: disable=global-statement
    if _context is not None:
        context, _context = _context, None
        _was_shut_down = True
        _jobs.clear()
        try:
            for rounds in context.rounds if stop_rounds else []:
                if rounds.failure is None:
                    rounds.stop()
        finally:
            context.shutdown()
