"""Observations and responses as parts, and an episode as it is shown."""

from __future__ import annotations

import json
from typing import Any

from marl_gem.runs.parts import response_parts
from marl_gem.tools.calls import write_call
from marl_gem.types import Response, Role, Turn
from marl_gem.viewer.transcript import transcript
from tests.viewer.recorded import (
    POLICY,
    WEATHER,
    episode,
    with_roles,
)


def test_the_parts_of_a_response_are_in_order() -> None:
    text = f"first\n{write_call('a', {'x': 1})}\nthen{write_call('b', {})}<tool_call>{{no</tool_call>last"
    parts = response_parts(Response(text, reasoning="hm"))
    assert [(part.kind, part.name) for part in parts[:4]] == [
        ("reasoning", ""),
        ("text", ""),
        ("call", "a"),
        ("text", ""),
    ]
    assert [part.kind for part in parts[4:]] == ["call", "broken call", "text"]
    assert [part.text for part in parts if part.kind == "text"] == ["first", "then", "last"]
    assert json.loads(parts[2].text) == {"x": 1} and "not JSON" in parts[5].name


def test_reasoning_in_the_text_is_separated_and_other_text_is_unchanged() -> None:
    assert [(p.kind, p.text) for p in response_parts(Response("<think>hm</think>\n\nyes"))] == [
        ("reasoning", "hm"),
        ("text", "yes"),
    ]
    assert [(p.kind, p.text) for p in response_parts(Response("  a\n\n b \n"))] == [("text", "  a\n\n b \n")]
    assert [p.text for p in response_parts(Response(""))] == [""]


def test_one_agents_view_shows_nothing_of_the_others() -> None:
    shown = transcript(episode(), "user")
    assert [turn.number for turn in shown.turns] == [1] and shown.ends == []
    assert "cloudless" not in str(shown) and "look it up" not in str(shown)
    shown = transcript(episode())
    assert [turn.agent for turn in shown.turns] == ["user", "assistant", "assistant"]
    assert [turn.total for turn in shown.turns] == [0.0, 0.0, 1.0]
    assert [(part.kind, part.name) for part in shown.turns[2].observation] == [("result", "weather")]
    assert shown.ends[0].agent == "assistant" and shown.ends[0].observation[0].text == "Thank you, goodbye."
    assert shown.turns[1].notes == ["30 + 12 tokens", "1.50 s", "$0.0020", "asked 3 times"]


def test_roles_are_in_the_views_of_their_agent_and_of_all_agents() -> None:
    shown = transcript(with_roles()).roles
    assert [(role.agent, [(part.kind, part.name) for part in role.parts]) for role in shown] == [
        ("user", [("text", "")]),
        ("assistant", [("text", ""), ("tool", "weather")]),
    ]
    assert shown[1].parts[0].text == POLICY
    description, _, schema = shown[1].parts[1].text.partition("\n")
    assert description == "Tells the weather." and json.loads(schema) == WEATHER.parameters
    view = transcript(with_roles(), "user")
    assert [role.agent for role in view.roles] == ["user"] and "forecaster" not in str(view)
    assert transcript(episode()).roles == transcript(episode(0, roles={"user": Role()})).roles == []


def test_unknown_content_parts_are_shown_as_json() -> None:
    odd: list[dict[str, Any]] = [{"type": "sound", "url": 3}, {"type": "text"}, {"type": "image", "url": None}, {}]
    shown = transcript(episode(0, turns=(Turn("a", odd, Response("?")),), final_infos={"a": {"final_observation": 7}}))
    parts = shown.turns[0].observation
    assert [part.kind for part in parts] == ["other"] * 4 and '"url": 3' in parts[0].text
    assert shown.ends[0].observation[0].kind == "other"
