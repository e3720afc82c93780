"""The tools, the data and the rewards of TAU-bench, against a recording of what the official code did.

`MARL_GEM_TAU_BENCH` names a folder with the official data and the recording (`oracle/*.jsonl.gz`).
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from marl_gem.rollout import Job, collect
from marl_gem.scenarios.tau import airline, retail
from marl_gem.scenarios.tau.domain import Domain, load_domain
from marl_gem.scenarios.tau.env import TauEnv
from marl_gem.scenarios.tau.scripts import ScriptPolicy

FOLDER = Path(os.environ.get("MARL_GEM_TAU_BENCH", "/nowhere"))
TOOLS = {"retail": retail, "airline": airline}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (FOLDER / "oracle").is_dir(), reason="MARL_GEM_TAU_BENCH names no folder with the official data and oracle/"
    ),
]
both = pytest.mark.parametrize("name", TOOLS)


@lru_cache(None)
def domain(name: str) -> Domain:
    return load_domain(FOLDER / name, TOOLS[name], name=name, official=name)


def recorded(name: str, *kinds: str) -> Iterator[dict[str, Any]]:
    with gzip.open(FOLDER / "oracle" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        yield from (line for line in map(json.loads, lines) if line["kind"] in kinds)


@both
def test_the_data_is_the_recorded_one(name: str) -> None:
    (header,) = recorded(name, "header")
    assert domain(name).database.session().digest() == header["initial_hash"]
    assert list(domain(name).tools) == header["tools"]
    assert hashlib.sha256(domain(name).policy.encode()).hexdigest() == header["wiki_sha256"]
    assert domain(name).terminating == set(header["terminate_tools"])


@both
@pytest.mark.parametrize("kind", ["gold", "fuzz"])
def test_every_call_answers_and_changes_what_the_official_one_did(name: str, kind: str) -> None:
    seen = 0
    calls = groupby(recorded(name, kind), lambda line: (line.get("split"), line.get("task"), line.get("episode")))
    for _, lines in calls:
        session = domain(name).database.session()
        for line in lines:
            before = json.dumps(line["kwargs"])
            outcome = domain(name).call(session, line["tool"], line["kwargs"])
            where = f"{line['tool']} {line['kwargs']}"
            if line["obs"] is None:  # the official environment broke off here
                assert outcome.note and outcome.text.startswith("Error: "), where
            else:
                assert outcome == (line["obs"], ""), where
            assert session.digest() == line["hash"], where
            assert json.dumps(line["kwargs"]) == before, where
            seen += 1
    assert seen > 100


@both
def test_every_goal_is_the_official_one(name: str) -> None:
    goals = list(recorded(name, "gold_end"))
    assert len(goals) >= 50
    for line in goals:
        assert domain(name).goal(line["split"], line["task"]).digest() == line["hash"], line["task"]


@both
def test_every_reward_is_the_official_one(name: str) -> None:
    """Each recorded script, played through the env, both seats."""
    envs = {split: TauEnv(domain(name), split, max_actions=1000) for split in domain(name).splits}
    variants: Counter[str] = Counter()
    for line in recorded(name, "reward"):
        env = envs[line["split"]]
        env.reset(seed=0, options={"task": line["task"]})
        env.step({"user": "Hello"})
        for tool, arguments in line["script"]:
            if env.done:
                break
            if tool == "respond":
                env.step({"assistant": arguments["content"]})
                env.step({"user": "Go on"})
            else:
                env.step({"assistant": f"<tool_call>{json.dumps({'name': tool, 'arguments': arguments})}</tool_call>"})
        if not env.done and line["stop_last"]:
            env.step({"assistant": "Anything else?"})
            env.step({"user": "###STOP###"})
        assert env.done == line["done"], (line["variant"], line["task"])
        assert env.returns["assistant"] == line["reward"], (line["variant"], line["task"])
        variants[line["variant"]] += 1
    assert len(variants) >= 5 and min(variants.values()) >= 1, variants


@pytest.mark.parametrize(
    ("name", "script", "solved"),
    [
        ("retail", "oracle", 115),
        ("retail", "noop", 11),
        ("retail", "transfer", 7),
        ("airline", "oracle", 50),
        ("airline", "noop", 20),
        ("airline", "transfer", 19),
    ],
)
def test_the_oracle_solves_every_test_task_and_the_floors_are_the_known_ones(
    name: str, script: str, solved: int
) -> None:
    tasks = domain(name).splits["test"]
    policy = ScriptPolicy(script, domain(name), tasks)
    episodes = collect(
        lambda: TauEnv(domain(name)), [Job(index, policy, options={"task": index}) for index in range(len(tasks))]
    )
    assert [episode.error for episode in episodes if episode.error] == []
    assert sum(episode.returns["assistant"] for episode in episodes) == solved
    assert [episode.returns["user"] for episode in episodes] == [episode.returns["assistant"] for episode in episodes]
