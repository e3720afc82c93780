"""A policy for each seat: configuration, phases, imitation of scripts, checkpoints, who may sit where afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from marl_gem import registry
from marl_gem.agents import LLMPolicy, PolicyPerSeat
from marl_gem.errors import ConfigError, RegistryError
from marl_gem.rollout import Job, collect
from marl_gem.seats import options_of, policy
from marl_gem.settings import override
from marl_gem.trainers import checkpoint, demonstrations
from marl_gem.trainers.config import TrainConfig, parse, read
from marl_gem.trainers.run import Run
from marl_gem.trainers.seating import ONE, learners, phases
from marl_gem.trainers.self_play import SelfPlay
from marl_gem.trainers.tiny import tiny_tokenizer
from marl_gem.trainers.transitions import merge
from marl_gem.types import Episode, from_json
from marl_gem.views import view

DESK, KUHN = "tau:desk-v0", "game:KuhnPoker-v0"
SMALL: dict[str, Any] = {
    "scenario": DESK,
    "options": {"split": "train"},
    "seats": {"user": "scripted:expert", "assistant": "assistant"},
    "phases": [{"start": 2, "seats": {"user": "user"}}],
    "policy": {"width": 16, "layers": 1, "heads": 2, "tokens": "words", "view": "chat", "max_tokens": 12},
    "imitation": {
        "seats": {"user": "scripted:novice", "assistant": "scripted:novice"},
        "games": 60,
        "steps": 20,
        "batch": 16,
    },
    "self_play": {"updates": 5, "games": 12, "older_selves": 0.5, "pool_every": 1, "pool_size": 2},
    "record": {"options": {"split": "test"}, "final_games": 8, "probe_games": 4, "probe_every": 2, "save_every": 1},
}


def small(*assignments: str) -> TrainConfig:
    return parse(override(SMALL, assignments), "test")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "pair"
    for _ in Run.start(folder, small()).work():
        pass
    return folder


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def without_times(folder: Path) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if not name.startswith("seconds")} for row in rows(folder)]


def weights(run: SelfPlay) -> dict[str, torch.Tensor]:
    return {
        f"{who}/{name}": value
        for who, trainee in run.trainees.items()
        for name, value in trainee.llm.model.state_dict().items()
    }


class TestConfiguration:
    def test_one_policy_holds_all_seats_if_nothing_is_said(self) -> None:
        (phase,) = phases(parse({"scenario": KUHN}, "test"), ("player_0", "player_1"))
        assert phase.seats == {"player_0": ONE, "player_1": ONE}
        assert (phase.start, phase.end) == (0, 100)
        assert learners([phase]) == {ONE: ("player_0", "player_1")}

    def test_phases_change_hands_and_keep_what_they_do_not_name(self) -> None:
        first, second = phases(small(), ("user", "assistant"))
        assert first == (0, 2, {"user": "scripted:expert", "assistant": "assistant"})
        assert second == (2, 5, {"user": "user", "assistant": "assistant"})
        assert first.learning == {"assistant": "assistant"}
        assert learners([first, second]) == {"assistant": ("assistant",), "user": ("user",)}

    @pytest.mark.parametrize(
        ("assignment", "complaint"),
        [
            ("seats.user=Qwen/Qwen3@x", "'Qwen/Qwen3@x' cannot hold the seat user"),
            ("imitation.seats.user=user", "imitation.seats.user is random or scripted:NAME, not 'user'"),
            ("phases=[{start = 5, seats = {}}]", "before the last of the 5 updates"),
            ("phases=[{start = 3, seats = {}}, {start = 3, seats = {}}]", "one after the other"),
            ("phases=[{start = 0, seats = {}}]", "phases"),
            ("seats={}", "name those who begin"),
            ("policy.tokens=letters", "policy.tokens"),
        ],
    )
    def test_nonsense_is_told(self, assignment: str, complaint: str) -> None:
        with pytest.raises(ConfigError, match=complaint):
            small(assignment)

    @pytest.mark.parametrize(
        ("assignment", "error", "complaint"),
        [
            ("seats.manager=boss", ConfigError, "no agent 'manager'; its agents are user, assistant"),
            ('seats={assistant = "assistant"}', ConfigError, "nobody holds the seat of 'user'"),
            ('seats={user = "random", assistant = "scripted:expert"}', ConfigError, "nobody learns from update 0"),
            ("seats.user=scripted:expret", RegistryError, "Did you mean 'expert'"),
            ("imitation.seats.user=scripted:nobody", RegistryError, "no scripted policy 'nobody'"),
            ('record.options={split = "exam"}', Exception, "split is one of"),
        ],
    )
    def test_what_only_the_scenario_knows_is_told_before_anything_is_written(
        self, tmp_path: Path, assignment: str, error: type[Exception], complaint: str
    ) -> None:
        with pytest.raises(error, match=complaint):
            Run.start(tmp_path / "run", small("phases=[]", assignment))
        assert not (tmp_path / "run").exists()

    @pytest.mark.parametrize("values", [{"scenario": DESK}, {**SMALL, "imitation": {"seats": {"assistant": "random"}}}])
    def test_where_there_is_no_random_play_a_recipe_is_named(self, tmp_path: Path, values: dict[str, Any]) -> None:
        with pytest.raises(ConfigError, match=r"imitation.seats.user=.*scripted:expert.*, or take the recipe desk"):
            Run.start(tmp_path / "run", parse(values, "test"))
        assert not (tmp_path / "run").exists()

    def test_the_recipe_that_ships_trains_both(self) -> None:
        config = parse(read("desk"), "desk")
        last = phases(config, ("user", "assistant"))[-1]
        assert set(last.learning) == {"user", "assistant"}
        assert config.options["split"] != config.record.options["split"]


class TestDemonstrations:
    def test_each_is_told_its_own_task(self) -> None:
        shown = demonstrations.play(small())
        wishes = {one.roles["user"].instructions for one in shown}
        assert len(shown) == 60 and len(wishes) > 20
        tools = registry.make(DESK).domain.specs  # type: ignore[attr-defined]
        told = [one.roles["assistant"] for one in shown if "assistant" in one.roles]
        assert len(told) > 30 and all(role.tools == tools for role in told)
        assert {one.models["user"] for one in shown} == {"scripted:novice"}

    def test_turns_that_extend_one_another_are_read_at_once(self) -> None:
        run = SelfPlay.start(small())
        shown, llm = demonstrations.play(small()), run.trainees["assistant"].llm
        together = demonstrations.stretches(shown, ["assistant"], llm, view("chat"))
        apart = demonstrations.stretches(shown, ["assistant"], llm, view("latest"))
        turns = [turn for one in shown for turn in one.turns_of("assistant")]
        assert sum(map(len, together)) == sum(map(len, apart)) == len(apart) == len(turns)
        assert len(together) == len([one for one in shown if one.turns_of("assistant")])
        assert len(merge(together)) <= len(together)
        said = [llm.tokenizer.decode(t.action_ids, skip_special_tokens=True) for own in together for t in own]
        assert sorted(said) == sorted(turn.response.text for turn in turns)

    def test_prompts_are_those_of_play(self) -> None:
        """What is imitated is what a policy will be shown, token for token."""
        config = small()
        run = SelfPlay.start(config)
        (shown,) = demonstrations.play(small("imitation.games=1"))
        trainee = run.trainees["user"]
        (own,) = demonstrations.stretches([shown], ["user"], trainee.llm, view("chat"))
        seating = {**run.policies(run.phases[0]), "user": trainee.policy}
        (played,) = collect(run.ground.make, [Job(shown.seed, seating)])
        assert own[0].prompt_ids == played.turns[0].response.prompt_ids

    def test_words_are_tokens_with_what_stands_before_them(self) -> None:
        text = '<tool_call>{"name": "find", "arguments": {"name": "ann"}}</tool_call>'
        tokenizer = tiny_tokenizer([text, "I am ann.", "tool"] * 3, split="words", tools=True)
        pieces = [tokenizer.decode([token]) for token in tokenizer.encode(text)]
        assert pieces == [
            "<tool_call",
            '>{"name',
            '": "find',
            '", "arguments',
            '": {"name',
            '": "ann',
            '"}}</tool_call',
            ">",
        ]
        assert "<|tool|>" in tokenizer.get_vocab()
        assert tokenizer.decode(tokenizer.encode("Zoë?\n\ud7ff")) == "Zoë?\n\ud7ff"


class TestRun:
    def test_each_policy_learns_when_it_holds_a_seat(self, finished: Path) -> None:
        updates = [row for row in rows(finished) if row["phase"] == "self-play"]
        assert [{name for name in row if name.startswith("loss/")} for row in updates] == [
            *[{"loss/assistant"}] * 2,
            *[{"loss/assistant", "loss/user"}] * 3,
        ]
        run = checkpoint.load(finished)
        assert {name: trainee.updates for name, trainee in run.trainees.items()} == {"assistant": 5, "user": 3}
        assert run.updates == 5

    def test_an_update_changes_those_who_learn_and_nobody_else(self) -> None:
        run = SelfPlay.start(small())
        before = {name: value.clone() for name, value in weights(run).items()}
        run.update()
        changed = {
            name.partition("/")[0] for name, value in weights(run).items() if not torch.equal(value, before[name])
        }
        assert changed == {"assistant"}

    def test_every_policy_is_held_near_what_it_was_when_the_phase_began(self) -> None:
        run = SelfPlay.start(small())
        run.update()
        first = run.trainees["assistant"].reference
        run.update()
        assert run.trainees["assistant"].reference is first and run.trainees["user"].reference is None
        run.update()
        assert run.trainees["assistant"].reference is not first and run.trainees["user"].reference is not None

    def test_one_seat_learns_where_others_are_older(self) -> None:
        run = SelfPlay.start(small("phases=[]", 'seats={user = "user", assistant = "assistant"}'))
        for trainee in run.trainees.values():
            trainee.remember()
        jobs, learning = run._jobs(run.phase)
        alone = [seats for seats in learning.values() if len(seats) == 1]
        assert len(alone) == 6 and {next(iter(seats)) for seats in alone} == {"user", "assistant"}
        for job in jobs:
            assert isinstance(job.seating, dict)
            for seat, who in job.seating.items():
                assert (who is run.trainees[seat].policy) == (seat in learning[job.id])

    def test_the_report_tells_the_success_of_every_seating(self, finished: Path) -> None:
        report = json.loads((finished / "report.json").read_text())
        for when in ("before", "after"):
            first, second = report[when]
            assert first["seats"] == {"user": "scripted:expert", "assistant": "assistant"}
            assert set(first["success"]) == {"assistant"} and set(second["success"]) == {"user", "assistant"}
            assert first["games"] == second["games"] == 8
        end, last = report["phase_ends"]
        assert (end["seats"], last) == (first["seats"], report["after"][1])
        (row,) = [row for row in rows(finished) if row["phase"] == "self-play" and "seatings" in row]
        assert (row["update"], row["seatings"], row["score"]) == (2, [end], end["success"]["assistant"] / 8)
        assert report["score_after"] == report["after"][1]["success"]["assistant"] / 8
        episodes = [from_json(line, Episode) for line in (finished / "episodes.jsonl").read_text().splitlines()]
        measured = [one for one in episodes if one.options]
        assert len(measured) == 32 and {one.options["task"] for one in measured} == set(range(8))
        counted = sum(one.final_infos["user"]["success"] for one in measured[-8:])
        assert counted == report["after"][1]["success"]["user"]
        assert (finished / "curve.png").read_bytes().startswith(b"\x89PNG")

    @pytest.mark.parametrize("stop_after", [1, 2, 4])
    def test_a_resumed_run_equals_an_unbroken_one(self, finished: Path, tmp_path: Path, stop_after: int) -> None:
        for progress in Run.start(tmp_path / "run", small()).work():
            if progress.phase == "self-play" and progress.done == stop_after:
                break
        for _ in Run.resume(tmp_path / "run").work():
            pass
        whole, resumed = weights(checkpoint.load(finished)), weights(checkpoint.load(tmp_path / "run"))
        assert whole.keys() == resumed.keys()
        assert all(torch.equal(whole[name], resumed[name]) for name in whole)
        assert without_times(tmp_path / "run") == without_times(finished)


class TestSeatsAfterwards:
    def test_a_run_sits_each_of_its_policies_where_it_learned(self, finished: Path) -> None:
        pair = policy(str(finished), DESK)
        assert isinstance(pair, PolicyPerSeat) and pair.name == "pair@5"
        user, assistant = pair.policies["user"], pair.policies["assistant"]
        assert isinstance(user, LLMPolicy) and isinstance(assistant, LLMPolicy)
        assert (user.name, assistant.name) == ("pair/user@3", "pair/assistant@5")
        trained = checkpoint.load(finished)
        both = {seat: trained.trainees[seat].policy for seat in ("user", "assistant")}
        played = [
            [[turn.response.text for turn in episode.turns] for episode in collect(trained.ground.make, jobs)]
            for jobs in ([Job(seed, seating) for seed in range(6)] for seating in (pair, both))
        ]
        assert played[0] == played[1]

    def test_sampling_may_be_set_for_all_of_them(self, finished: Path) -> None:
        cold = policy(f"{finished},temperature=0,max_tokens=3", DESK)
        assert isinstance(cold, PolicyPerSeat)
        assert {(own.sampling.temperature, own.sampling.max_tokens) for own in cold.policies.values()} == {(0.0, 3)}  # type: ignore[attr-defined]

    def test_the_options_of_training_come_along(self, finished: Path) -> None:
        assert options_of([f"user={finished}"], DESK) == {"split": "train"}

    def test_a_seat_that_was_not_trained_is_told(self, tmp_path: Path) -> None:
        for _ in Run.start(tmp_path / "half", small("phases=[]", "self_play.updates=1")).work():
            pass
        (episode,) = collect(lambda: registry.make(DESK), [Job(0, policy(str(tmp_path / "half"), DESK))])
        assert episode.error is not None and episode.error.origin == "agent"
        assert "has no policy for 'user', only for assistant" in episode.error.message

    def test_the_command_line_shows_both_and_lets_them_be_watched(self, tmp_path: Path) -> None:
        environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}

        def run(*arguments: str) -> str:
            command = [sys.executable, "-m", "marl_gem.cli", *arguments]
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, env=environment)
            assert done.returncode == 0, done.stderr
            return " ".join(done.stdout.split())

        tiny = [
            "imitation.steps=2",
            "imitation.games=20",
            "self_play.updates=2",
            "self_play.games=4",
            "policy.width=16",
        ]
        tiny += ["policy.heads=2", "record.final_games=4", "phases=[{start = 1, seats = {user = 'user'}}]"]
        told = run("train", "desk", "--name", "pair", *(word for value in tiny for word in ("--set", value)))
        assert "end of phase" in told and "user=scripted:expert" in told and "assistant=assistant" in told
        assert "marl-gem play tau:desk-v0 --seat user=runs/pair --seat assistant=runs/pair" in told
        watched = run("play", DESK, "--seat", "user=runs/pair", "--seat", "assistant=runs/pair")
        assert "after" in watched
