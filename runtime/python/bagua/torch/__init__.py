"""Bagua in a PyTorch training job.

    import bagua.torch as bagua
    bagua.init()
    model, optimizer = bagua.wrap(model, optimizer, algorithm="bytegrad")

The loop does not change. Under torchrun, bagua-run, or alone.
"""

import atexit
import os

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


def init(**options):
    """Joins the group; blocks until every rank has. Options: rank, world, local_rank, local_size, store,
    transport ("auto", "window", "ucx"), step_timeout and bootstrap_timeout in seconds; what is left out comes from
    torchrun's or bagua-run's environment, else this process is alone. Once per process."""
    global _context  # pylint: disable=global-statement
    if _context is not None:
        raise FailedPreconditionError("bagua.init() has been called already")
    if options.get("store") is None and options.get("rank") is None:
        options["store"] = store_address(options.get("bootstrap_timeout"))
    _context = Context(**options)
    atexit.register(shutdown)


def _current():
    if _context is None:
        raise FailedPreconditionError("call bagua.init() first")
    return _context


def rank():
    return _current().rank


def world():
    return _current().world


def local_rank():
    return _current().local_rank


def local_size():
    return _current().local_size


def source():
    """Where rank and world came from, in words."""
    return _current().source


def wrap(model, optimizer, algorithm="gradient_allreduce", bucket_bytes=None):
    """Makes training of `model` communicate. Returns the same model and optimizer.

    algorithm: a shipped name, a `.mlir` or a `.bsched` file. bucket_bytes: size of a bucket, 10 MiB or
    BAGUA_BUCKET_BYTES. Collective: ranks must pass equal models; the error names the first difference. Parameters
    and buffers of rank 0 go to all. Model and optimizer keep their types; `model.no_sync()` skips communication,
    `optimizer.state_dict()` gains an entry "bagua" with step and bucket plan."""
    _jobs.append(_wrap(_current(), model, optimizer, algorithm, bucket_bytes))
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
    if not _jobs:
        raise FailedPreconditionError("call bagua.wrap() first")
    return _jobs[-1].stats()


def no_sync(model):
    """Context in which backward passes accumulate locally."""
    return job(model).no_sync()


def pause_timeout():
    """Context in which deadlines do not run, for long work outside communication (a checkpoint, an evaluation)."""
    return _current().pause_timeout()


def barrier(what="barrier"):
    """Blocks until every rank is here."""
    _current().barrier(what)


def broadcast(tensor, root=0):
    """Root's tensor to all, in place. Collective; the tensor must be contiguous and on the CPU."""
    if not tensor.is_contiguous() or tensor.device.type != "cpu":
        raise InvalidArgumentError("broadcast expects a contiguous tensor on the CPU")
    _current().broadcast(tensor.data_ptr(), tensor.numel() * tensor.element_size(), root)


def write_trace(path):
    """Writes this rank's Chrome trace so far (open it with Perfetto)."""
    _current().write_trace(path)


def shutdown():
    """Says goodbye to the peers; also at exit. Idempotent."""
    global _context  # pylint: disable=global-statement
    if _context is not None:
        context, _context = _context, None
        _jobs.clear()
        context.shutdown()
