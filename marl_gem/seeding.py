"""Seeds from seeds: every random choice of a run follows from one number."""

from __future__ import annotations

import hashlib
import numbers


def derive_seed(*parts: int | str) -> int:
    """A 63-bit seed that depends on all parts and their order, the same on every machine and run."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def agent_seed(seed: int, agent_id: str, repeat: int = 0) -> int:
    """The seed of one agent's random choices in the episode with this `seed` and `repeat`."""
    return derive_seed(seed, agent_id, *([repeat] if repeat else []))


def as_seed(value: object) -> int | None:
    """An integer from 0 up, NumPy's too, as an int; None for anything else."""
    if type(value) is int and value >= 0:
        return value
    if isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= 0:
        return int(value)
    return None
