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
    the same step, is in no dict of rewards; it is changed when it is added to `returns`. A subclass may also define
    `final_reward`, which every agent gets once.
    """

    changes = frozenset({"rewards"})

    def __init__(self, env: MultiAgentEnv) -> None:
        super().__init__(env)
        self._rewards: dict[str, float] = {}
        self._returns: dict[str, float] = {}
        self._returns_before: dict[str, float] = {}  # of the env, before the step
        self._ended: set[str] = set()

    rewards: Any = property(attrgetter("_rewards"))
    returns: Any = property(attrgetter("_returns"))

    @property
    def metadata(self) -> Metadata:  # type: ignore[override]
        return msgspec.structs.replace(self.env.metadata, zero_sum=None, reward_range=None)

    def reward(self, agent: str, reward: float, acted: bool) -> float:
        """The reward that `agent` gets instead of `reward`; `acted` is whether it acted in this step."""
        raise NotImplementedError(f"{type(self).__name__} must define reward(agent, reward, acted)")

    def final_reward(self, agent: str) -> float:
        """What `agent` gets in addition in the step in which it ends, terminated or truncated."""
        return 0.0

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Observations, Infos]:
        begun = super().reset(seed=seed, options=options)
        self._ended = set()
        self._returns_before = dict(self.env.returns)
        self._rewards, self._returns = dict(self.env.rewards), dict(self.env.returns)
        return begun

    def around_step(self, actions: Mapping[str, str]) -> AroundStep:
        observations, given, terminations, truncations, infos = yield actions
        before, after = self._returns_before, dict(self.env.returns)
        others = {agent: after[agent] - before.get(agent, 0.0) for agent in after if agent not in given}
        ending = after.keys() - set(self.env.agents) - self._ended
        self._ended |= ending
        try:
            gained = {agent: self._change(agent, reward, agent in actions) for agent, reward in given.items()}
            gained |= {agent: self._change(agent, gain, False) for agent, gain in others.items() if gain}
            for agent in ending:
                gained[agent] = self._finite(agent, gained.get(agent, 0.0) + self.final_reward(agent))
            rewards = {agent: gained[agent] for agent in given}
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
    """Pays factor * reward for each reward, and an offset once an episode.

    The offset is a part of the reward of the step in which the agent ends. So with a factor above 0 an agent's return
    becomes factor * return + offset, which changes none of its best replies, and without a discount the return from
    every one of its turns is shifted by the same. With a discount below 1 the offset counts the less the more turns are
    left: then it rewards short episodes, or long ones if it is negative. An episode that is cut by a limit of the
    rollout, not of an env or wrapper, pays no offset.

    Args:
        env: the env to wrap. With an offset, a wrapper that ends episodes stands inside.
        factor: any finite number; a negative one turns gains into losses.
        agents: the agents whose rewards are changed, one id or several; by default all. Whether returns sum to zero is
            not declared any more where only some are, or where there is an offset.
        offset: in units of the changed reward.

    Raises:
        ConfigError: the factor or the offset is no finite number, or there is no such agent.
    """

    def __init__(
        self, env: MultiAgentEnv, factor: float, agents: str | Iterable[str] | None = None, offset: float = 0.0
    ) -> None:
        super().__init__(env)
        self._factor = _number("RewardScale", "factor", factor)
        self._offset = _number("RewardScale", "offset", offset)
        self._agents = agent_ids(agents)
        unknown = [] if self._agents is None or env.metadata.joins else sorted(self._agents - {*env.possible_agents})
        if unknown:
            known = ", ".join(env.possible_agents)
            raise ConfigError(f"RewardScale: {env.scenario} has no agent {unknown[0]!r}; its agents are {known}")
        if self._offset:
            self.settles = frozenset({"ending"})

    @property
    def metadata(self) -> Metadata:  # type: ignore[override]
        metadata, everybody = self.env.metadata, self._agents is None
        bounds = metadata.reward_range
        if bounds:
            scaled = [bound * self._factor for bound in bounds]
            possible = [*scaled, *(bound + self._offset for bound in scaled), *(() if everybody else bounds)]
            bounds = (min(possible), max(possible))
        zero_sum = metadata.zero_sum if everybody and not self._offset else None
        return msgspec.structs.replace(metadata, reward_range=bounds, zero_sum=zero_sum)

    def reward(self, agent: str, reward: float, acted: bool) -> float:
        return reward * self._factor if self._pays(agent) else reward

    def final_reward(self, agent: str) -> float:
        return self._offset if self._pays(agent) else 0.0

    def _pays(self, agent: str) -> bool:
        return self._agents is None or agent in self._agents


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
