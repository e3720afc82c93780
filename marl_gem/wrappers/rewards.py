"""Rewards that agents are trained on, made of those that the scenario gives."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import msgspec

from marl_gem.env import Infos, MultiAgentEnv, Observations, Step
from marl_gem.errors import ConfigError
from marl_gem.types import Metadata
from marl_gem.wrappers.base import Wrapper


class RewardWrapper(Wrapper):
    """Changes rewards, one by one. Define `reward`, and `metadata` where more is known of the changed ones.

    `returns` are sums of the changed rewards. A reward for an agent that had ended before, or that joins in
    this very step, stands in no dict of rewards; it is changed on its way into `returns`.
    """

    changes = frozenset({"rewards"})

    def __init__(self, env: MultiAgentEnv) -> None:
        super().__init__(env)
        self._rewards: dict[str, float] = {}
        self._returns: dict[str, float] = {}
        self._returns_before: dict[str, float] = {}  # of the env, to tell what came in a step

    rewards: Any = property(attrgetter("_rewards"))
    returns: Any = property(attrgetter("_returns"))

    @property
    def metadata(self) -> Metadata:  # type: ignore[override]
        return msgspec.structs.replace(self.env.metadata, zero_sum=None, reward_range=None)

    def reward(self, agent: str, reward: float, acted: bool) -> float:
        """What `agent` gets instead of `reward`; `acted` tells whether it acted in this step."""
        raise NotImplementedError(f"{type(self).__name__} must define reward(agent, reward, acted)")

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Observations, Infos]:
        begun = super().reset(seed=seed, options=options)
        self._returns_before = dict(self.env.returns)
        self._rewards, self._returns = dict(self.env.rewards), dict(self.env.returns)
        return begun

    def step(self, actions: Mapping[str, str]) -> Step:
        observations, given, terminations, truncations, infos = super().step(actions)
        before, after = self._returns_before, dict(self.env.returns)
        others = {agent: after[agent] - before.get(agent, 0.0) for agent in after if agent not in given}
        try:
            rewards = {agent: self._change(agent, reward, agent in actions) for agent, reward in given.items()}
            gained = rewards | {agent: self._change(agent, gain, False) for agent, gain in others.items() if gain}
        except Exception as error:
            self._fault("reward", error)
        self._returns_before, self._rewards = after, rewards
        self._returns = {agent: self._returns.get(agent, 0.0) + gained.get(agent, 0.0) for agent in after}
        return observations, rewards, terminations, truncations, infos

    def _change(self, agent: str, reward: float, acted: bool) -> float:
        return self._finite(agent, self.reward(agent, reward, acted))


class StepPenalty(RewardWrapper):
    """Takes `penalty` off an agent's reward for each of its own actions."""

    def __init__(self, env: MultiAgentEnv, penalty: float) -> None:
        super().__init__(env)
        self._penalty = _number("StepPenalty", "penalty", penalty)
        if self._penalty < 0:
            raise ConfigError(f"StepPenalty: the penalty is taken off, so give {-penalty!r} instead of {penalty!r}")

    @property
    def metadata(self) -> Metadata:  # type: ignore[override]
        bounds = self.env.metadata.reward_range
        return msgspec.structs.replace(super().metadata, reward_range=bounds and (bounds[0] - self._penalty, bounds[1]))

    def reward(self, agent: str, reward: float, acted: bool) -> float:
        return reward - self._penalty if acted else reward


class RewardScale(RewardWrapper):
    """Multiplies rewards by `factor`."""

    def __init__(self, env: MultiAgentEnv, factor: float) -> None:
        super().__init__(env)
        self._factor = _number("RewardScale", "factor", factor)

    @property
    def metadata(self) -> Metadata:  # type: ignore[override]
        metadata = self.env.metadata
        low, high = sorted(bound * self._factor for bound in metadata.reward_range or (0.0, 0.0))
        return msgspec.structs.replace(metadata, reward_range=metadata.reward_range and (low, high))

    def reward(self, agent: str, reward: float, acted: bool) -> float:
        return reward * self._factor


class RewardClip(RewardWrapper):
    """Rewards below `low` become `low`, those above `high` become `high`. No reward is 0, and must stay so."""

    def __init__(self, env: MultiAgentEnv, low: float = -1.0, high: float = 1.0) -> None:
        super().__init__(env)
        self._low, self._high = _number("RewardClip", "low", low), _number("RewardClip", "high", high)
        if not self._low <= 0.0 <= self._high:
            raise ConfigError(f"RewardClip: 0 must lie between the bounds, not outside of {low!r} to {high!r}")

    @property
    def metadata(self) -> Metadata:  # type: ignore[override]
        low, high = self.env.metadata.reward_range or (self._low, self._high)
        return msgspec.structs.replace(super().metadata, reward_range=(self._clip(low), self._clip(high)))

    def reward(self, agent: str, reward: float, acted: bool) -> float:
        return self._clip(reward)

    def _clip(self, reward: float) -> float:
        return min(max(reward, self._low), self._high)


def _number(wrapper: str, name: str, value: Any) -> float:
    if isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    raise ConfigError(f"{wrapper}: {name} is a finite number, not {value!r}")
