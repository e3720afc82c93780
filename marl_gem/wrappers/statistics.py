"""Statistics of episodes: return, steps and turns of each, and means over the newest."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from marl_gem.env import Infos, MultiAgentEnv, Observations
from marl_gem.errors import ConfigError
from marl_gem.wrappers.base import AroundStep, Wrapper


class Statistics(msgspec.Struct, frozen=True):
    """Means over the newest episodes that were played to their end."""

    # The number of episodes that were played to their end since the env was made.
    episodes: int = 0

    # Mean number of steps of an episode.
    steps: float = 0.0

    # Mean wall time of an episode, in seconds.
    seconds: float = 0.0

    # Mean return of each agent, over the episodes in which it took part.
    returns: dict[str, float] = {}

    # Mean number of turns of each agent, over the episodes in which it took part.
    turns: dict[str, float] = {}


class _Finished(NamedTuple):
    steps: int
    seconds: float
    returns: dict[str, float]
    turns: dict[str, int]


class EpisodeStatistics(Wrapper):
    """Puts return, steps and turns into an agent's last info, and keeps means over episodes.

    `infos[agent]["episode"]` is `{"return": ..., "steps": ..., "turns": ...}` when the agent terminates or is
    truncated: its sum of rewards, the steps of the episode and the agent's own turns, up to there. `env.statistics`
    holds means over the newest episodes, with rewards that came after an agent's end. Wall time is in `statistics`
    only: in infos it would make two episodes with the same seed differ.

    Args:
        env: the env to wrap.
        window: the number of newest episodes that the means are over; from 1 up.

    Raises:
        ConfigError: `window` is no such number.
    """

    settles = frozenset({"ending"})

    def __init__(self, env: MultiAgentEnv, window: int = 100) -> None:
        if not isinstance(window, int) or window < 1:
            raise ConfigError(f"EpisodeStatistics: window is a number of episodes from 1 up, not {window!r}")
        super().__init__(env)
        self._count = 0
        self._newest: deque[_Finished] = deque(maxlen=window)
        self._turns: Counter[str] = Counter()
        self._started = 0.0

    @property
    def statistics(self) -> Statistics:
        """Means over the newest episodes."""
        if not self._newest:
            return Statistics()
        steps, seconds, returns, turns = zip(*self._newest, strict=True)
        return Statistics(self._count, _mean(steps), _mean(seconds), _mean_by_agent(returns), _mean_by_agent(turns))

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Observations, Infos]:
        begun = super().reset(seed=seed, options=options)
        self._turns = Counter()
        self._started = time.perf_counter()
        return begun

    def around_step(self, actions: Mapping[str, str]) -> AroundStep:
        step = yield actions
        self._turns.update(actions.keys())
        for agent, info in step[-1].items():
            if "final_observation" in info:
                info["episode"] = {"return": self.returns[agent], "steps": self.steps, "turns": self._turns[agent]}
        if self.done:
            returns = dict(self.returns)
            turns = {agent: self._turns[agent] for agent in returns}
            self._newest.append(_Finished(self.steps, time.perf_counter() - self._started, returns, turns))
            self._count += 1
        return step


def _mean(numbers: Iterable[float]) -> float:
    numbers = list(numbers)
    return sum(numbers) / len(numbers)


def _mean_by_agent(episodes: Iterable[Mapping[str, float]]) -> dict[str, float]:
    by_agent: dict[str, list[float]] = {}
    for episode in episodes:
        for agent, number in episode.items():
            by_agent.setdefault(agent, []).append(number)
    return {agent: _mean(numbers) for agent, numbers in by_agent.items()}
