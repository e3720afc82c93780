"""Limit the length of episodes."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

import msgspec

from marl_gem.env import MultiAgentEnv
from marl_gem.errors import ConfigError
from marl_gem.faults import FAULTS
from marl_gem.types import Metadata
from marl_gem.wrappers.base import AroundStep, Wrapper


class TimeLimit(Wrapper):
    """Truncates all agents that are left after a number of steps. An agent that joins in the last one never acts.

    Steps are counted as the wrapped env's `steps` counts them. The env's own limit, if it has one, holds too. Whether
    returns sum to zero is not declared any more, because an episode may end halfway.

    Args:
        env: the env to wrap.
        max_steps: steps of one episode; from 1 up.

    Raises:
        ConfigError: `max_steps` is no such number.
    """

    changes = frozenset({"ending"})

    def __init__(self, env: MultiAgentEnv, max_steps: int) -> None:
        if not isinstance(max_steps, numbers.Integral) or isinstance(max_steps, bool) or max_steps < 1:
            raise ConfigError(f"TimeLimit: max_steps is a whole number of steps from 1 up, not {max_steps!r}")
        super().__init__(env)
        self._limit: int | None = int(max_steps)

    def _get_max_steps(self) -> int | None:
        limits = [limit for limit in (self._limit, self.env.max_steps) if limit is not None]
        return min(limits, default=None)

    def _set_max_steps(self, max_steps: int | None) -> None:
        self._limit = max_steps

    max_steps: Any = property(_get_max_steps, _set_max_steps)

    @property
    def metadata(self) -> Metadata:  # type: ignore[override]
        return msgspec.structs.replace(self.env.metadata, zero_sum=None)

    def around_step(self, actions: Mapping[str, str]) -> AroundStep:
        observations, rewards, terminations, truncations, infos = yield actions
        if self._limit is not None and self.steps >= self._limit and self.agents:
            observations = {}
            for agent in [agent for agent in rewards if agent in self.agents]:
                truncations[agent] = True
                infos[agent].pop("legal_actions", None)
                try:
                    infos[agent]["final_observation"] = self.env.observe(agent)
                except FAULTS as error:
                    self._fault("observe", error)
            self._state = "over"
        return observations, rewards, terminations, truncations, infos
