"""Scenarios with parameters and buffers of many dtypes: what a rank trains, and the same in plain torch."""

import zlib

import torch
from torch import nn

import bagua.torch as bagua

SCENARIOS = {}
SIXTEEN = {torch.float16: torch.float32, torch.bfloat16: torch.float32}


def scenario(function):
    SCENARIOS[function.__name__] = function
    return function


def raw(tensor):
    """The bytes of its elements."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def hashed(tensors):
    return zlib.crc32(b"".join(raw(t) for t in tensors))


def scalars(tensor):
    """What handlers see of it: 16 bits widened, a complex number as two, in memory order of a dense tensor."""
    tensor = tensor.detach()
    if tensor.is_complex():
        return torch.view_as_real(tensor)
    return tensor.to(SIXTEEN.get(tensor.dtype, tensor.dtype))


def assign(tensor, values):
    """The inverse of scalars(), rounding once."""
    tensor.copy_(torch.view_as_complex(values.contiguous()) if tensor.is_complex() else values)


class Mixed(nn.Module):
    """Parameters and buffers of every dtype, one transposed, one that odd ranks alone use."""

    def __init__(self, rank, doubles=True):
        super().__init__()
        self.rank = rank
        generator = torch.Generator().manual_seed(7)

        def parameter(dtype, *size):
            values = torch.randn(*size, generator=generator, dtype=torch.complex128 if dtype.is_complex else torch.float64)
            return nn.Parameter(values.to(dtype))

        self.plain = parameter(torch.float32, 33)
        self.short = parameter(torch.float16, 41)
        self.transposed = nn.Parameter(parameter(torch.float16, 5, 7).data.t())
        self.brain = parameter(torch.bfloat16, 3, 17)
        self.pair = parameter(torch.complex64, 7, 3)
        self.sometimes = parameter(torch.float16, 9)
        if doubles:
            self.wide = parameter(torch.float64, 19)
            self.wide_pair = parameter(torch.complex128, 11)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mask", torch.zeros(5, dtype=torch.bool))
        self.register_buffer("running", torch.zeros(3, dtype=torch.bfloat16))
        self.register_buffer("level", torch.zeros(2, 2, dtype=torch.float16))
        self.register_buffer("phase", torch.zeros(2, dtype=torch.complex64))
        self.register_buffer("offset", torch.zeros(3, dtype=torch.float64))
        self.seen = None

    def forward(self, seed):
        generator = torch.Generator().manual_seed(seed)
        if self.training:
            self.seen = [buffer.clone() for buffer in self.buffers()]
            x = torch.randn(5, generator=generator)
            self.count.add_(seed)
            self.mask.logical_xor_(x > 0)
            self.running.add_(x[:3].to(torch.bfloat16))
            self.level.add_(x[:4].view(2, 2).to(torch.float16))
            self.phase.add_(torch.view_as_complex(x[:4].view(2, 2)))
            self.offset.add_(x[:3].double())
        loss = torch.zeros((), dtype=torch.float64)
        for name, p in self.named_parameters():
            wide = torch.view_as_real(p) if p.is_complex() else p
            target = torch.randn(wide.shape, generator=generator, dtype=torch.float64)
            if name == "sometimes" and self.rank % 2 == 0:
                continue
            loss = loss + ((wide.double() - target) ** 2).sum()
        return loss


def made(rank, doubles):
    model = Mixed(rank, doubles)
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)


def seed_of(rank, step):
    return 1 + 100 * step + rank


def mean_of(tensors):
    """The left fold's, in scalars, undivided by a single rank."""
    total = scalars(tensors[0])
    for tensor in tensors[1:]:
        total = total + scalars(tensor)
    return total / len(tensors)


class Plain:
    """All ranks of a job in one process, written with torch alone. `owner` is momentum of the mean gradient."""

    def __init__(self, world, kind, doubles, interval, beta=0.5, lr=0.05):
        self.world, self.kind, self.interval, self.beta, self.lr = world, kind, interval, beta, lr
        self.models, self.optimizers = zip(*(made(rank, doubles) for rank in range(world)))
        self.momenta = [torch.zeros_like(scalars(p)) for p in self.models[0].parameters()]

    def step(self, step):
        mixed = self._mixed() if self.kind == "decentralized" else None
        for rank, (model, optimizer) in enumerate(zip(self.models, self.optimizers)):
            optimizer.zero_grad(set_to_none=True)
            model(seed_of(rank, step)).backward()
        columns = list(zip(*(model.parameters() for model in self.models)))
        with torch.no_grad():
            if self.kind in ("gradient_allreduce", "owner"):
                for index, column in enumerate(columns):
                    if self.world == 1 and column[0].grad is None and self.kind != "owner":
                        continue
                    mean = mean_of([torch.zeros_like(p) if p.grad is None else p.grad for p in column])
                    if self.kind == "owner":
                        momentum = self.momenta[index]
                        momentum.copy_(momentum * torch.tensor(self.beta, dtype=mean.dtype) + mean)
                        for p in column:
                            assign(p, scalars(p) - torch.tensor(self.lr, dtype=mean.dtype) * momentum)
                    else:
                        for p in column:
                            p.grad = torch.empty_like(p)
                            assign(p.grad, mean)
            if mixed is not None:
                for model, values in zip(self.models, mixed):
                    for p, value in zip(model.parameters(), values):
                        assign(p, value)
            if self.kind != "owner":
                for optimizer in self.optimizers:
                    optimizer.step()
            if self.kind == "local_sgd" and (step + 1) % self.interval == 0:
                for column in columns:
                    mean = mean_of(column)
                    for p in column:
                        assign(p, mean)

    def _mixed(self):
        """w + (a (left - w) + a (right - w)), a third each; with two ranks both are one."""
        world, result = self.world, []
        for rank in range(world):
            peers = {1: [], 2: [(1 - rank, 2 / 3)]}.get(world)
            if peers is None:
                peers = [((rank - 1) % world, 1 / 3), ((rank + 1) % world, 1 / 3)]
            values = []
            for index, p in enumerate(self.models[rank].parameters()):
                w = scalars(p)
                total = None
                for peer, weight in peers:
                    x = scalars(list(self.models[peer].parameters())[index])
                    term = torch.tensor(weight, dtype=w.dtype) * (x - w)
                    total = term if total is None else total + term
                values.append(w.clone() if total is None else w + total)
            result.append(values)
        return result


@scenario
def mixed_dtypes(algorithm, kind, doubles, bucket_bytes=200, steps=6, options=None):
    """B19: every step's weights against plain torch, bit for bit."""
    rank, world = bagua.rank(), bagua.world()
    options = options or {}
    plain = Plain(world, kind, doubles, options.get("interval", 1))
    model, optimizer = made(rank, doubles)
    if kind == "owner":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    strides = [p.stride() for p in model.parameters()]
    bagua.wrap(model, optimizer, algorithm=algorithm, bucket_bytes=bucket_bytes, **options)
    wrong, hashes = [], []
    for step in range(steps):
        plain.step(step)
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        model(seed_of(rank, step)).backward()
        optimizer.step()
        pairs = zip(model.named_parameters(), plain.models[rank].parameters())
        wrong += [f"step {step}: {name}" for (name, p), q in pairs if raw(p) != raw(q)]
        hashes.append(hashed(model.parameters()))
    trained = hashed(model.buffers())
    model(seed_of(rank, steps))
    dtypes = [(p.dtype, p.stride(), None if p.grad is None else p.grad.dtype) for p in model.parameters()]
    raw_bytes = sum(p.numel() * p.element_size() for p in model.parameters())
    return {
        "wrong": wrong,
        "hashes": hashes,
        "kept": all(d in (p.dtype, None) for p, (_, _, d) in zip(model.parameters(), dtypes))
        and strides == [s for _, s, _ in dtypes],
        "trained": trained,
        "seen": hashed(model.seen),
        "moved": len(set(hashes)),
        "raw": bagua.stats(model)["bytes_raw"],
        "raw_expected": steps * raw_bytes,
        "dtypes": sorted({bucket["dtype"] for bucket in bagua.job(model).plan["buckets"]}),
    }


@scenario
def mixed_dtypes_lossy(algorithm, steps=5):
    """B19 through a codec: each gradient against the mean of all ranks', within two steps of 8 bits and a rounding."""
    rank, world = bagua.rank(), bagua.world()
    model, optimizer = made(rank, False)
    bagua.wrap(model, optimizer, algorithm=algorithm, bucket_bytes=200)
    beyond, hashes = [], []
    for step in range(steps):
        copies = [made(other, False)[0] for other in range(world)]
        for other, copy in enumerate(copies):
            copy.load_state_dict(model.state_dict())
            copy(seed_of(other, step)).backward()
        optimizer.zero_grad()
        model(seed_of(rank, step)).backward()
        for (name, p), *column in zip(model.named_parameters(), *(c.parameters() for c in copies)):
            gradients = [torch.zeros_like(q) if q.grad is None else q.grad for q in column]
            mean, mine = mean_of(gradients), scalars(p.grad)
            bucket = [
                scalars(q.grad).abs().max() for c in copies for q in c.parameters() if q.dtype == p.dtype and q.grad is not None
            ]
            bound = 2 * 2 * max(bucket) / 255 + mean.abs() * (2**-8 if p.dtype == torch.bfloat16 else 2**-10)
            if not bool(((mine - mean).abs() <= bound).all()):
                beyond.append(f"step {step}: {name} {(mine - mean).abs().max().item()} beyond {bound.max().item()}")
        optimizer.step()
        hashes.append(hashed(model.parameters()))
    return {"beyond": beyond, "hashes": hashes, "moved": len(set(hashes))}


@scenario
def mixed_dtypes_async(algorithm, steps=8):
    """B19 beside the steps: the last round, of final weights, brings every rank to their mean, but for roundings."""
    rank, world = bagua.rank(), bagua.world()
    model, optimizer = made(rank, True)
    bagua.wrap(model, optimizer, algorithm=algorithm, bucket_bytes=200)
    for step in range(steps):
        optimizer.zero_grad()
        model(seed_of(rank, step)).backward()
        optimizer.step()
    before = hashed(model.parameters())
    bagua.stop(model)
    apart = []
    for name, p in model.named_parameters():
        mine, of_all = scalars(p), []
        for root in range(world):
            theirs = mine.clone().contiguous()
            bagua.broadcast(theirs, root)
            of_all.append(theirs)
        epsilon = torch.finfo(p.dtype).eps
        bound = 4 * epsilon * max(x.abs().max() for x in of_all)
        if not bool(((mine - sum(of_all) / world).abs() <= bound).all()):
            apart.append(name)
    statistics = bagua.stats(model)
    return {
        "apart": apart,
        "moved": before != hashed(model.parameters()),
        "before": before,
        "rounds": statistics["rounds"],
        "raw": statistics["bytes_raw"],
        "raw_expected": statistics["rounds"] * sum(p.numel() * p.element_size() for p in model.parameters()),
        "dtypes": len({p.dtype for p in model.parameters()}),
    }


@scenario
def mixed_dtypes_alone(algorithm, doubles=False, steps=12, options=None):
    """B51 for every dtype: a world of one rank trains as without Bagua, bit for bit."""
    plain, plain_optimizer = made(1, doubles)
    model, optimizer = made(1, doubles)
    bagua.wrap(model, optimizer, algorithm=algorithm, bucket_bytes=200, **(options or {}))
    wrong = []
    for step in range(steps):
        for m, o in ((plain, plain_optimizer), (model, optimizer)):
            o.zero_grad(set_to_none=step % 2 == 0)
            m(seed_of(0, step)).backward()
            o.step()
        pairs = zip(model.named_parameters(), plain.parameters())
        wrong += [f"step {step}: {name}" for (name, p), q in pairs if raw(p) != raw(q)]
    return {"wrong": wrong}


class Slope(nn.Module):
    """The gradient of its only parameter is what it is given."""

    def __init__(self, count, dtype, start=0.0):
        super().__init__()
        self.p = nn.Parameter(torch.full((count,), start, dtype=dtype))

    def forward(self, slope):
        return _Sloped.apply(self.p, slope)


class _Sloped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, p, slope):
        ctx.slope = slope
        return torch.zeros((), dtype=torch.float32)

    @staticmethod
    def backward(ctx, gradient):
        return ctx.slope.clone(), None


@scenario
def large_half_gradients(algorithm, dtype, value):
    """B14: equal gradients, whose sum over the ranks is beyond the dtype's range or whose share is below it."""
    dtype = getattr(torch, dtype)
    model = Slope(5000, dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    bagua.wrap(model, optimizer, algorithm=algorithm)
    slope = torch.full((5000,), value, dtype=dtype)
    model(slope).backward()
    optimizer.step()
    return {"wrong": int((model.p.grad != slope).sum()), "dtype": str(model.p.grad.dtype), "got": model.p.grad[0].item()}


@scenario
def non_finite_half_gradients(algorithm, dtype, kind):
    """B16 in 16 bits: every rank sees what one rank's gradient has, and no other block does."""
    dtype = getattr(torch, dtype)
    model = Slope(5000, dtype, 1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    bagua.wrap(model, optimizer, algorithm=algorithm)
    owns = bagua.job(model).owns_update
    hashes = []
    for step in range(3):
        slope = torch.full((5000,), 0.25, dtype=dtype)
        if step == 1 and bagua.rank() == bagua.world() - 1:
            slope[4321] = float(kind)
        optimizer.zero_grad()
        model(slope).backward()
        gradient = model.p.grad.clone()
        if step == 1:
            seen = gradient
        if owns or step != 1:
            optimizer.step()
        hashes.append(hashed(model.parameters()))
    return {
        "at": bool(torch.isfinite(seen[4321])),
        "finite": int(torch.isfinite(seen).sum()),
        "first": bool((seen[:2048] == 0.25).all()),
        "changed": [a != b for a, b in zip(hashes, hashes[1:])],
        "non_finite": bagua.stats(model)["non_finite"],
    }


@scenario
def conjugated_gradient():
    """A gradient that the job conjugates in place is a mark at the same memory: what is sent is its value."""
    model = Slope(6, torch.complex64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    bagua.wrap(model, optimizer, algorithm="gradient_allreduce")
    slope = torch.arange(6).to(torch.complex64) * (1 + 2j) + bagua.rank() * 2j
    model(slope).backward()
    optimizer.step()
    with model.no_sync():
        model.p.grad = model.p.grad.conj()
        model(torch.zeros_like(slope)).backward()
    model(torch.zeros_like(slope)).backward()
    mean = torch.arange(6).to(torch.complex64) * (1 + 2j) + (bagua.world() - 1) * 1j
    return {"right": torch.equal(model.p.grad.resolve_conj(), mean.conj().resolve_conj())}


@scenario
def mixed_states(schedule, path, bucket_bytes, doubles=True):
    """B33 for every dtype: a new model that loads model and states goes on bit for bit, in other buckets too."""
    rank = bagua.rank()

    def make():
        model, _ = made(rank, doubles)
        return model, torch.optim.SGD(model.parameters(), lr=0.05)

    def train(model, optimizer, first, steps):
        hashes = []
        for step in range(first, first + steps):
            optimizer.zero_grad()
            model(seed_of(rank, step)).backward()
            optimizer.step()
            hashes.append(hashed(model.parameters()))
        return hashes

    def states(model):
        values = bagua.job(model).state_dict()["states"]["values"]
        found = [values[name][parameter] for name in sorted(values) for parameter in sorted(values[name])]
        return hashed([value["values"] if isinstance(value, dict) else value for value in found])

    model, optimizer = make()
    bagua.wrap(model, optimizer, algorithm=schedule, bucket_bytes=200)
    train(model, optimizer, 0, 3)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, f"{path}.{rank}")
    values = bagua.job(model).state_dict()["states"]["values"]
    named = dict(model.named_parameters())
    of_bucket = [v[name] for v in values.values() for name in v if isinstance(v[name], torch.Tensor)]
    expected = train(model, optimizer, 3, 3)
    expected_states = states(model)
    model, optimizer = make()
    bagua.wrap(model, optimizer, algorithm=schedule, bucket_bytes=bucket_bytes)
    loaded = torch.load(f"{path}.{rank}")
    model.load_state_dict(loaded["model"])
    optimizer.load_state_dict(loaded["optimizer"])
    actual = train(model, optimizer, 3, 3)
    actual_states = states(model)
    fresh, fresh_optimizer = make()
    bagua.wrap(fresh, fresh_optimizer, algorithm=schedule, bucket_bytes=200)
    fresh.load_state_dict(loaded["model"])
    lost = train(fresh, fresh_optimizer, 3, 3)
    like = all(
        value.is_complex() == named[name].is_complex() and value.shape[value.dim() - named[name].dim() :] == named[name].shape
        for v in values.values()
        for name, value in v.items()
        if isinstance(value, torch.Tensor) and value.dim() > 1
    )
    return {
        "expected": [expected, expected_states],
        "actual": [actual, actual_states],
        "lost": [lost, states(fresh)],
        "like": like,
        "tensors": len(of_bucket),
    }


@scenario
def refused_dtype(kind):
    """What cannot train is refused by name."""
    model = nn.Linear(3, 2)
    algorithm = "gradient_allreduce"
    if kind == "complex32":
        model.odd = nn.Parameter(torch.zeros(3, dtype=torch.complex32))
    elif kind == "double":
        model.odd = nn.Parameter(torch.zeros(3, dtype=torch.float64))
        algorithm = "bytegrad"
    elif kind == "complex_double":
        model.odd = nn.Parameter(torch.zeros(3, dtype=torch.complex128))
        algorithm = "bytegrad"
    elif kind == "quantized":
        model.register_buffer("odd", torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8))
    elif kind == "sparse":
        model.odd = nn.Parameter(torch.eye(3).to_sparse())
    elif kind == "sparse_buffer":
        model.register_buffer("odd", torch.eye(3).to_sparse_csr())
    else:
        model.odd = nn.LazyLinear(4)
    optimizer = torch.optim.SGD([p for p in model.parameters()], lr=0.1)
    try:
        bagua.wrap(model, optimizer, algorithm=algorithm)
    except bagua.Error as error:
        return {"message": str(error)}
    return {"message": "no error"}
