"""Limits of a run count what is in flight."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from marl_gem import Response, Role
from marl_gem.evaluation import Budget, Player, evaluate, read_report
from marl_gem.evaluation.budget import Spending
from marl_gem.policies import Info
from marl_gem.types import Observation
from tests.evaluation.helpers import Answer
from tests.fake_server import serving
from tests.policy_texts import load
from tests.toys import OneAnswer


class Paid:
    """Answers at a price after a moment, as a server does; counts how many answers are being made at once."""

    name = "paid"

    def __init__(self, low: float = 0.001, high: float = 0.001) -> None:
        self.low, self.high = low, high
        self.live = self.most = self.begun = 0

    def agent(self, agent_id: str, role: Role, seed: int) -> Any:
        return self

    async def act(self, observation: Observation, info: Info) -> Response:
        price = random.Random(self.begun).uniform(self.low, self.high)
        self.begun += 1
        self.live += 1
        self.most = max(self.most, self.live)
        for _ in range(1 + self.begun % 5):
            await asyncio.sleep(0.001)
        self.live -= 1
        return Response("1", usage={"prompt_tokens": 90, "completion_tokens": 10}, cost=price)


@pytest.mark.parametrize(("budget", "count"), [(Budget(cost=0.01), 10), (Budget(tokens=1000), 10)])
def test_a_limit_is_not_exceeded_whatever_is_live(tmp_path: Path, budget: Budget, count: int) -> None:
    policy = Paid()
    result = evaluate(Answer, policy, n=500, concurrency=64, budget=budget, out=tmp_path / "run")
    assert (policy.begun, result.report.episodes.counted, result.pending) == (count, count, 490)
    assert result.stopped in ("the run's $0.01 are used up", "the run's 1000 tokens are used up")
    (spent,) = read_report(tmp_path / "run").budget.values()
    assert spent.used == pytest.approx(spent.limit)
    text = (tmp_path / "run" / "report.md").read_text()
    assert "Of the run's limits $0.01 of $0.01 are used" in text or "1,000 of 1,000 tokens are used" in text


@pytest.mark.parametrize("seed", range(5))
def test_prices_that_vary_exceed_it_by_a_small_share(seed: int) -> None:
    limit = 0.1 + seed * 0.05
    result = evaluate(Answer, Paid(0.0002, 0.003), n=2000, concurrency=64, budget=Budget(cost=limit), seed=seed)
    cost = result.report.cost or 0.0
    assert 0.9 * limit < cost < 1.03 * limit


def test_a_limit_that_is_far_away_slows_nothing_down() -> None:
    policy = Paid()
    result = evaluate(Answer, policy, n=300, concurrency=32, budget=Budget(cost=5.0))
    assert result.pending == 0 and policy.most == 32


def test_a_resumed_run_knows_what_episodes_take(tmp_path: Path) -> None:
    evaluate(Answer, Paid(), n=100, out=tmp_path / "run", budget=Budget(cost=0.02))
    policy = Paid()
    result = evaluate(Answer, policy, n=100, out=tmp_path / "run", resume=True, budget=Budget(cost=0.05))
    assert policy.begun == 30 and result.report.cost == pytest.approx(0.05)
    result = evaluate(Answer, policy, n=100, out=tmp_path / "run", resume=True, budget=Budget(cost=0.0505))
    assert policy.begun == 30
    assert result.stopped == "of the run's $0.0505, $0.05 are used; an episode takes about $0.001"
    result = evaluate(Answer, policy, n=100, out=tmp_path / "run", resume=True)
    assert result.pending == 0 and result.report.budget == {}


@pytest.mark.slow
def test_with_a_server_and_its_prices_in_several_processes() -> None:
    pytest.importorskip("aiohttp")
    with serving("--latency", "0.02") as url:
        who = f"tiny@{url},price=100/100"
        player = Player(who, load(who, "OneAnswer"))
        cost = evaluate(OneAnswer, {"solver": player}, n=1).report.cost or 0.0
        result = evaluate(OneAnswer, {"solver": player}, n=60, processes=2, budget=Budget(cost=8.5 * cost))
    assert 5 * cost < (result.report.cost or 0.0) <= 9 * cost
    assert result.pending > 50


def test_expectations() -> None:
    spending = Spending(10.0, 0.0, ())
    assert spending.has_room(0) and not spending.has_room(1), "one at a time as long as nothing is known"
    spending.add(1.0, failed=False)
    assert not spending.has_room(1)
    spending.add(1.0, failed=False)
    assert spending.has_room(1) and not spending.has_room(2), "no more are live than have finished"
    spending.add(6.0, failed=True)
    assert (spending.used, spending.mean) == (8.0, 1.0)
    assert spending.has_room(1) and not spending.has_room(2)
