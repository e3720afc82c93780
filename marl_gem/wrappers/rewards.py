"""Change the rewards that agents get."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any

import msgspec

from marl_gem.env import Infos, MultiAgentEnv, Observations
from marl_gem.errors import ConfigError
from marl_gem.faults import FAULTS
from marl_gem.types import Metadata
from marl_gem.wrappers.base import AroundStep, Wrapper, agent_ids


class RewardWrapper(Wrapper):
    """Changes rewards one by one: a subclass defines `reward`, and `metadata` where it knows the new range.

    `returns` are sums of the changed rewards. A reward for an agent that had ended before, or that joins in
    the same step, is in no dict of rewards; it is changed when it is added to `returns`.
    """

    changes = frozenset({"rewards"})

    def __init__(self, env: MultiAgentEnv) -> None:
        super().__init__(env)
        self._rewards: dict[str, float] = {}
        self._returns: dict[str, float] = {}
        self._returns_before: dict[str, float] = {}  # of the env, before the step

    rewards: Any = property(attrgetter("_rewards"))
    returns: Any = property(attrgetter("_returns"))

    @property
    def metadata(self) -> Metadata:  # type: ignore[override]
        return msgspec.structs.replace(self.env.metadata, zero_sum=None, reward_range=None)

    def reward(self, agent: str, reward: float, acted: bool) -> float:
        """The reward that `agent` gets instead of `reward`; `acted` is whether it acted in this step."""
        raise NotImplementedError(f"{type(self).__name__} must define reward(agent, reward, acted)")

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Observations, Infos]:
        begun = super().reset(seed=seed, options=options)
        self._returns_before = dict(self.env.returns)
        self._rewards, self._returns = dict(self.env.rewards), dict(self.env.returns)
        return begun

    def around_step(self, actions: Mapping[str, str]) -> AroundStep:
        observations, given, terminations, truncations, infos = yield actions
        before, after = self._returns_before, dict(self.env.returns)
        others = {agent: after[agent] - before.get(agent, 0.0) for agent in after if agent not in given}
        try:
            rewards = {agent: self._change(agent, reward, agent in actions) for agent, reward in given.items()}
            gained = rewards | {agent: self._change(agent, gain, False) for agent, gain in others.items() if gain}
        except FAULTS as error:
            self._fault("reward", error)
        self._returns_before, self._rewards = after, rewards
        self._returns = {agent: self._returns.get(agent, 0.0) + gained.get(agent, 0.0) for agent in after}
        return observations, rewards, terminations, truncations, infos

    def _change(self, agent: str, reward: float, acted: bool) -> float:
        return self._finite(agent, self.reward(agent, reward, acted))


class StepPenalty(RewardWrapper):
    """Subtracts a penalty from an agent's reward for each of its own actions.

    Args:
        env: the env to wrap.
        penalty: what one action costs, in units of reward; from 0 up.
        agents: the agents that pay it, one id or several; by default all.

    Raises:
        ConfigError: the penalty is negative or no number.
    """

    def __init__(self, env: MultiAgentEnv, penalty: float, agents: str | Iterable[str] | None = None) -> None:
        super().__init__(env)
        self._penalty = _number("StepPenalty", "penalty", penalty)
        self._agents = agent_ids(agents)
        if self._penalty < 0:
            raise ConfigError(f"StepPenalty: the penalty is subtracted; give {-penalty!r} instead of {penalty!r}")

    @property
    def metadata(self) -> Metadata:  # type: ignore[override]
        bounds = self.env.metadata.reward_range
        return msgspec.structs.replace(super().metadata, reward_range=bounds and (bounds[0] - self._penalty, bounds[1]))

    def reward(self, agent: str, reward: float, acted: bool) -> float:
        return reward - self._penalty if acted and (self._agents is None or agent in self._agents) else reward


class RewardScale(RewardWrapper):
    """Multiplies rewards by a factor.

    Args:
        env: the env to wrap.
        factor: any finite number; a negative one turns gains into losses.
        agents: the agents whose rewards are multiplied, one id or several; by default all. Whether returns sum to
            zero is then not declared any more.

    Raises:
        ConfigError: the factor is no finite number.
    """

    def __init__(self, env: MultiAgentEnv, factor: float, agents: str | Iterable[str] | None = None) -> None:
        super().__init__(env)
        self._factor = _number("RewardScale", "factor", factor)
        self._agents = agent_ids(agents)

    @property
    def metadata(self) -> Metadata:  # type: ignore[override]
        metadata, everybody = self.env.metadata, self._agents is None
        bounds = metadata.reward_range
        if bounds:
            scaled = [bound * self._factor for bound in bounds]
            possible = scaled if everybody else [*scaled, *bounds]
            bounds = (min(possible), max(possible))
        zero_sum = metadata.zero_sum if everybody else None
        return msgspec.structs.replace(metadata, reward_range=bounds, zero_sum=zero_sum)

    def reward(self, agent: str, reward: float, acted: bool) -> float:
        return reward * self._factor if self._agents is None or agent in self._agents else reward


class RewardClip(RewardWrapper):
    """Makes rewards below `low` `low`, and rewards above `high` `high`.

    Args:
        env: the env to wrap.
        low: the least reward of one agent in one step; at most 0, because no reward is 0 and stays 0.
        high: the greatest; at least 0.

    Raises:
        ConfigError: 0 does not lie between the bounds, or they are no finite numbers.
    """

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
