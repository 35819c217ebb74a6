#!/usr/bin/env python3
"""One rank of the convergence benchmark: trains, evaluates, writes a report for each seed. See convergence.py.

Each rank evaluates its replica on its own part of the test data, so the mean over ranks is over all of it."""

import argparse
import glob
import json
import os
import sys
import time

import torch
from torch.nn import functional

import bagua.torch as bagua
from bagua.schedule import find_schedule

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "tools", "demo"))
import train as demo  # noqa: E402  pylint: disable=wrong-import-position

FORTUNES = "/usr/share/games/fortunes"
CONTEXT = 48  # Bytes that the language model sees.

# What differs from an algorithm's defaults and SGD's rate: the defaults are made for longer runs, the direction of a
# vote is not as long as a gradient, and an eighth of a gradient, scaled up, has eight times its variance.
OPTIONS = {"diloco": {"interval": 50}, "post_local_sgd": {"warmup": 200}}
LR_FACTOR = {"signsgd_majority": 1 / 100, "random_k": 1 / 3}


class FashionTask:
    """Fashion-MNIST, a small CNN, SGD with momentum. The metric is test accuracy in percent."""

    batch, lr, momentum = 64, 0.03, 0.9

    def __init__(self):
        self.images, self.labels = demo.load("/usr/share/datasets/fashion-mnist", "train")

    def model(self):
        return demo.Net()

    def optimizer(self, parameters, owned, factor):
        if owned:  # The algorithm is Adam itself: lr and weight decay come from here.
            return torch.optim.Adam(parameters, lr=2e-3)
        return torch.optim.SGD(parameters, lr=self.lr * factor, momentum=self.momentum)

    def loss(self, model, generator, rank, world):
        chosen = torch.randint(len(self.images), (self.batch,), generator=generator)[rank::world]
        return functional.cross_entropy(model(self.images[chosen]), self.labels[chosen])

    def evaluate(self, model, rank, world):
        images, labels = demo.load("/usr/share/datasets/fashion-mnist", "t10k")
        return 100 * demo.evaluate(model, images[rank::world], labels[rank::world])


class PlainTask(FashionTask):
    """The same without momentum, as long a step on the whole."""

    lr, momentum = 0.3, 0.0


class ByteModel(torch.nn.Module):
    """Two convolutions over embedded bytes, causal: small, and fast on a CPU."""

    def __init__(self, width=64):
        super().__init__()
        self.embedding = torch.nn.Embedding(256, width)
        self.convolutions = torch.nn.ModuleList(torch.nn.Conv1d(width, width, 4, dilation=d) for d in (1, 4))
        self.head = torch.nn.Linear(width, 256)

    def forward(self, x):
        x = self.embedding(x).transpose(1, 2)
        for convolution in self.convolutions:
            reach = 3 * convolution.dilation[0]
            x = x + functional.relu(convolution(functional.pad(x, (reach, 0))))
        return self.head(x.transpose(1, 2))


class TextTask:
    """A byte-level language model on the texts of the Debian package `fortunes`, Adam. The metric is the loss on
    held-out text, in bits per byte."""

    batch, lr = 16, 2e-2

    def __init__(self):
        files = sorted(f for f in glob.glob(os.path.join(FORTUNES, "*")) if not f.endswith((".dat", ".u8")))
        if not files:
            sys.exit(f"no texts in {FORTUNES}: install the Debian package fortunes")
        text = b"".join(open(file, "rb").read() for file in files)
        data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
        held_out = len(data) // 20
        self.train, self.test = data[:-held_out], data[-held_out:]

    def model(self):
        return ByteModel()

    def optimizer(self, parameters, owned, factor):  # pylint: disable=unused-argument
        return torch.optim.Adam(parameters, lr=self.lr)

    @staticmethod
    def cross_entropy(model, data, starts):
        window = data[starts.unsqueeze(1) + torch.arange(CONTEXT + 1)]
        return functional.cross_entropy(model(window[:, :-1]).flatten(0, 1), window[:, 1:].flatten())

    def loss(self, model, generator, rank, world):
        starts = torch.randint(len(self.train) - CONTEXT, (self.batch,), generator=generator)[rank::world]
        return self.cross_entropy(model, self.train, starts)

    @torch.no_grad()
    def evaluate(self, model, rank, world):
        starts = torch.arange(0, len(self.test) - CONTEXT, CONTEXT)[:2048][rank::world]
        losses = [self.cross_entropy(model, self.test, part).item() * len(part) for part in starts.split(128)]
        return sum(losses) / len(starts) / 0.6931471805599453


TASKS = {"fashion": FashionTask, "text": TextTask, "plain": PlainTask}


def train(task, arguments, seed):
    """One run; what it reports."""
    rank, world = bagua.rank(), bagua.world()
    torch.manual_seed(seed)
    schedule = find_schedule(arguments.algorithm)
    model = task.model()
    options, factor = OPTIONS.get(arguments.algorithm, {}), LR_FACTOR.get(arguments.algorithm, 1)
    optimizer = task.optimizer(model.parameters(), schedule.info["owns_update"], factor)
    parameters = sum(p.numel() for p in model.parameters())
    model, optimizer = bagua.wrap(model, optimizer, algorithm=arguments.algorithm, **options)
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / (0.1 * arguments.steps)) * max(0.05, 1 - step / arguments.steps)
    )
    generator = torch.Generator().manual_seed(1000 + seed)
    losses = []
    start = time.monotonic()
    for _ in range(arguments.steps):
        loss = task.loss(model, generator, rank, world)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rate.step()
        losses.append(loss.item())
    seconds = time.monotonic() - start
    bagua.stop(model)  # Nothing where no rounds go on beside the steps.
    distance = demo.consensus_distance(model)
    with bagua.pause_timeout():
        model.eval()
        metric = task.evaluate(model, rank, world)
    statistics = bagua.stats(model)
    return {
        "options": options,
        "metric": metric,
        "losses": losses,
        "seconds": seconds,
        "consensus_distance": distance,
        "bytes_per_parameter": statistics["bytes_wire"] / arguments.steps / parameters,
        "async_rounds": statistics.get("rounds", 0),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", choices=TASKS, required=True)
    parser.add_argument("--algorithm", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", required=True, help="one run after the other")
    parser.add_argument("--report", required=True, help="file; %%s stands for the seed, %%r for the rank")
    parser.add_argument("--identity", required=True, help="what the reports are of, for whoever reuses them")
    arguments = parser.parse_args()

    torch.set_num_threads(1)  # Ranks share the cores.
    bagua.init()
    task = TASKS[arguments.task]()
    for seed in arguments.seeds:
        report = {"identity": arguments.identity, **train(task, arguments, seed)}
        path = arguments.report.replace("%s", str(seed)).replace("%r", str(bagua.rank()))
        with open(path, "w", encoding="utf-8") as file:
            json.dump(report, file)
    bagua.barrier("end of training")
    bagua.shutdown()


if __name__ == "__main__":
    main()
