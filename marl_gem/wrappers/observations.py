"""Change what agents observe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from marl_gem.env import Infos, MultiAgentEnv, Observations
from marl_gem.errors import ConfigError
from marl_gem.faults import FAULTS
from marl_gem.types import Observation
from marl_gem.wrappers.base import AroundStep, Wrapper, agent_ids


class ObservationWrapper(Wrapper):
    """Changes observations one by one, final ones too: a subclass defines `observation`."""

    changes = frozenset({"observations"})

    def observation(self, agent: str, observation: Observation) -> Observation:
        """The observation that `agent` gets instead of `observation`. Pure; must not change what it is given."""
        raise NotImplementedError(f"{type(self).__name__} must define observation(agent, observation)")

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Observations, Infos]:
        observations, infos = super().reset(seed=seed, options=options)
        return self._change(observations, infos), infos

    def around_step(self, actions: Mapping[str, str]) -> AroundStep:
        observations, rewards, terminations, truncations, infos = yield actions
        return self._change(observations, infos), rewards, terminations, truncations, infos

    def observe(self, agent: str) -> Observation:
        return self.observation(agent, self.env.observe(agent))

    def _change(self, observations: Observations, infos: Infos) -> Observations:
        try:
            for agent, info in infos.items():
                if "final_observation" in info:
                    info["final_observation"] = self.observation(agent, info["final_observation"])
            return {agent: self.observation(agent, observation) for agent, observation in observations.items()}
        except FAULTS as error:
            self._fault("observation", error)


class MapObservation(ObservationWrapper):
    """Replaces each text that agents observe by what a function makes of it.

    In a list of content parts the text parts are changed; images and results of tools stay.

    Args:
        env: the env to wrap.
        function: from text to text; pure.
        agents: the agents whose observations are changed, one id or several; by default all.

    Raises:
        ConfigError: `function` is no function.
    """

    def __init__(
        self, env: MultiAgentEnv, function: Callable[[str], str], agents: str | Iterable[str] | None = None
    ) -> None:
        super().__init__(env)
        if not callable(function):
            raise ConfigError(f"MapObservation takes a function from text to text, not {function!r}")
        self._function = function
        self._agents = agent_ids(agents)

    def observation(self, agent: str, observation: Observation) -> Observation:
        if self._agents is not None and agent not in self._agents:
            return observation
        if isinstance(observation, str):
            return self._map(observation)
        return [
            {**part, "text": self._map(part["text"])} if part.get("type") == "text" else part for part in observation
        ]

    def _map(self, text: str) -> str:
        mapped = self._function(text)
        if not isinstance(mapped, str):
            raise TypeError(f"the function must give text, not {mapped!r}")
        return mapped
