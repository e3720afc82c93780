"""The algorithm of each policy, and what several algorithms in one run must agree on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from marl_gem.errors import ConfigError
from marl_gem.trainers.algorithms import Algorithm, make_algorithm
from marl_gem.trainers.algorithms.base import Stateful
from marl_gem.trainers.policy_tables import for_policy
from marl_gem.trainers.rewards import SeatReward
from marl_gem.trainers.sections import TrainConfig


def make_algorithms(config: TrainConfig, names: Iterable[str]) -> dict[str, Algorithm]:
    """Each policy's algorithm. Policies with the same algorithm, options and discount share one, and so their batch.

    Raises:
        ConfigError: there is no such algorithm, or an option is unknown or makes no sense.
    """
    made: dict[str, Algorithm] = {}
    algorithms = {}
    for name in names:
        mine = for_policy(config, name)
        key = json.dumps(
            [mine.algorithm.name, mine.algorithm.options, mine.training.gamma], sort_keys=True, default=str
        )
        if key not in made:
            made[key] = make_algorithm(mine.algorithm.name, mine.algorithm.options)
        algorithms[name] = made[key]
    return algorithms


def algorithm_state(algorithms: Mapping[str, Algorithm]) -> dict[str, Any]:
    """What the algorithms remember, as plain data: of the one that all policies share, or of several by policy."""
    states = {name: a.state() for name, a in _distinct(algorithms).items() if isinstance(a, Stateful)}
    return next(iter(states.values()), {}) if len(_distinct(algorithms)) == 1 else states


def restore_algorithms(algorithms: Mapping[str, Algorithm], state: Mapping[str, Any]) -> None:
    """Put back what `algorithm_state` gave; raises whatever an algorithm raises where that is damaged."""
    distinct = _distinct(algorithms)
    for name, algorithm in distinct.items():
        if isinstance(algorithm, Stateful):
            algorithm.restore(state if len(distinct) == 1 else state[name])


def _distinct(algorithms: Mapping[str, Algorithm]) -> dict[str, Algorithm]:
    """Each algorithm once, by the first policy that has it."""
    found: dict[int, tuple[str, Algorithm]] = {}
    for name, algorithm in algorithms.items():
        found.setdefault(id(algorithm), (name, algorithm))
    return dict(found.values())


def group_size(config: TrainConfig, algorithms: Mapping[str, Algorithm]) -> int:
    """How many episodes start from the same state: one number for the whole run, since its policies meet in them.

    Policies whose algorithm compares no episodes learn from the groups of the others.

    Raises:
        ConfigError: two policies ask for groups of different sizes, the number of episodes is no multiple of it, or a
            reward needs groups and there are none, or an algorithm that finds no difference within them.
    """
    asked = {f"the algorithm of {name}": a.needs.group_size for name, a in algorithms.items() if a.needs.group_size > 1}
    if config.training.group_size:
        asked["training.group_size"] = config.training.group_size
    sizes = [*dict.fromkeys(asked.values())] or [1]
    if len(sizes) > 1:
        raise ConfigError(
            "all groups of episodes in a run have the same size, but "
            f"{' and '.join(f'{who} asks for {size}' for who, size in asked.items())}; set them alike"
        )
    (size,) = sizes
    if config.training.episodes % size:
        raise ConfigError(
            f"training.episodes is a multiple of the algorithm's group size, {size}, not {config.training.episodes}"
        )
    for name, algorithm in algorithms.items():
        reward = SeatReward.parse(for_policy(config, name).training.reward)
        if reward is not None and reward.of_groups:
            if size < 2:
                raise ConfigError(
                    f"the reward {reward} of {name} is of groups of episodes; set training.group_size to 2 or more"
                )
            if algorithm.needs.group_size > 1:
                raise ConfigError(
                    f"the reward {reward} of {name} is the same for all episodes of a group, so that "
                    f"{type(algorithm).__name__}, which compares these, learns nothing; choose rebn for it"
                )
    return size


def check_rollouts(config: TrainConfig, algorithms: Mapping[str, Algorithm]) -> None:
    """Raises ConfigError if the algorithms cannot learn from the episodes that the configuration has played for them.

    Args:
        config: the run's.
        algorithms: each policy's.
    """
    training = config.training
    if group_size(config, algorithms) == 1 and training.group_start == "fork":
        raise ConfigError(
            "training.group_start is fork, but no algorithm compares groups of episodes; choose one that does, such as "
            "rloo or grpo, or set it to seed"
        )
    for name, needs in ((name, algorithm.needs) for name, algorithm in algorithms.items()):
        if training.staleness and not (needs.off_policy or needs.linear_loss):
            raise ConfigError(
                f"training.staleness is {training.staleness}, but the loss of {name} neither corrects for tokens that "
                "earlier versions sampled nor is linear in the advantages, so that it could be corrected; set it to 0, "
                "or choose another algorithm"
            )
