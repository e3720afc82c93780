"""ReasoningGym's tasks: items by seed, scores from a confined worker, and answers that try to run as Python."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import marl_gem
from marl_gem import registry
from marl_gem.errors import AgentError, InvalidOption, ResourceError
from marl_gem.scenarios.tasks.question import Score
from marl_gem.scenarios.tasks.reasoning import (
    BROKEN_LEVELS,
    FINITE,
    PAYS_NONSENSE,
    WORKERS,
    Reasoning,
    ReasoningItems,
    ReasoningSuite,
)
from marl_gem.scenarios.tasks.reasoning_levels import highest_levels
from marl_gem.testing import Plan, check_env

pytest.importorskip("reasoning_gym")

EVALUATE = (
    *("binary_matrix", "countdown", "intermediate_integration", "n_queens", "polynomial_multiplication", "puzzle24"),
    *("simple_integration", "spiral_matrix", "string_insertion"),
)
"""The tasks whose scorers evaluate the answer."""

NO_GOLD = {"boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"}
SAMPLE = ("lcm", "countdown", "futoshiki", "letter_jumble", "figlet_font", "acre", "codeio", "list_functions")


def make(name: str, **options: Any) -> Reasoning:
    env = marl_gem.make(f"rg:{name}", **options)
    assert isinstance(env, Reasoning)
    return env


def answer(env: Reasoning, text: str, seed: int = 7) -> tuple[float, dict[str, Any]]:
    """The return of an episode of one answer, and its last info."""
    env.reset(seed=seed)
    *_, infos = env.step({"solver": env.written(text)})
    return env.returns["solver"], infos["solver"]


def gold_scores(name: str) -> None:
    env = make(name)
    env.reset(seed=7)
    assert (not env.item.answers) == (name in NO_GOLD)
    for text in env.item.answers:
        value, info = answer(env, text)
        assert (value, info["success"]) == (1.0, True), (name, text, info)


def test_all_names_are_registered() -> None:
    names = {scenario.id for scenario in marl_gem.list("rg")}
    assert len(names) == 106 and "rg:composite" not in names
    assert names == {"rg:all", *(f"rg:{name}" for name in highest_levels())}


@pytest.mark.parametrize("name", SAMPLE)
def test_the_gold_answer_scores_1(name: str) -> None:
    gold_scores(name)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(set(highest_levels()) - set(SAMPLE)))
def test_the_gold_answer_of_every_name_scores_1(name: str) -> None:
    gold_scores(name)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(highest_levels()))
def test_every_level_can_be_generated(name: str) -> None:
    for level in range(highest_levels()[name] + 1):
        if level in BROKEN_LEVELS.get(name, ()):
            with pytest.raises(InvalidOption, match="cannot generate"):
                make(name, level=level)
        elif (name, level) not in {("sokoban", 0), ("zebra_puzzles", 5)}:  # about half a minute each
            make(name, level=level).reset(seed=7)


@pytest.mark.parametrize("name", ["lcm", "game_of_life_halting"])
def test_the_contract_holds(name: str) -> None:
    quick = Plan(seeds=(0, 1), steps=10, copies=4, seconds=0.3)
    only = ["plays", "seeding", "infos", "records", "purity", "forking", "isolation", "reset", "metadata", "ending"]
    check_env(lambda: make(name), quick, only=only).raise_if_failed()


@pytest.mark.slow
def test_an_item_is_the_same_in_another_process() -> None:
    code = (
        "import marl_gem, hashlib\n"
        f"for name in {SAMPLE!r}:\n"
        "    observations, _ = marl_gem.make(f'rg:{name}').reset(seed=11)\n"
        "    print(name, hashlib.sha256(observations['solver'].encode()).hexdigest())\n"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    here = []
    for name in reversed(SAMPLE):  # whatever the order
        observations, _ = make(name).reset(seed=11)
        here.append(f"{name} {_digest(observations['solver'])}")
    assert finished.stdout.split("\n")[:-1] == here[::-1]


def _digest(text: Any) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("name", EVALUATE)
def test_an_answer_is_never_run_as_python(name: str, tmp_path: Path) -> None:
    """ReasoningGym's own scorers run each of these."""
    env, file = make(name), tmp_path / "made"
    for text in (
        f"__import__('os').system('touch {file} /tmp/made') or [[1]]",
        f"[open({str(file)!r}, 'w').write('x')]",
        "__import__('os').write(202, b'\\x0e\\0\\0\\0{\"value\": 1.0}')",
        "(lambda: 1)()",
        "sqrt.__class__",
        "print(1)",
        "x" * 50_000,
        "[" * 5_000,
        "\ud800\0",
    ):
        value, info = answer(env, text)
        assert value <= 0.01 and not info["success"], text
    assert not file.exists()


def test_an_answer_that_never_ends_is_wrong_and_others_go_on() -> None:
    env = make("polynomial_multiplication", seconds=0.3)
    began = time.monotonic()
    value, info = answer(env, "9**9**9**9")
    assert (value, info["failure"]) == (0.0, "time-out")
    assert time.monotonic() - began < 60  # and it does not hang
    gold = env.item.answers[0]
    assert answer(env, gold)[0] == 1.0


def test_literals_score_as_reasoning_gym_scores_them() -> None:
    env = make("spiral_matrix")
    env.reset(seed=7)
    numbers = env.item.answers[0].split()
    assert answer(env, f"[{', '.join(numbers)}]")[0] == 0.1
    assert answer(make("polynomial_multiplication"), "x + 1")[0] == 0.0
    assert answer(make("prime_factorization"), "rubbish")[1]["failure"] == "wrong form"


def test_strict_pays_for_right_answers_alone() -> None:
    assert set(PAYS_NONSENSE) == {"acre", "game_of_life_halting"}
    for name, seed in (("acre", 7), ("game_of_life_halting", 7)):
        value, info = answer(make(name), "nonsense", seed)
        assert value > 0.1 and not info["success"]
        assert answer(make(name, strict=True), "nonsense", seed)[0] == 0.0
        strict = make(name, strict=True)
        strict.reset(seed=seed)
        assert answer(strict, strict.item.answers[0], seed)[0] == 1.0


def test_levels_and_configurations() -> None:
    assert make("lcm", level=0).reset(seed=3) != make("lcm", level=3).reset(seed=3)
    observations, _ = make("lcm", config={"min_numbers": 5, "max_numbers": 5}).reset(seed=3)
    assert str(observations["solver"]).count(",") == 4
    for name, wrong, message in (
        ("lcm", {"level": 4}, "levels 0 to 3"),
        ("acre", {"level": 0}, "no levels"),
        ("jugs", {"level": 2}, "cannot generate items of level 2; take one of 0, 1, or none"),
        ("lcm", {"level": True}, "levels"),
        ("lcm", {"config": {"colour": 3}}, "colour"),
        ("lcm", {"config": {"min_numbers": -1}}, "min_numbers"),
        ("lcm", {"config": {"min_numbers": object()}}, "plain values"),
        ("lcm", {"size": 0}, "size"),
        ("lcm", {"seconds": 0}, "seconds"),
    ):
        with pytest.raises(InvalidOption, match=message):
            make(name, **wrong)


def test_items_by_number() -> None:
    env = make("lcm", size=20)
    assert env.tasks == 20 and make("lcm").tasks is None
    assert env.reset(seed=0, options={"task": 5})[1]["solver"] == {"item": "5", "task": 5}
    assert make("lcm").reset(seed=5)[0] == env.reset(seed=0, options={"task": "5"})[0]
    with pytest.raises(InvalidOption):
        env.reset(options={"task": 20})
    assert "acre" in FINITE and make("acre").reset(seed=3)[0] == make("acre").reset(seed=503)[0]


def test_a_suite_has_the_names_as_grades() -> None:
    env = marl_gem.make("rg:all", names="lcm,gc*", size=2, task="lcm-1")
    assert isinstance(env, ReasoningSuite)
    assert marl_gem.make("rg:all", names="lcm,gc*", size=2).grades == ("gcd", "lcm", "gcd", "lcm")
    assert env.reset(seed=0)[0] == make("lcm").reset(seed=1)[0]
    assert answer(env, env.item.answers[0])[0] == 1.0
    for wrong in ({"names": "nothing"}, {"size": 501}, {"task": "lcm-5"}):
        with pytest.raises(InvalidOption):
            marl_gem.make("rg:all", **wrong)


def test_the_policies() -> None:
    env = make("lcm")
    _, infos = env.reset(seed=5)
    for name, most in (("gold", 1.0), ("guess", 0.9)):
        agent = registry.make_policy("rg:lcm", name).agent("solver", env.role("solver"), 1)
        response = asyncio.run(agent.act("", infos["solver"]))
        env.reset(seed=5)
        env.step({"solver": response.text})
        assert (env.returns["solver"] == 1.0) == (most == 1.0)
    agent = registry.make_policy("rg:rush_hour", "gold").agent("solver", env.role("solver"), 1)
    with pytest.raises(AgentError, match="no answer that can be shown"):
        asyncio.run(agent.act("", {"item": "3"}))


def test_many_answers_at_once() -> None:
    env = make("lcm")
    env.reset(seed=7)

    async def all_scores() -> list[Score]:
        texts = [env.item.answers[0] if number % 2 else "7" for number in range(200)]
        return await asyncio.gather(*(env.score(env.item, text) for text in texts))

    assert [score.passed for score in asyncio.run(all_scores())] == [False, True] * 100


def test_a_worker_that_was_killed_is_replaced() -> None:
    env = make("lcm")
    assert answer(env, "7")[1]["failure"] == "wrong answer"
    for worker in list(WORKERS._pool._live):
        assert worker._connection is not None
        os.kill(worker._connection.process.pid, signal.SIGKILL)
        worker._connection.process.wait()
    assert answer(env, env.item.answers[0])[0] == 1.0


def test_workers_that_always_die_are_no_fault_of_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def dies(*_: Any) -> Any:
        raise ResourceError("rg: a worker process died")

    env = make("lcm")
    env.reset(seed=7)
    monkeypatch.setattr("marl_gem.scenarios.tasks.workers.Worker.ask", dies)
    with pytest.raises(ResourceError, match="died"):
        env.step({"solver": "7"})
    assert isinstance(env.items, ReasoningItems)
    with pytest.raises(ResourceError, match="died"):
        env.reset(seed=8)
