"""Each scenario that leaks, loses or repeats messages fails the check of messages, which says what was shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from marl_gem import MultiAgentEnv
from marl_gem.messages import Channel
from marl_gem.testing import Plan, check_env
from marl_gem.types import Observation
from tests.core.conformance import Town

BROKEN: list[Any] = []


def seen(pattern: str) -> Callable[[type[MultiAgentEnv]], type[MultiAgentEnv]]:
    """Add a class to BROKEN: the check must fail on it with a message that matches the pattern."""

    def add(scenario: type[MultiAgentEnv]) -> type[MultiAgentEnv]:
        BROKEN.append(pytest.param(scenario, pattern, id=scenario.__name__))
        return scenario

    return add


@seen("observe shows 'eve' .* was sent to \\[.*\\] only")
class ShowsGuestsWhatWasBefore(Town):
    channels = {**Town.channels, "square": Channel(lambda env: env.agents)}  # noqa: RUF012

    def observe(self, agent: str) -> Observation:
        return "\n".join(map(str, self.message_log)) if agent == "eve" else super().observe(agent)


@seen("info shows '(cat|dan)' .* was sent to \\['bob'\\] only")
class RepeatsInInfos(Town):
    def _process_action(self, agent: str, action: str) -> None:
        super()._process_action(agent, action)
        for other in self.agents:
            self.infos[other]["last"] = action


@seen("info shows 'ann' .*legal_actions.* was sent to \\['dan'\\] only")
class ListsWhatWasSent(Town):
    def legal_actions(self, agent: str) -> list[str]:
        return ["Hello.", *(message.text for message in self.message_log[-1:])]


@seen("'Good morning. mark0mark' of 'the scenario' was sent to \\['ann'")
class SaysInPublicWhatItWhispers(Town):
    def send(self, text: str, to: Any = None, sender: str = "") -> None:
        super().send(text, ["ann"] if to is None else to, sender)

    def observe(self, agent: str) -> str:
        return f"{self.message_log[0].text}\n{super().observe(agent)}"


@seen("'ann' was sent 'Good morning. mark0mark', but observes 'mayor: ")
class ForgetsTheFirstLine(Town):
    def observe(self, agent: str) -> str:
        return str(super().observe(agent)).partition("\n")[2]


@seen("'.*' is sent to '.*' twice in a step")
class SendsTwice(Town):
    def _process_action(self, agent: str, action: str) -> None:
        super()._process_action(agent, action)
        self.send(action, sender=agent)


@seen("'ann' is shown 'Good morning. mark0mark' again, after it has acted")
class RepeatsItself(Town):
    def _process_actions(self, actions: dict[str, str]) -> None:
        assert self._log is not None
        self._log._unread.setdefault("ann", []).insert(0, 0)
        super()._process_actions(actions)


@seen("observe shows '.*' what was said in a fork")
class SharesItsMessages(Town):
    spoken: list[str] = []  # noqa: RUF012 - this is what is wrong with it

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        self.spoken.clear()

    def observe(self, agent: str) -> str:
        return f"{super().observe(agent)}\n{self.spoken[-5:]}"

    def _process_action(self, agent: str, action: str) -> None:
        self.send(action, sender=agent)
        self.spoken.append(action)


@pytest.mark.parametrize(("make", "pattern"), BROKEN)
def test_a_scenario_that_breaks_its_promise_about_messages_fails_the_check(
    make: type[MultiAgentEnv], pattern: str
) -> None:
    (result,) = check_env(make, Plan(seeds=(0,), steps=14), only=["messages"]).results
    assert result.status == "FAILED" and re.search(pattern, result.details, re.S), result.details
