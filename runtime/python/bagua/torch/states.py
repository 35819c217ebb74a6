"""Algorithm state in checkpoints: what bindings keep from step to step, by parameter, per rank."""

import logging

import torch

from .. import _capi
from . import plan as planning

log = logging.getLogger("bagua")


def _empty(bucket, state):
    return torch.empty(state["elements"], dtype=bucket.plan.storage.compute)


def _read(bucket, state):
    flat = _empty(bucket, state)
    bucket.binding.read_state(state["index"], flat.data_ptr(), flat.numel() * flat.element_size())
    return flat


def _write(bucket, state, flat):
    bucket.binding.write_state(state["index"], flat.data_ptr(), flat.numel() * flat.element_size())


def is_finite(bucket, state):
    return planning.is_finite(_read(bucket, state))


def _as_parameters(bucket, flat):
    """The same memory, complex where the parameters are."""
    return torch.view_as_complex(flat.view(-1, 2)) if bucket.plan.storage.scalars == 2 else flat


def _rows(bucket, state, flat):
    """The whole buckets of a state over `bucket` or over `neighbors`."""
    return _as_parameters(bucket, flat).view(state["elements"] // bucket.plan.scalars, bucket.plan.length)


def export_states(context, buckets):
    """This rank's states: {"world", "rank", "values": {state: {parameter: value}}}. A value is, by the state's domain:
    bucket, a tensor like the parameter (float32 if that has 16 bits); neighbors, such tensors stacked; scalar, the
    bucket's number; shard, the part of the parameter's elements, in memory order, that this rank has, and where it
    begins (of a complex parameter, real and imaginary parts count)."""
    values = {}
    for bucket in buckets:
        for state in bucket.states:
            flat = _read(bucket, state)
            of_state = values.setdefault(state["name"], {})
            for slot in bucket.plan.slots:
                if state["domain"] == "scalar":
                    value = flat.clone()
                elif state["domain"] == "shard":
                    begin, end = state["offset"], state["offset"] + state["elements"]
                    scalars = bucket.plan.storage.scalars
                    low = min(max(begin, slot.offset * scalars), end)
                    high = max(min(end, (slot.offset + slot.numel) * scalars), low)
                    value = {"begin": low - slot.offset * scalars, "values": flat[low - begin : high - begin].clone()}
                else:
                    views = [bucket.view(row, slot).clone() for row in _rows(bucket, state, flat)]
                    value = torch.stack(views) if state["domain"] == "neighbors" else views[0]
                of_state[slot.name] = value
    return {"world": context.world, "rank": context.rank, "values": values}


@torch.no_grad()
def import_states(context, buckets, saved):
    """Takes over what export_states() of a checkpoint's rank gave. In a world of the same size each rank loads its own
    and goes on bit for bit; in another one it loads any, and each state's on_resize says what becomes of it (load the
    model first: states that begin as the weight take its weights). Collective where there are states."""
    if not any(bucket.states for bucket in buckets):
        return
    same = saved["world"] == context.world
    origin = "the rank's own" if saved["rank"] == context.rank else f"that of rank {saved['rank']}"
    context.agree(
        "checkpoint of the algorithm's state",
        {"world": saved["world"], "states": sorted(saved["values"]), "file": origin if same else "any"},
    )
    told = set()
    for bucket in buckets:
        for state in bucket.states:
            values = saved["values"].get(state["name"])
            if values is None:
                if state["name"] not in told:
                    log.warning("the checkpoint has no state %r: it begins anew", state["name"])
                    told.add(state["name"])
                continue
            missing = [slot.name for slot in bucket.plan.slots if slot.name not in values]
            if missing:
                raise _capi.InvalidArgumentError(
                    f"the checkpoint's state {state['name']!r} has nothing for parameter {missing[0]!r}"
                )
            if not same and state["name"] not in told:
                told.add(state["name"])
                log.warning(
                    "state %r was saved by %d ranks and is loaded by %d: on_resize %s",
                    state["name"],
                    saved["world"],
                    context.world,
                    state["on_resize"],
                )
            if state["domain"] == "shard":
                _import_shard(context, bucket, state, values, same)
            elif same or state["on_resize"] == "mean":
                flat = _assemble(bucket, state, values)
                _write(bucket, state, flat if same else _mean(context, flat))
            else:
                _begin_anew(context, bucket, state)


def _begin_anew(context, bucket, state):
    """The initial value; where that is the weight, the mean of the ranks' of now: as at wrap, all begin with the same, and
    what they keep of each other agrees."""
    flat = _empty(bucket, state)
    if state["initial"] == "weight":
        bucket.attach_weights()
        weight = torch.empty(bucket.plan.scalars, dtype=flat.dtype)
        _as_parameters(bucket, weight).copy_(bucket.weight)
        _rows(bucket, state, flat).copy_(_as_parameters(bucket, _mean(context, weight)))  # To each row.
    else:
        flat.fill_(state["initial"])
    _write(bucket, state, flat)


def _assemble(bucket, state, values):
    flat = _empty(bucket, state)
    for slot in bucket.plan.slots:
        value = values[slot.name]
        if state["domain"] == "scalar":
            continue
        rows = value if state["domain"] == "neighbors" else value[None]
        if rows.shape[1:] != slot.parameter.shape or len(rows) != len(_rows(bucket, state, flat)):
            raise _capi.InvalidArgumentError(
                f"the checkpoint's state {state['name']!r} of parameter {slot.name!r} has shape {list(value.shape)}, "
                f"which does not fit the parameter's {list(slot.parameter.shape)}"
            )
        for row, part in zip(_rows(bucket, state, flat), rows):
            bucket.view(row, slot).copy_(part)
    if state["domain"] == "scalar":  # Equal for parameters that shared a bucket; else their mean is the best guess.
        numbers = torch.cat([values[slot.name].to(torch.float64) for slot in bucket.plan.slots])
        flat[0] = numbers[0] if bool((numbers == numbers[0]).all()) else numbers.mean()
    return flat


def _from_each_rank(context, flat):
    """Every rank's `flat`, in turn."""
    for root in range(context.world):
        theirs = flat.clone()
        context.broadcast(theirs.data_ptr(), theirs.numel() * theirs.element_size(), root)
        yield theirs


def _mean(context, flat):
    total = torch.zeros(flat.numel(), dtype=torch.float64)
    for theirs in _from_each_rank(context, flat):
        total += theirs
    return (total / context.world).to(flat.dtype)


def _import_shard(context, bucket, state, values, same):
    """Lays what the ranks have end to end, and cuts out this rank's shard."""
    whole = torch.zeros(bucket.plan.scalars, dtype=bucket.plan.storage.compute)
    known = torch.zeros(bucket.plan.scalars, dtype=torch.uint8)
    for slot in bucket.plan.slots:
        part = values[slot.name]
        begin = slot.offset * bucket.plan.storage.scalars + part["begin"]
        whole[begin : begin + part["values"].numel()] = part["values"]
        known[begin : begin + part["values"].numel()] = 1
    begin, end = state["offset"], state["offset"] + state["elements"]
    # With the same buckets every rank has all of its own; the ranks decide together.
    lacks = torch.tensor([0 if bool(known[begin:end].all()) else 1], dtype=torch.uint8)
    if not same or any(int(theirs) for theirs in _from_each_rank(context, lacks)):
        if not same and state["on_resize"] == "zero":
            _begin_anew(context, bucket, state)
            return
        pieces = zip(list(_from_each_rank(context, whole)), list(_from_each_rank(context, known)))
        for theirs, theirs_known in pieces:
            fill = theirs_known.bool() & ~known.bool()
            whole[fill] = theirs[fill]
            known |= theirs_known
        if not bool(known.all()):
            log.warning(
                "bucket %r: no rank has loaded all of state %r: %d of %d elements begin at zero",
                bucket.name,
                state["name"],
                int((known == 0).sum()),
                bucket.plan.scalars,
            )
    _write(bucket, state, whole[begin:end].clone())


def states_of(schedule, binding):
    """What a binding keeps, with the declared initial values."""
    initial = {state["name"]: state["initial"] for state in schedule.info["states"]}
    return [{**state, "initial": initial[state["name"]]} for state in binding.states()]
