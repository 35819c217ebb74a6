"""Under torchrun: hands the store's address from rank 0 to the others through torch's TCPStore."""

import ctypes
import datetime
import os

from .. import _capi

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
    key = f"bagua/{environment.get('TORCHELASTIC_RESTART_COUNT', '0')}/{len(_served)}/store"
    store = _torch_store(environment, rank, world, port, timeout)
    _served.append(store)
    if rank == 0:
        address = ctypes.create_string_buffer(_ADDRESS_BYTES)
        _capi.call("bagua_store_listen", environment["MASTER_ADDR"].encode(), address, _ADDRESS_BYTES)
        store.set(key, address.value)
        return address.value.decode()
    return store.get(key).decode()


def _torch_store(environment, rank, world, port, timeout):
    import torch.distributed as dist  # pylint: disable=import-outside-toplevel

    if dist.is_initialized():
        return dist.distributed_c10d._get_default_store()  # pylint: disable=protected-access
    seconds = timeout or int(environment.get("BAGUA_BOOTSTRAP_TIMEOUT_MS", "300000")) / 1000
    agent_hosts = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    try:
        return dist.TCPStore(
            environment["MASTER_ADDR"],
            port,
            world,
            is_master=rank == 0 and not agent_hosts,
            timeout=datetime.timedelta(seconds=seconds),
            wait_for_workers=False,
            multi_tenant=True,
        )
    except RuntimeError as error:
        raise _capi.TimeoutError(
            f"rank {rank} did not reach torch's store at MASTER_ADDR:MASTER_PORT "
            f"{environment['MASTER_ADDR']}:{port}: {error}"
        ) from error
