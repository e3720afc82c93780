"""A policy that plays at random."""

from __future__ import annotations

import random

from marl_gem.errors import AgentError
from marl_gem.policies.base import Agent, FunctionAgent, Info
from marl_gem.types import Observation, Role


class RandomPolicy:
    """Picks any legal action, each as likely as the other."""

    name = "random"

    def agent(self, agent_id: str, role: Role, seed: int) -> Agent:
        rng = random.Random(seed)

        def pick(observation: Observation, info: Info) -> str:
            legal = info.get("legal_actions")
            if not legal:
                raise AgentError(
                    f"random play in seat {agent_id!r} needs a list of legal actions, and this scenario gives none; "
                    "seat a model or a script instead"
                )
            return str(rng.choice(legal))

        return FunctionAgent(pick)
