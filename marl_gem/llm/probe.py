"""Which optional fields of a request a server does not take, found out by a few short requests before its first answer.

A server that refuses a field answers 400 or 422. Some name the field, others do not. What is found holds for the rest
of the run, so that all answers are sampled alike; later refusals are errors of their calls.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

from marl_gem.episode_clock import infrastructure
from marl_gem.errors import LLMError
from marl_gem.llm.wire import DISPENSABLE

_log = logging.getLogger(__name__)


class Refusal(NamedTuple):
    """A server's refusal of a request: the fields that it names, and the error that it stands for otherwise."""

    named: frozenset[str]
    error: LLMError


Ask: TypeAlias = Callable[[frozenset[str]], Awaitable[Refusal | None]]
"""Sends a short request without these fields. None: the server took it."""


class Probe:
    """What one server takes for one model.

    Args:
        server: its name in messages.
        refused: the fields that are known not to be taken.

    Attributes:
        refused: the fields that the server does not take.
    """

    def __init__(self, server: str, refused: frozenset[str] = frozenset()) -> None:
        self.refused = refused
        self._server = server
        self._known = refused
        self._outcomes: dict[tuple[str, frozenset[str]], Refusal | None] = {}
        self._failures = 0
        self._error: LLMError | None = None

    def knows(self, fields: frozenset[str]) -> bool:
        """Whether it is known of all of these fields if the server takes them."""
        return fields <= self._known

    async def find(self, fields: frozenset[str], ask: Ask, lock: asyncio.Lock) -> None:
        """Find out which of these fields the server takes. Concurrent calls wait for the same probe.

        What a probe has found out before it failed is not asked again.

        Raises:
            LLMError: the server refuses every request, or the probe failed; for all that waited for it.
        """
        failures = self._failures
        with infrastructure():
            async with lock:
                if self.knows(fields):
                    return
                if self._error and self._failures > failures:
                    raise copy.copy(self._error)
                try:
                    refused = await self._search(fields - self._known, ask)
                except LLMError as error:
                    self._failures, self._error = self._failures + 1, error
                    raise
        self.refused |= refused
        self._known |= fields
        self._outcomes.clear()
        if refused:
            _log.warning("%s takes no %s: left out in all requests", self._server, ", ".join(sorted(refused)))

    async def _search(self, fields: frozenset[str], ask: Ask) -> frozenset[str]:
        """Those of the fields that the server refuses."""
        suspects, each_named = frozenset[str](), True
        while refusal := await self._ask("with all", suspects, ask):
            named = (refusal.named & fields) - suspects
            rest = (fields & set(DISPENSABLE)) - suspects
            if not named and not rest:
                raise refusal.error
            each_named &= len(named) == 1
            suspects |= named or rest
        if suspects and each_named:  # sent once more, since a refusal may be an accident
            return suspects if await self._ask("again", frozenset(), ask) else frozenset()
        return await self._narrow(suspects, ask)

    async def _narrow(self, suspects: frozenset[str], ask: Ask) -> frozenset[str]:
        """Those of the suspects that are refused, by halving: without all of them the server takes the request."""
        refused, taken = set[str](), set[str]()
        groups = [sorted(suspects, key=_order)] if suspects else []
        while groups:
            group = groups.pop()
            if not await self._ask("again", suspects - taken - set(group), ask):
                taken |= set(group)
            elif len(group) == 1:
                refused |= set(group)
            else:
                groups += [group[: len(group) // 2], group[len(group) // 2 :]]
        return frozenset(refused)

    async def _ask(self, round: str, without: frozenset[str], ask: Ask) -> Refusal | None:
        if (round, without) not in self._outcomes:
            self._outcomes[round, without] = await ask(self.refused | without)
        return self._outcomes[round, without]


def _order(field: str) -> int:
    """Fields of the same kind of server stand side by side."""
    return DISPENSABLE.index(field) if field in DISPENSABLE else len(DISPENSABLE)
