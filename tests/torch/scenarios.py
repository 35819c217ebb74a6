"""What one rank does in a test: scenarios.py NAME ARGUMENTS_JSON FOLDER. Its result goes to FOLDER/rankR.json."""

import copy as copy_module
import io
import json
import logging
import os
import pickle
import signal
import sys
import threading
import time
import warnings
import zlib

import torch
from torch import nn
from torch.nn import functional
from torch.utils import checkpoint

import bagua.torch as bagua
import dtype_scenarios
import resume_scenarios

torch.set_num_threads(1)
SCENARIOS = {**dtype_scenarios.SCENARIOS, **resume_scenarios.SCENARIOS}


def scenario(function):
    SCENARIOS[function.__name__] = function
    return function


def digest(model):
    return zlib.crc32(b"".join(p.detach().contiguous().numpy().tobytes() for p in model.parameters()))


def data(rank, step, features=12, count=8):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(count, features, generator=generator)
    return x, x[:, :4].argmax(1)


def small_model(seed=3):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(12, 33), nn.Tanh(), nn.Linear(33, 17), nn.ReLU(), nn.Linear(17, 4))


def make(model, algorithm, bucket_bytes=1024, lr=0.1, wrap=True):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    return bagua.wrap(model, optimizer, algorithm=algorithm, bucket_bytes=bucket_bytes) if wrap else (model, optimizer)


def train(model, optimizer, rank, steps, set_to_none=False, first=0):
    digests, losses = [], []
    for step in range(first, first + steps):
        x, y = data(rank, step)
        optimizer.zero_grad(set_to_none=set_to_none)
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        digests.append(digest(model))
        losses.append(loss.item())
    return digests, losses


@scenario
def plain_equals_wrapped(algorithm):
    """B51: at world 1 every algorithm equals plain training bit for bit."""
    plain, plain_optimizer = make(small_model(), algorithm, wrap=False)
    expected, _ = train(plain, plain_optimizer, 0, 30)
    model, optimizer = make(small_model(), algorithm)
    actual, losses = train(model, optimizer, 0, 30)
    return {"expected": expected, "actual": actual, "first_loss": sum(losses[:4]), "last_loss": sum(losses[-4:])}


@scenario
def replicas(algorithm, steps=10):
    """Digest of the weights after each step; bytes counted and by formula; ranks start from different seeds."""
    model, optimizer = make(small_model(seed=bagua.rank()), algorithm)
    start = digest(model)
    digests, losses = train(model, optimizer, bagua.rank(), steps)
    statistics = bagua.stats()
    return {
        "start": start,
        "digests": digests,
        "losses": losses,
        "raw": statistics["bytes_raw"],
        "wire": statistics["bytes_wire"],
        "formula": steps * bagua.job(model).wire_bytes_per_step(),
        "world": bagua.world(),
        "source": bagua.source(),
    }


@scenario
def mean_gradient(steps=4):
    """gradient_allreduce's gradient against a left fold over all ranks' gradients, computed here."""
    model, optimizer = make(small_model(), "gradient_allreduce")
    rank, world = bagua.rank(), bagua.world()
    wrong = 0
    for step in range(steps):
        expected = None
        for other in range(world):
            copy = small_model()
            copy.load_state_dict(model.state_dict())
            x, y = data(other, step)
            functional.cross_entropy(copy(x), y).backward()
            gradients = [p.grad.clone() for p in copy.parameters()]
            expected = gradients if expected is None else [a + b for a, b in zip(expected, gradients)]
        expected = [g / world for g in expected]
        x, y = data(rank, step)
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        wrong += sum(not torch.equal(p.grad, g) for p, g in zip(model.parameters(), expected))
        optimizer.step()
    return {"wrong": wrong}


@scenario
def mixing(steps=5):
    """decentralized against weights mixed here: w + (w_left - w)/3 + (w_right - w)/3, then the local update."""
    rank, world = bagua.rank(), bagua.world()
    model, optimizer = make(small_model(), "decentralized", bucket_bytes=1 << 20)
    copies = [small_model() for _ in range(world)]
    optimizers = [torch.optim.SGD(c.parameters(), lr=0.1, momentum=0.9) for c in copies]
    offsets = {}
    for offset in (-1, 1):
        peer = offset % world
        if peer:
            offsets[peer] = offsets.get(peer, 0) + 1
    worst = 0.0
    for step in range(steps):
        before = [[p.detach().clone() for p in c.parameters()] for c in copies]
        for r, (copy, opt) in enumerate(zip(copies, optimizers)):
            x, y = data(r, step)
            opt.zero_grad()
            functional.cross_entropy(copy(x), y).backward()
            with torch.no_grad():
                for index, p in enumerate(copy.parameters()):
                    w = before[r][index]
                    delta = [(before[(r + o) % world][index] - w) * (count / 3) for o, count in offsets.items()]
                    p.copy_(w + sum(delta) if delta else w)
            opt.step()
        train(model, optimizer, rank, 1, first=step)
        worst = max(worst, max((a - b).abs().max().item() for a, b in zip(model.parameters(), copies[rank].parameters())))
    return {"worst": worst}


@scenario
def with_buckets_of(algorithm, bucket_bytes, steps=4):
    """B20: digests after each step, in buckets as the environment says."""
    os.environ["BAGUA_BUCKET_BYTES"] = str(bucket_bytes)
    try:
        model, optimizer = make(small_model(), algorithm, bucket_bytes=None)
    finally:
        del os.environ["BAGUA_BUCKET_BYTES"]
    digests, _ = train(model, optimizer, bagua.rank(), steps)
    return {"digests": digests, "buckets": len(bagua.stats(model)["buckets"])}


@scenario
def large_buckets(algorithm, steps=3):
    """B58: buckets of several MB, and how much /dev/shm could hold."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(12, 1536), nn.Tanh(), nn.Linear(1536, 1024), nn.Linear(1024, 4))
    model, optimizer = make(model, algorithm, bucket_bytes=8 << 20)
    digests, _ = train(model, optimizer, bagua.rank(), steps)
    shm = os.statvfs("/dev/shm")
    largest = max(4 * bucket["length"] for bucket in bagua.stats(model)["buckets"])
    return {"digests": digests, "largest": largest, "shm": shm.f_blocks * shm.f_frsize}


@scenario
def goes_on(how):
    """B47: after an error that the job catches, Python goes on: nothing ends the process."""
    model, optimizer = make(small_model(), "gradient_allreduce")
    train(model, optimizer, bagua.rank(), 2)
    last = bagua.world() - 1
    if bagua.rank() == last and how in ("KILL", "STOP"):
        os.kill(os.getpid(), getattr(signal, f"SIG{how}"))
    errors = []
    for _ in range(2):  # The first error stays.
        try:
            train(model, optimizer, bagua.rank(), 1, first=2)
            if bagua.rank() == last:
                optimizer.step()
            train(model, optimizer, bagua.rank(), 1, first=3)
            errors.append(["none", ""])
        except bagua.Error as error:
            errors.append([type(error).__name__, str(error)])
    stream = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, stream)
    plain = copy_module.deepcopy(model)
    digests, losses = train(plain, torch.optim.SGD(plain.parameters(), lr=0.1), bagua.rank(), 5)
    model.eval()
    with torch.no_grad():
        finite = bool(torch.isfinite(model(data(0, 0)[0])).all())
    step = bagua.stats()["step"]
    begin = time.time()
    bagua.shutdown()
    return {
        "errors": errors,
        "saved": stream.tell() > 0,
        "moved": len(set(digests)) == 5 and losses[-1] == losses[-1],
        "finite": finite,
        "step": step,
        "shutdown_s": time.time() - begin,
    }


class WithEmpties(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.body = small_model()
        self.empty = nn.Linear(10, 0)
        self.unused = nn.Parameter(torch.ones(5))
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)

    def forward(self, x):
        return self.body(x) + self.empty(torch.ones(len(x), 10)).sum(1, keepdim=True)


@scenario
def odd_parameters(algorithm):
    """B01 B05: zero-numel, unused and frozen parameters."""
    model, optimizer = make(WithEmpties(), algorithm)
    digests, _ = train(model, optimizer, bagua.rank(), 5)
    finite = all(torch.isfinite(p).all().item() for p in model.parameters())
    return {"digests": digests, "finite": finite, "keys": sorted(model.state_dict())}


class UsedByOddRanks(nn.Module):
    def __init__(self):
        super().__init__()
        self.always = nn.Parameter(torch.ones(3))
        self.odd = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return (self.always * x).sum() + ((self.odd * x).sum() if bagua.rank() % 2 else 0)


@scenario
def used_by_odd_ranks(steps=4):
    """B05: a rank that does not use a parameter adds zero to its mean gradient, in every step."""
    model, optimizer = make(UsedByOddRanks(), "gradient_allreduce", lr=0.0)
    means = []
    for step in range(steps):
        optimizer.zero_grad(set_to_none=True)
        model(torch.full((3,), float(step + 1))).backward()
        means.append([model.always.grad[0].item(), model.odd.grad[0].item()])
        optimizer.step()
    return {"means": means}


@scenario
def nothing_to_train(kind):
    """B08: frozen model, empty module, module without buffers."""
    if kind == "frozen":
        model = small_model().requires_grad_(False)
    elif kind == "empty":
        model = nn.Identity()
    else:
        model = nn.Linear(12, 0, bias=False)
    dummy = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([dummy], lr=0.1)
    bagua.wrap(model, optimizer, algorithm="gradient_allreduce")
    model(torch.ones(2, 12))
    optimizer.step()
    return {"bytes": bagua.stats()["bytes_wire"]}


class Layouts(nn.Module):
    """B07: channels_last, a transposed parameter, an expanded gradient, a 1x1 convolution."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.conv = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        self.one = nn.Conv2d(4, 4, 1)
        self.transposed = nn.Parameter(torch.randn(4, 7).t())
        self.bias = nn.Parameter(torch.randn(4))

    def forward(self, x):
        image = x[:, :1].view(-1, 1, 1, 1).expand(-1, 3, 5, 5)
        y = self.one(self.conv(image.contiguous(memory_format=torch.channels_last))).mean((2, 3))
        return y + x[:, :7] @ self.transposed + self.bias


@scenario
def layouts(algorithm):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        plain, plain_optimizer = make(Layouts(), algorithm, wrap=False)
        expected, _ = train(plain, plain_optimizer, 0, 5)
        model, optimizer = make(Layouts(), algorithm)
        actual, _ = train(model, optimizer, 0, 5)  # The same data on each rank: the mean is the gradient.
    strides = [list(p.stride()) for p in model.parameters()]
    return {
        "expected": expected,
        "actual": actual,
        "warnings": [str(w.message) for w in caught if "stride" in str(w.message)],
        "strides_kept": strides == [list(p.stride()) for p in Layouts().parameters()],
        "worst": max((a - b).abs().max().item() for a, b in zip(plain.parameters(), model.parameters())),
    }


@scenario
def gradient_replacement(algorithm, how, steps=8):
    """B11: however gradients are cleared, the result is the same."""
    model, optimizer = make(small_model(), algorithm)
    for step in range(steps):
        if how == "none":
            for p in model.parameters():
                p.grad = None
        elif how == "clone":
            for p in model.parameters():
                if p.grad is not None:
                    p.grad = p.grad.clone().zero_()
        elif how == "data":
            for p in model.parameters():
                if p.grad is not None:
                    p.grad.data = torch.zeros_like(p)
        else:
            optimizer.zero_grad(set_to_none=how == "set_to_none")
        if how == "there and back":
            model.double().float()
        x, y = data(bagua.rank(), step)
        x.requires_grad_(how.startswith("autograd.grad"))
        loss = functional.cross_entropy(model(x), y)
        if how == "autograd.grad of input":  # Leaves no gradients behind: no backward of ours.
            torch.autograd.grad(loss, x, retain_graph=True)
        elif how == "autograd.grad of parameters":
            torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
        elif how == "autograd.grad of another loss":
            torch.autograd.grad(model(x).sum(), x)
        loss.backward()
        optimizer.step()
    return {"digest": digest(model)}


@scenario
def moved_after_wrap(how):
    """What the bucket was bound with cannot change any more: an error says so before ranks drift apart."""
    model, optimizer = make(small_model(), "gradient_allreduce")
    train(model, optimizer, bagua.rank(), 1)
    if how == "dtype":
        model.double()
    elif how == "share":
        model.share_memory()
        for p in model.parameters():
            p.grad.share_memory_()
    else:
        next(model.parameters()).data = torch.zeros(3, 3)
    try:
        train(model, optimizer, bagua.rank(), 1)
    except bagua.FailedPreconditionError as error:
        return {"message": str(error)}
    return {"message": "", "digest": digest(model)}


@scenario
def loads_other_checkpoint(kind):
    model, optimizer = make(small_model(), "random_k")
    train(model, optimizer, bagua.rank(), 2)
    state = copy_module.deepcopy(optimizer.state_dict())
    if kind == "step":
        state["bagua"]["step"] += bagua.rank()
    else:
        state["bagua"] = {"foo": 1}
    try:
        optimizer.load_state_dict(state)
    except bagua.Error as error:
        return {"error": type(error).__name__, "message": str(error)}
    return {"error": None, "message": ""}


@scenario
def special_gradient(algorithm, kind):
    """B15 B16: zero and non-finite gradients."""
    model = nn.Linear(5000, 1, bias=False)
    nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    bagua.wrap(model, optimizer, algorithm=algorithm)
    x = torch.zeros(1, 5000) if kind == "zero" else torch.ones(1, 5000)
    if bagua.rank() == bagua.world() - 1 and kind in ("nan", "inf"):
        x[0, 4321] = float(kind)
    model(x).sum().backward()
    gradient = model.weight.grad.flatten()
    return {
        "zeros": int((gradient == 0).sum()),
        "finite": int(torch.isfinite(gradient).sum()),
        "at": bool(torch.isfinite(gradient[4321])),
        "first": bool(torch.isfinite(gradient[0])),
    }


class Tied(nn.Module):
    def __init__(self, checkpoints=0, reentrant=True):
        super().__init__()
        torch.manual_seed(7)
        self.first, self.second = nn.Linear(12, 12), nn.Linear(12, 12)
        self.second.weight = self.first.weight
        self.last = nn.Linear(12, 4)
        self.checkpoints, self.reentrant = checkpoints, reentrant

    def block(self, x):
        return torch.tanh(self.second(torch.tanh(self.first(x))))

    def forward(self, x):
        if self.checkpoints:
            x = x.requires_grad_()
            for _ in range(self.checkpoints):
                x = checkpoint.checkpoint(self.block, x, use_reentrant=self.reentrant)
        else:
            x = self.block(self.block(x))
        return self.last(x)


@scenario
def shared_use(algorithm, kind):
    """B31: tied weights, a block checkpointed twice, two backward passes of one graph."""
    checkpoints = 2 if kind.startswith("checkpoint") else 0
    reentrant = kind == "checkpoint_reentrant"

    def steps(model, optimizer):
        digests = []
        for step in range(4):
            x, y = data(0, step)  # The same on each rank.
            optimizer.zero_grad()
            output = model(x)
            if kind == "two_backwards":
                functional.cross_entropy(output, y).backward(retain_graph=True)
                output.square().mean().backward()
            else:
                functional.cross_entropy(output, y).backward()
            optimizer.step()
            digests.append(digest(model))
        return digests

    expected = steps(*make(Tied(checkpoints, reentrant), algorithm, wrap=False))
    model, optimizer = make(Tied(checkpoints, reentrant), algorithm)
    return {"expected": expected, "actual": steps(model, optimizer)}


@scenario
def accumulation(algorithm):
    """no_sync: three local micro-batches and a synchronizing one, from the first step."""
    plain, plain_optimizer = make(small_model(), algorithm, wrap=False)
    model, optimizer = make(small_model(), algorithm)
    rank, world = bagua.rank(), bagua.world()
    for step in range(3):
        plain_optimizer.zero_grad()
        gradients = []
        for other in range(world):
            plain.zero_grad()
            for micro in range(4):
                x, y = data(other, 10 * step + micro)
                functional.cross_entropy(plain(x), y).backward()
            gradients.append([p.grad.clone() for p in plain.parameters()])
        for index, p in enumerate(plain.parameters()):
            p.grad = sum(g[index] for g in gradients) / world
        plain_optimizer.step()
        optimizer.zero_grad()
        for micro in range(4):
            x, y = data(rank, 10 * step + micro)
            if micro < 3:
                with model.no_sync():
                    functional.cross_entropy(model(x), y).backward()
            else:
                functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    worst = max((a - b).abs().max().item() for a, b in zip(plain.parameters(), model.parameters()))
    return {"worst": worst, "digest": digest(model), "step": bagua.stats()["step"]}


@scenario
def different(what):
    """B43 B44: one rank differs; all get an error that names the difference."""
    odd = bagua.rank() == 1
    layers = [nn.Linear(12, 8), nn.Linear(8, 4)]
    if what == "shape" and odd:
        layers = [nn.Linear(12, 9), nn.Linear(9, 4)]
    if what == "extra" and odd:
        layers.append(nn.Linear(4, 4))
    model = nn.Sequential(*layers)
    if what == "dtype" and odd:
        model = model.double()
    if what == "order" and odd:
        model = nn.Sequential()
        model.add_module("1", layers[1])
        model.add_module("0", layers[0])
    algorithm = "bytegrad" if what == "algorithm" and odd else "gradient_allreduce"
    try:
        make(model, algorithm)
    except bagua.Error as error:
        return {"error": type(error).__name__, "message": str(error)}
    return {"error": None}


@scenario
def raises_before_wrap():
    """B64: one rank never reaches wrap."""
    if bagua.rank() == 1:
        raise RuntimeError("no data on this rank")
    try:
        make(small_model(), "gradient_allreduce")
    except bagua.Error as error:
        return {"error": type(error).__name__, "message": str(error)}
    return {"error": None}


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((12,), float(index)), index % 4


@scenario
def data_loader(algorithm):
    """B60: forked workers, created before and after init and wrap."""
    model, optimizer = make(small_model(), algorithm, lr=1e-3)
    count = 0
    for _ in range(3):
        for x, y in torch.utils.data.DataLoader(Numbers(), batch_size=16, num_workers=2):
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            count += 1
    return {"count": count, "digest": digest(model)}


@scenario
def victim(algorithm, when, victim_rank=2, how="KILL", workers=True):
    """B40 B42: one of the ranks dies or freezes; the others report what they saw and when."""
    rank = bagua.rank()
    number = {"KILL": signal.SIGKILL, "STOP": signal.SIGSTOP}[how]
    loader = iter(torch.utils.data.DataLoader(Numbers(), batch_size=16, num_workers=1)) if workers else None
    if loader is not None:
        next(loader)  # The worker is alive, with whatever it inherited.
    if when == "bind" and rank == victim_rank:
        stamp(number)
    large = nn.Sequential(*[nn.Linear(700, 700, bias=False) for _ in range(4)])
    model, optimizer = make(large, algorithm, bucket_bytes=1 << 20)
    if when == "bucket" and rank == victim_rank:
        calls = []

        def die(_):  # In the middle of backward: some buckets have been started, others not.
            calls.append(1)
            if len(calls) > 6:
                stamp(number)

        for layer in list(model)[:2]:
            layer.weight.register_hook(die)
    for step in range(8):
        if when == "between" and step == 4 and rank == victim_rank:
            stamp(number)
        optimizer.zero_grad()
        model(torch.randn(4, 700)).sum().backward()
        optimizer.step()
    return {}


def stamp(number):
    with open(os.path.join(sys.argv[3], "victim"), "w", encoding="utf-8") as file:
        file.write(repr(time.time()))
    os.kill(os.getpid(), number)


@scenario
def slow_rank(seconds, pause):
    """B46: a rank in user code for longer than the step timeout."""
    model, optimizer = make(small_model(), "gradient_allreduce")
    train(model, optimizer, bagua.rank(), 2)
    if bagua.rank() == 0:
        if pause:
            with bagua.pause_timeout():
                time.sleep(seconds)
        else:
            time.sleep(seconds)
    digests, _ = train(model, optimizer, bagua.rank(), 2, first=2)
    return {"digests": digests}


@scenario
def resume(algorithm, path):
    """Optimizer state with the bucket plan: saved and loaded."""
    model, optimizer = make(small_model(), algorithm)
    train(model, optimizer, bagua.rank(), 3)
    saved = {"model": {k: v.clone() for k, v in model.state_dict().items()}, "optimizer": optimizer.state_dict()}
    torch.save(saved, f"{path}.{bagua.rank()}")
    expected, _ = train(model, optimizer, bagua.rank(), 3, first=3)
    loaded = torch.load(f"{path}.{bagua.rank()}")
    model.load_state_dict(loaded["model"])
    optimizer.load_state_dict(loaded["optimizer"])
    step = bagua.stats(model)["step"]
    actual, _ = train(model, optimizer, bagua.rank(), 3, first=3)
    return {"expected": expected, "actual": actual, "step": step}


@scenario
def skipped_and_evaluated(algorithm):
    """A skipped optimizer.step() ends the step at the next training forward; evaluation starts nothing."""
    model, optimizer = make(small_model(), algorithm)
    for step in range(6):
        x, y = data(bagua.rank(), step)
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        model.eval()
        with torch.no_grad():
            model(x)
        model.train()
        if step % 3 != 1:
            optimizer.step()
    runs = [bucket["runs"] for bucket in bagua.stats()["buckets"]]
    return {"step": bagua.stats()["step"], "runs": runs, "digest": digest(model)}


@scenario
def failed_backward(algorithm):
    """A backward that raises midway on all ranks: training goes on, synchronized."""
    model, optimizer = make(small_model(), algorithm)
    rank = bagua.rank()
    train(model, optimizer, rank, 2)

    def fail(_):
        raise ValueError("no gradient today")

    handle = model[0].weight.register_hook(fail)
    raised = False
    try:
        train(model, optimizer, rank, 1, first=2)
    except ValueError:
        raised = True
    handle.remove()
    digests, _ = train(model, optimizer, rank, 3, first=3)
    return {"raised": raised, "digests": digests}


@scenario
def schedulers(algorithm):
    """Learning-rate schedulers and deep copies accept the wrapped optimizer."""
    model, optimizer = make(small_model(), algorithm)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(3):
            train(model, optimizer, bagua.rank(), 1, first=step)
            scheduler.step()
    return {"lr": optimizer.param_groups[0]["lr"], "warnings": [str(w.message) for w in caught]}


@scenario
def refused(kind):
    """Errors at wrap name the parameter or the alternatives."""
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    algorithm = "gradient_allreduce"
    if kind == "sparse":
        model = nn.Embedding(10, 4, sparse=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    elif kind == "name":
        algorithm = "no_such_algorithm"
    elif kind == "outside":
        optimizer = torch.optim.SGD(list(model.parameters())[:-1], lr=0.1)
    elif kind == "source":
        algorithm = os.path.join(sys.argv[3], "bad.mlir")
        with open(algorithm, "w", encoding="utf-8") as file:
            file.write("bagua.algorithm @x {\n  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) { nonsense }\n}\n")
    try:
        bagua.wrap(model, optimizer, algorithm=algorithm)
    except bagua.Error as error:
        return {"error": type(error).__name__, "message": str(error)}
    return {"error": None, "message": ""}


class Sparse(nn.Module):
    """A table whose gradient is sparse when told so: nothing of the module says it before."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.table, self.head = nn.Parameter(torch.randn(10, 4)), nn.Linear(4, 4)
        self.sparse = False

    def forward(self, x):
        return self.head(functional.embedding(x, self.table, sparse=self.sparse))


@scenario
def sparse_gradient(algorithm, bad_step):
    """A hook raises in the middle of a backward. One bucket: no rank waits for one that has raised and gone."""
    model, optimizer = make(Sparse(), algorithm)
    for step in range(bad_step + 1):
        model.sparse = step == bad_step
        optimizer.zero_grad(set_to_none=True)  # Else a sparse one is added to the dense one.
        loss = model(torch.arange(5)).sum()
        try:
            loss.backward()
        except bagua.Error as error:
            return {"step": step, "raised": type(error).__name__, "message": str(error)}
        optimizer.step()
    return {"step": None, "raised": None, "message": ""}


@scenario
def counter(name):
    """Ranks add to one of the group's counters."""
    context = bagua.job(make(small_model(), "gradient_allreduce")[0]).context
    own = context.count(name, 10 + context.rank)
    context.barrier("all have counted")
    return {"own": own, "all": context.count(name), "other": context.count(name + " of another")}


@scenario
def copies():
    """Copies and pickles of a wrapped model are plain models; a late parameter group is refused."""
    model, optimizer = make(small_model(), "gradient_allreduce")
    train(model, optimizer, bagua.rank(), 1)
    before = bagua.stats(model)["buckets"][0]["runs"]
    copy = copy_module.deepcopy(model)
    stream = io.BytesIO()
    torch.save(model, stream)
    stream.seek(0)
    restored = torch.load(stream, **({"weights_only": False} if torch.__version__ >= "1.14" else {}))
    equal = digest(copy) == digest(model) == digest(restored)
    for plain in (copy, restored):
        functional.cross_entropy(plain(data(0, 1)[0]), data(0, 1)[1]).backward()
    refused = ""
    try:
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(3))]})
    except bagua.Error as error:
        refused = str(error)
    return {"equal": equal, "runs": bagua.stats(model)["buckets"][0]["runs"] - before, "refused": refused}


@scenario
def again():
    """shutdown, then init and wrap again."""
    model, optimizer = make(small_model(), "gradient_allreduce")
    train(model, optimizer, bagua.rank(), 2)
    bagua.shutdown()
    bagua.init()
    model, optimizer = make(small_model(), "gradient_allreduce")
    digests, _ = train(model, optimizer, bagua.rank(), 2)
    return {"digests": digests}


@scenario
def refreeze():
    """requires_grad changed after wrap: an error in the next forward."""
    model, optimizer = make(small_model(), "gradient_allreduce")
    train(model, optimizer, bagua.rank(), 1)
    model[0].weight.requires_grad_(False)
    try:
        train(model, optimizer, bagua.rank(), 1)
    except bagua.Error as error:
        return {"message": str(error)}
    return {"message": ""}


@scenario
def overlap(steps=6):
    """Buckets start while backward still runs: order of starts and of gradient hooks."""
    torch.manual_seed(1)
    model = nn.Sequential(*[nn.Linear(64, 64, bias=False) for _ in range(6)])
    model, optimizer = make(model, "gradient_allreduce", bucket_bytes=64 * 64 * 4)
    job = bagua.job(model)
    events = []
    for bucket in job.buckets:
        start = bucket.start

        def note(event, step, bucket=bucket, start=start):
            events.append(["start", bucket.name])
            start(event, step)

        bucket.start = note
    for index, layer in enumerate(model):
        layer.weight.register_hook(lambda g, index=index: events.append(["gradient", index]))
    for step in range(steps):
        events.clear()
        optimizer.zero_grad()
        model(torch.randn(4, 64)).sum().backward()
        optimizer.step()
    return {"events": events}


@scenario
def uneven_updates(algorithm, how):
    """One rank skips, or repeats, one optimizer.step()."""
    model, optimizer = make(small_model(), algorithm)
    for step in range(6):
        x, y = data(bagua.rank(), step)
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        odd = bagua.rank() == 1 and step == 2
        for _ in range({"skip": 0, "twice": 2}[how] if odd else 1):
            optimizer.step()
    return {"step": bagua.stats(model)["step"]}


@scenario
def buffers(algorithm, broadcast_buffers):
    """BatchNorm's statistics after steps on data that differ between ranks."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(12, 6), nn.BatchNorm1d(6), nn.Linear(6, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    bagua.wrap(model, optimizer, algorithm=algorithm, broadcast_buffers=broadcast_buffers)
    train(model, optimizer, bagua.rank(), 3)
    trained = [b.tolist() for b in model.buffers()]
    handle, seen = None, []

    def note(*_):
        seen.append([b.tolist() for b in model.buffers()])

    handle = model[1].register_forward_pre_hook(note)
    functional.cross_entropy(model(data(0, 9)[0]), data(0, 9)[1]).backward()
    optimizer.step()
    handle.remove()
    return {"trained": trained, "seen": seen[0], "count": model[1].num_batches_tracked.item()}


@scenario
def user_error(algorithm, where):
    """An exception of the job's own, on one rank."""
    model, optimizer = make(small_model(), algorithm)
    for step in range(6):
        x, y = data(bagua.rank(), step)
        optimizer.zero_grad()
        output = model(x)
        if bagua.rank() == 1 and step == 3 and where == "after_forward":
            raise ZeroDivisionError("a fault of the job's own\nin two lines")
        functional.cross_entropy(output, y).backward()
        if bagua.rank() == 1 and step == 3 and where == "after_backward":
            raise ZeroDivisionError("a fault of the job's own\nin two lines")
        optimizer.step()
    return {}


@scenario
def extra_forwards(algorithm, ranks):
    """Training forwards without a step: before training, between steps, and last; some ranks end early."""
    model, optimizer = make(small_model(), algorithm)
    extra = bagua.rank() in ranks

    def more():
        if extra:
            model(data(bagua.rank(), 77)[0])
            model(data(bagua.rank(), 78)[0])

    more()
    digests = []
    for step in range(5):
        digests += train(model, optimizer, bagua.rank(), 1, first=step)[0]
        more()
    time.sleep(0.3 * bagua.rank())
    return {"digests": digests, "step": bagua.stats(model)["step"]}


@scenario
def after_shutdown():
    """Every public call after shutdown, and what it says."""
    model, optimizer = make(small_model(), "gradient_allreduce")
    mixing_model, mixing_optimizer = make(small_model(), "decentralized")
    train(model, optimizer, bagua.rank(), 1)
    job = bagua.job(model)
    context = job.context
    pause = bagua.pause_timeout()
    with pause:
        bagua.shutdown()
    bagua.shutdown()
    batch, target = data(0, 0)
    calls = {
        "rank": bagua.rank,
        "world": bagua.world,
        "local_rank": bagua.local_rank,
        "local_size": bagua.local_size,
        "source": bagua.source,
        "wrap": lambda: make(small_model(), "gradient_allreduce"),
        "stats": bagua.stats,
        "statistics": lambda: bagua.stats(model),
        "pause_timeout": bagua.pause_timeout,
        "barrier": bagua.barrier,
        "broadcast": lambda: bagua.broadcast(torch.ones(3)),
        "write_trace": lambda: bagua.write_trace("/dev/null"),
        "wire_bytes": job.wire_bytes_per_step,
        "start": lambda: mixing_model(batch),
        "compare": lambda: functional.cross_entropy(model(batch), target).backward(),
        "rank ": lambda: context.rank,
        "agree": lambda: context.agree("x", 1),
        "barrier ": context.barrier,
        "broadcast ": lambda: context.broadcast(batch.data_ptr(), 4),
        "bind": lambda: context.bind(job.schedule, "b", 1, 0),
        "write_trace ": lambda: context.write_trace("/dev/null"),
        "pause_timeout ": lambda: context.pause_timeout().__enter__(),
    }
    messages = {}
    for name, call in calls.items():
        try:
            call()
            messages[name] = "no error"
        except bagua.FailedPreconditionError as error:
            messages[name] = str(error)
    model.eval()
    with torch.no_grad():
        model(batch)  # Evaluation needs no peers.
    return messages


@scenario
def waits_alone(call):
    """All ranks but the last block in `call`, which the last one never makes."""
    model, optimizer = make(small_model(), "gradient_allreduce")
    job = bagua.job(model)
    memory = torch.zeros(8)
    calls = {
        "agree": lambda: job.context.agree("x", 1),
        "barrier": bagua.barrier,
        "broadcast": lambda: bagua.broadcast(memory),
        "bind": lambda: job.context.bind(job.schedule, "b", 8, 0, memory.data_ptr()),
        "wait": lambda: train(model, optimizer, bagua.rank(), 2),
    }
    if call == "wait":
        train(model, optimizer, bagua.rank(), 1)
    try:  # The report as well: the signal may come before the call on a busy machine.
        report(os.path.join(sys.argv[3], f"waits{bagua.rank()}.json"), os.getpid())
        if bagua.rank() == bagua.world() - 1:
            time.sleep(1000)
        calls[call]()
    except KeyboardInterrupt:
        report(os.path.join(sys.argv[3], f"interrupted{bagua.rank()}.json"), time.time())
        raise


def report(path, value):
    """Written whole or not at all."""
    with open(path + ".partial", "w", encoding="utf-8") as file:
        json.dump(value, file)
    os.replace(path + ".partial", path)


def momentum_optimizer(model, lr=0.1):
    """For an algorithm that owns the update: the optimizer counts and has the groups' options."""
    return torch.optim.SGD(model.parameters(), lr=lr)


def state_digest(model):
    """Of every state, in whatever buckets."""
    values = bagua.job(model).state_dict()["states"]["values"]
    found = []
    for name in sorted(values):
        for parameter in sorted(values[name]):
            value = values[name][parameter]
            tensor = value["values"] if isinstance(value, dict) else value
            found.append(tensor.contiguous().numpy().tobytes())
    return zlib.crc32(b"".join(found))


@scenario
def owned_update(schedule, steps=6):
    """gossip_momentum alone against momentum written in torch, three parameter groups with rates of their own; a
    scheduler made before wrap and one made after see every step."""
    model, reference = small_model(), small_model()
    layers = [layer for layer in model if isinstance(layer, nn.Linear)]
    rates = [0.1, 0.05, 0.01]
    optimizer = torch.optim.SGD(
        [{"params": list(layer.parameters()), "lr": lr} for layer, lr in zip(layers, rates)], lr=1.0
    )
    before = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    bagua.wrap(model, optimizer, algorithm=schedule, bucket_bytes=1024, beta=0.5)
    after = torch.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.5)
    momenta = [torch.zeros_like(p) for p in reference.parameters()]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(steps):
            x, y = data(0, step)
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            group_rates = [group["lr"] for group in optimizer.param_groups]
            if step % 2:
                optimizer.step()
            else:
                assert optimizer.step(lambda: torch.tensor(7.0)).item() == 7.0  # A closure without a backward.
            before.step()
            after.step()
            functional.cross_entropy(reference(x), y).backward()
            with torch.no_grad():
                for index, (p, m) in enumerate(zip(reference.parameters(), momenta)):
                    m.mul_(0.5).add_(p.grad)
                    p.sub_(m * torch.tensor(group_rates[index // 2], dtype=torch.float32))
                    p.grad = None
    return {
        "equal": digest(model) == digest(reference),
        "changed": digest(model) != digest(small_model()),
        "step": bagua.stats()["step"],
        "runs": sorted({bucket["runs"] for bucket in bagua.stats()["buckets"]}),
        "optimizer_state": len(optimizer.state),
        "warnings": [str(w.message) for w in caught if "lr_scheduler" in str(w.message)],
    }


@scenario
def resume_states(schedule, path, buckets, optimizer_name="owned"):
    """B33: uninterrupted training against a new model that loads each rank's file, in other buckets if asked."""
    rank = bagua.rank()

    def made(bucket_bytes):
        model = small_model(seed=5)
        optimizer = momentum_optimizer(model)
        return bagua.wrap(model, optimizer, algorithm=schedule, bucket_bytes=bucket_bytes)

    model, optimizer = made(1024)
    train(model, optimizer, rank, 3)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, f"{path}.{rank}")
    expected, _ = train(model, optimizer, rank, 3, first=3)
    expected_states = state_digest(model)

    model, optimizer = made(buckets)
    loaded = torch.load(f"{path}.{rank}")
    model.load_state_dict(loaded["model"])
    optimizer.load_state_dict(loaded["optimizer"])
    step = bagua.stats(model)["step"]
    actual, _ = train(model, optimizer, rank, 3, first=3)
    equal_states = state_digest(model) == expected_states
    fresh, fresh_optimizer = made(1024)  # What a lost state would give.
    fresh.load_state_dict(loaded["model"])
    lost, _ = train(fresh, fresh_optimizer, rank, 3, first=3)
    return {"expected": expected, "actual": actual, "step": step, "equal_states": equal_states, "lost": lost}


@scenario
def save_states(schedule, path, steps=3):
    model = small_model()
    optimizer = momentum_optimizer(model)
    bagua.wrap(model, optimizer, algorithm=schedule, bucket_bytes=1024)
    train(model, optimizer, bagua.rank(), steps)
    torch.save(optimizer.state_dict(), f"{path}.{bagua.rank()}")
    return {}


@scenario
def load_states(schedule, path, bucket_bytes=1024, rank=None):
    """B33 in another world, or B38's wrong file: what each state holds afterwards, and what the log says."""
    messages = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    logging.getLogger("bagua").addHandler(handler)
    model = small_model(seed=9)
    optimizer = momentum_optimizer(model)
    bagua.wrap(model, optimizer, algorithm=schedule, bucket_bytes=bucket_bytes)
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    files = sorted(name for name in os.listdir(os.path.dirname(path)) if name.startswith(os.path.basename(path) + "."))
    saved = [torch.load(os.path.join(os.path.dirname(path), name))["bagua"]["states"]["values"] for name in files]
    mine = bagua.rank() if rank is None else rank
    try:
        optimizer.load_state_dict(torch.load(f"{path}.{mine}"))
    except bagua.Error as error:
        return {"error": str(error)}
    finally:
        logging.getLogger("bagua").removeHandler(handler)
    now = bagua.job(model).state_dict()["states"]["values"]
    world = bagua.world()
    names = sorted(weights)
    mean = all(
        torch.equal(
            now["total"][name],
            (sum(saved[r]["total"][name].double() for r in range(world)) / world).to(torch.float32),
        )
        for name in names
    )
    # Shards of the loaded files, laid end to end.
    whole, known = {}, {}
    for name in names:
        whole[name], known[name] = torch.zeros(weights[name].numel()), torch.zeros(weights[name].numel())
        for values in saved[:world]:
            part = values["part"][name]
            begin = part["begin"]
            whole[name][begin : begin + part["values"].numel()] = part["values"]
            known[name][begin : begin + part["values"].numel()] = 1
    shards = all(
        torch.equal(part["values"], whole[name][part["begin"] : part["begin"] + part["values"].numel()])
        for name, part in now["part"].items()
    )
    return {
        "mean": mean,
        "shards": shards,
        "known": sum(int(k.sum()) for k in known.values()),
        "elements": sum(k.numel() for k in known.values()),
        "counts": sorted({value.item() for value in now["count"].values()}),
        "zero": all(torch.equal(now["first"][n], torch.stack([weights[n]] * 2)) for n in names),
        "log": messages,
    }


@scenario
def non_finite_step(schedule, bad_step=2, skip=False, bad_rank=1):
    """One rank's gradient is not finite in one step, or the update is skipped: no rank's states change."""
    model = small_model()
    optimizer = momentum_optimizer(model)
    bagua.wrap(model, optimizer, algorithm=schedule, bucket_bytes=1024)
    rank, changed, marks = bagua.rank(), [], []
    for step in range(5):
        x, y = data(rank, step)
        if step == bad_step and rank == bad_rank and not skip:
            x[0, 0] = float("nan")
        weights = digest(model)
        optimizer.zero_grad()
        output = model(x)
        marks.append(state_digest(model))  # Here the step before has ended, also where its update was skipped.
        functional.cross_entropy(output, y).backward()
        if not (skip and step == bad_step):
            optimizer.step()
        changed.append(digest(model) != weights)
    marks.append(state_digest(model))
    states = [before != after for before, after in zip(marks, marks[1:])]
    return {"changed": changed, "states": states, "non_finite": bagua.stats()["non_finite"]}


@scenario
def steps_without_end(schedule):
    """What the log says while no step is finite."""
    messages = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    logging.getLogger("bagua").addHandler(handler)
    try:
        model, optimizer = make(small_model(), schedule)
        train(model, optimizer, bagua.rank(), 10)
    finally:
        logging.getLogger("bagua").removeHandler(handler)
    return {"log": messages, "non_finite": bagua.stats(model)["non_finite"]}


@scenario
def parameters_of_this_step(schedule, name, value, rank, each=False):
    """One rank's parameter group says something else of a parameter that may change from step to step; with `each`, the
    last of as many groups as the model has parameters."""
    model = small_model()
    parameters = [{"params": [p]} for p in model.parameters()] if each else model.parameters()
    optimizer = torch.optim.Adam(parameters, lr=0.012345678901234567)
    bagua.wrap(model, optimizer, algorithm=schedule, bucket_bytes=1024)
    train(model, optimizer, bagua.rank(), 2)
    if bagua.rank() == rank:
        optimizer.param_groups[-1][name] = value
    try:
        train(model, optimizer, bagua.rank(), 2, first=2)
        return {"raised": "none", "message": ""}
    except bagua.Error as error:
        return {"raised": type(error).__name__, "message": str(error)}


@scenario
def first_steps(schedule, steps, bad_steps=(), **options):
    """Training from the first step on; `bad_steps` have gradients that are not finite, on all ranks."""
    model = small_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    bagua.wrap(model, optimizer, algorithm=schedule, bucket_bytes=1024, **options)
    changed = []
    for step in range(steps):
        x, y = data(bagua.rank(), step)
        weights = digest(model)
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        (loss * (float("inf") if step in bad_steps else 1.0)).backward()
        optimizer.step()
        changed.append(digest(model) != weights)
    finite = all(bool(torch.isfinite(p).all()) for p in model.parameters())
    return {"changed": changed, "finite": finite, "digest": digest(model), "non_finite": bagua.stats()["non_finite"]}


@scenario
def rounds_beside_a_bad_step(schedule, closure=False):
    """B16: a gradient of one rank that is not finite costs that rank its step, and nobody anything else."""
    model, optimizer = make(small_model(), schedule)
    rank = bagua.rank()
    for step in range(6):
        x, y = data(rank, step)
        if step == 2 and rank == 1:
            x[0, 0] = float("nan")

        def evaluate():
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
            return loss

        if closure:
            optimizer.step(evaluate)
        else:
            evaluate()
            optimizer.step()
    bagua.stop(model)
    finite = all(bool(torch.isfinite(p).all()) for p in model.parameters())
    return {"finite": finite, "non_finite": bagua.stats(model)["non_finite"], "rounds": bagua.stats(model)["rounds"]}


@scenario
def copied_state(schedule):
    """B34: the state goes through pickle and deepcopy, the optimizer too."""
    model = small_model()
    optimizer = momentum_optimizer(model)
    bagua.wrap(model, optimizer, algorithm=schedule, bucket_bytes=1024)
    train(model, optimizer, bagua.rank(), 2)
    before = state_digest(model)
    state = optimizer.state_dict()
    pickled = pickle.loads(pickle.dumps(state))
    copied = copy_module.deepcopy(state)
    train(model, optimizer, bagua.rank(), 2, first=2)
    moved = state_digest(model) != before
    equal = []
    for each in (pickled, copied):
        optimizer.load_state_dict(each)
        equal.append(state_digest(model) == before)
    other = pickle.loads(pickle.dumps(optimizer))
    plain = copy_module.deepcopy(optimizer)
    return {
        "moved": moved,
        "equal": equal,
        "step": bagua.stats()["step"],
        "types": [type(other).__name__, type(plain).__name__],
        "plain": "bagua" not in plain.state_dict(),
    }


@scenario
def refused_owner(schedule, kind):
    model = small_model()
    optimizer = momentum_optimizer(model)
    options = {"option": {"gamma": 1.0}, "type": {"beta": "much"}, "none": {}}.get(kind, {})
    x, y = data(0, 0)
    try:
        bagua.wrap(model, optimizer, algorithm=schedule, **options)
        loss = functional.cross_entropy(model(x), y)
        loss.backward(retain_graph=True)
        if kind == "clipped":
            nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        if kind == "replaced":
            for p in model.parameters():
                p.grad = p.grad * 0.5
        if kind == "twice":
            loss.backward()
        optimizer.step()
    except bagua.Error as error:
        return {"error": type(error).__name__, "message": str(error)}
    return {"error": None}


class Counting(nn.Module):
    """Weights that steps change by whole numbers: sums of them are exact."""

    def __init__(self, dtype):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 5).to(dtype) for _ in range(3))
        with torch.no_grad():
            for number, p in enumerate(self.parameters()):
                p.copy_(torch.arange(p.numel()).reshape(p.shape) % 7 - number)

    def forward(self, scale):
        return sum((p * scale).sum() for p in self.parameters())

    def flat(self):
        return torch.cat([p.detach().reshape(-1) for p in self.parameters()])


def count_steps(model, optimizer, steps, pause=0.0):
    """So many steps; each adds rank + 1 to every weight."""
    for _ in range(steps):
        optimizer.zero_grad()
        model(-(bagua.rank() + 1.0)).backward()
        optimizer.step()
        time.sleep(pause)


def counting(schedule, dtype="float64", lr=1.0, **options):
    model = Counting(getattr(torch, dtype))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    return bagua.wrap(model, optimizer, algorithm=schedule, bucket_bytes=100, **options)


@scenario
def rounds_of_uneven_ranks(schedule, steps, pauses=(0.0,), dtype="float64", **options):
    """B68: ranks make different numbers of steps, at different paces, then stop: twice, which is once."""
    model, optimizer = counting(schedule, dtype, **options)
    start = model.flat().tolist()
    rank = bagua.rank()
    with bagua.asynchronous(model):
        count_steps(model, optimizer, steps[rank], pauses[rank % len(pauses)])
    end = model.flat().tolist()
    stats = bagua.stats(model)
    bagua.stop(model)
    bagua.stop(model)
    again = model.flat().tolist()
    return {
        "start": start,
        "end": end,
        "again": again,
        "step": stats["step"],
        "rounds": stats["rounds"],
        "wire": stats["bytes_wire"],
        "runs": [snapshot.binding.statistics()["runs"] for snapshot in bagua.job(model).rounds.snapshots],
        "formula": bagua.job(model).rounds.wire_bytes(0),
    }


@scenario
def rounds_of_pairs(schedule, rounds, signal_path):
    """Two ranks make so many rounds with each other while the other two have not begun to train."""
    model, optimizer = counting(schedule)
    start = model.flat().tolist()
    ours, steps = bagua.job(model).rounds, 0
    if bagua.rank() > 1:
        while not os.path.exists(signal_path):
            time.sleep(0.01)
    while ours.added < rounds:
        count_steps(model, optimizer, 1)
        steps += 1
    if bagua.rank() == 0:
        with open(signal_path, "w", encoding="utf-8"):
            pass
    bagua.stop(model)
    return {"start": start, "end": model.flat().tolist(), "steps": steps, "rounds": ours.added}


@scenario
def rounds_by_steps(schedule, interval, warmup, steps=23):
    """Rounds that count steps against all ranks' training written down once more, here."""
    rank, world, staleness = bagua.rank(), bagua.world(), 2
    model, optimizer = make(small_model(), schedule, wrap=False)
    bagua.wrap(model, optimizer, algorithm=schedule, bucket_bytes=1024, interval=interval, warmup=warmup)
    copies = [small_model() for _ in range(world)]
    optimizers = [torch.optim.SGD(c.parameters(), lr=0.1, momentum=0.9) for c in copies]
    begun_at, differences, due, begun, equal = None, None, False, 0, []
    for step in range(1, steps + 1):
        train(model, optimizer, rank, 1, first=step)
        for r, (copy, opt) in enumerate(zip(copies, optimizers)):
            x, y = data(r, step)
            opt.zero_grad()
            functional.cross_entropy(copy(x), y).backward()
            opt.step()
        due = due or (step % interval == 0 and step >= warmup)
        with torch.no_grad():
            if begun_at is not None and step == begun_at + staleness:
                for copy, difference in zip(copies, differences):
                    for p, d in zip(copy.parameters(), difference):
                        p.add_(d)
                begun_at = None
            if due and begun_at is None:
                means = [sum(ps[1:], ps[0]) / world for ps in zip(*(c.parameters() for c in copies))]
                differences = [[m - p for m, p in zip(means, c.parameters())] for c in copies]
                begun_at, due, begun = step, False, begun + 1
        equal.append(digest(model) == digest(copies[rank]))
    counted = bagua.job(model).rounds.begun
    bagua.stop(model)
    return {"equal": equal, "begun": begun, "counted": counted, "plain": digest(copies[0]) == digest(copies[1])}


@scenario
def rounds_end_with_a_fault(schedule, how):
    """B68: one rank fails; the others train until they hear of it."""
    model, optimizer = counting(schedule, interval=1)
    rounds = bagua.job(model).rounds

    def fail():
        with open(os.path.join(sys.argv[3], "victim"), "w", encoding="utf-8") as file:
            file.write(repr(time.time()))
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        raise ZeroDivisionError("a fault of the job's own\nin two lines")

    def steps():
        for step in range(100000):
            count_steps(model, optimizer, 1, 0.002)
            if bagua.rank() == 1 and step >= 20 and rounds.under_way:
                fail()

    if how == "scope":
        with bagua.asynchronous(model):
            steps()
    elif how == "finally":
        try:
            steps()
        finally:
            bagua.shutdown()
    else:
        steps()
    return {}


@scenario
def rounds_stall(schedule):
    """A rank stays in user code while the others wait at the bound of staleness."""
    model, optimizer = counting(schedule, interval=1)
    count_steps(model, optimizer, 3)
    if bagua.rank() == 1:
        time.sleep(8)
    count_steps(model, optimizer, 20)
    bagua.stop(model)
    return {}


@scenario
def rounds_and_evaluation(schedule):
    """Nothing changes but in optimizer.step(); a round gets on while the trainer does something else; BatchNorm's
    statistics stay each rank's own."""
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(12, 6), nn.BatchNorm1d(6), nn.Linear(6, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    bagua.wrap(model, optimizer, algorithm=schedule, interval=1)
    rank, changed, evaluated = bagua.rank(), 0, []
    for step in range(30):
        x, y = data(rank, step)
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        before = digest(model)
        optimizer.step()
        after = digest(model)
        changed += after != before
        model.eval()
        with torch.no_grad():
            outputs = []
            for _ in range(3):
                outputs.append(model(x).tolist())
                time.sleep(0.002)
        model.train()
        evaluated.append(outputs[0] == outputs[1] == outputs[2] and digest(model) == after)
    rounds = bagua.job(model).rounds
    while not rounds.under_way:
        train(model, optimizer, rank, 1)
    in_background = None
    if rounds.counts_steps:  # Else others may be at the round before, and begin this one only if they go on.
        deadline = time.monotonic() + 20
        while rounds.snapshots[0].binding.statistics()["runs"] < rounds.begun and time.monotonic() < deadline:
            time.sleep(0.01)
        in_background = rounds.snapshots[0].binding.statistics()["runs"] == rounds.begun
    trained = [b.tolist() for b in model.buffers()]
    bagua.stop(model)
    return {
        "changed": changed,
        "evaluated": evaluated,
        "in_background": in_background,
        "trained": trained,
        "stopped": [b.tolist() for b in model.buffers()],
        "rounds": bagua.stats(model)["rounds"],
        "weights": digest(model),
    }


@scenario
def rounds_again(schedule):
    """Stopped rounds rest; the scope begins them again."""
    model, optimizer = counting(schedule, interval=1)
    count_steps(model, optimizer, 10)
    bagua.stop(model)
    counts = [bagua.stats(model)["rounds"]]
    count_steps(model, optimizer, 10 * (bagua.rank() + 1))
    counts.append(bagua.stats(model)["rounds"])
    with bagua.asynchronous(model):
        count_steps(model, optimizer, 10)
    counts.append(bagua.stats(model)["rounds"])
    with bagua.asynchronous(model):
        pass
    counts.append(bagua.stats(model)["rounds"])
    bagua.barrier("stopped, so that ranks may wait for each other")
    return {"rounds": counts, "end": model.flat().tolist()}


@scenario
def rounds_of_two_models(schedule, steps):
    """Two models in turn, two forwards before a backward, accumulation under no_sync, evaluation: nobody waits for ever,
    and ranks stop one model after the other."""
    rank = bagua.rank()
    generator, critic = small_model(1), small_model(2)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.05) for m in (generator, critic)]
    for m, optimizer in zip((generator, critic), optimizers):
        bagua.wrap(m, optimizer, algorithm=schedule, interval=3)
    for step in range(steps[rank]):
        x, y = data(rank, step)
        optimizers[1].zero_grad()
        (functional.cross_entropy(critic(x), y) + functional.cross_entropy(critic(x * 0.5), y)).backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        first, second = generator(x), generator(-x)
        with bagua.no_sync(generator):
            functional.cross_entropy(first, y).backward()
        functional.cross_entropy(second, y).backward()
        generator.eval()
        generator(x)
        generator.train()
        critic(x)
        optimizers[0].step()
        time.sleep(0.001 * (rank + 1))
    bagua.stop(generator)
    bagua.stop(critic)
    return {"rounds": [bagua.stats(m)["rounds"] for m in (generator, critic)]}


@scenario
def rounds_and_checkpoints(schedule, path):
    """A checkpoint while a round is under way, loading then, and loading when rounds have stopped."""
    records, log = [], logging.getLogger("bagua")
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())
    log.addHandler(handler)
    model, optimizer = counting(schedule, interval=1)
    rounds = bagua.job(model).rounds
    while not rounds.under_way or rounds.begun < 3:
        count_steps(model, optimizer, 1)
    before = model.flat().tolist()
    during = optimizer.state_dict()["bagua"]
    try:
        optimizer.load_state_dict(optimizer.state_dict())
        refused = None
    except bagua.FailedPreconditionError as error:
        refused = str(error)
    unchanged = model.flat().tolist() == before
    count_steps(model, optimizer, bagua.rank())  # Ranks save at different steps.
    bagua.stop(model)
    saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(saved, f"{path}.{bagua.rank()}")
    stopped = model.flat().tolist()
    begun = rounds.begun
    count_steps(model, optimizer, 4)
    loaded = torch.load(f"{path}.{bagua.rank()}")
    model.load_state_dict(loaded["model"])
    optimizer.load_state_dict(loaded["optimizer"])
    log.removeHandler(handler)
    state = rounds.snapshots[0].states[0]
    value = torch.zeros(1, dtype=torch.float64)
    rounds.snapshots[0].binding.read_state(state["index"], value.data_ptr(), 8)
    return {
        "warnings": records,
        "during": sorted({v.item() for v in during["states"]["values"]["rounds"].values()}),
        "refused": refused,
        "unchanged": unchanged,
        "loaded": model.flat().tolist() == stopped,
        "step": bagua.stats(model)["step"] == saved["optimizer"]["bagua"]["step"],
        "counted": [value.item(), begun],
    }


@scenario
def rounds_refuse(schedule, call):
    """Calls in which ranks would wait for each other while rounds go by each rank's clock."""
    model, optimizer = counting(schedule, interval=1)
    other, other_optimizer = make(small_model(), "gradient_allreduce")  # None has begun yet.
    bagua.barrier()
    while bagua.job(model).rounds.begun == 0:
        count_steps(model, optimizer, 1)
    try:
        if call == "barrier":
            bagua.barrier()
        elif call == "broadcast":
            bagua.broadcast(torch.zeros(3))
        elif call == "wrap":
            make(small_model(), "bytegrad")
        else:
            train(other, other_optimizer, bagua.rank(), 1)
        message = None
    except bagua.FailedPreconditionError as error:
        message = str(error)
    bagua.stop(model)
    return {"message": message}


@scenario
def rounds_after_warm_up(schedule, odd_step):
    """Steps that wait for each other are counted; later ones are each rank's own."""
    model, optimizer = counting(schedule, interval=2, warmup=5)
    start = model.flat().tolist()
    for step in range(12):
        count_steps(model, optimizer, 1)
        if bagua.rank() == 1 and step == odd_step:
            optimizer.step()
    warm = model.flat().tolist()
    bagua.stop(model)
    return {"start": start, "warm": warm, "end": model.flat().tolist(), "rounds": bagua.stats(model)["rounds"]}


def serve(folder):
    """Runs one scenario after another, as request0.json, request1.json, … appear; an empty request ends it."""
    number = 0
    while True:
        path = os.path.join(folder, f"request{number}.json")
        while not os.path.exists(path):
            time.sleep(0.01)
        with open(path, encoding="utf-8") as file:
            request = json.load(file)
        if not request:
            return
        result = SCENARIOS[request["scenario"]](**request["arguments"])
        report(os.path.join(folder, f"result{number}.rank{bagua.rank()}.json"), result)
        number += 1


def main():
    name, arguments, folder = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
    if name == "data_loader":  # Forked before the runtime has any thread.
        list(torch.utils.data.DataLoader(Numbers(), batch_size=16, num_workers=2))
    bagua.init()
    rank = bagua.rank()
    try:
        if name == "serve":
            serve(folder)
        else:
            report(os.path.join(folder, f"rank{rank}.json"), SCENARIOS[name](**arguments))
    except bagua.Error as error:
        failure = {"raised": type(error).__name__, "message": str(error), "time": time.time()}
        report(os.path.join(folder, f"rank{rank}.json"), failure)
        victim_file = os.path.join(folder, "victim")
        if os.path.exists(victim_file):
            with open(victim_file, encoding="utf-8") as file:
                print(f"rank {rank} raised {time.time() - float(file.read()):.2f} s after the event", flush=True)
        raise
    bagua.shutdown()
    assert threading.active_count() == 1


if __name__ == "__main__":
    main()
