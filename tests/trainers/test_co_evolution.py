"""A policy for each seat: configuration, phases, imitation of scripts, checkpoints, who may sit where afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import pytest
import torch
from marl_gem.trainers.seating import ONE, learners, phases
from marl_gem.trainers.self_play import SelfPlay
from marl_gem.trainers.transitions import merge
from matplotlib.axes import Axes
from transformers import GPT2LMHeadModel

from marl_gem import MultiAgentEnv, SequentialSelector, registry
from marl_gem.errors import ConfigError, MarlGemError, RegistryError
from marl_gem.overrides import apply_overrides
from marl_gem.policies import LLMPolicy, PolicyPerSeat
from marl_gem.rollout import Job, collect
from marl_gem.specs import PolicySpec, training_options
from marl_gem.specs import load_policy as policy
from marl_gem.trainers import checkpoint, demonstrations
from marl_gem.trainers.config import TrainConfig, parse, read
from marl_gem.trainers.curve import draw_curve
from marl_gem.trainers.learner import Learner
from marl_gem.trainers.run import Run
from marl_gem.trainers.tiny import tiny_tokenizer
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
    return parse(apply_overrides(SMALL, assignments), "test")


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


@pytest.fixture
def learned(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What every step of a learner is told, in order."""
    steps: list[dict[str, Any]] = []
    update = Learner.update

    def noted(learner: Learner, rows: Any, **told: Any) -> dict[str, float]:
        steps.append({"rows": rows, **told})
        return update(learner, rows, **told)

    monkeypatch.setattr(Learner, "update", noted)
    return steps


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
            ("phases=[{start = 9, seats = {}}]", r"not at 9; set phases along with self_play.updates"),
            ("policy.tokens=letters", "policy.tokens"),
            ("policy.heads=3", "policy.width is a multiple of policy.heads, not 16 for 3"),
            ("seats.user=human", "'human' cannot hold the seat user"),
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
            ("seats.user=expert", ConfigError, "write scripted:expert to seat that one"),
            ("seats.user=random", ConfigError, "does not say what is legal for 'user'"),
            ("phases=[{start = 2, seats = {user = 'random'}}]", ConfigError, "what is legal for 'user'"),
            ("imitation.seats={user = 'scripted:novice'}", ConfigError, "does not say what is legal for 'assistant'"),
            ("policy.start_from=/nowhere", ConfigError, "'/nowhere' holds no transformers model"),
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

    def test_what_does_not_fit_the_model_is_told(self) -> None:
        run = SelfPlay.start(small("policy.context=40"))
        with pytest.raises(ConfigError, match=r"a turn of 'assistant' .* reads 40; set policy.context higher"):
            list(run.warm_up())

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

    def test_the_pull_and_the_rate_begin_anew_with_a_phase(self, learned: list[dict[str, Any]]) -> None:
        run = SelfPlay.start(small("self_play.kl=0.4", "self_play.kl_final=0.1"))
        for _ in range(5):
            run.update()
        told = [(step["learning_rate"], step["kl"]) for step in learned]
        first = [(1e-3, 0.4), (0.55e-3, 0.25)]
        second = [(1e-3, 0.4), (0.775e-3, 0.3), (0.325e-3, 0.2)]
        assert [told[0], told[1]] == [pytest.approx(pair) for pair in first]
        assert told[2:] == [pytest.approx(pair) for pair in second for _ in ("user", "assistant")]

    def test_the_warm_up_tells_whose_step_it_was(self, finished: Path) -> None:
        warm_up = [(row["step"], row["policy"]) for row in rows(finished) if row["phase"] == "warm-up"]
        assert warm_up == [(10, "assistant"), (20, "assistant"), (30, "user"), (40, "user")]

    def test_the_curve_begins_with_those_who_begin(
        self, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        table = rows(finished)
        before = next(row for row in table if row["phase"] == "before")
        before["seatings"][0]["success"] = {"assistant": 6}
        before["seatings"][1]["success"] = {"user": 1, "assistant": 1}
        drawn: list[Any] = []
        plot = Axes.plot
        monkeypatch.setattr(Axes, "plot", lambda axes, *line, **style: (drawn.append(line), plot(axes, *line, **style)))
        draw_curve(table, title="", score="", target=tmp_path / "curve.png")
        updates, scores = drawn[0]
        assert (updates[0], scores[0]) == (0, 6 / 8)
        assert (updates[-1], scores[-1]) == (5, table[-1]["score"])

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
        assert len({one.id for one in episodes}) == len(episodes)
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


class Babble(MultiAgentEnv):
    """Three speak in turn, twice each. Whatever is said pays by its length, and to each on another scale."""

    possible_agents = ("a", "b", "c")
    selector = SequentialSelector()
    turns = 6

    def observe(self, agent: str) -> str:
        return f"{agent}, say something."

    def legal_actions(self, agent: str) -> list[str]:
        return ["yes", "no"]

    def _process_actions(self, actions: dict[str, str]) -> None:
        self.rewards = {agent: {"a": 1, "b": 10}.get(agent, -3) * (len(said) % 5) for agent, said in actions.items()}
        if self.steps >= self.turns:
            self.terminations = dict.fromkeys(self.agents, True)


class Late(Babble):
    """The third joins in the middle."""

    possible_agents = ("a", "b")

    def _process_actions(self, actions: dict[str, str]) -> None:
        super()._process_actions(actions)
        if self.steps == 3:
            self.add_agent("c")


class Silent(Babble):
    """It ends before the third has said anything."""

    turns = 2


class Fragile(Babble):
    """Some episodes break, always the same ones."""

    def _process_actions(self, actions: dict[str, str]) -> None:
        super()._process_actions(actions)
        if self.steps == 4 and self.seed % 4 == 1:
            raise RuntimeError("broken")


@pytest.fixture
def _babble(restored_registry: None) -> Iterator[None]:
    for game in (Babble, Late, Silent, Fragile):
        registry.register(f"test:{game.__name__}-v0", game, agents=3)
    yield


def babble(game: str, seats: dict[str, str], *assignments: str) -> TrainConfig:
    values = {
        "scenario": f"test:{game}-v0",
        "seats": seats,
        "policy": {"width": 16, "layers": 1, "heads": 2, "context": 64, "max_tokens": 4},
        "imitation": {"games": 4, "steps": 1, "batch": 4},
        "self_play": {"updates": 3, "games": 9, "older_selves": 0, "gamma": 0.5, "pool_every": 1},
        "record": {"final_games": 2, "probe_games": 2},
    }
    return parse(apply_overrides(values, assignments), "test")


TEAM = {"a": "team", "b": "team", "c": "rival"}


@pytest.mark.usefixtures("_babble")
class TestThreeAgents:
    def test_each_policy_learns_from_its_seats_each_normalized_by_itself(self, learned: list[dict[str, Any]]) -> None:
        """Weights and denominators are worked out anew here, from the episodes alone."""
        run = SelfPlay.start(babble("Babble", TEAM, "imitation.steps=60", "imitation.learning_rate=0.01"))
        list(run.warm_up())  # so that many say the same, and share a row
        learned.clear()
        _, episodes = run.update()
        credited: dict[str, list[tuple[tuple[int, ...], float]]] = {agent: [] for agent in TEAM}
        for episode in episodes:
            for agent in TEAM:
                first, second = episode.turns_of(agent)
                for turn, value in ((first, first.reward + second.reward / 2), (second, second.reward)):
                    credited[agent].append((turn.response.prompt_ids + turn.response.token_ids, value))
        for step, agents in zip(learned, (("a", "b"), ("c",)), strict=True):
            expected: dict[tuple[int, ...], float] = {}
            for agent in agents:
                values = [value for _, value in credited[agent]]
                for ids, value in credited[agent]:
                    expected[ids] = expected.get(ids, 0.0) + (value - fmean(values)) / pstdev(values)
            assert {row.ids: row.weights[-1] for row in step["rows"]} == pytest.approx(expected)
            assert step["denominator"] == 2 * len(episodes) * len(agents) > len(step["rows"])

    def test_an_episode_that_fails_teaches_nothing_and_stops_nobody(
        self, learned: list[dict[str, Any]], tmp_path: Path
    ) -> None:
        config = babble("Fragile", TEAM, "imitation.games=8", "imitation.steps=0", "self_play.games=12")
        for _ in Run.start(tmp_path / "run", config).work():
            pass
        updates = [row for row in rows(tmp_path / "run") if row["phase"] == "self-play"]
        assert len(updates) == 3 and any(0 < row["failed"] < 12 for row in updates)
        assert all(row["games"] + row["failed"] == 12 for row in updates)
        assert [step["denominator"] for step in learned] == [2 * n * row["games"] for row in updates for n in (2, 1)]

    def test_where_all_episodes_fail_the_error_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        run = SelfPlay.start(babble("Babble", TEAM))
        monkeypatch.setattr(Babble, "observe", lambda env, agent: 1 / 0)
        with pytest.raises(MarlGemError, match=r"every game of test:Babble-v0 failed, in env .*ZeroDivisionError"):
            run.update()

    def test_in_games_with_older_ones_the_seat_that_learns_changes(self, learned: list[dict[str, Any]]) -> None:
        SelfPlay.start(babble("Babble", TEAM, "self_play.older_selves=1")).update()
        assert [step["denominator"] for step in learned] == [2 * 6, 2 * 3]

    def test_a_team_beside_a_partner_that_does_not_learn(self, tmp_path: Path) -> None:
        config = babble("Babble", {"a": "team", "b": "team", "c": "random"}, "self_play.older_selves=0.5")
        for _ in Run.start(tmp_path / "run", config).work():
            pass
        trained = checkpoint.load(tmp_path / "run")
        assert trained.trainees.keys() == {"team"}
        (seating,) = json.loads((tmp_path / "run" / "report.json").read_text())["after"]
        assert set(seating["success"]) == {"a", "b"} and seating["seats"] == config.seats
        afterwards = policy(str(tmp_path / "run"), "test:Babble-v0")
        assert isinstance(afterwards, PolicyPerSeat) and set(afterwards.policies) == {"a", "b"}

    @pytest.mark.parametrize("seats", [{}, {"a": "one", "b": "two"}])
    def test_one_who_joins_later_has_no_seat_to_train(self, tmp_path: Path, seats: dict[str, str]) -> None:
        with pytest.raises(ConfigError, match=r"'c' joins in the middle of an episode.*\(a, b\)"):
            Run.start(tmp_path / "run", babble("Late", seats))
        assert not (tmp_path / "run").exists()

    def test_a_policy_without_a_turn_stays_as_it_is(self) -> None:
        seats = {"a": "one", "b": "two", "c": "three"}
        run = SelfPlay.start(babble("Silent", seats))
        before = {name: value.clone() for name, value in weights(run).items()}
        metrics, _ = run.update()
        changed = {
            name[: name.index("/")] for name, value in weights(run).items() if not torch.equal(value, before[name])
        }
        assert changed == {"one", "two"}
        assert {name: value for name, value in metrics.items() if name.endswith("/three")} == {
            "turns/three": 0,
            "rows/three": 0,
        }
        assert {name: own.updates for name, own in run.trainees.items()} == {"one": 1, "two": 1, "three": 0}
        with pytest.raises(ConfigError, match="nothing for three to imitate: in 4 games nobody had a turn as c"):
            list(run.warm_up())

    def test_who_comes_back_to_a_seat_sits_there_afterwards(self, tmp_path: Path) -> None:
        seats = {"a": "one", "b": "random", "c": "random"}
        phases = (
            'phases=[{start = 1, seats = {a = "two", b = "three"}}, {start = 2, seats = {a = "one", b = "random"}}]'
        )
        run = Run.start(tmp_path / "run", babble("Babble", seats, phases, "record.save_every=1"))
        sat = {}
        for progress in run.work():
            if progress.phase == "self-play":
                pair = policy(str(tmp_path / "run"), "test:Babble-v0")
                assert isinstance(pair, PolicyPerSeat)
                sat[progress.done] = {seat: own.name.partition("/")[2] for seat, own in pair.policies.items()}
        assert sat[1] == {"a": "one@1", "b": "three@0"}
        assert sat[2] == {"a": "two@1", "b": "three@1"}
        assert sat[3] == {"a": "one@2", "b": "three@1"}


class TestPretrained:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        """A model that drops out in training, whose chat template tells tools."""
        llm = SelfPlay.start(small()).trainees["assistant"].llm
        model = GPT2LMHeadModel(llm.model.config)
        model.config.resid_pdrop = model.config.attn_pdrop = model.config.embd_pdrop = 0.5
        model.save_pretrained(tmp_path / "model")
        llm.tokenizer.chat_template = "{% for tool in tools or [] %}<tool {{ tool.function.name }}>{% endfor %}" + (
            llm.tokenizer.chat_template
        )
        llm.tokenizer.save_pretrained(tmp_path / "model")
        return tmp_path / "model"

    def test_all_policies_start_from_it_and_are_told_their_tools(self, folder: Path) -> None:
        run = SelfPlay.start(small("phases=[]", "seats.user=user", f"policy.start_from={folder}", "imitation.steps=0"))
        user, assistant = (run.trainees[name].llm for name in ("user", "assistant"))
        assert all(
            torch.equal(value, assistant.model.state_dict()[name]) for name, value in user.model.state_dict().items()
        )
        assert list(run.warm_up()) == []
        _, episodes = run.update()
        prompts = {
            turn.agent: user.tokenizer.decode(turn.response.prompt_ids) for one in episodes for turn in one.turns
        }
        assert prompts["assistant"].startswith("<tool look_up><tool cancel><tool redirect>")
        assert "<tool " not in prompts["user"]

    def test_a_model_with_dropout_learns_what_it_sampled_and_the_same_every_time(self, folder: Path) -> None:
        def learned() -> tuple[dict[str, torch.Tensor], float]:
            run = SelfPlay.start(small("phases=[]", f"policy.start_from={folder}", "imitation.steps=3"))
            list(run.warm_up())
            metrics, _ = run.update()
            return weights(run), metrics["drift"]

        (first, drift), (second, _) = learned(), learned()
        assert drift == pytest.approx(0, abs=1e-5)
        assert all(torch.equal(first[name], second[name]) for name in first)

    def test_half_precision_weights_are_trained_in_full(self, folder: Path) -> None:
        GPT2LMHeadModel.from_pretrained(folder).to(torch.bfloat16).save_pretrained(folder)
        run = SelfPlay.start(small("phases=[]", f"policy.start_from={folder}", "imitation.learning_rate=1e-6"))
        before = {name: value.clone() for name, value in weights(run).items()}
        assert {value.dtype for value in before.values()} == {torch.float32}
        next(run.warm_up())
        assert any(not torch.equal(value, before[name]) for name, value in weights(run).items())

    def test_a_tokenizer_without_a_chat_template_is_told_first(self, folder: Path, tmp_path: Path) -> None:
        (folder / "chat_template.jinja").unlink()
        with pytest.raises(ConfigError, match="needs a chat template"):
            Run.start(tmp_path / "run", small(f"policy.start_from={folder}"))
        assert not (tmp_path / "run").exists()


class TestSeatsAfterwards:
    def test_a_run_sits_each_of_its_policies_where_it_learned(self, finished: Path) -> None:
        pair = policy(str(finished), DESK)
        assert isinstance(pair, PolicyPerSeat) and pair.name == "pair@5"
        user, assistant = pair.policies["user"], pair.policies["assistant"]
        assert isinstance(user, LLMPolicy) and isinstance(assistant, LLMPolicy)
        assert (user.name, assistant.name) == ("pair/user@3", "pair/assistant@5")
        (episode,) = collect(lambda: registry.make(DESK), [Job(3, pair)])
        assert episode.models["user"] == "pair/user@3"
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
        assert training_options([PolicySpec.parse(str(finished))], DESK) == {"split": "train"}

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
