"""Rewards that a policy is trained with in place of the scenario's, computed from all episodes of an update.

A scenario or a wrapper rewards within one episode. What depends on several, such as how often a task succeeds, is a
function here, named in a policy's table: `reward = "curriculum=0.5"`, or one of your own by `package.module:function`:

    def short(batch: SeatEpisodes, limit: int = 10) -> list[float]:
        return [float(len(episode.turns) <= limit) for episode in batch.episodes]

It is trained with alone: what is measured, and the records of episodes, have the scenario's rewards.
"""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple, Self, TypeAlias

from marl_gem.errors import ConfigError, TrainingError
from marl_gem.overrides import split_call
from marl_gem.registry.tables import import_from_here
from marl_gem.runs.outcomes import outcomes
from marl_gem.types import Episode


class SeatEpisodes(NamedTuple):
    """The episodes of one scenario that a seat learns from in one update, and the group of each.

    Episodes of a group start from the same state, with the same seats learning. Those that failed are left out.
    """

    seat: str
    episodes: Sequence[Episode]
    groups: Sequence[str]


RewardFunction: TypeAlias = Callable[..., Sequence[float]]
"""From `SeatEpisodes` and options by name to one reward for each episode, which the seat gets at its last turn.

With an attribute `of_groups` that is true, the rewards of a group's episodes are equal, and the run needs groups.
"""


def curriculum(batch: SeatEpisodes, target: float = 0.5) -> list[float]:
    """``1 - |success - target|``: how near the others' mean score in the group is to `target`, from 0 to 1.

    The score of an episode is the mean over the other seats: 1 for a success or a win, 0.5 for a draw. So a user is
    rewarded for tasks that its assistant can just about solve. All episodes of a group get the same. Source: the reward
    of a goal setter for goals of intermediate difficulty, as in Florensa et al., "Automatic goal generation for
    reinforcement learning agents" (arXiv 1705.06366).
    """
    scores: dict[str, list[float]] = {}
    for episode, group in zip(batch.episodes, batch.groups, strict=True):
        scores.setdefault(group, []).append(_score_of_others(episode, batch.seat))
    means = {group: fmean(values) for group, values in scores.items()}
    return [1 - abs(means[group] - target) for group in batch.groups]


curriculum.of_groups = True  # type: ignore[attr-defined]


def _score_of_others(episode: Episode, seat: str) -> float:
    judged = [outcome for agent, outcome in outcomes(episode).items() if agent != seat]
    return fmean(0.5 if outcome.result == "draw" else float(outcome.success) for outcome in judged)


_rewards: dict[str, str | RewardFunction] = {"curriculum": curriculum}


def register_reward(name: str, function: str | RewardFunction) -> None:
    """Make a reward known, to be named in a configuration as `reward`.

    Args:
        name: letters, digits and underscores.
        function: see `RewardFunction`; or where to find it: `"package.module:function"`.

    Raises:
        ConfigError: the name is taken, or holds other characters.
    """
    if name in _rewards or not name.isidentifier():
        raise ConfigError(f"{name!r} cannot name a reward; it is taken, or no identifier")
    _rewards[name] = function


@dataclass(frozen=True)
class SeatReward:
    """A reward function with its options, parsed from text such as `curriculum=0.5`."""

    text: str
    function: RewardFunction
    options: dict[str, Any]

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The reward that a text names; None if it is empty.

        Raises:
            ConfigError: there is no such function, or it does not take these options.
        """
        if not text.strip():
            return None
        name, assignments = split_call(text)
        function = _function(name)
        parameters = [*inspect.signature(function).parameters][1:]
        options: dict[str, Any] = {}
        for option, value in assignments:
            if not option and not parameters:
                raise ConfigError(f"the reward {text!r} takes no options")
            options[option or parameters[0]] = value
        if unknown := options.keys() - {*parameters}:
            raise ConfigError(f"the reward {text!r} has no option {min(unknown)!r}; it takes {', '.join(parameters)}")
        return cls(text, function, options)

    @property
    def of_groups(self) -> bool:
        """Whether the episodes of a group are rewarded alike."""
        return bool(getattr(self.function, "of_groups", False))

    def __call__(self, batch: SeatEpisodes) -> list[float]:
        """One reward for each episode.

        Raises:
            TrainingError: the function fails, or does not give one finite number for each.
        """
        try:
            rewards = [float(value) for value in self.function(batch, **self.options)]
        except Exception as error:  # the function may be somebody else's
            raise TrainingError(f"the reward {self.text!r} failed: {type(error).__name__}: {error}") from error
        if len(rewards) != len(batch.episodes) or not all(map(math.isfinite, rewards)):
            raise TrainingError(
                f"the reward {self.text!r} gives one finite number for each of the {len(batch.episodes)} episodes of "
                f"{batch.seat!r}, not {rewards!r:.100}"
            )
        return rewards

    def __str__(self) -> str:
        return self.text


def _function(name: str) -> RewardFunction:
    entry_point = name if ":" in name else _rewards.get(name)
    if entry_point is None:
        near = difflib.get_close_matches(name, _rewards, 1)
        hint = f". Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(
            f"there is no reward {name!r}; there are {', '.join(sorted(_rewards))}, and package.module:function{hint}"
        )
    if not isinstance(entry_point, str):
        return entry_point
    module, _, attribute = entry_point.partition(":")
    try:
        found: RewardFunction = getattr(import_from_here(module), attribute)
    except Exception as error:  # whatever the module raises
        raise ConfigError(f"the reward {name!r} cannot be imported: {type(error).__name__}: {error}") from error
    return found
