"""A short round of server faults, and that its examination sees what it looks for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("aiohttp")

from marl_gem.llm.http import HTTPModel, Timeouts
from marl_gem.llm.retry import Backoff, Retrying
from marl_gem.policies import LLMPolicy
from tests.chaos import faults
from tests.chaos.fault_server import FAULTS


def patient(url: str) -> LLMPolicy:
    model = HTTPModel(url, "tiny", api_key_env=faults.KEY, timeouts=Timeouts(2, 0.5, 1))
    return LLMPolicy(Retrying(model, attempts=6, patience=20, backoff=Backoff(0.01, 0.1)))


def test_a_short_round() -> None:
    rows = faults.attack(7, 100, patient, rounds=1)
    assert [row.violations for row in rows] == [[]] * 5
    assert len(FAULTS) >= 51


def test_a_fault_that_was_scored_would_be_seen(tmp_path: Path) -> None:
    turns = [{"agent": agent, "response": {"text": "", "usage": {}}} for agent in "ab"]
    episode = {"id": "0.0", "turns": turns, "returns": {"a": 0.0, "b": 1.0}, "ending": "terminated"}
    (tmp_path / "episodes.jsonl").write_text(f"{json.dumps(episode)}\n" * 2)
    failed = {"id": "1.0", "error": {"origin": "env", "message": "x"}}
    (tmp_path / "errors.jsonl").write_text(json.dumps(failed) + "\n")
    counts = dict.fromkeys(["planned", "counted", "pending", "failed", "failed_ever", "endings"])
    report: dict[str, object] = {"episodes": counts, "errors": [], "tokens": 0, "matches": [{"agents": {}}]}
    (tmp_path / "report.json").write_text(json.dumps(report))
    broken: dict[str, list[str]] = {promise: [] for promise in faults.PROMISES}
    faults._examine(tmp_path, ["0.0", "1.0", "2.0"], broken)
    assert [len(found) for found in broken.values()] == [3, 2, 1, 0, 0]
