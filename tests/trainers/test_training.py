"""Training runs, checkpoints, resume and the command line, on a configuration small enough for a test."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from marl_gem.trainers.seating import ONE, training_ground

from marl_gem.errors import CheckpointError, ConfigError, JournalError, UnknownScenario
from marl_gem.evaluation.estimates import wilson
from marl_gem.overrides import apply_overrides
from marl_gem.rollout import Job, collect
from marl_gem.trainers import checkpoint
from marl_gem.trainers.config import TrainConfig, differences, parse, read, recipes
from marl_gem.trainers.run import Run
from marl_gem.types import Episode, from_json

SMALL: dict[str, Any] = {
    "scenario": "game:KuhnPoker-v0",
    "policy": {"width": 16, "layers": 1, "heads": 2, "context": 128},
    "imitation": {"games": 100, "steps": 60, "batch": 32, "learning_rate": 1e-2},
    "self_play": {"updates": 6, "games": 16, "pool_every": 2, "pool_size": 2, "older_selves": 0.5},
    "record": {"final_games": 20, "probe_games": 5, "probe_every": 3, "save_every": 2, "episodes": 2},
}


def small(*assignments: str) -> TrainConfig:
    return parse(apply_overrides(SMALL, assignments), "test")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that went through without a break."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    for _ in Run.start(folder, small()).work():
        pass
    return folder


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return checkpoint.load(folder).trainees[ONE].llm.model.state_dict()


def marl_gem(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "marl_gem.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=_wide(), **options)


def _wide() -> dict[str, str]:
    return {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}


class TestConfiguration:
    def test_every_recipe_that_ships_can_be_parsed(self) -> None:
        assert {"kuhn", "tictactoe"} <= set(recipes())
        for name in recipes():
            assert parse(read(name), name).scenario

    @pytest.mark.parametrize(
        ("assignment", "complaint"),
        [
            ("self_play.updats=5", "unknown field `updats`"),
            ("self_play.updates=-1", r"self_play.updates"),
            ("self_play.updates=many", r"self_play.updates"),
            ("self_play.normalization=seat", "agent, all, none"),
            ("policy.view=windw", "chat, latest, bare"),
            ("policy.temperature=0", "policy.temperature"),
            ("seed.x=1", "unknown field|not a section|Expected `int`"),
            ("self_play", "sets nothing"),
        ],
    )
    def test_nonsense_is_told_by_name(self, assignment: str, complaint: str) -> None:
        with pytest.raises(ConfigError, match=complaint):
            small(assignment)

    def test_differences_are_listed(self) -> None:
        assert differences(small(), small("self_play.games=32", "seed=4")) == [
            "seed: 0 -> 4",
            "self_play.games: 16 -> 32",
        ]

    def test_a_missing_or_broken_file_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="no file"):
            read(str(tmp_path / "none.toml"))
        (tmp_path / "broken.toml").write_text("scenario = ")
        with pytest.raises(ConfigError, match="not TOML"):
            read(str(tmp_path / "broken.toml"))


class TestRun:
    def test_it_leaves_what_it_promises(self, finished: Path) -> None:
        report = json.loads((finished / "report.json").read_text())
        for when in ("before", "after"):
            for agent in ("player_0", "player_1"):
                counts = report[when][agent]
                assert counts["win"] + counts["draw"] + counts["loss"] == counts["games"] == 20
                assert 0 <= counts["illegal"] <= 20
        assert 0 <= report["score_before"] <= 1
        assert report["seconds"] > 0
        assert (finished / "curve.png").read_bytes().startswith(b"\x89PNG")
        assert json.loads((finished / "config.json").read_text())["scenario"] == "game:KuhnPoker-v0"
        rows = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
        assert [row["update"] for row in rows if row["phase"] == "self-play"] == [1, 2, 3, 4, 5, 6]
        episodes = [from_json(line, Episode) for line in (finished / "episodes.jsonl").read_text().splitlines()]
        assert len(episodes) == rows[-1]["episodes"] == 40 + 6 * 2 + 40

    def test_score_follows_from_the_table(self, finished: Path) -> None:
        report = json.loads((finished / "report.json").read_text())
        seats = report["after"].values()
        expected = sum(s["win"] + s["draw"] / 2 for s in seats) / sum(s["games"] for s in seats)
        assert report["score_after"] == pytest.approx(expected)

    def test_the_warm_start_teaches_legal_play(self, finished: Path) -> None:
        rows = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
        losses = [row["loss"] for row in rows if row["phase"] == "warm-up"]
        assert losses[-1] < losses[0] / 2
        report = json.loads((finished / "report.json").read_text())
        assert sum(seat["illegal"] for seat in report["before"].values()) <= 8

    def test_the_same_seed_gives_the_same_run_and_another_does_not(self, finished: Path, tmp_path: Path) -> None:
        for name, seed in (("same", 0), ("other", 1)):
            for _ in Run.start(tmp_path / name, small(f"seed={seed}")).work():
                pass
        same, other, whole = weights(tmp_path / "same"), weights(tmp_path / "other"), weights(finished)
        assert all(torch.equal(whole[name], same[name]) for name in whole)
        assert any(
            whole[name].shape != other[name].shape or not torch.equal(whole[name], other[name]) for name in whole
        )

    @pytest.mark.parametrize("stop_after", [1, 3, 4])
    def test_a_resumed_run_equals_an_unbroken_one(self, finished: Path, tmp_path: Path, stop_after: int) -> None:
        run = Run.start(tmp_path / "run", small())
        for progress in run.work():
            if progress.phase == "self-play" and progress.done == stop_after:
                break
        for _ in Run.resume(tmp_path / "run").work():  # from the last checkpoint, which may be older
            pass
        whole, resumed = weights(finished), weights(tmp_path / "run")
        assert all(torch.equal(whole[name], resumed[name]) for name in whole)
        assert _without_times(tmp_path / "run") == _without_times(finished)

    def test_an_interruption_keeps_the_last_whole_update(self, tmp_path: Path) -> None:
        run = Run.start(tmp_path / "run", small())
        for progress in run.work():
            if progress.phase == "self-play" and progress.done == 3:
                break
        run.save()
        assert checkpoint.load(tmp_path / "run").updates == 3

    def test_a_cut_off_line_is_no_obstacle(self, tmp_path: Path) -> None:
        run = Run.start(tmp_path / "run", small())
        for progress in run.work():
            if progress.phase == "self-play" and progress.done == 5:
                break
        for name in ("metrics.jsonl", "episodes.jsonl"):
            path = tmp_path / "run" / name
            path.write_bytes(path.read_bytes()[:-7])
        for _ in Run.resume(tmp_path / "run").work():
            pass
        rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
        assert [row["update"] for row in rows if row["phase"] == "self-play"] == [1, 2, 3, 4, 5, 6]

    def test_a_folder_in_use_is_refused_and_left_alone(self, finished: Path) -> None:
        before = (finished / "config.json").read_bytes()
        with pytest.raises(ConfigError, match="--resume"):
            Run.start(finished, small())
        assert (finished / "config.json").read_bytes() == before

    def test_a_scenario_that_does_not_exist_leaves_no_folder(self, tmp_path: Path) -> None:
        with pytest.raises(UnknownScenario, match="Did you mean 'game:KuhnPoker-v0'"):
            Run.start(tmp_path / "run", small("scenario=game:KuhnPokr-v0"))
        assert not (tmp_path / "run").exists()

    def test_resuming_under_another_configuration_is_refused(self, finished: Path) -> None:
        with pytest.raises(ConfigError, match=r"self_play.games: 16 -> 32.*new run"):
            Run.resume(finished, small("self_play.games=32"))

    def test_a_run_that_somebody_works_on_is_left_alone(self, tmp_path: Path) -> None:
        working = Run.start(tmp_path / "run", small()).work()
        next(working)
        before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
        with pytest.raises(JournalError, match="is working on"):
            next(Run.resume(tmp_path / "run").work())
        assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before != b""
        working.close()
        next(Run.resume(tmp_path / "run").work())

    def test_metrics_that_end_before_the_checkpoint_are_told(self, finished: Path, tmp_path: Path) -> None:
        shutil.copytree(finished, tmp_path / "run")
        metrics = tmp_path / "run" / "metrics.jsonl"
        lines = metrics.read_text().splitlines(keepends=True)
        metrics.write_text("".join(line for line in lines if '"update": 5' not in line))
        episodes = (tmp_path / "run" / "episodes.jsonl").read_bytes()
        with pytest.raises(CheckpointError, match=r"metrics.jsonl does not tell of all 6 updates"):
            Run.resume(tmp_path / "run")
        assert (tmp_path / "run" / "episodes.jsonl").read_bytes() == episodes

    def test_a_folder_that_is_no_run_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"no config.json"):
            Run.resume(tmp_path)


class TestCheckpoint:
    def copy(self, finished: Path, tmp_path: Path) -> Path:
        shutil.copytree(finished, tmp_path / "run")
        return checkpoint.newest(tmp_path / "run")

    @pytest.mark.parametrize(
        "name",
        [
            f"{ONE}/{file}"
            for file in ("model/model.safetensors", "others.safetensors", "learner.safetensors", "model/tokenizer.json")
        ],
    )
    def test_a_file_cut_short_or_missing_is_told_by_name(self, finished: Path, tmp_path: Path, name: str) -> None:
        path = self.copy(finished, tmp_path)
        (path / name).write_bytes((path / name).read_bytes()[:-1])
        with pytest.raises(CheckpointError, match=f"{re.escape(name)} is cut short"):
            checkpoint.load(path)
        (path / name).unlink()
        with pytest.raises(CheckpointError, match=f"{re.escape(name)} is missing"):
            checkpoint.load(path)

    def test_a_damaged_description_is_told(self, finished: Path, tmp_path: Path) -> None:
        path = self.copy(finished, tmp_path)
        (path / "state.json").write_text('{"format": 1')
        with pytest.raises(CheckpointError, match=r"state.json is damaged"):
            checkpoint.load(path)

    def test_another_format_is_told_with_what_to_do(self, finished: Path, tmp_path: Path) -> None:
        path = self.copy(finished, tmp_path)
        state = json.loads((path / "state.json").read_text())
        (path / "state.json").write_text(json.dumps({**state, "format": 1}))
        with pytest.raises(CheckpointError, match=r"has format 1, .* reads 2; .* or train anew"):
            checkpoint.load(path)

    def test_what_a_killed_process_left_unfinished_goes(self, finished: Path, tmp_path: Path) -> None:
        run = checkpoint.load(self.copy(finished, tmp_path))
        folder = tmp_path / "run" / "checkpoints"
        (folder / ".update-000005.123" / ONE).mkdir(parents=True)
        checkpoint.save(folder, run)
        assert sorted(path.name for path in folder.iterdir()) == ["update-000004", "update-000006"]

    def test_the_one_before_serves_when_the_newest_is_removed(self, finished: Path, tmp_path: Path) -> None:
        shutil.rmtree(self.copy(finished, tmp_path))
        assert checkpoint.load(tmp_path / "run").updates == 4

    def test_none_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(CheckpointError, match="no checkpoint"):
            checkpoint.load(tmp_path)

    def test_another_scenarios_is_refused(self, finished: Path) -> None:
        with pytest.raises(CheckpointError, match="trained on game:KuhnPoker-v0"):
            checkpoint.load(finished, small("scenario=ta:TicTacToe-v0"))
        with pytest.raises(CheckpointError, match="cannot play ta:TicTacToe-v0"):
            checkpoint.load_policy(finished, "ta:TicTacToe-v0")

    def test_a_loaded_policy_plays_as_the_trained_one(self, finished: Path) -> None:
        run = checkpoint.load(finished)
        loaded = checkpoint.load_policy(finished, run.config.scenario)
        played = [
            collect(training_ground(run.config).make, [Job(seed, policy) for seed in range(20)])
            for policy in (run.trainees[ONE].policy, loaded)
        ]
        texts = [[[turn.response for turn in episode.turns] for episode in episodes] for episodes in played]
        assert texts[0] == texts[1]

    def test_nothing_is_pickled(self, finished: Path) -> None:
        names = {path.suffix for path in checkpoint.newest(finished).rglob("*") if path.is_file()}
        assert names <= {".json", ".safetensors", ".jinja"}


class TestCommandLine:
    @pytest.mark.parametrize("command", [(), ("list",), ("train",), ("play",)])
    def test_help_everywhere(self, command: tuple[str, ...]) -> None:
        done = marl_gem(*command, "--help")
        assert done.returncode == 0
        assert "Usage" in done.stdout

    def test_list(self) -> None:
        assert "game:KuhnPoker-v0" in marl_gem("list").stdout
        assert "ta:TicTacToe-v0" in marl_gem("list", "ta").stdout
        assert "cannot work here" in marl_gem("list", "ta", "--all").stdout
        assert marl_gem("list", "tb").returncode == 2

    def test_play(self, finished: Path, tmp_path: Path) -> None:
        one = marl_gem("play", "game:KuhnPoker-v0", "--seat", f"player_0={finished}", "--seed", 3)
        assert one.returncode == 0, one.stderr
        assert "terminated after" in one.stdout
        many = marl_gem(
            "play", "game:KuhnPoker-v0", "--seat", f"player_1={finished}", "-n", 30, "--out", tmp_path / "e"
        )
        assert "30 games" in many.stdout
        assert len((tmp_path / "e").read_text().splitlines()) == 30

    def test_play_as_a_person(self) -> None:
        done = marl_gem("play", "game:KuhnPoker-v0", "--seat", "player_0=human", input="[bet]\n")
        assert done.returncode == 0, done.stderr
        assert "Your card" in done.stdout
        assert "chips" in done.stdout

    def test_a_person_who_leaves_is_told(self) -> None:
        done = marl_gem("play", "game:KuhnPoker-v0", "--seat", "player_0=human", input="")
        assert done.returncode == 2
        assert "ended before the episode did" in done.stderr

    @pytest.mark.parametrize(
        ("arguments", "complaint"),
        [
            (("train",), "what should be trained"),
            (("train", "ta:TicTacTo-v0"), "Did you mean 'ta:TicTacToe-v0'"),
            (("train", "--resume", "nowhere"), "nowhere is no run"),
            (("play", "game:KuhnPoker-v0", "--seat", "player_9=random"), "no agent 'player_9'"),
            (("play", "game:KuhnPoker-v0", "--seat", "player_0=nobody"), "nobody is called 'nobody'"),
            (("play", "game:KuhnPoker-v0", "--seat", "player_0"), "seats nobody"),
            (("play", "game:KuhnPoker-v0", "-o", "size=3"), "unexpected keyword argument 'size'"),
            (("play", "game:KuhnPoker-v0", "-n", "3", "--out", "/proc/no/file"), "error: /proc/no/file: No such file"),
            (("playthrough", "game:KuhnPoker-v0", "--out", "/proc/x.txt"), "error: /proc/x.txt: No such file"),
            (("train", "kuhn", "--runs", "/proc/runs"), "error: /proc/runs: No such file"),
        ],
    )
    def test_wrong_arguments_are_told_in_a_line(
        self, arguments: tuple[str, ...], complaint: str, tmp_path: Path
    ) -> None:
        done = marl_gem(*arguments, cwd=tmp_path)
        assert done.returncode == 2
        assert complaint in " ".join(done.stderr.split())
        assert "Traceback" not in done.stderr
        assert not list(tmp_path.iterdir())

    def test_ctrl_c_stops_cleanly_and_resume_finishes(self, tmp_path: Path) -> None:
        (tmp_path / "small.toml").write_text(
            _toml(apply_overrides(SMALL, ["self_play.updates=400", "record.save_every=1000"]))
        )
        command = [sys.executable, "-m", "marl_gem.cli", "train", "small.toml", "--name", "run"]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=_wide())
        metrics = tmp_path / "runs" / "run" / "metrics.jsonl"
        deadline = time.monotonic() + 90
        while '"self-play"' not in (metrics.read_text() if metrics.exists() else ""):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        told = process.communicate(timeout=60)[0].decode()
        assert process.returncode == 130, told
        assert "--resume runs/run" in told
        stopped = checkpoint.load(tmp_path / "runs" / "run").updates
        assert 0 < stopped < 400
        assert (tmp_path / "runs" / "run" / "curve.png").exists()
        refused = marl_gem("train", "--resume", "runs/run", "--set", "self_play.games=8", cwd=tmp_path)
        assert refused.returncode == 2
        assert "self_play.games: 16 -> 8" in " ".join(refused.stderr.split())


def test_wilson_intervals_are_the_textbook_ones() -> None:
    low, high = wilson(10, 20)
    assert (round(low, 3), round(high, 3)) == (0.299, 0.701)
    assert wilson(0, 20)[0] == 0.0
    assert wilson(20, 20)[1] == 1.0


def _without_times(folder: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if not name.startswith("seconds")} for row in rows]


def _toml(values: dict[str, Any]) -> str:
    top = [f"{name} = {json.dumps(value)}" for name, value in values.items() if not isinstance(value, dict)]
    for section, entries in values.items():
        if isinstance(entries, dict):
            top += [f"[{section}]", *(f"{name} = {json.dumps(value)}" for name, value in entries.items())]
    return "\n".join(top)
