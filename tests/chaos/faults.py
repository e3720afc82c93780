"""Server faults: every episode once, none of them a result, and a report that follows from the journal.

An evaluation plays against a server of which a share of the calls meets faults of all kinds
(`tests.chaos.fault_server`), is resumed a few times, and then once without faults. After each the journal and the
report are examined by code that shares nothing with what wrote them.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from marl_gem import MultiAgentEnv, SequentialSelector
from marl_gem.evaluation import Numbers, Player, plan_evaluation, run
from marl_gem.policies import Policy
from marl_gem.specs import ScenarioSpec, load_policy
from tests.chaos.fault_server import FAULTS, answer_to, fault_server
from tests.chaos.table import Row
from tests.secret_forms import new_key, traces

PROMISES = (
    "every episode is in the journal once, or pending with an error of the model",
    "no fault is scored as a result",
    "the report follows from the journal",
    "no file holds the key, in any form",
    "without faults all that was pending is played",
)

KEY = "CHAOS_KEY"
"""The environment variable with the key that the server is sent; `attack` sets it."""


class Recall(MultiAgentEnv):
    """Two agents answer once each; the right answer to what they see is worth 1, and nothing else is right."""

    possible_agents = ("a", "b")
    selector = SequentialSelector()

    def observe(self, agent: str) -> str:
        return f"{agent} of {self.seed}"

    def _process_actions(self, actions: dict[str, str]) -> None:
        for agent, text in actions.items():
            self.rewards[agent] = float(text.startswith(answer_to(f"{agent} of {self.seed}")))
        self.terminations = dict.fromkeys(self.agents, self.steps == 2)


def long_round(seed: int) -> list[Row]:
    """10,000 episodes at 30% mixed faults, in two processes; the server is also away for a second now and then."""
    values = f"connect_timeout=2,read_timeout=1,timeout=3,wait=20,api_key_env={KEY}"

    def player(url: str) -> Player:
        text = f"tiny@{url},{values}"
        return Player(text, load_policy(text, ScenarioSpec.parse(Recall)))

    return attack(seed, 10_000, player, concurrency=256, processes=2, down=1.0)


def attack(
    seed: int,
    episodes: int,
    player: Callable[[str], Player | Policy],
    *,
    concurrency: int = 64,
    processes: int = 1,
    rate: float = 0.3,
    down: float = 0.0,
    rounds: int = 4,
) -> list[Row]:
    """Play against a server with faults; a row for each promise.

    Args:
        player: makes what plays from the server's URL.
        rounds: how often the run is started or resumed while there are faults.
    """
    begun, broken = time.monotonic(), {promise: list[str]() for promise in PROMISES}
    key = new_key()
    with (
        tempfile.TemporaryDirectory() as parent,
        fault_server(rate, seed, down=down) as server,
        mock.patch.dict(os.environ, {KEY: key}),
    ):
        folder, settings = Path(parent) / "run", {"concurrency": concurrency, "processes": processes}
        plan = plan_evaluation(Recall, player(server.url), Numbers(episodes, seed=seed))  # type: ignore[arg-type]
        for round in range(rounds):
            run(plan, folder, resume=round > 0, **settings)  # type: ignore[arg-type]
            _examine(folder, list(plan.slots), broken)
        server.rate = 0.0
        final = run(plan, folder, resume=True, **settings)  # type: ignore[arg-type]
        _examine(folder, list(plan.slots), broken)
        if final.pending:
            broken[PROMISES[4]].append(f"{final.pending} episodes are pending: {final.stopped or final.report.errors}")
        for file in folder.rglob("*"):
            if file.is_file() and (found := traces(file.read_bytes(), key)):
                broken[PROMISES[3]].append(f"{file.name}: {', '.join(found)}")
        missed = [name for name in FAULTS if not server.met[name]]
        calls = sum(server.met.values())
    what = f"{episodes:,} episodes at {rate:.0%} of {len(FAULTS) - len(missed)} kinds of server faults ({calls:,} met)"
    return [Row(what, promise, episodes, found, time.monotonic() - begun) for promise, found in broken.items()]


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _examine(folder: Path, planned: list[str], broken: Mapping[str, list[str]]) -> None:
    finished, failed = _lines(folder / "episodes.jsonl"), _lines(folder / "errors.jsonl")
    times = Counter(episode["id"] for episode in finished)
    broken[PROMISES[0]] += [f"{id} is there {count} times" for id, count in times.items() if count > 1]
    broken[PROMISES[0]] += [f"{id} was not planned" for id in times.keys() - set(planned)]
    failures = {episode["id"]: episode["error"] for episode in failed}
    for id in planned:
        if id not in times and id not in failures:
            broken[PROMISES[0]].append(f"{id} is neither finished nor failed")
    for id, error in failures.items():
        if error["origin"] != "llm" or not error["message"]:
            broken[PROMISES[0]].append(f"{id} failed with {error}")
    for episode in finished:
        if episode["returns"] != {"a": 1.0, "b": 1.0} or len(episode["turns"]) != 2:
            broken[PROMISES[1]].append(f"{episode['id']}: {[turn['response']['text'] for turn in episode['turns']]}")
    report = json.loads((folder / "report.json").read_text())
    found, expected = _reported(report), _recomputed(planned, finished, failed)
    if found != expected:
        broken[PROMISES[2]].append(f"the report says {found}, the journal {expected}")


def _reported(report: dict[str, Any]) -> dict[str, Any]:
    counts, (match,) = report["episodes"], report["matches"]
    return {
        **{name: counts[name] for name in ("planned", "counted", "pending", "failed", "failed_ever", "endings")},
        "errors": sum(error["count"] for error in report["errors"]),
        "tokens": report["tokens"],
        **{
            agent: {
                "tokens": numbers["tokens"],
                "retries": numbers["retries"],
                "unsent": numbers["unsent"],
                "success": numbers["success"] and numbers["success"]["mean"],
                "return": numbers["return"] and numbers["return"]["mean"],
            }
            for agent, numbers in match["agents"].items()
        },
    }


def _recomputed(planned: list[str], finished: list[dict[str, Any]], failed: list[dict[str, Any]]) -> dict[str, Any]:
    """What the report must say, from the lines of the journal."""
    done = {episode["id"] for episode in finished}
    pending = {episode["id"] for episode in failed} - done
    return {
        "planned": len(planned),
        "counted": len(finished),
        "pending": len(planned) - len(finished),
        "failed": len(pending),
        "failed_ever": len(failed),
        "endings": dict(Counter(episode["ending"] for episode in finished)),
        "errors": len(pending),
        "tokens": sum(sum(_usage(episode, agent).values()) for episode in finished for agent in "ab"),
        **{agent: _agent(finished, agent) for agent in "ab"},
    }


def _agent(finished: list[dict[str, Any]], agent: str) -> dict[str, Any]:
    responses = [turn["response"] for episode in finished for turn in episode["turns"] if turn["agent"] == agent]
    returns = [episode["returns"][agent] for episode in finished]
    used = [_usage(episode, agent) for episode in finished]
    return {
        "tokens": {name: sum(usage[f"{name}_tokens"] for usage in used) for name in ("prompt", "completion")},
        "retries": sum(response.get("retries", 0) for response in responses),
        "unsent": dict(Counter(name for response in responses for name in response.get("unsent", ()))),
        "success": sum(value > 0 for value in returns) / len(returns) if returns else None,
        "return": math.fsum(returns) / len(returns) if returns else None,
    }


def _usage(episode: dict[str, Any], agent: str) -> Counter[str]:
    return sum((Counter(turn["response"]["usage"]) for turn in episode["turns"] if turn["agent"] == agent), Counter())
