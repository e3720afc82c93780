"""A scripted player of Werewolf: `scripted:rule`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from marl_gem.policies.base import Info
from marl_gem.types import Observation, Response, Role
from marl_gem.views import as_text

_SEEN = re.compile(r"^You see that (\w+) is (a|no) wolf\.$", re.MULTILINE)
_CLAIMED = re.compile(r"^(\w+): I am the seer: (\w+) is (a|no) wolf\.$", re.MULTILINE)


def policy(scenario: str, options: Mapping[str, Any]) -> RulePolicy:
    """The policy behind `scripted:rule`; see `marl_gem.registry.register_policy`."""
    return RulePolicy()


class RulePolicy:
    """Plays every role by a rule. The seer says what it sees, and the village believes it: it votes for a wolf that was
    named, or else for the first player about whom nothing was said. Wolves kill, and vote for, who says to be the seer,
    or else the first that they may name."""

    name = "scripted:rule"

    def agent(self, agent_id: str, role: Role, seed: int) -> RuleAgent:
        wolves = role.instructions.partition("the wolves are ")[2].partition(".")[0]
        return RuleAgent(wolves.split(" and ") if wolves else [])


class RuleAgent:
    """The policy in one seat: what it has heard.

    Args:
        wolves: the wolves, if the agent is one.
    """

    def __init__(self, wolves: list[str]) -> None:
        self.wolves = wolves
        self.report = "I have seen nothing."
        self.seers: list[str] = []  # players that say to be the seer
        self.sides: dict[str, str] = {}  # "a" for a wolf, "no" for none

    async def act(self, observation: Observation, info: Info) -> Response:
        text = as_text(observation)
        for name, side in _SEEN.findall(text):
            self.report = f"I am the seer: {name} is {side} wolf."
            self.sides[name] = side
        for seer, name, side in _CLAIMED.findall(text):
            self.seers.append(seer)
            self.sides.setdefault(name, side)
        if not (legal := info.get("legal_actions")):
            return Response(self.report)
        names = [action[1:-1] for action in legal if action[1:-1] not in (*self.wolves, "nobody")]
        named = self.seers if self.wolves else [name for name, side in self.sides.items() if side == "a"]
        unknown = [name for name in names if self.wolves or name not in (*self.sides, *self.seers)]
        return Response(next((f"[{name}]" for name in (*named, *unknown) if name in names), legal[-1]))
