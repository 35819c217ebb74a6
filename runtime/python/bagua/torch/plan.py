"""Which parameter lies where: the bucket plan, fixed at wrap and equal on all ranks."""

import dataclasses
import os

import torch

from .. import _capi
from ..context import Memory, all_finite

BUCKET_BYTES = 10 << 20  # Default size of a bucket, as in the paper (section 3.4).



@dataclasses.dataclass(frozen=True)
class Storage:
    """What stands in transport memory for parameters of one dtype."""

    label: str
    memory: torch.dtype  # Of one element there: wider than the parameter's where handlers compute in more.
    scalars: int  # Of one element: what handlers see of a complex number are two.

    @property
    def compute(self):
        """The dtype of handlers and states."""
        return {torch.complex64: torch.float32, torch.complex128: torch.float64}.get(self.memory, self.memory)

    @property
    def compute_label(self):
        return {torch.float32: "f32", torch.float64: "f64"}[self.compute]

    @property
    def code(self):
        return {torch.float32: _capi.F32, torch.float64: _capi.F64}[self.compute]


DTYPES = {
    torch.float32: Storage("f32", torch.float32, 1),
    torch.float64: Storage("f64", torch.float64, 1),
    torch.float16: Storage("f16", torch.float32, 1),
    torch.bfloat16: Storage("bf16", torch.float32, 1),
    torch.complex64: Storage("c64", torch.complex64, 2),
    torch.complex128: Storage("c128", torch.complex128, 2),
}


def item_size(dtype):
    return torch.empty((), dtype=dtype).element_size()


def is_finite(tensor):
    """Whether no element is a NaN or an infinity."""
    storage = DTYPES.get(tensor.dtype)
    if storage is not None and storage.memory == tensor.dtype and tensor.is_contiguous():
        return all_finite(tensor.data_ptr(), tensor.numel() * storage.scalars, storage.code)
    return bool(torch.isfinite(tensor).all())


@dataclasses.dataclass
class Slot:
    """A parameter's place in its bucket, in elements."""

    name: str
    parameter: torch.nn.Parameter
    offset: int

    @property
    def numel(self):
        return self.parameter.numel()


@dataclasses.dataclass
class BucketPlan:
    """Parameters of one dtype and one parameter group, laid end to end."""

    name: str
    dtype: torch.dtype
    group: int
    slots: list

    @property
    def length(self):
        """In elements of the parameters."""
        return sum(slot.numel for slot in self.slots)

    @property
    def storage(self):
        return DTYPES[self.dtype]

    @property
    def scalars(self):
        """The length that handlers see."""
        return self.length * self.storage.scalars

    @property
    def is_widened(self):
        return self.storage.memory != self.dtype

    def stored_bytes(self, count):
        """`count` bytes of transport memory as bytes of the parameters' dtype."""
        return count * item_size(self.dtype) // item_size(self.storage.memory)

    def allocate(self, context):
        """Transport memory for the bucket, as a flat tensor."""
        memory = Memory(context, self.length * item_size(self.storage.memory))
        return torch.frombuffer(memory.buffer(), dtype=self.storage.memory, count=self.length)


def bucket_bytes_from_environment():
    text = os.environ.get("BAGUA_BUCKET_BYTES")
    if text is None:
        return BUCKET_BYTES
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise _capi.InvalidArgumentError(f"BAGUA_BUCKET_BYTES expects a positive number of bytes, got {text!r}")
    return value


def refuse_unsupported(model):
    """What neither a bucket nor a broadcast can hold is refused by name before training starts."""
    named = [("parameter", *item) for item in model.named_parameters()]
    for kind, name, tensor in named + [("buffer", *item) for item in model.named_buffers()]:
        if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
            raise _capi.FailedPreconditionError(
                f"{kind} {name!r} is not initialized yet: run the model once before wrap, on every rank"
            )
        if tensor.is_quantized or tensor.layout != torch.strided:
            what = "quantized" if tensor.is_quantized else str(tensor.layout).replace("torch.", "")
            raise _capi.UnimplementedError(
                f"{kind} {name!r} is {what}, which is not supported: expects a dense tensor; keep it in a plain attribute "
                "of the module if it is the same on all ranks"
            )
    for path, module in model.named_modules():
        if getattr(module, "sparse", False) and isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)):
            name = f"{path}.weight" if path else "weight"
            raise _capi.UnimplementedError(
                f"parameter {name!r} has sparse gradients, which are not supported: build the embedding with sparse=False"
            )


def trainable_parameters(model):
    """(name, parameter) of every parameter that takes part: tied ones once, frozen and empty ones not."""
    return [(name, p) for name, p in model.named_parameters() if p.requires_grad and p.numel() > 0]


def make_plan(model, optimizer, schedule, bucket_bytes):
    """Buckets in reverse registration order (the usual order of gradients in backward)."""
    accepted = schedule.info["dtypes"]
    known = " or ".join(str(dtype).replace("torch.", "") for dtype in DTYPES if DTYPES[dtype].compute_label in accepted)
    group_of = {id(p): index for index, group in enumerate(optimizer.param_groups) for p in group["params"]}
    plans, open_plans = [], {}
    for name, parameter in reversed(trainable_parameters(model)):
        storage = DTYPES.get(parameter.dtype)
        if storage is None or storage.compute_label not in accepted:
            raise _capi.UnimplementedError(
                f"parameter {name!r} is {str(parameter.dtype).replace('torch.', '')}: algorithm "
                f"{schedule.name!r} expects {known}"
            )
        if parameter.device.type != "cpu":
            raise _capi.UnimplementedError(f"parameter {name!r} is on {parameter.device}: this build expects cpu")
        if id(parameter) not in group_of:
            raise _capi.InvalidArgumentError(
                f"parameter {name!r} is trainable but in no parameter group of the optimizer: add it, or set "
                "requires_grad_(False) before wrap"
            )
        key = (parameter.dtype, group_of[id(parameter)])
        plan = open_plans.get(key)
        size = item_size(storage.memory)
        if plan is None or (plan.length + parameter.numel()) * size > bucket_bytes:
            plan = BucketPlan(f"bucket{len(plans)}", parameter.dtype, key[1], [])
            plans.append(plan)
            open_plans[key] = plan
        plan.slots.append(Slot(name, parameter, plan.length))
    return plans


def describe(plans, schedule):
    """The plan as JSON, for comparing ranks and for checkpoints."""
    return {
        "algorithm": schedule.name,
        "digest": schedule.digest,
        "buckets": [
            {
                "name": plan.name,
                "dtype": plan.storage.label,
                "parameter_group": plan.group,
                "parameters": [{"name": s.name, "shape": list(s.parameter.shape)} for s in plan.slots],
            }
            for plan in plans
        ],
    }
