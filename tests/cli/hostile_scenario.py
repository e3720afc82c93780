"""A scenario in which every text is hostile: what a terminal obeys, what hides other text, what cannot be encoded."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from marl_gem import MultiAgentEnv, Role, SequentialSelector

EVIL = (
    "\x1b]52;c;cm0gLXJm\x07\x1b]0;owned\x07\x1b[2J\x1b[1;1Hgone\x1bP$q\x1b\\\x9b31m\x9d8;;http://evil\x9c\r\b\x7f"
    "\u202e\u2066\u200b\U000e0041\ud800 [red]not red[/red] [/] :bomb: \\"
)


class Hostile(MultiAgentEnv):
    possible_agents: Sequence[str] = (f"a{EVIL}", "b")
    selector = SequentialSelector()

    def _reset(self, options: Mapping[str, Any]) -> None:
        warnings.warn(f"a warning {EVIL}", RuntimeWarning, stacklevel=1)

    def observe(self, agent: str) -> str:
        return f"seen {EVIL}"

    def role(self, agent: str) -> Role:
        return Role(f"instructions {EVIL}")

    def legal_actions(self, agent: str) -> list[str]:
        return [f"move {EVIL}"]

    def _process_actions(self, actions: dict[str, str]) -> None:
        for agent in self.agents:
            self.infos[agent] = {"illegal": f"illegal {EVIL}", "success": False, "failure": f"failed {EVIL}"}
        self.rewards = dict.fromkeys(self.agents, -1.0)
        self.terminations = dict.fromkeys(self.agents, self.steps >= 2)


class Broken(Hostile):
    """The same, and it raises."""

    def _process_actions(self, actions: dict[str, str]) -> None:
        raise RuntimeError(f"broken {EVIL}")
