"""The scripted policy `novice` of `game:Arithmetic-v0`: it knows how things are said, and not when.

In half of its turns it calls the calculator with its question. Otherwise, asked a question it guesses, and knows some
of the small sums; given an answer of the calculator, it mostly says any number. Imitating it gives a policy that has
yet to learn when a call pays, that the answer is right, and most sums.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

from marl_gem.policies import Info
from marl_gem.scenarios.games.arithmetic import MODULUS, ways_to_call
from marl_gem.types import Observation, Response, Role
from marl_gem.views import as_text

REPEATS = 0.12
"""How often it says what the calculator answers."""

KNOWS = 0.4
"""How often its guess at a small sum is right."""

_QUESTION = re.compile(r"^(.+) = \?$", re.MULTILINE)
_NUMBER = re.compile(r"\d+")
_SMALL_SUM = re.compile(r"(\d{1,6}) \+ (\d{1,6})")


def policy(scenario: str, options: Mapping[str, Any]) -> NovicePolicy:
    """The policy behind `scripted:novice`; see `marl_gem.registry.register_policy`."""
    return NovicePolicy()


class NovicePolicy:
    """See above."""

    name = "scripted:novice"

    def agent(self, agent_id: str, role: Role, seed: int) -> Novice:
        return Novice(random.Random(seed))


class Novice:
    """A novice in one episode."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._question = ""

    async def act(self, observation: Observation, info: Info) -> Response:
        text = as_text(observation)
        if question := _QUESTION.search(text):
            self._question = question[1]
        elif (answer := _NUMBER.search(text)) and self._rng.random() < REPEATS:
            return Response(answer[0])
        if self._rng.random() < 1 / 2:
            return Response(ways_to_call(self._question)[-1])
        return Response(str(self._guess() if question else self._rng.randrange(MODULUS)))

    def _guess(self) -> int:
        small = _SMALL_SUM.fullmatch(self._question)
        if not small:
            return self._rng.randrange(MODULUS)
        return int(small[1]) + int(small[2]) if self._rng.random() < KNOWS else self._rng.randint(2, 8)
