"""Filters, search, order, and a run in numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from marl_gem.errors import RecordError
from marl_gem.types import Response, Turn
from marl_gem.viewer.overview import overview
from tests.viewer.recorded import (
    episode,
    failed,
    keys,
    opened,
    with_roles,
    write_run,
)


def test_search_looks_at_observations_responses_and_reasoning_alone(tmp_path: Path) -> None:
    odd = episode(1, turns=(Turn("user", "\ud800 STRAßE", Response("half \udc00 a character")),), final_infos={})
    run = opened(write_run(tmp_path, [with_roles(0), odd], [failed(2)]))
    every, first, second, failure = ["1", "2", "e1"], ["1"], ["2"], ["e1"]
    for text, found in {
        "sunny": first,
        "SUNNY": first,
        "zürich": ["1", "e1"],
        "zÜRICH": ["1", "e1"],
        "cloudless": first,
        '"sky": "cloud': first,
        "must look it up": first,
        "goodbye": first,
        "straße": second,
        "half": second,
        "503": failure,
        "talk-": every,
        "forecaster": [],
        "observation": [],
        "token_ids": [],
        "no such words": [],
    }.items():
        assert keys(run, text=text) == found, text


def test_filters_ask_about_the_selected_agents(tmp_path: Path) -> None:
    won = {"returns": {"a": 1.0, "b": -1.0}, "models": {"a": "gpt", "b": "qwen"}, "final_infos": {}}
    drew = won | {"returns": {"a": 0.0, "b": 0.0}, "models": {"a": "qwen", "b": "gpt"}}
    unpriced = Turn("b", "?", Response("!", usage={"prompt_tokens": 1}))
    cut = won | {"ending": "truncated", "limit": "turns", "turns": (unpriced,) * 3, "seconds": 99.0}
    dear = Response("!", cost=9.0, seconds=1.0)
    illegal = won | {"turns": (Turn("b", "?", dear, info={"illegal": "no"}),)}
    run = opened(write_run(tmp_path, [episode(0, **record) for record in (won, drew, cut, illegal)], [failed(9)]))
    queries: list[tuple[dict[str, Any], list[str]]] = [
        ({"filters": {"win"}}, ["1", "3", "4"]),
        ({"filters": {"loss"}, "seat": "a"}, []),
        ({"filters": {"loss"}, "seat": "b"}, ["1", "3", "4"]),
        ({"filters": {"draw"}, "model": "gpt"}, ["2"]),
        ({"filters": {"illegal"}, "seat": "a"}, []),
        ({"filters": {"illegal"}}, ["4"]),
        ({"filters": {"truncated"}}, ["3"]),
        ({"filters": {"truncated", "loss"}}, ["3"]),
        ({"filters": {"error"}}, ["e1"]),
        ({"filters": {"failed"}}, ["e1"]),
        ({"model": "qwen", "seat": "a"}, ["2"]),
        ({"seat": "user"}, ["e1"]),
        ({"sort": "cost"}, ["4", "1", "2", "e1", "3"]),
        ({"sort": "seconds"}, ["3", "1", "2", "4", "e1"]),
        ({"sort": "turns", "reverse": True}, ["4", "e1", "1", "2", "3"]),
        ({"sort": "return", "seat": "b"}, ["2", "1", "3", "4"]),
        ({"reverse": True}, ["e1", "4", "3", "2", "1"]),
    ]
    for query, found in queries:
        filters = frozenset(query.pop("filters", ()))
        assert keys(run, filters=filters, **query) == found, query
    with pytest.raises(RecordError, match="no filter 'wun'; choose from success"):
        keys(run, filters=frozenset({"wun"}))
    with pytest.raises(RecordError, match="cannot be sorted by 'luck'"):
        keys(run, sort="luck")


def test_an_overview_counts_an_episode_as_pending_while_all_its_attempts_failed(tmp_path: Path) -> None:
    unpriced = tuple(Turn("user", "?", Response("!", token_ids=(1,))) for _ in range(3))
    run = opened(write_run(tmp_path, [episode(0), episode(1, turns=unpriced)], [failed(1), failed(2), failed(2)]))
    total = overview(run.entries())
    assert (total.episodes, total.failed, total.pending, total.errors) == (2, 3, 1, 0)
    assert (total.tokens, total.cost, total.unpriced, total.turns) == (84, 0.002, 1, 6)
    user, assistant = total.agents
    assert (assistant.successes, assistant.mean_return, assistant.models) == (2, 1.0, {"qwen": 2})
    assert (user.successes, user.episodes, user.contests, user.mean_return) == (0, 2, 0, 0.0)
