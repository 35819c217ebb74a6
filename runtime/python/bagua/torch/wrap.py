"""Communication inside a PyTorch training job: hooks that start schedules and wait for them."""

import contextlib
import logging
import numbers
import types
import zlib

import torch

from .. import _capi
from ..schedule import find_schedule
from . import plan as planning
from . import states as stating
from .asynchronous import Rounds
from .shared import FirstError, Flag

log = logging.getLogger("bagua")
_COMPARED = 500  # Bytes that bagua_compare takes, and a few less.
_LOOK_EVERY = 3  # Steps in a row that are not finite.


def _dense(tensor):
    """True if the tensor's elements fill their memory without gaps or overlaps, in any order of dimensions."""
    expected = 1
    for stride, size in sorted((st, sz) for st, sz in zip(tensor.stride(), tensor.size()) if sz != 1):
        if stride != expected:
            return False
        expected *= size
    return True


class _Bucket(FirstError):
    """One bucket: its flat memory, the views of its parameters, and its binding.

    `gradient` and `weight` are in the parameters' dtype. Where handlers compute in a wider one, `memory` has what they
    see: a program's start fills it, and what the program writes is rounded once when the program has delivered it."""

    def __init__(self, context, schedule, plan, index, roles, parameters):
        self.plan = plan
        self.name = plan.name
        self.parameters = {}  # Per-step ones as last set.
        self.programs = {_capi.EVENTS[program["event"]]: program for program in schedule.info["programs"]}
        self.memory = {role: plan.allocate(context) for role in ("gradient", "weight") if role in roles}
        flats = self.memory
        if plan.is_widened:
            flats = {role: torch.zeros(plan.length, dtype=plan.dtype) for role in self.memory}
        self.gradient, self.weight = flats.get("gradient"), flats.get("weight")
        self.addresses = {role: memory.data_ptr() for role, memory in self.memory.items()}
        self.shapes = [slot.parameter.size() for slot in plan.slots]
        self.undelivered = set()  # Roles that the running program may still write.
        self.gradient_views = [self.view(self.gradient, slot) for slot in plan.slots]
        self.weight_views = [self.view(self.weight, slot) for slot in plan.slots]
        if self.weight is not None:
            self.attach_weights()
            self._widen({"weight"})  # Before bind: a state may begin as the weight.
        self.binding = context.bind(
            schedule,
            plan.name,
            plan.scalars,
            plan.storage.code,
            self.addresses.get("gradient"),
            self.addresses.get("weight"),
            index,
            parameters,
        )
        self.states = stating.states_of(schedule, self.binding)
        self.missing = 0  # Gradients still expected in this backward.
        self.running = False

    def _widen(self, roles):
        if self.plan.is_widened:
            for role in roles:
                self.memory[role].copy_(getattr(self, role))

    def _deliver(self, roles):
        """Rounds what the program has written, once; what it has not keeps its value."""
        roles = self.undelivered & set(roles)
        self.undelivered -= roles
        if self.plan.is_widened:
            for role in roles:
                getattr(self, role).copy_(self.memory[role])

    @staticmethod
    def view(flat, slot):
        """A parameter's place in something as long as the bucket."""
        if flat is None:
            return None
        parameter = slot.parameter
        if _dense(parameter):  # Keeps channels_last and transposed layouts.
            return flat.as_strided(parameter.size(), parameter.stride(), flat.storage_offset() + slot.offset)
        return flat[slot.offset : slot.offset + slot.numel].view(parameter.size())

    def check_parameters(self):
        """Raises where the job has changed since wrap what the bucket was bound with."""
        for slot, shape in zip(self.plan.slots, self.shapes):
            parameter = slot.parameter
            for what, now, then in (
                ("dtype", parameter.dtype, self.plan.dtype),
                ("device", parameter.device.type, "cpu"),
                ("shape", parameter.size(), shape),
            ):
                if now != then:
                    expected, got = (str(list(x) if what == "shape" else x).replace("torch.", "") for x in (then, now))
                    raise _capi.FailedPreconditionError(
                        f"the {what} of parameter {slot.name!r} changed since wrap: expected {expected}, got {got}"
                    )
        for role, memory in self.memory.items():
            if memory.data_ptr() != self.addresses[role]:
                raise _capi.FailedPreconditionError(
                    f"the memory of the {role} of {self.plan.slots[0].name!r} was moved since wrap (share_memory()?): "
                    "move it before"
                )

    def attach_weights(self):
        """Moves the parameters into the bucket, also those whose `.data` was replaced since."""
        for slot, view in zip(self.plan.slots, self.weight_views):
            data = _resolved(slot.parameter.data)
            if data.data_ptr() != view.data_ptr() or data.stride() != view.stride():
                view.copy_(data)
                slot.parameter.data = view

    def compare(self, text):
        with self.first_error():
            self.binding.compare(text)

    def start(self, event, step):
        with self.first_error():
            program = self.programs[event]
            self._widen(program["roles"])
            self.undelivered = set(program["writes"])
            self.binding.start(event, step)
            self.running = True

    def set_parameter(self, name, value):
        if self.parameters.get(name) != value:
            with self.first_error():
                self.binding.set_parameter(name, value)
            self.parameters[name] = value

    def open_gate(self, finite):
        if self.running:
            with self.first_error():
                self.binding.open_gate(_capi.BEFORE_UPDATE, finite)
            if not finite:
                self.undelivered.discard("weight")

    def wait_gate(self):
        if self.running:
            with self.first_error():
                self.binding.wait_gate()
            self._deliver({"gradient"})  # Not later: the job may change its gradients before the update.

    def is_finite(self):
        return planning.is_finite(self.gradient)

    def wait(self):
        if self.running:
            with self.first_error():
                self.binding.wait()
            self.running = False
            self._deliver({"gradient", "weight"})


class _Job:
    """What wrap() attaches to a model and its optimizer."""

    def __init__(self, context, model, optimizer, schedule, bucket_bytes, broadcast_buffers, options):
        self.context = context
        self.model = model
        self.optimizer = optimizer
        self.schedule = schedule
        self.step = 0
        self.backwards = 0  # Synchronizing ones that have ended, since wrap.
        self.updates = 0  # Calls of optimizer.step() that have returned, since wrap.
        self.synchronize = True  # False inside no_sync().
        programs = {program["event"]: program for program in schedule.info["programs"]}
        is_async = programs.pop("async", None) is not None
        self.has_gradient = "gradient" in programs
        self.has_forward = "before_forward" in programs
        self.has_after_update = "after_update" in programs
        self.broadcast_buffers = broadcast_buffers and self.has_gradient and not is_async and context.world > 1
        self.forward_gates = programs.get("before_forward", {}).get("gates", [])
        self.gradient_gates = programs.get("gradient", {}).get("gates", [])
        if self.has_gradient and self.forward_gates:
            raise _capi.UnimplementedError(
                f"algorithm {schedule.name!r} has a gradient handler beside one of before_forward with an update `at "
                "before_update`: a training job runs one program of a bucket at a time. Expected one of the two; what "
                "before_forward does may stand in `after_update`, where it reads the weights after the step"
            )
        roles = {role for program in programs.values() for role in program["roles"]}
        self.owns_update = schedule.info["owns_update"]
        self.needs_finite = schedule.info["needs_finite"]
        if is_async or any(state["initial"] == "weight" for state in schedule.info["states"]):
            roles.add("weight")
        self.holds_weights = "weight" in roles
        # Read from the parameter group before each program, unless the caller gave a value.
        self.fed = [p for p in schedule.info["parameters"] if p["per_step"] and p["name"] not in options]
        self.given = {}  # By number of the group, of them: names and values.
        self.locally_finite = True  # The gradients of this step, so far.
        self.non_finite = 0  # Steps in which some rank's gradients were not.
        self.non_finite_in_row = 0
        self.told_of_source = False
        self.hook_error = None  # The first in this backward.
        self.delivered = None  # Versions of the gradients that an algorithm which owns the update has used.

        planning.refuse_unsupported(model)
        plans = planning.make_plan(model, optimizer, schedule, bucket_bytes)
        if not plans:
            log.warning("no trainable parameters: algorithm %r has nothing to do", schedule.name)
        self.plan = planning.describe(plans, schedule)
        context.agree("bucket plan", self.plan)
        context.agree("model", _shapes(model))
        self.trainable = {name for name, _ in planning.trainable_parameters(model)}
        self._broadcast_model()
        self.buckets = [
            _Bucket(context, schedule, plan, index, roles, options) for index, plan in enumerate(plans)
        ]
        self.flag = None
        if self.needs_finite and context.world > 1 and self.buckets:
            self.flag = Flag(context, "finite", "the check that gradients are finite")
        self.rounds = Rounds(context, schedule, self.buckets, options) if is_async else None
        self.told_of_rounds = False

        # The first synchronizing backward only watches: it counts how often each gradient is accumulated and in
        # which order buckets become ready; rank 0's order then holds for all.
        self.launch_order = None
        self.expected = {}  # id(parameter) -> accumulations per backward
        self._hooks = []
        self._reset_backward()
        self.forward_started = False  # This step's before_forward program has been started.
        self.backward_done = False  # A synchronizing backward ended since the last step.
        self._install()

    def __deepcopy__(self, memo):
        return self  # A copy of the model is a plain model: the hooks that went along see that it is not theirs.

    def __reduce__(self):
        return (_Detached, ())  # So is an unpickled one, in a process that may have no context.

    # ---- Set-up ----

    @torch.no_grad()
    def _broadcast_model(self):
        """Parameters and buffers of rank 0 to all, so that replicas start equal."""
        for tensor in list(self.model.parameters()) + list(self.model.buffers()):
            if tensor.device.type != "cpu" or tensor.numel() == 0:
                continue
            flat = _resolved(tensor.detach()).contiguous()
            self.context.broadcast(flat.data_ptr(), flat.numel() * flat.element_size())
            if flat.data_ptr() != tensor.data_ptr():
                tensor.copy_(flat)

    @torch.no_grad()
    def _broadcast_buffers(self):
        """Rank 0's buffers to all, in one message for each dtype."""
        groups = {}
        for buffer in self.model.buffers():
            if buffer.device.type == "cpu" and buffer.numel() > 0:
                groups.setdefault(buffer.dtype, []).append(buffer.data)  # .data: a graph in between may go on.
        for buffers in groups.values():
            flat = torch.cat([_resolved(buffer).reshape(-1) for buffer in buffers])
            self.context.broadcast(flat.data_ptr(), flat.numel() * flat.element_size())
            if self.context.rank != 0:
                for buffer, values in zip(buffers, flat.split([buffer.numel() for buffer in buffers])):
                    buffer.copy_(values.view(buffer.shape))

    def _install(self):
        model, optimizer = self.model, self.optimizer
        self._hooks.append(model.register_forward_pre_hook(self._before_forward))
        self._hooks.append(model.register_forward_hook(self._after_forward))
        self._accumulators = {}  # By parameter; keeps the autograd nodes, and with them our hooks, alive.
        for bucket in self.buckets:
            for index, slot in enumerate(bucket.plan.slots):
                if hasattr(slot.parameter, "register_post_accumulate_grad_hook"):  # torch >= 2.1
                    hook = self._make_gradient_hook(bucket, index)
                    self._hooks.append(slot.parameter.register_post_accumulate_grad_hook(hook))
        self._hook_accumulators()

        step, state_dict, load_state_dict = optimizer.step, optimizer.state_dict, optimizer.load_state_dict

        # Bound methods, because learning-rate schedulers rebind optimizer.step themselves.
        def wrapped_step(_, *args, **kwargs):
            args, kwargs, loss = self._run_closure(args, kwargs)
            has_closure = (args[0] if args else kwargs.get("closure")) is not None
            finite = self._before_update(has_closure)
            if self.owns_update or not finite:
                result = self._step_without_update(step, args, kwargs)
                result = loss if loss is not None else result
            else:
                result = step(*args, **kwargs)
            self.updates += 1
            self._after_update(finite)
            if self.rounds is not None:
                self.rounds.boundary(self.step)
            return result

        def wrapped_state_dict(_):
            state = state_dict()
            state["bagua"] = self.state_dict()
            return state

        def wrapped_load_state_dict(_, state):
            if "bagua" in state:
                self.load_state_dict(state["bagua"])
                state = {key: value for key, value in state.items() if key != "bagua"}
            return load_state_dict(state)

        def refused_add_param_group(_, group):
            raise _capi.FailedPreconditionError("add_param_group after wrap: its parameters would not be synchronized")

        optimizer.step = types.MethodType(wrapped_step, optimizer)
        optimizer.add_param_group = types.MethodType(refused_add_param_group, optimizer)
        optimizer.state_dict = types.MethodType(wrapped_state_dict, optimizer)
        optimizer.load_state_dict = types.MethodType(wrapped_load_state_dict, optimizer)

    def start_rounds(self):
        if self.rounds is not None:
            self.rounds.start(self.step)

    def stop_rounds(self):
        if self.rounds is not None:
            self.rounds.stop()

    def _holders_of_states(self):
        return self.buckets + (self.rounds.snapshots if self.rounds is not None else [])

    def state_dict(self):
        if self.rounds is not None and self.rounds.under_way and not self.told_of_rounds:
            self.told_of_rounds = True
            log.warning(
                "a checkpoint while a round of algorithm %r is under way has the weights without what the round will add: "
                "no trained update is missing, but ranks may have added different rounds, and a resumed job is not the "
                "same bit for bit; call bagua.stop(model) before if that matters",
                self.schedule.name,
            )
        state = {"step": self.step, "plan": self.plan}
        if self.schedule.info["states"]:
            state["states"] = stating.export_states(self.context, self._holders_of_states())
        return state

    def _hook_accumulators(self):
        """Before torch 2.1: the nodes that accumulate gradients. Where `.data` was replaced they may be new."""
        for bucket in self.buckets:
            for index, slot in enumerate(bucket.plan.slots):
                if not hasattr(slot.parameter, "register_post_accumulate_grad_hook"):
                    with torch.enable_grad():
                        node = slot.parameter.expand_as(slot.parameter).grad_fn.next_functions[0][0]
                    if self._accumulators.get(id(slot.parameter)) is not node:
                        node.register_hook(self._make_gradient_hook(bucket, index))
                        self._accumulators[id(slot.parameter)] = node

    def load_state_dict(self, state):
        def places(plan):
            return sorted((p["name"], list(p["shape"])) for bucket in plan["buckets"] for p in bucket["parameters"])

        if self.rounds is not None:
            self.rounds.refuse_loading()
        if not isinstance(state, dict) or not {"step", "plan"} <= set(state):
            raise _capi.InvalidArgumentError("the checkpoint expects what state_dict() gave under 'bagua': step and plan")
        for rounds in self.context.rounds:
            rounds.refuse_collective("load_state_dict")
        expected = {"digest": state["plan"]["digest"]}
        if self.rounds is None:  # Beside rounds, ranks may have done different numbers of steps.
            expected["step"] = state["step"]
        self.context.agree("checkpoint", expected)
        for key in ("algorithm", "digest"):
            if state["plan"][key] != self.plan[key]:
                log.warning("the checkpoint's %s is %s, this job's is %s", key, state["plan"][key], self.plan[key])
        if places(state["plan"]) != places(self.plan):
            raise _capi.InvalidArgumentError(
                "the checkpoint's parameters differ from this model's: expected the same trainable ones as when it was saved"
            )
        if self.schedule.info["states"]:
            if "states" in state:
                stating.import_states(self.context, self._holders_of_states(), state["states"])
            else:
                log.warning("the checkpoint has no algorithm state: that of %r begins anew", self.schedule.name)
        self.step = state["step"]
        if self.rounds is not None:
            self.rounds.restart_interval(self.step)

    # ---- Forward ----

    def _training_forward(self):
        return self.model.training and torch.is_grad_enabled()

    def _before_forward(self, module, inputs):
        if module is not self.model or not self._training_forward():  # Hooks go along into copies.
            return
        if set(name for name, _ in planning.trainable_parameters(self.model)) != self.trainable:
            changed = sorted(self.trainable ^ {name for name, _ in planning.trainable_parameters(self.model)})
            raise _capi.FailedPreconditionError(
                f"requires_grad of {', '.join(map(repr, changed))} changed since wrap: freeze or unfreeze before it"
            )
        for bucket in self.buckets:
            bucket.check_parameters()
        self._hook_accumulators()
        if self.callback_queued:  # The last backward raised midway: peers may wait for what it had not started.
            self._end_of_backward(broken=True)
        if self.backward_done:  # optimizer.step() was skipped: that step ends here.
            self._finish_programs(self._agree_finite(skipped=True))
            self._end_step()
        if self.broadcast_buffers and self.synchronize:
            self._broadcast_buffers()
        if self.has_forward and not self.forward_started:
            self._read_parameters()
            for bucket in self.buckets:
                bucket.attach_weights()
                self._start(bucket, _capi.BEFORE_FORWARD)
            self.forward_started = True
        elif self.holds_weights:
            for bucket in self.buckets:
                bucket.attach_weights()

    def _after_forward(self, module, inputs, output):
        """Arranges for the end-of-backward callback from outside any re-entrant (checkpointed) backward."""
        if module is self.model and self._training_forward() and self.synchronize:
            for tensor in _tensors(output):
                if tensor.requires_grad:
                    tensor.register_hook(self._queue_end_of_backward)

    # ---- Backward ----

    def _reset_backward(self):
        self.callback_queued = False
        self.accumulated = False  # A gradient, by this backward.
        self.counts = {}
        self.ready = []  # Buckets in the order they became ready.
        self.next_launch = 0
        for bucket in self.buckets:
            bucket.missing = sum(self.expected.get(id(slot.parameter), 0) for slot in bucket.plan.slots)

    def _queue_end_of_backward(self, _gradient=None):
        if not self.callback_queued:
            self.callback_queued = True
            torch.autograd.Variable._execution_engine.queue_callback(self._end_of_backward)

    def _make_gradient_hook(self, bucket, index):
        slot, view = bucket.plan.slots[index], bucket.gradient_views[index]

        def accumulated():
            self.accumulated = True
            if not self.has_gradient:
                return
            self._queue_end_of_backward()
            if bucket.running:
                if bucket.failure is not None:
                    raise bucket.failure
                if self.backward_done:
                    raise _capi.FailedPreconditionError(
                        f"a second backward before optimizer.step(): algorithm {self.schedule.name!r} is about to update "
                        "with the first one's gradients; accumulate under no_sync() and synchronize in the last backward"
                    )
                raise _capi.FailedPreconditionError(
                    f"the gradient of {slot.name!r} was accumulated again after its bucket had been sent: its use "
                    "differs from that in the first backward (a re-entrant checkpoint used a varying number of times?)"
                )
            self._attach_gradient(slot, view)
            self.counts[id(slot.parameter)] = self.counts.get(id(slot.parameter), 0) + 1
            if self.launch_order is None:
                if bucket not in self.ready:
                    self.ready.append(bucket)
                return
            bucket.missing -= 1
            self._launch_ready(self.launch_order)

        def hook(*_):
            if self.synchronize and self.hook_error is None:
                try:
                    accumulated()
                except _capi.Error as error:
                    self.hook_error = error  # Raised at backward's end: an error in a hook may keep torch from exiting.

        return hook

    @staticmethod
    @torch.no_grad()
    def _attach_gradient(slot, view):
        gradient = slot.parameter.grad
        if gradient is None:
            return
        if gradient.is_sparse:
            raise _capi.UnimplementedError(
                f"parameter {slot.name!r} has a sparse gradient, which is not supported: use dense gradients"
            )
        gradient = _resolved(gradient)
        if gradient.data_ptr() != view.data_ptr() or gradient.stride() != view.stride():
            view.copy_(gradient)  # zero_grad(set_to_none=True), or the user replaced it.
            slot.parameter.grad = view.detach()  # Another tensor: its `.data` may be replaced.

    def _launch_ready(self, order):
        while self.next_launch < len(order):
            bucket = order[self.next_launch]
            if bucket.missing > 0:
                return
            if self.next_launch == 0:
                self._read_parameters()
            self.next_launch += 1
            self._complete(bucket)
            self._compare_counts(bucket, "gradient")
            if self.needs_finite:
                self.locally_finite = self.locally_finite and bucket.is_finite()
            self._start(bucket, _capi.GRADIENT)

    @torch.no_grad()
    def _complete(self, bucket):
        """What this backward has not brought: a gradient from before (under no_sync), or none."""
        for slot, view in zip(bucket.plan.slots, bucket.gradient_views):
            if slot.parameter.grad is not None:
                self._attach_gradient(slot, view)
                continue
            view.zero_()  # Unused here; another rank may have used it.
            if self.context.world > 1:
                slot.parameter.grad = view.detach()

    def _start(self, bucket, event):
        if self.rounds is None:  # Else the compiler has seen to it, or no round begins before its warm-up is over.
            for rounds in self.context.rounds:
                rounds.refuse_collective(f"a step of algorithm {self.schedule.name!r}")
        for name, value in self.given[bucket.plan.group].items():
            bucket.set_parameter(name, value)
        bucket.start(event, self.step)

    def _is_in_step(self, event):
        """Whether ranks wait for each other in this step. The same on all: beside rounds, each may be at another step as
        soon as the program of `event` sends nothing any more."""
        if self.rounds is None or self.needs_finite:
            return True
        return any(bucket.binding.communicates(event, self.step) for bucket in self.buckets)

    def _compare_counts(self, bucket, event):
        """A rank that skips or repeats an update, or has other parameters for this step, would drift away unnoticed: the
        first bucket carries what all must have alike."""
        if bucket is self.buckets[0] and self._is_in_step(event):
            text = f"{self.backwards} backward passes and {self.updates} calls of optimizer.step() since wrap"
            for number, values in self.given.items():
                text += "".join(f"; {name} = {value!r} in param_groups[{number}]" for name, value in values.items())
            if len(text) > _COMPARED:  # By a digest, which at least says that they differ.
                text = f"{text[: _COMPARED - 20]} … {zlib.crc32(text.encode()):08x}"
            bucket.compare(text)

    def _read_parameters(self):
        """Before the programs of an event: what the buckets' parameter groups give of the per-step parameters."""
        self.given = {}
        for number in sorted({bucket.plan.group for bucket in self.buckets}):
            group = self.optimizer.param_groups[number]
            values = {parameter["name"]: _group_value(group, parameter) for parameter in self.fed}
            self.given[number] = {name: value for name, value in values.items() if value is not None}

    def _end_of_backward(self, broken=False):
        """The last thing a synchronizing backward does: starts what is left and waits for everything. `broken`: it
        raised before it came here."""
        self.callback_queued = False
        if not (self.accumulated or broken):
            return  # torch.autograd.grad, which leaves no gradients behind.
        self.accumulated = False
        self.backward_done = True
        if self.hook_error is not None:
            error, self.hook_error = self.hook_error, None
            raise error
        if not self.has_gradient:
            self.backwards += 1
            return
        if self.launch_order is None and self._is_in_step("gradient"):
            self._learn()
        order = self.launch_order or self.buckets
        for bucket in self.buckets:
            bucket.missing = 0
        self._launch_ready(order)
        for bucket in order:
            if self.gradient_gates:
                bucket.wait_gate()
            else:
                bucket.wait()
        if self.owns_update:
            self.delivered = [bucket.gradient._version for bucket in self.buckets]
        self._reset_backward()
        self.backwards += 1

    def _learn(self):
        self.expected = dict(self.counts)
        seen = self.ready + [bucket for bucket in self.buckets if bucket not in self.ready]
        order = torch.tensor([self.buckets.index(bucket) for bucket in seen], dtype=torch.int64)
        self.context.broadcast(order.data_ptr(), order.numel() * order.element_size())
        self.launch_order = [self.buckets[index] for index in order.tolist()]

    # ---- Step ----

    def _finish_programs(self, finite):
        """Lets what waits for the update go on, to its end."""
        if self.forward_gates or self.gradient_gates:
            for bucket in self.buckets:
                bucket.open_gate(finite)
        for bucket in self.buckets:
            bucket.wait()
        self.forward_started = False
        self.non_finite_in_row = 0 if finite else self.non_finite_in_row + 1
        if not finite and self.non_finite_in_row % _LOOK_EVERY == 0 and not self.told_of_source:
            self._look_for_source()

    def _look_for_source(self):
        """Where weights or states are not finite, further steps will hardly be: says so once, and names the first."""
        states = [(b, s) for b in self.buckets for s in b.states if not stating.is_finite(b, s)]
        slots = [slot for b in self.buckets for slot in b.plan.slots if not planning.is_finite(slot.parameter.data)]
        found = [f"state {state['name']!r} of {bucket.name}" for bucket, state in states][:1]
        found += [f"parameter {slot.name!r}" for slot in slots][:1]
        if not found:
            return
        self.told_of_source = True
        log.warning(
            "step %d: the last %d steps were not finite: %s of rank %d %s a NaN or an infinity, which algorithm %r or the "
            "optimizer computed (0 / 0, the root of a negative, an overflow?), and later steps do not remove it: go back to a "
            "checkpoint",
            self.step,
            self.non_finite_in_row,
            " and ".join(found),
            self.context.rank,
            "has" if len(found) == 1 else "have",
            self.schedule.name,
        )

    def _trains_alone(self):
        """Whether a step that is not finite is this rank's own affair: beside rounds, which would carry it on."""
        return self.rounds is not None and self.rounds.runs and not self.needs_finite

    def _agree_finite(self, skipped=False):
        """Whether this step is finite for the group, which a rank that skipped its update denies."""
        trains_alone = self._trains_alone()
        if not self.needs_finite and not trains_alone:
            return True
        finite = not skipped and self.locally_finite
        if not self.has_gradient or trains_alone:
            finite = finite and all(_is_finite(slot.parameter.grad) for b in self.buckets for slot in b.plan.slots)
        if self.flag is not None:
            finite = self.flag.agree(finite, self.step)
        if not finite:
            self.non_finite += 1
            if self.non_finite == 1 and trains_alone:
                log.warning(
                    "step %d: gradients of this rank are not finite, or it skipped its update: beside the rounds of algorithm "
                    "%r it leaves its weights as they were (stats()['non_finite'] counts such steps)",
                    self.step,
                    self.schedule.name,
                )
            elif self.non_finite == 1:
                log.warning(
                    "step %d: gradients of some rank are not finite, or it skipped its update: algorithm %r leaves the model "
                    "and its state as they were, on all ranks (stats()['non_finite'] counts such steps)",
                    self.step,
                    self.schedule.name,
                )
        return finite

    def _run_closure(self, args, kwargs):
        """Evaluates a closure before the update where the algorithm must know its gradients, and beside rounds has what
        it computes looked at."""
        closure = args[0] if args else kwargs.get("closure")
        if closure is None:
            return args, kwargs, None
        loss = None
        if self.needs_finite or self.owns_update:
            with torch.enable_grad():
                loss = closure()
            instead = lambda: loss
        elif self._trains_alone():
            instead = lambda: self._run_checked(closure)
        else:
            return args, kwargs, None
        if args:
            return (instead, *args[1:]), kwargs, loss
        return args, {**kwargs, "closure": instead}, loss

    def _run_checked(self, closure):
        """Without a gradient, an optimizer leaves a parameter as it is."""
        loss = closure()
        if not self._agree_finite():
            for bucket in self.buckets:
                for slot in bucket.plan.slots:
                    slot.parameter.grad = None
        return loss

    def _before_update(self, has_closure):
        if self.owns_update and self.delivered is not None:
            self._refuse_changed_gradients()
        # Gradients that a closure has yet to compute are looked at then (beside rounds), or computed already.
        finite = (has_closure and not self.needs_finite) or self._agree_finite()
        self._finish_programs(finite)
        return finite

    def _refuse_changed_gradients(self):
        """What the algorithm has used already cannot be clipped or scaled any more."""
        for bucket, version in zip(self.buckets, self.delivered):
            for slot, view in zip(bucket.plan.slots, bucket.gradient_views):
                gradient = slot.parameter.grad
                if bucket.gradient._version != version or (
                    gradient is not None and gradient.data_ptr() != view.data_ptr()
                ):
                    raise _capi.FailedPreconditionError(
                        f"the gradient of {slot.name!r} or another of its bucket was changed between backward and "
                        f"optimizer.step() (clipped, or unscaled?): algorithm {self.schedule.name!r} owns the update and "
                        "has used it already"
                    )

    def _step_without_update(self, step, args, kwargs):
        """Calls optimizer.step() for its counters and hooks: a parameter without a gradient is not updated."""
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        gradients = [p.grad for p in parameters]
        try:
            for p in parameters:
                p.grad = None
            return step(*args, **kwargs)
        finally:
            for p, gradient in zip(parameters, gradients):
                p.grad = gradient

    def _after_update(self, finite):
        if self.has_after_update and finite:
            self._read_parameters()
            for bucket in self.buckets:
                bucket.attach_weights()
                self._compare_counts(bucket, "after_update")
                self._start(bucket, _capi.AFTER_UPDATE)
                bucket.open_gate(True)
            for bucket in self.buckets:
                bucket.wait()
        self._end_step()

    def _end_step(self):
        self.step += 1
        self.backward_done = False
        self.locally_finite = True
        self.delivered = None

    # ---- Watching ----

    def stats(self):
        per_bucket = []
        for index, bucket in enumerate(self.buckets):
            numbers = bucket.binding.statistics()
            if self.rounds is not None:
                of_rounds = self.rounds.snapshots[index].binding.statistics()
                numbers = {key: value + of_rounds[key] for key, value in numbers.items()}
            numbers["bytes_raw"] = bucket.plan.stored_bytes(numbers["bytes_raw"])
            entry = {"name": bucket.name, "length": bucket.plan.length, **numbers}
            busy, wait = entry["busy_ns"], entry["wait_ns"]
            entry["overlap"] = 1 - min(wait / busy, 1) if busy else 0.0
            per_bucket.append(entry)
        totals = {key: sum(b[key] for b in per_bucket) for key in ("bytes_raw", "bytes_wire", "wait_ns", "busy_ns")}
        counts = {"step": self.step, "non_finite": self.non_finite}
        if self.rounds is not None:
            counts["rounds"] = self.rounds.added
        return {"algorithm": self.schedule.name, **counts, **totals, "buckets": per_bucket}

    def wire_bytes_per_step(self, step=0):
        """The compiler's formula: payload bytes this rank sends in that step, all programs on all buckets."""
        return sum(
            bucket.binding.wire_bytes(program["event"], step)
            for program in self.schedule.info["programs"]
            for bucket in self.buckets
        )

    @contextlib.contextmanager
    def no_sync(self):
        before, self.synchronize = self.synchronize, False
        try:
            yield
        finally:
            self.synchronize = before


def _resolved(tensor):
    """A complex tensor whose memory has its values: the conjugate of one may be a mark at the same memory."""
    return tensor.resolve_conj().resolve_neg()


def _is_finite(gradient):
    return gradient is None or planning.is_finite(gradient)


def _number(parameter, value, what):
    """The value for the parameter as its type has it, also of a NumPy scalar; `what` names it in errors."""
    is_float = parameter["type"] == "f64"
    with contextlib.suppress(OverflowError):
        if isinstance(value, numbers.Real if is_float else numbers.Integral) and not isinstance(value, bool):
            if is_float:
                return float(value)
            if abs(value) <= 2**53:
                return int(value)
    expected = "a number" if is_float else "a whole number of at most 2^53"
    raise _capi.InvalidArgumentError(f"{what} expects {expected}, got {value!r}")


def _group_value(group, parameter):
    """What the optimizer's parameter group says of a parameter of the schedule: a number, or None."""
    name = parameter["name"]
    if name in ("beta1", "beta2") and name not in group and "betas" in group:
        value = group["betas"][int(name[-1]) - 1]
    else:
        value = group.get(name)
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.item()
    if value is None:
        return None
    if parameter["type"] != "f64" and isinstance(value, float) and value.is_integer():
        value = int(value)
    return _number(parameter, value, f"{name!r} of the optimizer's parameter group, a parameter of the algorithm,")


class _Detached:
    """Stands for _Job in pickled models: does nothing."""

    def _before_forward(self, module, inputs):
        pass

    def _after_forward(self, module, inputs, output):
        pass

    def no_sync(self):
        return contextlib.nullcontext()


def _shapes(model):
    """What the initial broadcast will send: names, dtypes and shapes."""
    named = [*model.named_parameters(), *model.named_buffers()]
    return {name: [str(tensor.dtype), list(tensor.shape)] for name, tensor in named}


def _tensors(value):
    """The tensors in nested tuples, lists, dicts and objects with a __dict__ (model outputs)."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from _tensors(getattr(value, name))


def _options_of(schedule, options):
    """The caller's values for parameters of the schedule, checked."""
    known = {parameter["name"]: parameter for parameter in schedule.info["parameters"]}
    values = {}
    for name, value in options.items():
        if name not in known:
            raise _capi.InvalidArgumentError(
                f"algorithm {schedule.name!r} has no option {name!r}: it has {', '.join(known) or 'none'}"
            )
        values[name] = _number(known[name], value, f"option {name!r} of algorithm {schedule.name!r}")
    return values


def wrap(context, model, optimizer, algorithm, bucket_bytes=None, broadcast_buffers=True, options=None):
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"wrap expects a torch.nn.Module, got {type(model).__name__}")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"wrap expects a torch.optim.Optimizer, got {type(optimizer).__name__}")
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        raise _capi.InvalidArgumentError("wrap expects the plain model, got DistributedDataParallel: pass model.module")
    if hasattr(model, "_bagua_job"):
        raise _capi.FailedPreconditionError("the model is wrapped already")
    schedule = find_schedule(algorithm)
    options = _options_of(schedule, options or {})
    bucket_bytes = planning.bucket_bytes_from_environment() if bucket_bytes is None else bucket_bytes
    if bucket_bytes < 1:
        raise _capi.InvalidArgumentError(f"bucket_bytes expects a positive number of bytes, got {bucket_bytes}")
    job = _Job(context, model, optimizer, schedule, bucket_bytes, broadcast_buffers, options)
    object.__setattr__(model, "_bagua_job", job)
    if not hasattr(model, "no_sync"):
        object.__setattr__(model, "no_sync", job.no_sync)
    return job
