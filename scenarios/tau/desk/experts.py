"""Scripted policies for both seats of the help desk.

    expert   solves every task from the observations of its seat alone
    novice   acts as the expert in a third of its turns, otherwise it takes a random phrase or call

Imitating a novice gives a policy that knows the phrases and calls and has yet to learn when to use them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from typing import Any

from marl_gem.policies import Info
from marl_gem.scenarios.tau.desk.tasks import NAMES, STATES, TOO_LATE, TOWNS, WISHES
from marl_gem.scenarios.tau.dialogue import STOP
from marl_gem.scenarios.tau.env import USER
from marl_gem.tools.calls import write_call
from marl_gem.types import Observation, Response, Role
from marl_gem.views import as_text

LUCK = 1 / 3
"""The share of turns in which a novice acts as an expert."""
WHO = "Who are you?"
WHAT = "What do you want?"
DONE = "It is done."
SORRY = f"Sorry, it is {TOO_LATE}."
SAYINGS = {
    "cancel": ("Please cancel my parcel.", "I want to cancel my parcel."),
    "redirect": ("Please send my parcel to {town}.", "I want my parcel to go to {town}."),
    "where": ("Where is my parcel?", "I want to know where my parcel is."),
}
INTRODUCTIONS = ("I am {name}.", "My name is {name}.")


def policy(scenario: str, options: Mapping[str, Any], skill: str) -> DeskPolicy:
    """The policy behind `scripted:expert` and `scripted:novice`; see `registry.register_policy`."""
    return DeskPolicy(skill)


class DeskPolicy:
    """An expert or a novice in either seat.

    Args:
        skill: "expert" or "novice".
    """

    def __init__(self, skill: str) -> None:
        self.name = f"scripted:{skill}"
        self._skill = skill

    def agent(self, agent_id: str, role: Role, seed: int) -> DeskAgent:
        rng = random.Random(seed)
        if agent_id == USER:
            customer = Customer(role.instructions, rng)
            return DeskAgent(customer.answer if self._skill == "expert" else customer.chatter)
        clerk = Clerk(rng)
        return DeskAgent(clerk.answer if self._skill == "expert" else clerk.chatter)


class DeskAgent:
    """An agent whose answer is a function of the observation."""

    def __init__(self, answer: Callable[[Observation], str]) -> None:
        self._answer = answer

    async def act(self, observation: Observation, info: Info) -> Response:
        return Response(self._answer(observation))


class Customer:
    """The customer: says its wish, its name when asked for it, and stops at the first message without a question."""

    def __init__(self, instruction: str, rng: random.Random) -> None:
        self._rng = rng
        self._name, self._town = find(NAMES, instruction), find(TOWNS, instruction)
        self._wish = wish_in(instruction)

    def answer(self, heard: Observation) -> str:
        """The expert's message."""
        question = as_text(heard)
        if not question.endswith("?"):
            return STOP
        return self._introduction() if question == WHO else self._say(self._wish)

    def chatter(self, heard: Observation) -> str:
        """The novice's message: the expert's, or a random one, not always with its own wish."""
        if self._rng.random() < LUCK:
            return self.answer(heard)
        wish = self._rng.choice((self._wish, self._rng.choice(WISHES)))
        return self._rng.choice((self._say(wish), self._introduction(), STOP))

    def _say(self, wish: str) -> str:
        return self._rng.choice(SAYINGS[wish]).format(town=self._town or self._rng.choice(TOWNS))

    def _introduction(self) -> str:
        return self._rng.choice(INTRODUCTIONS).format(name=self._name)


class Clerk:
    """The assistant: asks for wish and name, looks the parcel up, and does what the policy allows."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._wish = self._name = self._town = self._state = ""
        self._done = False

    def answer(self, heard: Observation) -> str:
        """The expert's message or call."""
        self._take_in(heard)
        if not self._wish:
            return WHAT
        if not self._name:
            return WHO
        if not self._state:
            return write_call("look_up", {"name": self._name})
        if self._wish == "where":
            return f"It is {self._state}."
        if self._state != "packed":
            return SORRY
        if self._done:
            return DONE
        self._done = True
        return self._carry_out()

    def chatter(self, heard: Observation) -> str:
        """The novice's message or call: the expert's, or a random one with the names and towns so far."""
        if self._rng.random() < LUCK:
            return self.answer(heard)
        self._take_in(heard)
        known = self._name or self._rng.choice(NAMES)
        town = self._town or self._rng.choice(TOWNS)
        moves = (
            WHO,
            write_call("look_up", {"name": known}),
            write_call("cancel", {"name": known}),
            write_call("redirect", {"name": known, "to": town}),
            f"It is {self._state or self._rng.choice(STATES)}.",
            SORRY,
            DONE,
        )
        return self._rng.choice(moves)

    def _carry_out(self) -> str:
        if self._wish == "cancel":
            return write_call("cancel", {"name": self._name})
        return write_call("redirect", {"name": self._name, "to": self._town})

    def _take_in(self, heard: Observation) -> None:
        """Read a message of the customer or the result of a tool."""
        if isinstance(heard, str):
            self._wish = wish_in(heard) or self._wish
            self._name = find(NAMES, heard) or self._name
            self._town = find(TOWNS, heard) or self._town
        else:
            self._state = find(STATES, as_text(heard)) or self._state


def find(words: tuple[str, ...], text: str) -> str:
    """The first of these words in a text; empty if there is none."""
    return next((word for word in re.findall(r"\w+", text) if word in words), "")


def wish_in(text: str) -> str:
    """The wish in a text; empty if there is none."""
    if "cancel" in text:
        return "cancel"
    if re.search(r"\bwhere\b", text, re.IGNORECASE):
        return "where"
    return "redirect" if re.search(r"\bto (go to )?(\w+)", text) and find(TOWNS, text) else ""
