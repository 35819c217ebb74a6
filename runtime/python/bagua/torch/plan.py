"""Which parameter lies where: the bucket plan, fixed at wrap and equal on all ranks."""

import dataclasses
import os

import torch

from .. import _capi

BUCKET_BYTES = 10 << 20  # Default size of a bucket, as in the paper (section 3.4).

DTYPES = {torch.float32: ("f32", _capi.F32, 4), torch.float64: ("f64", _capi.F64, 8)}


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
        return sum(slot.numel for slot in self.slots)


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


def refuse_sparse(model):
    """Sparse gradients have no place in a bucket: refused by name before training starts."""
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
    group_of = {id(p): index for index, group in enumerate(optimizer.param_groups) for p in group["params"]}
    plans, open_plans = [], {}
    for name, parameter in reversed(trainable_parameters(model)):
        label = DTYPES.get(parameter.dtype, (None,))[0]
        if label not in accepted:
            raise _capi.UnimplementedError(
                f"parameter {name!r} is {str(parameter.dtype).removeprefix('torch.')}: algorithm "
                f"{schedule.name!r} expects {' or '.join(accepted)}"
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
        size = DTYPES[parameter.dtype][2]
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
                "dtype": DTYPES[plan.dtype][0],
                "parameter_group": plan.group,
                "parameters": [{"name": s.name, "shape": list(s.parameter.shape)} for s in plan.slots],
            }
            for plan in plans
        ],
    }
