"""Pay rewards that are functions of turns and episodes, in any scenario."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any

import msgspec

from marl_gem.awaiting import wait_for
from marl_gem.env import Infos, MultiAgentEnv, Observations, Step
from marl_gem.episode_builder import EpisodeBuilder
from marl_gem.errors import ConfigError
from marl_gem.faults import FAULTS
from marl_gem.tools.rewards import Reward, Value, load_reward
from marl_gem.types import Episode, Metadata, Response, Turn
from marl_gem.wrappers.base import Wrapper, agent_ids


class RewardEnv(Wrapper):
    """Pays agents a reward that `marl_gem.tools.reward` has made, beside the scenario's or in its stead.

        env = RewardEnv(env, brief, agents="player_0", weight=0.1)

    A reward of turns is paid in the step of each turn. A reward of episodes is paid when the episode is over; to agents
    that have ended before it counts in `returns` alone. An episode that a limit of the rollout cuts pays none.

    Args:
        env: the env to wrap. A wrapper that ends episodes stands inside.
        reward: a reward, a function that can be one, or a text such as "my_rewards.py:brief" or "matches:pattern=yes".
        agents: the agents that it is paid, one id or several; by default all.
        weight: what it is multiplied by.
        replace: whether the scenario's own rewards of these agents are dropped.

    Raises:
        ConfigError: there is no such reward or agent, or the weight is no finite number.
    """

    changes = frozenset({"rewards"})
    settles = frozenset({"ending"})

    def __init__(
        self,
        env: MultiAgentEnv,
        reward: str | Reward | Callable[..., Any],
        agents: str | Iterable[str] | None = None,
        weight: float = 1.0,
        replace: bool = False,
    ) -> None:
        super().__init__(env)
        self._reward = load_reward(reward)
        self._agents = agent_ids(agents)
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not math.isfinite(weight):
            raise ConfigError(f"RewardEnv: weight is a finite number, not {weight!r}")
        unknown = [] if self._agents is None or env.metadata.joins else sorted(self._agents - {*env.possible_agents})
        if unknown:
            known = ", ".join(env.possible_agents)
            raise ConfigError(f"RewardEnv: {env.scenario} has no agent {unknown[0]!r}; its agents are {known}")
        self._weight, self._replace = float(weight), replace
        self._rewards: dict[str, float] = {}
        self._returns: dict[str, float] = {}

    rewards: Any = property(attrgetter("_rewards"))
    returns: Any = property(attrgetter("_returns"))

    @property
    def awaits(self) -> bool:  # type: ignore[override]
        return not self.env.blocking

    @property
    def metadata(self) -> Metadata:  # type: ignore[override]
        return msgspec.structs.replace(self.env.metadata, zero_sum=None, reward_range=None)

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Observations, Infos]:
        observations, infos = super().reset(seed=seed, options=options)
        self._builder = EpisodeBuilder()
        self._seen, _ = self._builder.observed(observations, infos)
        self._builder.sent(self.env.message_log)
        self._before = dict(self.env.returns)
        self._returns, self._rewards = dict(self.env.returns), dict(self.env.rewards)
        return observations, infos

    def step(self, actions: Mapping[str, str]) -> Step:
        self._enter_step(actions)
        return self._paid(*self._scored(actions, self.env.step(actions), wait_for))

    async def step_async(self, actions: Mapping[str, str]) -> Step:
        self._enter_step(actions)
        step, values = self._scored(actions, await self.env.step_async(actions), None)
        if any(map(inspect.isawaitable, values.values())):
            try:
                values = await _all(values)
            except FAULTS as error:
                self._fault(f"reward {self._reward.name}", error)
        return self._paid(step, values)

    def _scored(
        self, actions: Mapping[str, str], step: Step, wait: Callable[[Any], Any] | None
    ) -> tuple[Step, dict[str, Any]]:
        """A step, and what each agent gets for it besides, which may have to be awaited."""
        observations, rewards, terminations, truncations, infos = step
        builder, values = self._builder, dict[str, Value]()
        try:
            builder.begin(self._seen, {agent: Response(text) for agent, text in actions.items()})
            seen = self._seen
            self._seen, infos = builder.observed(observations, infos)
            builder.complete(self.env.returns, rewards, terminations, truncations, infos)
            builder.sent(self.env.message_log)
            if self._reward.kind == "turn":
                for agent in filter(self._pays, actions):
                    turn = Turn(agent, seen[agent], Response(actions[agent]), rewards[agent], infos[agent])
                    values[agent] = self._reward.of_turn(turn, self.seed, self.env)
            elif self.env.done:
                episode = self._episode()
                values = {agent: self._reward(episode, agent, self.env) for agent in filter(self._pays, self.returns)}
            if wait and any(map(inspect.isawaitable, values.values())):
                values = wait(_all(values))
        except FAULTS as error:
            self._fault(f"reward {self._reward.name}", error)
        return step, values

    def _episode(self) -> Episode:
        return self._builder.episode(
            returns=self.env.returns,
            cut_short=False,
            id=str(self.seed),
            scenario=self.scenario,
            seed=self.seed,
            zero_sum=self.env.metadata.zero_sum,
        )

    def _paid(self, step: Step, values: Mapping[str, float]) -> Step:
        """The step with the rewards that agents get."""
        observations, rewards, terminations, truncations, infos = step
        after = dict(self.env.returns)
        gained = {agent: value - self._before.get(agent, 0.0) for agent, value in after.items()}
        gained |= rewards  # exactly these
        for agent in filter(self._pays, after):
            given = 0.0 if self._replace else gained[agent]
            gained[agent] = self._finite(agent, given + self._weight * values.get(agent, 0.0))
        self._returns = {agent: self._returns.get(agent, 0.0) + gained[agent] for agent in after}
        self._before = after
        self._rewards = {agent: gained[agent] for agent in rewards}
        return observations, self._rewards, terminations, truncations, infos

    def _pays(self, agent: str) -> bool:
        return self._agents is None or agent in self._agents


async def _all(values: Mapping[str, Any]) -> dict[str, float]:
    """The values, those that have to be awaited at the same time."""
    pending = {agent: asyncio.ensure_future(value) for agent, value in values.items() if inspect.isawaitable(value)}
    try:
        awaited = await asyncio.gather(*pending.values())
    finally:
        for task in pending.values():
            task.cancel()  # if one has failed, or the step is cancelled
    return {**values, **dict(zip(pending, awaited, strict=True))}
