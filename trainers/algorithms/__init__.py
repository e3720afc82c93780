"""Training algorithms, one file each, by name.

    base    the protocol: advantages of a batch, loss on tokens, what the loop must serve
    rebn          REINFORCE with return batch normalization, per agent
    rloo          REINFORCE leave-one-out
    rae           role-conditioned advantage, a running mean for each seat
    grpo          group relative policy optimization
    reinforce_pp  REINFORCE++
    ppo           proximal policy optimization, with a critic of turns

One of your own is a class with `Options`, `METRICS`, `needs`, `advantages` and `loss`, made known by
`register_algorithm("mine", Mine)`, or named in the configuration as `package.module:Class`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import msgspec

from marl_gem.errors import ConfigError
from marl_gem.registry.tables import import_from_here
from marl_gem.trainers.algorithms.base import Advantages, Algorithm, Loss, Needs, TokenBatch, policy_gradient

__all__ = [
    "Advantages",
    "Algorithm",
    "Loss",
    "Needs",
    "TokenBatch",
    "algorithm_class",
    "algorithms",
    "make_algorithm",
    "policy_gradient",
    "register_algorithm",
]

_algorithms: dict[str, str | type[Algorithm]] = {
    "rebn": "marl_gem.trainers.algorithms.rebn:ReBN",
    "rloo": "marl_gem.trainers.algorithms.rloo:RLOO",
    "rae": "marl_gem.trainers.algorithms.rae:RAE",
    "grpo": "marl_gem.trainers.algorithms.grpo:GRPO",
    "reinforce_pp": "marl_gem.trainers.algorithms.reinforce_pp:ReinforcePlusPlus",
    "ppo": "marl_gem.trainers.algorithms.ppo:PPO",
}


def register_algorithm(name: str, entry_point: str | type[Algorithm]) -> None:
    """Make an algorithm known, to be named in a configuration as `algorithm.name`.

    Args:
        name: what it is called.
        entry_point: the class, or where to find it: `"package.module:Class"`.

    Raises:
        ConfigError: the name is taken, or holds a colon.
    """
    if name in _algorithms or ":" in name or not name:
        raise ConfigError(f"{name!r} cannot name an algorithm; it is taken, empty or holds a colon")
    _algorithms[name] = entry_point


def algorithms() -> list[str]:
    """The names of all algorithms that are known."""
    return sorted(_algorithms)


def algorithm_class(name: str) -> type[Algorithm]:
    """The algorithm with this name, or at this `package.module:Class`.

    Raises:
        ConfigError: there is none.
    """
    entry_point = name if ":" in name else _algorithms.get(name)
    if entry_point is None:
        near = difflib.get_close_matches(name, _algorithms, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"there is no algorithm {name!r}; there are {', '.join(algorithms())}.{hint}")
    if isinstance(entry_point, str):
        module, _, attribute = entry_point.partition(":")
        try:
            found = getattr(import_from_here(module), attribute)
        except Exception as error:  # whatever the module raises
            raise ConfigError(f"the algorithm {name!r} cannot be imported: {type(error).__name__}: {error}") from error
    else:
        found = entry_point
    if lacking := [part for part in ("Options", "advantages") if not hasattr(found, part)]:
        raise ConfigError(
            f"{name!r} is no algorithm: it has no {' and no '.join(lacking)}; see docs/write-an-algorithm.md"
        )
    algorithm: type[Algorithm] = found
    return algorithm


def make_algorithm(name: str, options: Mapping[str, Any]) -> Algorithm:
    """An algorithm with its options.

    Raises:
        ConfigError: there is no such algorithm, or an option is unknown or makes no sense.
    """
    kind = algorithm_class(name)
    try:
        return kind(msgspec.convert(dict(options), kind.Options))
    except (msgspec.ValidationError, ValueError) as error:
        unknown = str(error).partition("unknown field `")[2].partition("`")[0]
        near = difflib.get_close_matches(unknown, kind.Options.__struct_fields__, 1)
        hint = f". Did you mean {near[0]}?" if near else ""
        raise ConfigError(f"algorithm.options of {name!r}: {error}{hint}") from error
