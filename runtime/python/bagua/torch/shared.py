"""What gradients' buckets and async rounds have in common."""

import contextlib

import torch

from .. import _capi
from ..context import Memory
from ..schedule import find_schedule


class FirstError:
    """The first error of communication: every later call repeats it."""

    failure = None

    @contextlib.contextmanager
    def first_error(self):
        if self.failure is not None:
            raise self.failure
        try:
            yield
        except _capi.Error as error:
            self.failure = error
            raise


class Flag:
    """Whether something holds on every rank: a mean of one element, through the shipped gradient_allreduce."""

    def __init__(self, context, name, description):
        self.value = torch.frombuffer(Memory(context, 4).buffer(), dtype=torch.float32, count=1)
        schedule = find_schedule("gradient_allreduce")
        self.binding = context.bind(schedule, name, 1, _capi.F32, self.value.data_ptr(), description=description)

    def agree(self, holds, number):
        self.value[0] = 0.0 if holds else 1.0
        self.binding.start(_capi.GRADIENT, number)
        self.binding.wait()
        return float(self.value[0]) == 0.0


class Gathered:
    """A whole number of every rank, on every rank: a mean of a vector with a place for each, through the shipped
    gradient_allreduce. Exact up to 2^53 / world."""

    def __init__(self, context, name, description):
        self.rank, self.world = context.rank, context.world
        memory = Memory(context, 8 * self.world)
        self.values = torch.frombuffer(memory.buffer(), dtype=torch.float64, count=self.world)
        schedule = find_schedule("gradient_allreduce")
        address = self.values.data_ptr()
        self.binding = context.bind(schedule, name, self.world, _capi.F64, address, description=description)

    def gather(self, value, number):
        self.values.zero_()
        self.values[self.rank] = value * self.world
        self.binding.start(_capi.GRADIENT, number)
        self.binding.wait()
        return [int(each) for each in self.values]
