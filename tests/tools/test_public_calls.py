"""Calls of tools that the other agents observe."""

from __future__ import annotations

from typing import Any

from marl_gem.tools import Image, tool
from marl_gem.tools.calculator import calculator
from marl_gem.types import ContentPart
from marl_gem.wrappers import ToolEnv
from tests.tools.test_tool_env import Duel, Sums, add, begun, text_of

HEARD = '[ann called calculator {"expression": "17 + 0"}: 17]'


def test_others_observe_public_calls_once() -> None:
    env = begun(ToolEnv(Sums(), calculator, public=True))
    env.step({"ann": add(17, 0)})
    assert text_of(env.observe("ann")) == "17", "the caller observes its answer alone"
    observations, *_ = env.step({"ann": "17"})
    expected = f"{HEARD}\n\nbob: what is 17 + 1? So far: ['17']"
    assert observations == {"bob": expected} and env.observe("bob") == expected == env.fork().observe("bob")
    env.step({"bob": "18"})
    observations, *_ = env.step({"ann": "19"})
    assert "called" not in text_of(observations["bob"])
    env.reset(seed=3)
    assert "called" not in text_of(env.observe("ann"))


def test_agents_that_act_at_the_same_time_observe_public_calls_in_their_next_turn() -> None:
    env = begun(ToolEnv(Duel(), calculator, public=True))
    env.step({"ann": add(17, 0), "bob": "17"})
    assert env.acting == ("ann",)
    observations, *_ = env.step({"ann": "17"})
    assert text_of(observations["bob"]).startswith(HEARD) and "called" not in text_of(observations["ann"])


def test_broken_calls_and_images_are_public_in_words() -> None:
    @tool
    def draw() -> list[Any]:
        return ["a dot", Image(b"dot")]

    class Shown(Sums):
        def observe(self, agent: str) -> list[ContentPart]:  # type: ignore[override]
            return [{"type": "text", "text": f"{agent}?"}]

    env = begun(ToolEnv(Shown(), draw, public=True))
    env.step({"ann": '<tool_call>{"name": "draw"}</tool_call><tool_call>{oops</tool_call>'})
    observations, *_ = env.step({"ann": "1"})
    heard, asked = observations["bob"]
    assert asked == {"type": "text", "text": "bob?"} and isinstance(heard, dict)
    first, second = heard["text"].splitlines()[:2]
    assert first == "[ann called draw {}: a dot (with an image)]"
    assert second.startswith("[ann called a tool : Error: this call cannot be read")


def test_calls_are_private_by_default() -> None:
    env = begun(ToolEnv(Sums(), calculator))
    env.step({"ann": add(17, 0)})
    observations, *_ = env.step({"ann": "17"})
    assert "called" not in text_of(observations["bob"])
