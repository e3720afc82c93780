"""Runs that play in several worker processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from marl_gem.errors import ConfigError, UnknownScenario, WorkerError
from marl_gem.evaluation import (
    Budget,
    Numbers,
    Plan,
    Player,
    Result,
    evaluate,
    plan_evaluation,
    run,
    worker_pool,
    worker_process,
)
from marl_gem.policies import RandomPolicy, ScriptedPolicy
from marl_gem.types import Limits
from tests import signals
from tests.evaluation.helpers import Tasks, episodes_in, ids, played, report_of, timeless
from tests.evaluation.test_processes import ROOT, SLOW, marl_gem, size, started, wait_for
from tests.slow_game import Slow, SlowPolicy
from tests.toys import always

pytestmark = pytest.mark.slow

KUHN = "game:KuhnPoker-v0"


def kuhn(n: int = 60, **seats: Any) -> Plan:
    random = Player("random", RandomPolicy())
    return plan_evaluation(KUHN, {"player_0": random, "player_1": random, **seats}, Numbers(n))


@pytest.fixture(autouse=True, scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Workers compile the package once, also where Python is told to write no bytecode."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        patch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path_factory.mktemp("bytecode")))
        yield


class Deadly(Tasks):
    """Task 3 ends the process that plays it."""

    def _process_actions(self, actions: dict[str, str]) -> None:
        if self.task == 3:
            os._exit(7)
        super()._process_actions(actions)


class Stuck(Tasks):
    """Task 3 never returns from its step."""

    def _process_actions(self, actions: dict[str, str]) -> None:
        while self.task == 3:
            pass
        super()._process_actions(actions)


class Dead(Tasks):
    """Cannot be made in a worker."""

    def __init__(self) -> None:
        if worker_process.is_worker:
            raise UnknownScenario("not here")


class Yes(ScriptedPolicy):
    """A policy that can be sent."""

    def __init__(self) -> None:
        super().__init__(["yes"], "yes")


def tasks(scenario: type[Tasks], processes: int = 2, limits: Limits | None = None, **options: Any) -> Result:
    plan = plan_evaluation(scenario, Yes(), Numbers(limits=limits or Limits()))
    return run(plan, concurrency=2, processes=processes, **options)


def children(process: int) -> list[int]:
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process)], capture_output=True, text=True, check=False)
    return [int(line) for line in listed.stdout.split()]


def is_gone(process: int) -> bool:
    try:
        return "\nState:\tZ" in Path(f"/proc/{process}/status").read_text()
    except FileNotFoundError:
        return True


def wait_until(condition: Callable[[], bool]) -> None:
    ended = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < ended
        time.sleep(0.01)


class TestAsOneProcess:
    def test_the_same_episodes_and_report(self, tmp_path: Path) -> None:
        alone = run(kuhn(), tmp_path / "alone")
        seen: list[int] = []
        several = run(kuhn(), tmp_path / "several", processes=2, watch=lambda progress: seen.append(progress.done))
        assert timeless(several.report) == timeless(alone.report) and several.pending == 0
        assert exact(tmp_path / "several") == exact(tmp_path / "alone")
        assert seen == sorted(seen) and seen[-1] == 60

    def test_without_a_folder(self) -> None:
        alone, several = run(kuhn(20)), run(kuhn(20), processes=2)
        assert sorted(map(timeless, several.episodes), key=str) == sorted(map(timeless, alone.episodes), key=str)

    def test_a_run_is_resumed_with_another_number(self, tmp_path: Path) -> None:
        run(kuhn(), tmp_path / "a", processes=2, budget=Budget(episodes=20))
        result = run(kuhn(), tmp_path / "a", resume=True)
        assert result.pending == 0 and Counter(ids(tmp_path / "a")) == Counter(f"{index}.0" for index in range(60))

    def test_limits_of_the_run_hold(self) -> None:
        result = run(kuhn(), processes=2, budget=Budget(episodes=37))
        assert (result.report.episodes.counted, result.stopped) == (37, "the run's 37 episodes are played")
        stopped: list[bool] = []
        result = run(kuhn(5000), processes=2, stop=lambda: bool(stopped), watch=lambda _: stopped.append(True))
        assert 0 < result.report.episodes.counted < 5000 and result.stopped == "interrupted"

    def test_a_scenario_and_a_policy_of_a_module(self) -> None:
        result = tasks(Tasks)
        assert [episode.models for episode in result.episodes] == [{"solver": "yes"}] * 5
        assert {episode.options["task"] for episode in result.episodes} == set(range(5))


class TestWorkersThatDie:
    def test_others_play_what_they_had(self, tmp_path: Path) -> None:
        killed: list[int] = []

        def kill(progress: object) -> None:
            if len(killed) < 2:  # fewer than it takes for an episode to fail
                killed.append(children(os.getpid())[0])
                os.kill(killed[-1], signal.SIGKILL)

        slow = plan_evaluation(Slow, SlowPolicy(0.01), Numbers(120))
        result = run(slow, tmp_path / "a", processes=2, concurrency=8, watch=kill)
        assert result.pending == 0 and len(killed) == 2
        assert Counter(ids(tmp_path / "a")) == Counter(f"{index}.0" for index in range(120))
        run(slow, tmp_path / "b", concurrency=8)
        assert played(tmp_path / "a") == played(tmp_path / "b")

    def test_an_episode_that_kills_every_worker_has_failed(self) -> None:
        result = tasks(Deadly)
        failed = [episode for episode in result.episodes if episode.error]
        assert "3 worker processes ended while they played it; the last ended with exit code 7" in str(failed[-1].error)
        assert "3.0" in [episode.id for episode in failed]
        assert result.report.episodes.counted + len({episode.id for episode in failed}) == 5

    def test_a_step_that_never_returns_is_ended_by_the_limit_of_the_episode(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(worker_pool, "PATIENCE", 1.0)
        result = tasks(Stuck, limits=Limits(seconds=0.5))
        failed = {episode.id: episode.error for episode in result.episodes if episode.error}
        assert "was killed by SIGKILL" in str(failed["3.0"]) and result.report.episodes.counted >= 3

    def test_a_worker_that_cannot_play_ends_the_run(self) -> None:
        with pytest.raises(WorkerError, match="a worker process cannot play: UnknownScenario: not here"):
            tasks(Dead)

    def test_what_cannot_be_sent(self) -> None:
        with pytest.raises(ConfigError, match="the policy a lambda cannot be sent to another process"):
            run(kuhn(player_0=always("bet", "a lambda")), processes=2)
        with pytest.raises(ConfigError, match=r"the scenario .* cannot be sent to another process"):
            evaluate(lambda: Tasks(), Yes(), processes=2)

    @pytest.mark.parametrize(
        ("text", "message"), [("human", "one process only"), ("hf:folder", "computes in the process that plays")]
    )
    def test_policies_of_one_process(self, text: str, message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            run(kuhn(player_0=Player(text, RandomPolicy())), processes=2)
        assert run(kuhn(1, player_0=Player(text, RandomPolicy())), processes=1).pending == 0

    def test_a_script_without_a_guard_says_so(self, tmp_path: Path) -> None:
        script = tmp_path / "script.py"
        script.write_text(
            "from marl_gem.evaluation import evaluate\nfrom marl_gem.policies import RandomPolicy\n"
            f"evaluate({KUHN!r}, RandomPolicy(), n=9, processes=2)\n"
        )
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        finished = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, timeout=60)
        assert finished.stderr.count("Traceback") == 1 and 'if __name__ == "__main__":' in finished.stderr


class TestProcesses:
    @pytest.mark.long
    def test_no_worker_outlives_a_killed_run(self, tmp_path: Path) -> None:
        process = started("eval", *SLOW, "-n", "200", "--processes", "2", "--out", tmp_path / "run")
        wait_for(lambda: size(tmp_path / "run" / "episodes.jsonl") > 0, process)
        workers = children(process.pid)
        assert len(workers) == 2
        process.kill()
        process.communicate()
        wait_until(lambda: all(map(is_gone, workers)))
        finished = marl_gem("eval", "--out", tmp_path / "run", "--resume", "--processes", "2")
        assert finished.returncode == 0 and len(ids(tmp_path / "run")) == len(set(ids(tmp_path / "run"))) == 200

    def test_interrupted_once_finishes_what_is_live_and_twice_stops_at_once(self, tmp_path: Path) -> None:
        asked = ("-n", "5000", "--processes", "2", "--concurrency", "8", "--out", tmp_path / "run")
        process = started("eval", *SLOW, *asked)
        wait_for(lambda: size(tmp_path / "run" / "episodes.jsonl") > 0, process)
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=20)
        assert process.returncode == 130 and "stopped early: interrupted" in out and "Traceback" not in err
        assert all(episode.ending == "terminated" for episode in episodes_in(tmp_path / "run" / "episodes.jsonl"))
        counted = report_of(tmp_path / "run")["episodes"]["counted"]
        asleep = ("--seat", "a=scripted:asleep", "--seat", "b=scripted:asleep", "-o", "rounds=100")
        process = started("eval", "test:Slow-v0", *asleep, "-n", "9", "--processes", "2", "--out", tmp_path / "two")
        wait_until(lambda: len(children(process.pid)) == 2)
        workers = children(process.pid)
        time.sleep(0.5)
        for _ in range(2):
            signals.send(process.pid, signal.SIGINT)
            time.sleep(0.3)
        _, err = process.communicate(timeout=20)
        assert process.returncode == 130 and "stopped at once" in err and "Traceback" not in err
        wait_until(lambda: all(map(is_gone, workers)))
        assert counted == len(set(ids(tmp_path / "run"))) < 5000 and ids(tmp_path / "two") == []


def exact(folder: Path) -> list[Any]:
    """Every record without its times, in the order of their ids."""
    return sorted(map(timeless, episodes_in(folder / "episodes.jsonl")), key=lambda record: str(record["id"]))
