"""What envs converted to another library have in common."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from marl_gem.convert.spaces import Content, FreeText
from marl_gem.env import Infos, MultiAgentEnv, Observations, Step
from marl_gem.errors import ConversionError, InvalidAction

_PROBE = {"options": 1}
"""The options that PettingZoo's checks give to every env, to see that `reset` takes options."""


class Converted:
    """An env with the seeds, spaces, roles and rendering that other libraries expect.

    A reset without a seed continues from the last seed that was given, as in PettingZoo and Gymnasium: a seed for
    the first reset seeds all episodes. `render` gives the env's text picture.
    """

    render_mode: str | None = "ansi"

    def __init__(self, env: MultiAgentEnv) -> None:
        require_env(env)
        self.marl_env = env
        self.metadata = {"name": env.scenario, "render_modes": ["ansi"], "render_fps": 1}
        self._dice = random.Random()
        self._observation_spaces: defaultdict[str, Content] = defaultdict(Content)
        self._action_spaces: defaultdict[str, FreeText] = defaultdict(FreeText)
        self._shown: Observations = {}

    @property
    def returns(self) -> dict[str, float]:
        """Every agent's sum of rewards in this episode, rewards after its end included."""
        return dict(self.marl_env.returns)

    def render(self) -> str:
        """The env's own picture of the present moment, as text; see `MultiAgentEnv.render`."""
        return self.marl_env.render()

    def close(self) -> None:
        self.marl_env.close()

    def _reset_env(self, seed: int | None, options: Mapping[str, Any] | None) -> tuple[Observations, Infos]:
        given = int(seed) if isinstance(seed, np.integer) else seed
        observations, infos = self.marl_env.reset(
            seed=self._dice.getrandbits(32) if given is None else given,
            options=None if options == _PROBE else options,
        )
        if given is not None:
            self._dice = random.Random(given)
        self._look(observations, infos)
        return observations, dict(infos)

    def _step_env(self, actions: Mapping[str, str]) -> Step:
        """Step the env. Agents that have joined are added to all dicts but the observations."""
        observations, rewards, terminations, truncations, infos = self.marl_env.step(actions)
        infos = dict(infos)
        for agent in self.marl_env.agents:
            if agent not in infos:
                legal = self.marl_env.legal_actions(agent) if agent in self.marl_env.acting else None
                infos[agent] = {} if legal is None else {"legal_actions": list(legal)}
        self._look(observations, infos)
        return (
            observations,
            {agent: rewards.get(agent, 0.0) for agent in infos},
            {agent: terminations.get(agent, False) for agent in infos},
            {agent: truncations.get(agent, False) for agent in infos},
            infos,
        )

    def _look(self, observations: Observations, infos: Infos) -> None:
        self._shown = dict(observations)
        for agent in observations:
            self._action_spaces[agent].legal = tuple(infos[agent].get("legal_actions", ()))


def require_env(env: object) -> None:
    """Raise ConversionError unless this is an env."""
    if not isinstance(env, MultiAgentEnv):
        raise ConversionError(f"an env is converted, not {env!r}; make one, for instance with marl_gem.make(id)")


def require_text(env: MultiAgentEnv, agent: str, action: Any) -> str:
    """The action, which must be text.

    Raises:
        InvalidAction: it is not.
    """
    if not isinstance(action, str):
        raise InvalidAction(f"{env.scenario}: the action of {agent!r} must be text, not {action!r}")
    return action
