"""The ids that a server gives to calls of tools: sent back with the calls and their results, recorded, exported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")

import marl_gem
from marl_gem import Response, views
from marl_gem.export.chat import rows
from marl_gem.llm.cache import Cached
from marl_gem.llm.http import HTTPModel
from marl_gem.llm.wire_messages import write_messages
from marl_gem.policies import LLMPolicy, Policy, ScriptedPolicy
from marl_gem.rollout import Job, stream
from marl_gem.types import Episode, from_json, to_json
from marl_gem.wrappers import ToolEnv
from tests.event_loop import async_test
from tests.fake_server import FakeServer, say
from tests.llm.http_helpers import response_to


def native(id: Any, expression: str) -> dict[str, Any]:
    function = {"name": "calculator", "arguments": f'{{"expression": "{expression}"}}'}
    return {"id": id, "type": "function", "function": function}


SCRIPT = (
    say("Let me see.", tool_calls=[native("call_abc", "6 * 7"), native("call_xyz", "7 ** 2")]),
    say(None, tool_calls=[native("call_3", "1 + 1")]),
    say("[check]"),
)


def poker() -> ToolEnv:
    return ToolEnv(marl_gem.make("game:KuhnPoker-v0"), "calculator", agents="player_0")


async def played(server: FakeServer, cache: Path) -> Episode:
    policies: dict[str, Policy] = {
        "player_0": LLMPolicy(Cached(HTTPModel(server.url, "tiny"), cache)),
        "player_1": ScriptedPolicy(lambda observation, info: "[check]"),
    }
    (episode,) = [episode async for episode in stream(poker, [Job(1, policies)])]
    assert episode.error is None
    return episode


@async_test
async def test_the_ids_of_calls_survive_into_prompts_records_and_exports(tmp_path: Path) -> None:
    async with FakeServer(*SCRIPT) as server:
        episode = await played(server, tmp_path / "cache.sqlite")
        again = await played(server, tmp_path / "cache.sqlite")
        assert len(server.calls) == 3, "what is played again is answered from the cache, with the same ids"
    assert [turn.response.call_ids for turn in again.turns] == [turn.response.call_ids for turn in episode.turns]
    sent = server.calls[2].body["messages"]
    assert [call["id"] for call in sent[2]["tool_calls"]] == ["call_abc", "call_xyz"]
    results = [(line["tool_call_id"], line["content"]) for line in sent if line["role"] == "tool"]
    assert results == [("call_abc", "42"), ("call_xyz", "49"), ("call_3", "2")]
    assert from_json(to_json(episode), Episode) == episode
    exported = [row for row in rows(episode, native_calls=True) if row["agent"] == "player_0"][-1]["messages"]
    assert [call["id"] for line in exported for call in line["tool_calls"]] == ["call_abc", "call_xyz", "call_3"]
    assert [line["tool_call_id"] for line in exported if line["role"] == "tool"] == ["call_abc", "call_xyz", "call_3"]


@pytest.mark.parametrize("ids", [("a", "a"), ("a", None), ("a", ""), (1, 2), ("a", "b" * 200_000), ("a", {})])
@async_test
async def test_ids_that_cannot_be_sent_back_are_replaced(ids: tuple[Any, Any]) -> None:
    response = await response_to(say(None, tool_calls=[native(id, "1 + 1") for id in ids]))
    assert response.call_ids == ()
    turn = {"type": "tool_result", "name": "calculator", "text": "2"}
    history = [views.Exchange("Go.", response), views.Exchange([turn, turn], None)]
    written = write_messages(views.chat(marl_gem.Role(), history), native=True)
    assert [call["id"] for call in written[1]["tool_calls"]] == ["call00000", "call00001"]


def test_a_record_of_an_older_version_has_no_ids() -> None:
    old = from_json('{"text": "[check]"}', Response)
    assert old.call_ids == () and "call_ids" not in to_json(old)


def test_ids_stay_where_reasoning_is_left_out() -> None:
    text = '<tool_call>{"name": "calculator", "arguments": {}}</tool_call>'
    (message,) = views.without_reasoning(
        [{"role": "assistant", "content": text, "token_ids": (1,), "reasoning": "hm", "call_ids": ("call_1",)}]
    )
    assert message == {"role": "assistant", "content": text, "call_ids": ("call_1",)}
