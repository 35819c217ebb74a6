"""Scenarios of checkpoints for every algorithm that keeps state: resumed in a new process, in as many ranks or others."""

import zlib

import torch
from torch import nn
from torch.nn import functional

import bagua.torch as bagua

SCENARIOS = {}
INTERVALS = ["diloco", "slowmo", "qsparse_local_sgd"]
OWNERS = ["onebit_adam", "qadam"]


def scenario(function):
    SCENARIOS[function.__name__] = function
    return function


def made(algorithm):
    """A job in small buckets, whose warm-up and intervals both begin and end around step 3."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(12, 33), nn.Tanh(), nn.Linear(33, 4))
    options = {"interval": 2} if algorithm in INTERVALS else {"warmup": 4} if algorithm in OWNERS else {}
    momentum = 0 if algorithm in OWNERS else 0.9
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=momentum)
    bagua.wrap(model, optimizer, algorithm=algorithm, bucket_bytes=1024, **options)
    return model, optimizer


def train(model, optimizer, first, steps):
    digests = []
    for step in range(first, first + steps):
        generator = torch.Generator().manual_seed(1000 * step + bagua.rank())
        x = torch.randn(8, 12, generator=generator)
        optimizer.zero_grad()
        functional.cross_entropy(model(x), x[:, :4].argmax(1)).backward()
        optimizer.step()
        digests.append(zlib.crc32(b"".join(p.detach().numpy().tobytes() for p in model.parameters())))
    return digests


def states_of(model):
    """{state: {parameter: value}}, of this rank."""
    return bagua.job(model).state_dict()["states"]["values"]


def digest_of(states):
    found = []
    for name in sorted(states):
        for parameter in sorted(states[name]):
            value = states[name][parameter]
            found.append((value["values"] if isinstance(value, dict) else value).contiguous().numpy().tobytes())
    return zlib.crc32(b"".join(found))


def save(model, optimizer, path):
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)


@scenario
def save_each(algorithms, folder, steps=3, more=5):
    """Trains each, saves after `steps`, and goes on."""
    reports = {}
    for algorithm in algorithms:
        model, optimizer = made(algorithm)
        train(model, optimizer, 0, steps)
        save(model, optimizer, f"{folder}/{algorithm}.{bagua.rank()}")
        digests = train(model, optimizer, steps, more)
        reports[algorithm] = {"digests": digests, "states": digest_of(states_of(model))}
    return reports


@scenario
def resume_each(algorithms, folder, steps=3, more=5):
    """Loads this rank's files and goes on; also once without the state."""
    reports = {}
    for algorithm in algorithms:
        loaded = torch.load(f"{folder}/{algorithm}.{bagua.rank()}")
        runs = []
        for kept in (True, False):
            model, optimizer = made(algorithm)
            model.load_state_dict(loaded["model"])
            if not kept:
                del loaded["optimizer"]["bagua"]["states"]
            optimizer.load_state_dict(loaded["optimizer"])
            runs.append([train(model, optimizer, steps, more), digest_of(states_of(model))])
        reports[algorithm] = {"digests": runs[0][0], "states": runs[0][1], "lost": runs[1]}
    return reports


def gathered(tensor):
    """Every rank's, in turn."""
    result = []
    for root in range(bagua.world()):
        theirs = tensor.detach().clone().contiguous()
        bagua.broadcast(theirs, root)
        result.append(theirs)
    return result


def resized(model, loaded, declared):
    """What of the states is not as their on_resize says, after `loaded` by each rank."""
    wrong, states = [], states_of(model)
    for name, (on_resize, initial) in declared.items():
        for parameter, weight in model.named_parameters():
            value, before = states[name][parameter], loaded[name][parameter]
            if isinstance(value, dict):  # Of the ranks' shards, laid end to end; what nobody has loaded is zero.
                whole, count = torch.zeros(weight.numel()), weight.numel()
                counts = gathered(torch.tensor([before["begin"], before["values"].numel()]))
                for root, (begin, length) in enumerate(counts):
                    part = torch.zeros(int(length)) if root != bagua.rank() else before["values"].clone()
                    if length > 0:
                        bagua.broadcast(part, root)
                        whole[int(begin) : int(begin + length)] = part
                assert count >= value["begin"] + value["values"].numel()
                expected, value = whole[value["begin"] : value["begin"] + value["values"].numel()], value["values"]
            elif on_resize == "mean":
                total = sum(theirs.double() for theirs in gathered(before))
                expected = (total / bagua.world()).float()
            elif initial == "weight":
                total = sum(theirs.double() for theirs in gathered(weight))
                expected = (total / bagua.world()).float().expand_as(value)
            else:
                expected = torch.full_like(value, initial)
            if not torch.equal(value, expected):
                wrong.append(f"{name} of {parameter}")
    return wrong


def strangers(model):
    """Estimates of a neighbour that are not what the neighbour has: @n of each rank against its neighbours' @x."""
    states, wrong = states_of(model), []
    if "n" not in states:
        return wrong
    rank, world = bagua.rank(), bagua.world()
    peers = [1 - rank] if world == 2 else [(rank - 1) % world, (rank + 1) % world]
    for parameter, rows in states["n"].items():
        theirs = gathered(states["x"][parameter])
        wrong += [f"{parameter} of rank {peer}" for row, peer in zip(rows, peers) if not torch.equal(row, theirs[peer])]
    return wrong


@scenario
def resize_each(algorithms, folder, target, old_world, more=4):
    """Loads files of `old_world` ranks, checks what became of the states, trains, and saves to `target`."""
    reports = {}
    for algorithm in algorithms:
        model, optimizer = made(algorithm)
        path = f"{folder}/{algorithm}.{bagua.rank() % old_world}"
        loaded = torch.load(path)
        model.load_state_dict(loaded["model"])
        optimizer.load_state_dict(loaded["optimizer"])
        job = bagua.job(model)
        declared = {state["name"]: (state["on_resize"], state["initial"]) for state in job.schedule.info["states"]}
        wrong = resized(model, loaded["optimizer"]["bagua"]["states"]["values"], declared)
        apart = [strangers(model)]
        first = bagua.stats(model)["step"]
        digests = train(model, optimizer, first, more)
        apart.append(strangers(model))
        save(model, optimizer, f"{target}/{algorithm}.{bagua.rank()}")
        reports[algorithm] = {
            "wrong": wrong,
            "apart": apart,
            "first": first,
            "digests": digests,
            "finite": all(bool(torch.isfinite(p).all()) for p in model.parameters()),
            "on_resize": sorted({on_resize for on_resize, _ in declared.values()}),
        }
    return reports
