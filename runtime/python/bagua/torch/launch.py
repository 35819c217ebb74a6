"""Under torchrun: hands the store's address from rank 0 to the others through torch's TCPStore."""

import ctypes
import datetime
import os
import socket
import time

from .. import _capi
from ..context import interruptible

_ADDRESS_BYTES = 256
_served = []  # Torch stores by init() call: rank 0's lives as long as others may still ask it.


def store_address(timeout=None):
    """Address for Context(store=…) when torchrun's environment is the source, else None. Works before and after
    torch.distributed.init_process_group, and again after an elastic restart."""
    environment = os.environ
    if environment.get("BAGUA_STORE") or environment.get("BAGUA_RANK"):
        return None
    if not all(environment.get(key) for key in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")):
        return None
    try:
        rank, world, port = (int(environment[key]) for key in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
    except ValueError:
        return None  # The runtime reads the same variables and says which is wrong.
    if world == 1 or not (0 <= rank < world and 0 < port < 65536):
        return None  # Alone, or the runtime says what is wrong.
    seconds = timeout or _bootstrap_seconds(environment)
    key = f"bagua/{environment.get('TORCHELASTIC_RESTART_COUNT', '0')}/{len(_served)}/store"
    store = _torch_store(environment, rank, world, port, seconds)
    _served.append(store)
    if rank == 0:
        address = ctypes.create_string_buffer(_ADDRESS_BYTES)
        _capi.call("bagua_store_listen", environment["MASTER_ADDR"].encode(), address, _ADDRESS_BYTES)
        store.set(key, address.value)
        return address.value.decode()
    return interruptible(lambda: _address_of_rank_0(store, key, rank, seconds))


def _bootstrap_seconds(environment):
    text = environment.get("BAGUA_BOOTSTRAP_TIMEOUT_MS") or "300000"
    if not text.isdecimal() or int(text) == 0:
        raise _capi.InvalidArgumentError(f"BAGUA_BOOTSTRAP_TIMEOUT_MS expects a positive number, got {text!r}")
    return int(text) / 1000


def _late(text, seconds, error):
    return _capi.TimeoutError(
        f"{text} within {seconds:g} s (the time to join: BAGUA_BOOTSTRAP_TIMEOUT_MS, or init(bootstrap_timeout=…)): "
        f"torch's store says: {str(error).splitlines()[0]}"
    )


def _address_of_rank_0(store, key, rank, seconds):
    try:
        store.wait([key], datetime.timedelta(seconds=seconds))
        return store.get(key).decode()
    except (RuntimeError, OSError) as error:  # OSError: torch raises the built-in TimeoutError, too.
        raise _late(f"rank 0 did not arrive in bagua.init(), where rank {rank} waits for it,", seconds, error) from error


def _await_listener(host, port, seconds):
    """Returns once somebody listens. torch's TCPStore would wait, too, but with the interpreter's lock held: no
    signal would be seen."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((host, port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(0.05)


def _torch_store(environment, rank, world, port, seconds):
    import torch.distributed as dist  # pylint: disable=import-outside-toplevel

    if dist.is_initialized():
        return dist.distributed_c10d._get_default_store()  # pylint: disable=protected-access
    agent_hosts = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    hosts = rank == 0 and not agent_hosts
    try:
        if not hosts:
            _await_listener(environment["MASTER_ADDR"], port, seconds)
        return dist.TCPStore(
            environment["MASTER_ADDR"],
            port,
            world,
            is_master=hosts,
            timeout=datetime.timedelta(seconds=seconds),
            wait_for_workers=False,
            multi_tenant=True,
        )
    except (RuntimeError, OSError) as error:  # OSError: torch raises the built-in TimeoutError, too.
        place = f"torch's store at MASTER_ADDR:MASTER_PORT {environment['MASTER_ADDR']}:{port}"
        if hosts:
            raise _capi.InvalidArgumentError(f"rank 0 cannot open {place}: {error}") from error
        host = "torchrun's agent" if agent_hosts else "rank 0"
        raise _late(f"rank {rank} did not reach {place}, which {host} opens,", seconds, error) from error
