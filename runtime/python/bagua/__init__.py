"""Bagua's runtime for Python: one rank's context, schedules, and their bindings to buckets.

Training jobs use `bagua.torch`; this module is what it stands on, and has no PyTorch in it.
"""

from ._capi import (
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
from .context import Binding, Context, Memory
from .schedule import Schedule, find_schedule

__all__ = [
    "Binding",
    "Context",
    "Error",
    "FailedPreconditionError",
    "InternalError",
    "InvalidArgumentError",
    "Memory",
    "MismatchError",
    "PeerLostError",
    "ResourceExhaustedError",
    "Schedule",
    "TimeoutError",
    "UnimplementedError",
    "find_schedule",
]
