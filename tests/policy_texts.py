"""What the tests of policies by text share."""

from __future__ import annotations

from typing import Any

from marl_gem.specs import ScenarioSpec, load_policy
from marl_gem.types import Observation, Role

KUHN = "game:KuhnPoker-v0"
URL = "http://127.0.0.1:9/v1"
KEY = "sk-canary-0123456789abcdef"


def load(text: str, scenario: str | ScenarioSpec = KUHN, **arguments: Any) -> Any:
    """The policy behind a text, in Kuhn poker by default."""
    return load_policy(text, scenario, **arguments)


async def answer(policy: Any, observation: Observation = "Check or bet?", seed: int = 7) -> Any:
    """The response of a policy to one observation."""
    return await policy.agent("player_0", Role("You play poker."), seed).act(observation, {})
