"""The conformance checks: sound scenarios pass, reports read like a test run, the command line."""

from __future__ import annotations

import fcntl
import functools
import importlib
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import pytest
import typer
from typer.testing import CliRunner

import marl_gem
from marl_gem import MultiAgentEnv
from marl_gem.cli.check import check, playthrough
from marl_gem.errors import ConfigError, InvalidOption, MarlGemError, PromiseBroken, UnavailableScenario
from marl_gem.testing import CheckReport, CheckResult, Plan, check_env, check_purity, check_seeding
from tests.core.conformance import (
    BRIEF,
    HERE,
    Club,
    Desk,
    DrawsGlobally,
    DrawsWhenLookedAt,
    RewardsBoth,
    RewardsNothingThatCounts,
    Rolls,
    Talk,
    Together,
    Town,
)
from tests.suites import sampled


@pytest.mark.parametrize("make", [Rolls, Talk, Together, Club, Desk, Town])
def test_a_sound_scenario_passes(make: Callable[[], MultiAgentEnv]) -> None:
    report = check_env(make, only=HERE)
    report.raise_if_failed()
    skipped = {outcome.check for outcome in report.results if outcome.status == "skipped"}
    lists_actions, sends = make in (Rolls, Together), make is Town
    assert skipped == {"legal_actions"} - {"legal_actions" * lists_actions} | {"messages"} - {"messages" * sends}


def test_random_play_calls_the_tools_of_a_role_with_fitting_arguments() -> None:
    clerks: list[Desk] = []

    def make() -> Desk:
        clerks.append(Desk())
        return clerks[-1]

    assert check_env(make, only=["plays"]).ok
    assert {name for clerk in clerks for name in clerk.used} == {"weigh", "number", "unit", "stop"}


# Other processes


SETS = """
from marl_gem import MultiAgentEnv, SequentialSelector

class Sets(MultiAgentEnv):
    possible_agents = ("a",)
    selector = SequentialSelector()
    max_steps = 3

    def observe(self, agent):
        return " ".join({"any", "order", "may", "come", "of", "this"})

    def _process_actions(self, actions):
        pass

class Sorted(Sets):
    def observe(self, agent):
        return "always the same"

class Broken(Sets):
    def observe(self, agent):
        raise KeyError("oops")
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of a user's, in a folder from which Python is started."""
    (tmp_path / "scenarios_with_sets.py").write_text(SETS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return importlib.import_module("scenarios_with_sets")


def test_what_depends_on_hashes_differs_between_processes(module: Any) -> None:
    report = check_env(module.Sets, BRIEF)
    assert [outcome.check for outcome in report.failed] == ["processes"]
    assert "with another PYTHONHASHSEED (the order of sets?) the episode differs" in report.failed[0].details
    assert check_env(module.Sorted, BRIEF, only=["processes"]).results[0].status == "ok"
    assert "KeyError" in check_env(module.Broken, BRIEF, only=["processes"]).failed[0].details


SLEEPS = """
import fcntl, os, pathlib, time
from marl_gem.testing import check_env
from tests.toys import NumberGame

class Sleeps(NumberGame):
    def __init__(self):
        if os.getpid() != int(os.environ.get("CHECKS", os.getpid())):
            file = open("lock", "w")
            fcntl.flock(file, fcntl.LOCK_EX)
            pathlib.Path("sleeping").touch()
            time.sleep(600)
        super().__init__()

if __name__ == "__main__":
    from sleeps import Sleeps
    os.environ["CHECKS"] = str(os.getpid())
    check_env(Sleeps, only=["processes"])
"""


def test_the_other_process_ends_when_the_one_that_checks_is_killed(tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text(SLEEPS)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    with subprocess.Popen([sys.executable, "sleeps.py"], cwd=tmp_path, env=environment) as checks:
        wait_until((tmp_path / "sleeping").exists)
        checks.kill()
    with (tmp_path / "lock").open() as lock:
        wait_until(lambda: taken(lock))


def wait_until(happens: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not happens():
        assert time.monotonic() < end, "it has not happened"
        time.sleep(0.02)


def taken(lock: TextIO) -> bool:
    """Take a lock; whether nobody else has it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def test_what_cannot_be_sent_to_another_process_is_skipped() -> None:
    (outcome,) = check_env(lambda: Rolls(), BRIEF, only=["processes"]).results
    assert outcome.status == "skipped" and "let it be a function or class of a module" in outcome.details


# The report


def test_a_check_is_a_function_of_its_own() -> None:
    check_purity(Rolls)
    with pytest.raises(PromiseBroken, match=r"observe draws from env\.rng"):
        check_purity(DrawsWhenLookedAt)
    state = random.getstate()
    with pytest.raises(PromiseBroken):
        check_seeding(DrawsGlobally)
    assert random.getstate() == state


def test_the_report_reads_like_a_test_run() -> None:
    report = check_env(lambda: RewardsBoth(), BRIEF, only=["plays", "rewards", "metadata", "processes"])
    lines = str(report).splitlines()
    assert lines[0] == "RewardsBoth"
    assert lines[1] == "ok       plays            Random play raises nothing."
    assert lines[3].startswith("FAILED   metadata         What Metadata and the registration declare is true.")
    assert lines[4] == "         its metadata says that returns sum to zero, but they are {'a': 1.0, 'b': 1.0}"
    assert lines[5].startswith("         seed 0, step 6, after the actions {'a': ")
    assert re.fullmatch(r"2 ok, 1 FAILED, 1 skipped in \d+\.\d s", lines[-1])
    with pytest.raises(PromiseBroken, match="RewardsBoth breaks its promises\nFAILED   metadata"):
        report.raise_if_failed()
    assert not report.ok
    CheckReport("nothing", (CheckResult("plays", "ok"),)).raise_if_failed()


def test_a_scenario_that_cannot_be_played_fails_one_check_and_skips_the_others() -> None:
    report = check_env(RewardsNothingThatCounts, BRIEF, only=HERE)
    skipped = [outcome for outcome in report.results if outcome.status == "skipped"]
    assert len(skipped) > 10
    assert {outcome.details for outcome in skipped} == {"it cannot be played: see plays"}


def test_an_unknown_check_and_an_env_that_cannot_be_made() -> None:
    with pytest.raises(ConfigError, match="there is no check 'purty'; choose from plays, seeding"):
        check_env(Rolls, only=["purty"])
    env = Rolls()
    for wrong in (env, lambda: env, lambda: "an env"):
        with pytest.raises(ConfigError, match="make"):
            check_env(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption):
        check_env(functools.partial(marl_gem.make, "game:KuhnPoker-v0", players=7))


# Every scenario that is registered

QUICK = Plan(seeds=(43,), steps=12, copies=3)  # seeds with which the puzzles that may take seconds to make do not


SLOW = ("ta:Sudoku", "ta:Sokoban", "ta:RushHour", "terminal:", "db:")
"""Scenarios that take seconds to make a puzzle, or start a process for each action."""

REGISTERED = [
    pytest.param(scenario.id, marks=pytest.mark.long if scenario.id.startswith(SLOW) else ())
    for scenario in sampled(marl_gem.list())
    if not scenario.unavailable
]


@pytest.mark.parametrize("id", REGISTERED)
def test_every_registered_scenario_keeps_its_promises(id: str) -> None:
    check_env(functools.partial(marl_gem.make, id), QUICK, only=HERE).raise_if_failed()


# The command line

app = typer.Typer()
app.command()(check)
app.command()(playthrough)


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, arguments)


def test_the_command_passes_and_fails(module: Any) -> None:
    passed = run("check", "game:KuhnPoker-v0", "--seed", "3")
    assert passed.exit_code == 0
    assert "ok       plays            Random play raises nothing." in passed.output
    assert "21 ok, 1 skipped in " in passed.output
    failed = run("check", "scenarios_with_sets:Sets", "--only", "processes", "--only", "plays")
    assert failed.exit_code == 1
    assert "FAILED   processes" in failed.output
    assert "1 ok, 1 FAILED in " in failed.output


def test_the_command_makes_the_env_with_options() -> None:
    assert run("check", "game:KuhnPoker-v0", "-o", "max_steps=1", "--only", "plays").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (["check", "game:KunPoker-v0"], MarlGemError, "Did you mean 'game:KuhnPoker-v0'"),
        (["check", "no_such_module:Env"], MarlGemError, "Nor is there a module 'no_such_module' in"),
        (["check", "scenarios_with_sets:Nothing"], MarlGemError, "has no class 'Nothing'"),
        (
            ["check", "scenarios_with_sets:Sets", "-o", "size=3"],
            InvalidOption,
            "got an unexpected keyword argument 'size'. It takes: max_steps",
        ),
        (["check", "game:KuhnPoker-v0", "-o", "size=3"], InvalidOption, "It takes: max_steps"),
        (["check", "collections:Counter"], MarlGemError, "makes a Counter, not a MultiAgentEnv"),
        (["check", "game:KuhnPoker-v0", "--only", "fun"], ConfigError, "there is no check 'fun'"),
        (["check", "ta:ScorableGames-v0"], UnavailableScenario, "cannot work here"),
        (["playthrough", "nothing"], MarlGemError, "there is no family 'nothing'"),
    ],
)
def test_wrong_usage_raises(module: Any, arguments: list[str], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_playthroughs_go_to_the_terminal_a_file_or_a_folder(tmp_path: Path) -> None:
    shown = run("playthrough", "game:KuhnPoker-v0", "--seed", "5").output
    run("playthrough", "game:KuhnPoker-v0", "--seed", "5", "--out", str(tmp_path / "kuhn.txt"))
    run("playthrough", "game", "--seed", "5", "--out", str(tmp_path / "all"))
    assert shown.startswith("# What happened")
    assert (tmp_path / "kuhn.txt").read_text("utf-8") == shown
    assert (tmp_path / "all" / "game" / "KuhnPoker-v0.txt").read_text("utf-8") == shown
    with pytest.raises(MarlGemError, match="do not go into one file"):
        CliRunner().invoke(app, ["playthrough", "game", "--out", "all.txt"], catch_exceptions=False)
