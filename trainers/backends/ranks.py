"""Several processes that compute gradients together, as torchrun starts them.

The first process (rank 0) runs: it plays episodes, writes the run's folder and says what to compute. The others do what
it says on their shares, with `serve`, and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

PATIENCE = timedelta(days=7)
"""How long a process waits for another: episodes may take long. torchrun ends all processes when one dies."""


def several() -> bool:
    """Whether torchrun has started several processes, of which this is one."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and "MASTER_ADDR" in os.environ


def begin() -> int:
    """Join the others, and return this process's rank."""
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=PATIENCE)
    return dist.get_rank()


def end() -> None:
    """In the first process: let the others end; in each: leave."""
    if dist.is_initialized():
        if rank() == 0:
            send(None)
        dist.destroy_process_group()


def count() -> int:
    """How many processes compute together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Which of them this is, from 0."""
    return dist.get_rank() if count() > 1 else 0


def send(command: Any) -> None:
    """In the first process: tell the others what to do."""
    dist.broadcast_object_list([command], src=0)


def receive() -> Any:
    """In the others: wait for a command; None ends them."""
    received: list[Any] = [None]
    dist.broadcast_object_list(received, src=0)
    return received[0]


def share(tensors: Mapping[str, torch.Tensor]) -> None:
    """Give all processes the first one's numbers, in tensors of the same names and shapes."""
    for name in sorted(tensors):
        dist.broadcast(tensors[name].detach(), src=0)


def total(values: torch.Tensor) -> torch.Tensor:
    """The sum over all processes, in place."""
    dist.all_reduce(values)
    return values


def gather(value: Any) -> list[Any]:
    """What each process gave."""
    found: list[Any] = [None] * count()
    dist.all_gather_object(found, value)
    return found
