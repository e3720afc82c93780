"""A conversation of three as a graph: a moderator, and two debaters who open at once and then answer when asked.

    python examples/conversation.py
    python examples/conversation.py --picture debate.png

What to take from it: who may speak after whom is a graph with conditions, apart from what is said. The
picture needs networkx and matplotlib: pip install 'marl-gem[graph]'
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from typing import Any

from marl_gem import MultiAgentEnv, Role
from marl_gem.policies import ScriptedPolicy
from marl_gem.rollout import Job, collect
from marl_gem.selectors.graph import END, GraphSelector
from marl_gem.selectors.picture import draw
from marl_gem.types import Metadata


def asks_pro(state: dict[str, Any]) -> bool:
    return "pro" in state["asked"]


def asks_con(state: dict[str, Any]) -> bool:
    return "con" in state["asked"]


class Debate(MultiAgentEnv):
    """The moderator asks `@pro`, `@con` or both; without either the debate ends, and `[pro]` or `[con]` has won."""

    possible_agents = ("moderator", "pro", "con")
    selector = GraphSelector(
        {
            "moderator": {"pro": {"when": asks_pro}, "con": {"when": asks_con}, END: {"otherwise": True}},
            "pro": "moderator",
            "con": "moderator",
        },
        start="moderator",
        state={"asked": []},
    )
    max_steps = 30
    metadata = Metadata(zero_sum=True, turn_order="mixed", reward_range=(-1.0, 1.0))

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        self.topic = self.rng.choice(["Cities should ban cars.", "Homework should be abolished."])
        self.send(f"The motion: {self.topic}")

    def role(self, agent: str) -> Role:
        if agent == "moderator":
            return Role("You moderate. Ask with @pro or @con. To close, ask nobody and write [pro] or [con], who won.")
        return Role(f"You argue {agent} the motion, in a sentence or two each time you are asked.")

    def _process_actions(self, actions: dict[str, str]) -> None:
        for speaker, text in actions.items():
            self.send(text, sender=speaker)
        if "moderator" in actions:
            self.selector.state["asked"] = asked = re.findall(r"@(pro|con)\b", actions["moderator"])
            if not asked and (verdict := re.search(r"\[(pro|con)\]", actions["moderator"])):
                self.rewards = {side: 1.0 if side == verdict[1] else -1.0 for side in ("pro", "con")}


CAST = {
    "moderator": ScriptedPolicy(
        [
            "Welcome! @pro @con, your opening statements, please.",
            "@pro, who pays for it?",
            "@con, is that so?",
            "Thank you both. Nobody could answer who pays. [con]",
        ]
    ),
    "pro": ScriptedPolicy(["Everybody would be better off.", "In the end it pays for itself."]),
    "con": ScriptedPolicy(["It sounds nice, and has never worked.", "It was tried twice. It never did."]),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="A moderated debate.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", metavar="FILE", help="draw who may speak after whom, as a PNG")
    options = parser.parse_args()

    (episode,) = collect(Debate, [Job(options.seed, CAST)])
    print(episode.turns[0].observation)
    for turn in episode.turns:
        print(f"{turn.agent:>9}: {turn.response.text}")
    print(f"{episode.ending}: {episode.returns}")
    if options.picture:
        draw(Debate.selector, options.picture)


if __name__ == "__main__":
    main()
