"""Rounds of an async handler beside the training steps: snapshots, what they became, and the stop of all ranks."""

import time

import torch

from .. import _capi
from . import plan as planning
from . import states as stating
from .shared import FirstError, Gathered

_SLICE_MS = 20  # Other models' rounds, and whether all have stopped, are looked after this often.


class _Snapshot:
    """A bucket's second binding, on memory that holds a copy of its weight when a round begins and what is to be added
    to the weight when it has ended."""

    def __init__(self, context, schedule, bucket, index, parameters):
        self.bucket = bucket
        self.plan = bucket.plan
        self.view = bucket.view
        self.attach_weights = bucket.attach_weights
        self.weight = bucket.weight
        self.values = self.plan.allocate(context)
        self.values.copy_(self.weight)  # Before bind: a state may begin as the weight.
        self.binding = context.bind(
            schedule,
            self.plan.name,
            self.plan.scalars,
            self.plan.storage.code,
            weight=self.values.data_ptr(),
            index=index,
            parameters=parameters,
            is_async=True,
        )
        self.states = stating.states_of(schedule, self.binding)

    @torch.no_grad()
    def begin(self, number):
        self.attach_weights()
        self.values.copy_(self.weight)
        self.binding.start(_capi.ASYNC, number)

    @torch.no_grad()
    def add(self):
        self.attach_weights()
        self.weight.add_(self.values)  # In the wider dtype of both, rounded once.
        if not planning.is_finite(self.weight):
            scalars = torch.view_as_real(self.weight) if self.weight.is_complex() else self.weight
            scalars[torch.isnan(scalars)] = float("nan")  # As the kernels do: one NaN, whatever the processor.


class Rounds(FirstError):
    """The rounds of one model's async handler. Everything happens on the trainer's thread, at the boundaries of its
    steps: weights are copied when a round begins and changed when it is added; the runtime's own thread does the work
    in between. At most one round is under way; round k of a rank meets round k of the others, at whatever step they
    are."""

    def __init__(self, context, schedule, buckets, options):
        (program,) = [p for p in schedule.info["programs"] if p["event"] == "async"]
        self.context = context
        self.name = schedule.name
        self.snapshots = [_Snapshot(context, schedule, b, i, options) for i, b in enumerate(buckets)]
        self.counts_steps = program["every_unit"] == "steps"
        self.staleness = program["staleness"]
        self.runs = bool(buckets) and context.world > 1
        self.counter = f"stopped/{len(context.rounds)}"  # Of ranks; wrap() is called in one order on all.
        self.stops = 0
        self.counts = Gathered(context, "rounds", "the count of rounds at the stop") if self.runs else None
        self.every, self.after = self.snapshots[0].binding.every() if buckets else (1, 0)
        self.active = False
        self.begun = 0  # Rounds; also the next one's number.
        self.fastest = float("inf")  # Seconds from one to the next, while training.
        self.added = 0
        self.under_way = False
        self.boundaries = 0
        self.begun_at = 0  # The boundary.
        self.met_others = False  # Since start: ranks may be at different steps by now.
        context.rounds.append(self)
        self.start(0)

    # ---- The trainer's calls ----

    def start(self, steps):
        """From here on rounds begin; nothing happens if they do already. `steps` are done."""
        if self.runs and not self.active:
            self.active = True
            self.met_others = False
            self.restart_interval(steps)

    def restart_interval(self, steps):
        self.steps = steps
        self.due = False
        self.intervals = steps // self.every
        self.begun_time = time.monotonic()

    def boundary(self, steps):
        """After an update of the weights; `steps` are done. Adds the round under way if it is time, and begins the next
        if it is time."""
        if not self.active:
            return
        self.boundaries += 1
        self._look_whether_due(steps)
        if self.under_way:
            if self.boundaries - self.begun_at >= self.staleness:
                self._wait()
                self._add()
            elif self._ended(0) and not self.counts_steps:
                self._add()
        else:
            self._ended(0)  # Raises if the group has failed meanwhile.
        if self.due and not self.under_way:
            self.fastest = min(time.monotonic() - self.begun_time, self.fastest)
            self._begin()

    def stop(self):
        """Ends the rounds on all ranks. Collective; a no-op where they have ended. A rank that has stopped takes part,
        with weights at rest, until all have: no difference is lost, and the last round is one of all final weights."""
        if not self.active:
            return
        own = self.begun
        self.stops += 1
        self._count_stopped(1)
        while self._count_stopped(0) < self.stops * self.context.world:
            self._go_on()
        last = self._agree_on_last(own)
        while self.under_way or self.begun < last:
            if not self.under_way:
                self._begin()
            elif self._ended(100):
                self._add()
        self.active = False

    def _count_stopped(self, delta):
        with self.first_error():
            return self.context.count(self.counter, delta)

    def _agree_on_last(self, own):
        """How many rounds all ranks begin: as many as any has, and one of all final weights, which is the first that no
        rank had begun when it stopped."""
        with self.first_error():
            stopped_at = self.counts.gather(own, 2 * self.stops)
            begun = self.counts.gather(self.begun, 2 * self.stops + 1)
        return max(*begun, max(stopped_at) + 1)

    def _go_on(self):
        """Takes part in rounds for the sake of ranks that train still, as often as this one did: those that only meet
        ranks at rest would be without end."""
        for rounds in self.context.rounds:
            if rounds is not self:
                rounds.take_part()
        if self.under_way:
            if self._ended(_SLICE_MS):
                self._add()
        elif (wait := self._until_next()) <= 0:
            self._begin()
        else:
            time.sleep(min(wait, _SLICE_MS / 1000))

    def _until_next(self):
        pace = self.fastest if self.fastest < float("inf") else _SLICE_MS / 1000
        return self.begun_time + pace - time.monotonic()

    def refuse_collective(self, call):
        """Ranks that wait for each other in `call` and in rounds that begin by each rank's clock wait for ever."""
        if self.active and self.met_others and not self.counts_steps:
            raise _capi.FailedPreconditionError(
                f"{call}: rounds of algorithm {self.name!r} are under way, and ranks at different steps: leave "
                "bagua.asynchronous(model), or call bagua.stop(model), before ranks wait for each other"
            )

    def refuse_loading(self):
        if self.under_way:
            raise _capi.FailedPreconditionError(
                f"load_state_dict while a round of algorithm {self.name!r} is under way: it would be added to other "
                "weights; call bagua.stop(model) first"
            )

    def wire_bytes(self, number):
        """The compiler's formula: payload bytes this rank sends in that round, all buckets."""
        return sum(snapshot.binding.wire_bytes("async", number) for snapshot in self.snapshots)

    # ---- For other models' rounds, while the trainer waits for those ----

    def begin_if_idle(self):
        """Who is waited for there may wait for this one's next round. It changes no weights: this is no boundary of the
        model's. Rounds that count steps begin at the same boundaries everywhere."""
        if self.active and not self.under_way and not self.counts_steps and self.steps >= self.after:
            self._begin()

    def take_part(self):
        """While the other model stops: ranks that train still may wait for this one's rounds."""
        if self.active and (not self.under_way or self._ended(0)):
            if self.under_way:
                self._add()
            if self._until_next() <= 0:
                self._begin()

    # ---- One round ----

    def _look_whether_due(self, steps):
        self.steps = steps
        if self.counts_steps:
            intervals, self.intervals = self.intervals, steps // self.every
            self.due = self.due or (steps >= self.after and self.intervals > intervals)
        else:
            self.due = steps >= self.after and 1000 * (time.monotonic() - self.begun_time) >= self.every

    def _begin(self):
        with self.first_error():
            for snapshot in self.snapshots:
                snapshot.begin(self.begun)
        self.begun += 1
        self.begun_at = self.boundaries
        self.begun_time = time.monotonic()
        self.under_way = self.met_others = True
        self.due = False

    def _ended(self, milliseconds):
        """Whether all that runs has; waits for at most so long."""
        with self.first_error():
            return all(snapshot.binding.wait_for(milliseconds) for snapshot in self.snapshots)

    def _wait(self):
        others = [rounds for rounds in self.context.rounds if rounds is not self]
        while not self._ended(_SLICE_MS if others else 100):
            for other in others:
                other.begin_if_idle()

    def _add(self):
        for snapshot in self.snapshots:
            snapshot.add()
        self.under_way = False
        self.added += 1
