"""What an exact analysis of a scenario is given: the policies, as action probabilities.

Some games are small enough to compute exactly how good a policy is, without sampling games. A scenario registers
such an analysis (`marl_gem.registry.register_analysis`), and whoever has policies asks for its numbers:

    env = marl_gem.make("game:KuhnPoker-v0")
    marl_gem.registry.analyse(env, uniform)        # {"exploitability": 0.458, "value/player_0": 0.125, ...}

Neither side knows the other: the analysis walks through forks of the env and asks the strategy at each decision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from marl_gem.env import MultiAgentEnv
from marl_gem.types import Response, Role
from marl_gem.views import Exchange
from marl_gem.wrappers.base import Wrapper


@dataclass(frozen=True)
class Decision:
    """One agent's turn: everything that it has seen, and what it may do.

    `history` is what a view takes: the agent's observations and answers so far, ending with the current
    observation, whose response is None. Answers are texts without tokens. `actions` are the legal ones.
    """

    agent: str
    role: Role
    history: tuple[Exchange, ...]
    actions: tuple[str, ...]


Strategy: TypeAlias = Callable[[Decision], Mapping[str, float]]
"""The probability of each legal action at a decision.

An action that is left out has probability 0. If they sum to less than 1, the rest is the probability of answering
with something illegal.
"""


def uniform(decision: Decision) -> dict[str, float]:
    """The strategy that takes every legal action with the same probability."""
    return dict.fromkeys(decision.actions, 1 / len(decision.actions))


class Node:
    """One state of the game tree, with what every agent has seen on the way there. Branches by forking the env.

    Args:
        env: a live env, which is not changed.
        histories: what each agent has seen and answered so far; nothing after `reset`.
    """

    def __init__(self, env: MultiAgentEnv, histories: Mapping[str, tuple[Exchange, ...]] | None = None) -> None:
        self.env = env
        self._histories = histories or {}

    @property
    def state(self) -> MultiAgentEnv:
        """The env without its wrappers: what an analysis reads the state of the game from."""
        return self.env.unwrapped if isinstance(self.env, Wrapper) else self.env

    def decision(self, agent: str) -> Decision:
        """What an acting agent has to decide."""
        history = (*self._histories.get(agent, ()), Exchange(self.env.observe(agent), None))
        return Decision(agent, self.env.role(agent), history, tuple(self.env.legal_actions(agent) or ()))

    def child(self, actions: Mapping[str, str]) -> Node:
        """The node after these actions."""
        histories = dict(self._histories)
        for agent, action in actions.items():
            answered = Exchange(self.env.observe(agent), Response(action))
            histories[agent] = (*histories.get(agent, ()), answered)
        env = self.env.fork()
        env.step(actions)
        return Node(env, histories)
