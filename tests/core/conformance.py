"""Scenarios that the tests of the conformance checks share."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping
from typing import Any

from marl_gem import AgentSelector, MultiAgentEnv, ParallelSelector, Role, SequentialSelector, ToolSpec
from marl_gem.messages import Channel
from marl_gem.testing import CHECKS, Plan, check_env
from marl_gem.types import Metadata

BRIEF = Plan(seeds=(0, 1), steps=30, copies=8, seconds=0.5)
HERE = [name for name in CHECKS if name != "processes"]  # which takes a second, and has tests of its own


def failures(make: Callable[[], MultiAgentEnv], plan: Plan = BRIEF) -> dict[str, str]:
    """The checks that fail, with what they have seen."""
    return {outcome.check: outcome.details for outcome in check_env(make, plan, only=HERE).failed}


# Scenarios that keep their promises


class Rolls(MultiAgentEnv):
    """Two agents add up dice in turn; after three rounds the higher sum wins."""

    possible_agents = ("a", "b")
    selector: AgentSelector = SequentialSelector()
    metadata = Metadata(zero_sum=True, turn_order="sequential", reward_range=(-1.0, 1.0))

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        self.sums = dict.fromkeys(self.possible_agents, 0)

    def role(self, agent: str) -> Role:
        return Role(f"You are {agent}. Say [roll] or [stay].")

    def observe(self, agent: str) -> str:
        return f"Your sum is {self.sums[agent]}."

    def legal_actions(self, agent: str) -> list[str] | None:
        return ["[roll]", "[stay]"]

    def _process_actions(self, actions: dict[str, str]) -> None:
        for agent, text in actions.items():
            if "[roll]" in text:
                self.sums[agent] += self.rng.randint(1, 6)
            elif "[stay]" not in text:
                self.infos[agent]["illegal"] = "Say [roll] or [stay]."
        if self.steps == 6:
            lead = self.sums["a"] - self.sums["b"]
            sign = float((lead > 0) - (lead < 0))
            self.rewards = {"a": sign, "b": -sign}
            self.terminations = dict.fromkeys(self.agents, True)


class Talk(Rolls):
    """Rolls without a list of legal actions."""

    def legal_actions(self, agent: str) -> list[str] | None:
        return None


class Together(Rolls):
    """All roll at the same time, and are shown their sum as content parts."""

    selector = ParallelSelector()
    metadata = Metadata(zero_sum=True, turn_order="parallel")

    def observe(self, agent: str) -> Any:
        image = {"type": "image", "image": "data:..."}
        return [{"type": "text", "text": f"Your sum is {self.sums[agent]}."}, image]


class Club(MultiAgentEnv):
    """Everybody who speaks brings a guest, and the third time leaves; late thanks go to the founder."""

    possible_agents = ("founder",)
    selector: AgentSelector = SequentialSelector()
    metadata = Metadata(turn_order="sequential", joins=True)
    max_steps = 12

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        self.spoken: dict[str, int] = {}

    def observe(self, agent: str) -> str:
        return f"{self.spoken}"

    def _process_actions(self, actions: dict[str, str]) -> None:
        ((agent, _),) = actions.items()
        self.spoken[agent] = self.spoken.get(agent, 0) + 1
        self.add_agent(f"guest {self.steps}")
        self.rewards = {"founder": 0.5, f"guest {self.steps}": 1.0}
        self.terminations = {agent: self.spoken[agent] == 3}


class Desk(MultiAgentEnv):
    """One agent with two tools, which the scenario answers itself."""

    possible_agents = ("clerk",)
    selector: AgentSelector = SequentialSelector()
    max_steps = 10
    used: tuple[str, ...] = ()

    def role(self, agent: str) -> Role:
        number = {"type": "object", "properties": {"number": {"type": "integer"}, "unit": {"enum": ["kg"]}}}
        return Role("Weigh things.", (ToolSpec("weigh", parameters=number), ToolSpec("stop")))

    def observe(self, agent: str) -> str:
        return "Next, please."

    def _process_actions(self, actions: dict[str, str]) -> None:
        if found := re.search(r"<tool_call>(.*)</tool_call>", actions["clerk"]):
            try:
                call = json.loads(found[1])
                self.used += (call["name"], *map(str, call["arguments"]))
            except (ValueError, RecursionError, TypeError, KeyError) as error:
                self.infos["clerk"]["illegal"] = type(error).__name__


class Town(MultiAgentEnv):
    """Whoever speaks is heard by its house alone every second time; each third step somebody moves in or out."""

    possible_agents = ("ann", "bob", "cat", "dan")
    selector: AgentSelector = SequentialSelector()
    metadata = Metadata(turn_order="sequential", joins=True)
    max_steps = 14
    channels: Mapping[str, Channel] = {
        "left": Channel(lambda env: env.left),
        "square": Channel(lambda env: env.agents, backlog=True),
    }

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        self.left = ["ann", "bob"]
        self.send("Good morning.")
        for agent in self.agents:
            self.send(f"You live {'left' if agent in self.left else 'right'}.", to=agent, sender="mayor")

    def _process_action(self, agent: str, action: str) -> None:
        if self.steps % 2:
            right = [other for other in self.agents if other not in self.left]
            self.send(action, to="left" if agent in self.left else right, sender=agent)
        else:
            self.send(action, to="square", sender=agent)
        if self.steps == 3:
            self.add_agent("eve")
            self.left += ["eve"]
        if self.steps == 6:
            self.terminations["bob"] = True
            self.send("Farewell.", to="bob", sender="mayor")


# Broken ones that several tests use


class RewardsNothingThatCounts(Rolls):
    def _process_actions(self, actions: dict[str, str]) -> None:
        self.rewards["a"] = float("nan")


class DrawsGlobally(Rolls):
    def _process_actions(self, actions: dict[str, str]) -> None:
        super()._process_actions(actions)
        self.sums["a"] += random.randrange(100)


class DrawsWhenLookedAt(Rolls):
    def observe(self, agent: str) -> str:
        self.rng.random()
        return super().observe(agent)


class RewardsBoth(Rolls):
    def _process_actions(self, actions: dict[str, str]) -> None:
        super()._process_actions(actions)
        if any(self.terminations.values()):
            self.rewards = dict.fromkeys(self.agents, 1.0)
