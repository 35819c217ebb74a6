#!/usr/bin/env python3
"""Trains a small CNN on Fashion-MNIST. The same script runs alone, under bagua-run and under torchrun:

    python3 train.py
    bagua-run -n 4 -- python3 train.py --algorithm bytegrad
    torchrun --nproc_per_node 4 train.py --algorithm decentralized
"""

import argparse
import gzip
import json
import os
import struct
import sys
import time
import zlib

import numpy
import torch
from torch.nn import functional

import bagua.torch as bagua


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithm", default="gradient_allreduce", help="a shipped name, a .mlir or a .bsched file")
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist", help="folder of the *-ubyte.gz files")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=128, help="samples per step over all ranks")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--bucket-bytes", type=int, default=256 << 10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=int, default=None, help="train on the first LIMIT samples only")
    parser.add_argument("--report", help="folder for one JSON report per rank")
    parser.add_argument("--trace", help="Chrome trace of this rank; %%r stands for the rank")
    parser.add_argument("--progress", action="store_true", help="rank 0 shows a progress bar")
    return parser.parse_args()


def read_idx(path):
    """An IDX file of unsigned bytes (the MNIST format), as an array."""
    try:
        with gzip.open(path, "rb") as file:
            zero, kind, dimensions = struct.unpack(">HBB", file.read(4))
            shape = struct.unpack(f">{dimensions}I", file.read(4 * dimensions))
            values = numpy.frombuffer(file.read(), dtype=numpy.uint8)
    except FileNotFoundError:
        sys.exit(f"no data at {path}: install the Debian package dataset-fashion-mnist, or pass --data")
    if zero != 0 or kind != 8 or values.size != numpy.prod(shape):
        sys.exit(f"{path} is no IDX file of unsigned bytes")
    return values.reshape(shape)


def load(folder, split):
    images = read_idx(os.path.join(folder, f"{split}-images-idx3-ubyte.gz"))
    labels = read_idx(os.path.join(folder, f"{split}-labels-idx1-ubyte.gz"))
    pixels = torch.from_numpy(images.astype(numpy.float32)).div_(255).sub_(0.2860).div_(0.3530)
    return pixels.unsqueeze(1), torch.from_numpy(labels.astype(numpy.int64))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = torch.nn.Conv2d(8, 16, 3, padding=1)
        self.fc1 = torch.nn.Linear(16 * 7 * 7, 128)
        self.fc2 = torch.nn.Linear(128, 10)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        return self.fc2(functional.relu(self.fc1(x.flatten(1))))


def weights_of(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@torch.no_grad()
def evaluate(model, images, labels):
    """Accuracy of this rank's replica."""
    model.eval()
    correct = sum(
        (model(x).argmax(1) == y).sum().item() for x, y in zip(images.split(1000), labels.split(1000))
    )
    model.train()
    return correct / len(labels)


@torch.no_grad()
def consensus_distance(model):
    """Largest distance of a replica from the average of all, relative to the average's norm."""
    mine = weights_of(model)
    replicas = []
    for root in range(bagua.world()):
        replica = mine.clone()
        bagua.broadcast(replica, root)
        replicas.append(replica)
    mean = torch.stack(replicas).double().mean(0)
    return max((replica.double() - mean).norm().item() for replica in replicas) / mean.norm().item()


def main():
    arguments = parse_arguments()
    torch.set_num_threads(1)  # Ranks share the cores.
    bagua.init()
    rank, world = bagua.rank(), bagua.world()

    torch.manual_seed(arguments.seed)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr, momentum=0.9)
    model, optimizer = bagua.wrap(
        model, optimizer, algorithm=arguments.algorithm, bucket_bytes=arguments.bucket_bytes
    )

    images, labels = load(arguments.data, "train")
    images, labels = images[: arguments.limit], labels[: arguments.limit]
    batch = max(1, arguments.batch // world)
    steps_per_epoch = len(images) // (batch * world)
    steps = steps_per_epoch * arguments.epochs
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, arguments.lr, total_steps=max(steps, 1))

    bar = None
    if arguments.progress and rank == 0:
        from tqdm import tqdm  # pylint: disable=import-outside-toplevel

        bar = tqdm(total=steps, desc=f"{bagua.job(model).schedule.name:20}", unit="step", mininterval=0.5)
    hashes, recent = [], []
    start = time.monotonic()
    for epoch in range(arguments.epochs):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(arguments.seed + epoch))
        for step in range(steps_per_epoch):
            at = (step * world + rank) * batch
            mine = order[at : at + batch]
            loss = functional.cross_entropy(model(images[mine]), labels[mine])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            recent = recent[-99:] + [loss.item()]
            hashes.append(zlib.crc32(weights_of(model).numpy().tobytes()))
            if bar is not None:
                bar.set_postfix(loss=f"{sum(recent) / len(recent):.3f}", refresh=False)
                bar.update()
    seconds = time.monotonic() - start
    if bar is not None:
        bar.close()

    distance = consensus_distance(model)
    with bagua.pause_timeout():
        accuracy = evaluate(model, *load(arguments.data, "t10k"))
    statistics = bagua.stats()
    report = {
        "algorithm": statistics["algorithm"],
        "rank": rank,
        "world": world,
        "steps": steps,
        "accuracy": accuracy,
        "loss": sum(recent) / max(len(recent), 1),
        "seconds": seconds,
        "bytes_raw": statistics["bytes_raw"],
        "bytes_wire": statistics["bytes_wire"],
        "bytes_wire_formula": steps * bagua.job(model).wire_bytes_per_step(),
        "consensus_distance": distance,
        "hashes": hashes,
    }
    if arguments.trace:
        bagua.write_trace(arguments.trace.replace("%r", str(rank)))
    if arguments.report:
        with open(os.path.join(arguments.report, f"rank{rank}.json"), "w", encoding="utf-8") as file:
            json.dump(report, file)
    elif rank == 0:
        print(
            f"{report['algorithm']}: accuracy {accuracy:.4f}, loss {report['loss']:.4f}, {seconds:.1f} s, "
            f"{report['bytes_wire'] / 1e6:.1f} MB on the wire per rank, consensus distance {distance:.2e}"
        )
    bagua.barrier("end of training")
    bagua.shutdown()


if __name__ == "__main__":
    main()
