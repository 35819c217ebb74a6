#!/usr/bin/python3
"""All-reduce of one large fp32 bucket on local ranks: ours (through the C interface, the bucket in
transport memory and in private memory), Open MPI and Gloo, taking turns in one set of processes, results
checked to the last bit. Prints a table with ratios and the limit that memcpy's bandwidth sets.

Every rank is a Python process under mpirun; calls release the interpreter's lock. Open MPI and Gloo sum,
ours takes the mean (it also divides). Times are those of the slowest rank, from a common barrier."""

import argparse
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

# Open MPI's tuned algorithms for MPI_Allreduce; its own choice is the first.
MPI_ALGORITHMS = {
    "default": None,
    "recursive doubling": 3,
    "ring": 4,
    "segmented ring": 5,
    "rabenseifner": 6,
}


class Mpi:
    """The few calls needed, through ctypes: mpi4py would be one more package."""

    def __init__(self):
        self.library = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
        self.library.MPI_Init(None, None)
        self.world_handle = self._symbol("ompi_mpi_comm_world")
        self.float = self._symbol("ompi_mpi_float")
        self.double = self._symbol("ompi_mpi_double")
        self.byte = self._symbol("ompi_mpi_byte")
        self.sum = self._symbol("ompi_mpi_op_sum")
        self.max = self._symbol("ompi_mpi_op_max")
        self.in_place = ctypes.c_void_p(1)
        self.rank = self._number("MPI_Comm_rank")
        self.world = self._number("MPI_Comm_size")

    def _symbol(self, name):
        return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(self.library, name)))

    def _number(self, function):
        value = ctypes.c_int()
        getattr(self.library, function)(self.world_handle, ctypes.byref(value))
        return value.value

    def barrier(self):
        self.library.MPI_Barrier(self.world_handle)

    def allreduce(self, pointer, count):
        self.library.MPI_Allreduce(
            self.in_place, ctypes.c_void_p(pointer), count, self.float, self.sum, self.world_handle
        )

    def maximum(self, value):
        box = ctypes.c_double(value)
        self.library.MPI_Allreduce(
            self.in_place, ctypes.byref(box), 1, self.double, self.max, self.world_handle
        )
        return box.value

    def broadcast_text(self, text):
        box = ctypes.create_string_buffer(text.encode(), 256)
        self.library.MPI_Bcast(box, 256, self.byte, 0, self.world_handle)
        return box.value.decode()

    def finalize(self):
        self.library.MPI_Finalize()


class Way:
    """One way to reduce `array`; `mean` tells what it computes."""

    def __init__(self, name, array, run, mean):
        self.name, self.array, self.run, self.mean = name, array, run, mean
        self.times, self.wrong = [], 0


def bagua_ways(arguments, mpi, count):
    import numpy

    sys.path.insert(0, os.path.join(arguments.build, "lib/bagua/python"))
    from bagua import _capi
    from bagua.context import Context, Memory
    from bagua.schedule import Schedule

    address = ctypes.create_string_buffer(256)
    if mpi.rank == 0:
        _capi.call("bagua_store_listen", None, address, 256)
    store = mpi.broadcast_text(address.value.decode())
    context = Context(
        rank=mpi.rank, world=mpi.world, local_rank=mpi.rank, local_size=mpi.world, store=store, transport="window"
    )
    schedule = Schedule(arguments.schedule)
    memory = Memory(context, count * 4)
    shared = numpy.frombuffer(memory.buffer(), dtype=numpy.float32)
    private = numpy.zeros(count, dtype=numpy.float32)
    ways = []
    for name, array in (("bagua, transport memory", shared), ("bagua, private memory", private)):
        binding = context.bind(schedule, name, count, _capi.F32, gradient=array.ctypes.data)
        step = [0]

        def run(binding=binding, step=step):
            binding.start(_capi.GRADIENT, step[0])
            binding.wait()
            step[0] += 1

        ways.append(Way(name, array, run, mean=True))
    return context, ways


def gloo_way(mpi, count):
    import numpy
    import torch
    import torch.distributed

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    store = None
    if mpi.rank == 0:
        store = torch.distributed.TCPStore("127.0.0.1", 0, mpi.world, True, wait_for_workers=False)
    port = int(mpi.broadcast_text(str(store.port) if store else ""))
    if store is None:
        store = torch.distributed.TCPStore("127.0.0.1", port, mpi.world, False)
    torch.distributed.init_process_group("gloo", store=store, rank=mpi.rank, world_size=mpi.world)
    array = numpy.zeros(count, dtype=numpy.float32)
    tensor = torch.from_numpy(array)
    return Way("Gloo", array, lambda: torch.distributed.all_reduce(tensor), mean=False)


def worker(arguments):
    import numpy

    mpi = Mpi()
    count = arguments.megabytes * 1_000_000 // 4
    # Small integers: sums are exact in every order, and the mean is rounded once.
    pattern = (numpy.arange(count, dtype=numpy.uint32) % 61).astype(numpy.float32)
    contribution = pattern * numpy.float32(mpi.rank + 1)
    total = pattern * numpy.float32(mpi.world * (mpi.world + 1) // 2)
    mean = total / numpy.float32(mpi.world)

    array = numpy.zeros(count, dtype=numpy.float32)
    ways = [Way("Open MPI", array, lambda: mpi.allreduce(array.ctypes.data, count), mean=False)]
    context = None
    if not arguments.mpi_only:
        ways.append(gloo_way(mpi, count))
        context, ours = bagua_ways(arguments, mpi, count)
        ways = ours + ways
        target = numpy.zeros(count, dtype=numpy.float32)
        # The limit: all ranks copy at once. Not checked, it reduces nothing.
        copy = Way("memcpy", target, None, mean=False)
        copy.run = lambda: ctypes.memmove(target.ctypes.data, contribution.ctypes.data, count * 4)
        ways.append(copy)
    for round_index in range(arguments.rounds + 1):
        for way in ways:
            numpy.copyto(way.array, contribution)
            mpi.barrier()
            start = time.perf_counter()
            way.run()
            seconds = mpi.maximum(time.perf_counter() - start)
            if way.name != "memcpy":
                expected = mean if way.mean else total
                way.wrong += int(mpi.maximum(float(numpy.count_nonzero(way.array != expected))))
            if round_index > 0:  # The first round connects and touches memory.
                way.times.append(seconds)
    if mpi.rank == 0:
        with open(arguments.result, "w", encoding="utf-8") as file:
            json.dump({way.name: {"times": way.times, "wrong": way.wrong} for way in ways}, file)
    mpi.barrier()
    if context is not None:
        context.shutdown()
    mpi.finalize()


def launch(arguments, world, algorithm, rounds, mpi_only):
    """Runs one set of ranks; returns {way: {"times": […], "wrong": n}}."""
    command = ["mpirun", "-n", str(world), "--oversubscribe", "--bind-to", "none"]
    if os.geteuid() == 0:
        command.append("--allow-run-as-root")
    if algorithm is not None:
        command += ["--mca", "coll_tuned_use_dynamic_rules", "1"]
        command += ["--mca", "coll_tuned_allreduce_algorithm", str(algorithm)]
    with tempfile.TemporaryDirectory() as folder:
        result = os.path.join(folder, "result.json")
        command += [sys.executable, os.path.abspath(__file__), "--worker", "--result", result, "--build", arguments.build]
        command += ["--schedule", arguments.schedule, "--rounds", str(rounds), "--megabytes", str(arguments.megabytes)]
        if mpi_only:
            command.append("--mpi-only")
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=arguments.timeout, check=False
        )
        if done.returncode != 0 or not os.path.exists(result):
            sys.exit(f"{' '.join(command)}\nfailed with {done.returncode}:\n{done.stdout}{done.stderr}")
        with open(result, encoding="utf-8") as file:
            return json.load(file)


def median(values):
    return sorted(values)[len(values) // 2]


def measure(arguments, world):
    trials = {}
    for name, algorithm in MPI_ALGORITHMS.items():
        times = launch(arguments, world, algorithm, 3, mpi_only=True)["Open MPI"]["times"]
        trials[name] = min(times)
    best = min(trials, key=trials.get)
    results = launch(arguments, world, MPI_ALGORITHMS[best], arguments.rounds, mpi_only=False)

    copy = results.pop("memcpy")["times"]
    # A rank reads the bucket once and writes its shard (reduce), then copies the other shards (gather):
    # 3 - 1/n times the bucket, where memcpy moves it twice.
    limit = {key: pick(copy) * (3 - 1 / world) / 2 for key, pick in (("best", min), ("median", median))}
    print(f"\n{world} ranks, {arguments.megabytes} MB fp32, {os.cpu_count()} cores, {arguments.rounds} rounds in turns")
    print("Open MPI with its best algorithm here, " + best + ": "
          + ", ".join(f"{name} {1e3 * value:.1f}" for name, value in trials.items()) + " ms")
    print(f"{'':26}{'best':>29}{'':8}{'median':>29}")
    columns = f"{'ms':>9}{'x Open MPI':>12}{'x Gloo':>8}{'of limit':>10}"
    print(f"{'':26}{columns}{columns}{'wrong':>7}")
    for name, result in results.items():
        line = f"{name:26}"
        for key, pick in (("best", min), ("median", median)):
            value = pick(result["times"])
            line += f"{1e3 * value:9.1f}{pick(results['Open MPI']['times']) / value:12.2f}"
            line += f"{pick(results['Gloo']['times']) / value:8.2f}{100 * limit[key] / value:9.0f}%"
        print(f"{line}{result['wrong']:7}")
    print(f"{'limit (memcpy bandwidth)':26}{1e3 * limit['best']:9.1f}{'':30}{1e3 * limit['median']:9.1f}", flush=True)
    return sum(result["wrong"] for result in results.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="build folder with lib/libbagua_runtime.so")
    parser.add_argument("--schedule", help="default: the build's share/bagua/algorithms/gradient_allreduce.bsched")
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--worlds", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one set of ranks")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--mpi-only", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--result", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.build = os.path.abspath(arguments.build)
    if arguments.schedule is None:
        arguments.schedule = os.path.join(arguments.build, "share/bagua/algorithms/gradient_allreduce.bsched")
    arguments.schedule = os.path.abspath(arguments.schedule)
    if arguments.worker:
        worker(arguments)
        return
    if shutil.which("mpirun") is None:
        sys.exit("allreduce: needs mpirun (Debian packages openmpi-bin, libopenmpi-dev)")
    if not os.path.exists(arguments.schedule):
        sys.exit(f"allreduce: expects the compiled algorithm at {arguments.schedule} (target bagua_algorithms)")
    print("times of the slowest rank; Open MPI and Gloo sum, bagua takes the mean; results are exact or counted as wrong")
    wrong = sum(measure(arguments, world) for world in arguments.worlds)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
