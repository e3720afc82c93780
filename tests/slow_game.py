"""A game that takes its time, for tests of runs that are killed; and marl-gem with it, in a process of its own.

python -m tests.slow_game eval test:Slow-v0 --seat a=scripted:slow --seat b=scripted:slow --out DIR
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any

from marl_gem import MultiAgentEnv, Response, Role, SequentialSelector
from marl_gem.policies import Info
from marl_gem.registry import register, register_policy
from marl_gem.types import Observation


class Slow(MultiAgentEnv):
    """Two agents guess by turns, `rounds` times each, what the env draws; a right guess is worth 1."""

    possible_agents = ("a", "b")
    selector = SequentialSelector()

    def __init__(self, rounds: int = 2) -> None:
        self.rounds = rounds

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        self.drawn = self.rng.choice(["heads", "tails"])

    def observe(self, agent: str) -> str:
        return f"Guess number {self.steps // 2 + 1}"

    def legal_actions(self, agent: str) -> list[str]:
        return ["heads", "tails"]

    def _process_actions(self, actions: dict[str, str]) -> None:
        for agent, guess in actions.items():
            self.rewards[agent] = float(guess == self.drawn)
        self.drawn = self.rng.choice(["heads", "tails"])
        if self.steps == 2 * self.rounds:
            self.terminations = dict.fromkeys(self.agents, True)


class SlowPolicy:
    """Guesses at random, after a while."""

    name = "slow"

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def agent(self, agent_id: str, role: Role, seed: int) -> SlowAgent:
        return SlowAgent(self.seconds, seed)


class SlowAgent:
    def __init__(self, seconds: float, seed: int) -> None:
        self._seconds, self._rng = seconds, random.Random(seed)

    async def act(self, observation: Observation, info: Info) -> Response:
        await asyncio.sleep(self._seconds)
        return Response(self._rng.choice(info["legal_actions"]))


def slow_policy(scenario: str, options: Mapping[str, Any], seconds: float) -> SlowPolicy:
    return SlowPolicy(seconds)


def main() -> None:
    from marl_gem.cli import main

    main()


if __name__ in ("__main__", "__mp_main__"):  # here, and in the worker processes of an evaluation
    register("test:Slow-v0", Slow, agents=2)
    register_policy("test", "slow", slow_policy, seconds=0.004)
    register_policy("test", "asleep", slow_policy, seconds=0.4)

if __name__ == "__main__":
    main()
