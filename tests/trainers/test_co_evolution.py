"""A policy for each seat: phases, who learns from what, and reports."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import pytest
import torch
from matplotlib.axes import Axes

from marl_gem.errors import ConfigError, MarlGemError
from marl_gem.policies import PolicyPerSeat
from marl_gem.specs import load_policy
from marl_gem.trainers import checkpoint
from marl_gem.trainers.backends.local import LocalBackend
from marl_gem.trainers.curve import draw_curve
from marl_gem.trainers.run import TrainingRun, read_report
from marl_gem.trainers.start import start
from marl_gem.types import Episode, from_json
from tests.trainers.support import Babble, babble, changed, desk, rows, rows_without_times, warmed_up, weights, work

pytestmark = pytest.mark.slow


class TestRun:
    def test_each_policy_learns_when_it_holds_a_seat(self, finished_desk: Path) -> None:
        updates = [row for row in rows(finished_desk) if row["stage"] == "training"]
        assert [{name for name in row if name.startswith("loss/")} for row in updates] == [
            *[{"loss/assistant"}] * 2,
            *[{"loss/assistant", "loss/user"}] * 3,
        ]
        run = checkpoint.load(finished_desk)
        assert {name: learner.backend.version for name, learner in run.learners.items()} == {"assistant": 5, "user": 3}
        assert run.updates == 5

    def test_an_update_changes_those_who_learn_and_nobody_else(self) -> None:
        run = start(desk())[0]
        before = weights(run)
        run.update()
        assert changed(run, before) == {"assistant"}

    def test_every_policy_is_held_near_what_it_was_when_the_phase_began(self) -> None:
        run = start(desk())[0]
        run.update()
        assistant, user = (run.learners[name].backend for name in ("assistant", "user"))
        first = assistant.reference
        run.update()
        assert assistant.reference is first is not None and user.reference is None
        run.update()
        assert assistant.reference is not first and user.reference is not None

    def test_without_a_pull_there_is_no_reference(self) -> None:
        loop = start(desk("training.kl=0", "training.kl_final=0"))[0]
        metrics, _ = loop.update()
        assert loop.learners["assistant"].backend.reference is None and metrics["kl/assistant"] == 0

    def test_one_seat_learns_where_others_are_older(self, steps: list[dict[str, Any]]) -> None:
        seats = 'seats={user = "user", assistant = "assistant"}'
        loop = start(desk("phases=[]", seats, "training.opponent_pool_fraction=1", "training.snapshot_every=10"))[0]
        for _ in range(2):
            _, episodes = loop.update()
        models = [episode.models for episode in episodes if len(episode.models) == 2]
        assert {(held["user"], held["assistant"]) for held in models} == {
            ("user@1", "assistant@0"),
            ("user@0", "assistant@1"),
        }
        turns = {name: sum(episode.models.get(name) == f"{name}@1" for episode in episodes) for name in loop.learners}
        assert turns["user"] == 6  # of 12 episodes, each of which one seat learns from

    def test_the_pull_and_the_rate_begin_anew_with_a_phase(self, steps: list[dict[str, Any]]) -> None:
        run = start(desk("training.kl=0.4", "training.kl_final=0.1"))[0]
        for _ in range(5):
            run.update()
        found = [(step["learning_rate"], step["kl_weight"]) for step in steps]
        first = [(1e-3, 0.4), (0.55e-3, 0.25)]
        second = [(1e-3, 0.4), (0.775e-3, 0.3), (0.325e-3, 0.2)]
        assert found[:2] == [pytest.approx(pair) for pair in first]
        assert found[2:] == [pytest.approx(pair) for pair in second for _ in ("user", "assistant")]

    def test_the_reference_moves_every_so_many_updates_of_a_phase(self, monkeypatch: pytest.MonkeyPatch) -> None:
        moved: list[int] = []
        loop = start(desk("training.reference_every=2"))[0]  # the second phase begins after two of five updates
        monkeypatch.setattr(LocalBackend, "set_reference", lambda backend: moved.append(loop.updates))
        for _ in range(5):
            loop.update()
        assert moved == [0, 2, 2, 4, 4]  # from the second phase on two policies learn

    def test_the_warm_up_tells_whose_step_it_was(self, finished_desk: Path) -> None:
        imitation = [(row["step"], row["policy"]) for row in rows(finished_desk) if row["stage"] == "imitation"]
        assert imitation == [(10, "assistant"), (20, "assistant"), (30, "user"), (40, "user")]

    def test_the_curve_begins_with_those_who_begin(
        self, finished_desk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        table = rows(finished_desk)
        before = next(row for row in table if row["stage"] == "before")
        before["score"], before["first_score"] = 1 / 8, 6 / 8
        drawn: list[Any] = []
        plot = Axes.plot

        def recorded(axes: Axes, *line: Any, **style: Any) -> Any:
            drawn.append(line)
            return plot(axes, *line, **style)

        monkeypatch.setattr(Axes, "plot", recorded)
        draw_curve(table, title="", score="", target=tmp_path / "curve.png")
        updates, scores = drawn[0]
        assert (updates[0], scores[0]) == (0, 6 / 8)
        assert (updates[-1], scores[-1]) == (5, table[-1]["score"])

    def test_the_report_has_every_seating(self, finished_desk: Path) -> None:
        report = read_report(finished_desk)
        for moment in (report.before, report.after):
            first, second = moment.matchups
            assert first.seats == {"user": "scripted:expert", "assistant": "assistant"}
            assert set(first.agents) == {"assistant"} and set(second.agents) == {"user", "assistant"}
            assert {counts.games for matchup in moment.matchups for counts in matchup.agents.values()} == {8}
        end, last = report.phase_ends
        assert (end.seats, last) == (first.seats, second)
        (row,) = [row for row in rows(finished_desk) if row["stage"] == "training" and "matchups" in row]
        assert (row["update"], row["score"]) == (2, end.agents["assistant"].success / 8)
        assert report.after.score == fmean(counts.success / 8 for counts in second.agents.values())
        episodes = [from_json(line, Episode) for line in (finished_desk / "episodes.jsonl").read_text().splitlines()]
        measured = [episode for episode in episodes if episode.options]
        assert len(measured) == 32 and {episode.options["task"] for episode in measured} == set(range(8))
        assert sum(e.final_infos["user"]["success"] for e in measured[-8:]) == second.agents["user"].success
        assert len({episode.id for episode in episodes}) == len(episodes)
        assert (finished_desk / "curve.png").read_bytes().startswith(b"\x89PNG")

    @pytest.mark.parametrize(
        "stop_after", [pytest.param(1, marks=pytest.mark.long), 2, pytest.param(4, marks=pytest.mark.long)]
    )
    def test_a_resumed_run_equals_an_unbroken_one(self, finished_desk: Path, tmp_path: Path, stop_after: int) -> None:
        work(TrainingRun.start(tmp_path / "run", desk()), until=stop_after)
        work(TrainingRun.resume(tmp_path / "run"))
        whole, resumed = weights(checkpoint.load(finished_desk)), weights(checkpoint.load(tmp_path / "run"))
        assert whole.keys() == resumed.keys()
        assert all(torch.equal(whole[name], resumed[name]) for name in whole)
        assert rows_without_times(tmp_path / "run") == rows_without_times(finished_desk)


TEAM = {"a": "team", "b": "team", "c": "rival"}


@pytest.mark.usefixtures("babble_games")
class TestThreeAgents:
    def test_each_policy_learns_from_its_seats_each_normalized_by_itself(self, steps: list[dict[str, Any]]) -> None:
        """Weights and denominators are worked out anew here, from the episodes alone."""
        run, _ = warmed_up(babble("Babble", TEAM, "imitation.steps=60", "imitation.learning_rate=0.01"))
        steps.clear()  # after a warm start many say the same, and share a row
        _, episodes = run.update()
        credited: dict[str, list[tuple[tuple[int, ...], float]]] = {agent: [] for agent in TEAM}
        for episode in episodes:
            for agent in TEAM:
                first, second = episode.turns_of(agent)
                for turn, value in ((first, first.reward + second.reward / 2), (second, second.reward)):
                    credited[agent].append((turn.response.prompt_ids + turn.response.token_ids, value))
        for step, agents in zip(steps, (("a", "b"), ("c",)), strict=True):
            expected: dict[tuple[int, ...], float] = {}
            for agent in agents:
                values = [value for _, value in credited[agent]]
                for ids, value in credited[agent]:
                    expected[ids] = expected.get(ids, 0.0) + (value - fmean(values)) / pstdev(values)
            assert {row.ids: row.advantages[-1] for row in step["rows"]} == pytest.approx(expected)
            assert step["denominator"] == 2 * len(episodes) * len(agents) > len(step["rows"])

    def test_an_episode_that_fails_teaches_nothing_and_stops_nobody(
        self, steps: list[dict[str, Any]], tmp_path: Path
    ) -> None:
        config = babble("Fragile", TEAM, "imitation.episodes=8", "imitation.steps=0", "training.episodes=12")
        work(TrainingRun.start(tmp_path / "run", config))
        updates = [row for row in rows(tmp_path / "run") if row["stage"] == "training"]
        assert len(updates) == 3 and any(0 < row["failed"] < 12 for row in updates)
        assert all(row["episodes_played"] + row["failed"] == 12 for row in updates)
        expected = [2 * n * row["episodes_played"] for row in updates for n in (2, 1)]
        assert [step["denominator"] for step in steps] == expected

    def test_where_all_episodes_fail_the_error_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        run = start(babble("Babble", TEAM))[0]
        monkeypatch.setattr(Babble, "observe", lambda env, agent: 1 / 0)
        with pytest.raises(MarlGemError, match=r"every episode of test:Babble-v0 failed, in env .*ZeroDivisionError"):
            run.update()

    def test_in_games_with_older_ones_the_seat_that_learns_changes(self, steps: list[dict[str, Any]]) -> None:
        start(babble("Babble", TEAM, "training.opponent_pool_fraction=1"))[0].update()
        assert [step["denominator"] for step in steps] == [2 * 6, 2 * 3]

    def test_a_team_beside_a_partner_that_does_not_learn(self, tmp_path: Path) -> None:
        config = babble("Babble", {"a": "team", "b": "team", "c": "random"}, "training.opponent_pool_fraction=0.5")
        work(TrainingRun.start(tmp_path / "run", config))
        trained = checkpoint.load(tmp_path / "run")
        assert trained.learners.keys() == {"team"}
        (matchup,) = read_report(tmp_path / "run").after.matchups
        assert set(matchup.agents) == {"a", "b"} and matchup.seats == config.seats
        afterwards = load_policy(str(tmp_path / "run"), "test:Babble-v0")
        assert isinstance(afterwards, PolicyPerSeat) and set(afterwards.policies) == {"a", "b"}

    @pytest.mark.parametrize("seats", [{}, {"a": "one", "b": "two"}])
    def test_one_who_joins_later_has_no_seat_to_train(self, tmp_path: Path, seats: dict[str, str]) -> None:
        with pytest.raises(ConfigError, match=r"'c' joins in the middle of an episode.*\(a, b\)"):
            TrainingRun.start(tmp_path / "run", babble("Late", seats))
        assert not (tmp_path / "run").exists()

    def test_a_policy_without_a_turn_stays_as_it_is(self) -> None:
        seats = {"a": "one", "b": "two", "c": "three"}
        run = start(babble("Silent", seats))[0]
        before = weights(run)
        metrics, _ = run.update()
        assert changed(run, before) == {"one", "two"}
        assert {name: value for name, value in metrics.items() if name.endswith("/three")} == {
            "turns/three": 0,
            "rows/three": 0,
        }
        versions = {name: learner.backend.version for name, learner in run.learners.items()}
        assert versions == {"one": 1, "two": 1, "three": 0}
        with pytest.raises(ConfigError, match="nothing for three to imitate: in 4 episodes nobody had a turn as c"):
            warmed_up(babble("Silent", seats))

    def test_who_comes_back_to_a_seat_sits_there_afterwards(self, tmp_path: Path) -> None:
        seats = {"a": "one", "b": "random", "c": "random"}
        phases = (
            'phases=[{start = 1, seats = {a = "two", b = "three"}}, {start = 2, seats = {a = "one", b = "random"}}]'
        )
        run = TrainingRun.start(tmp_path / "run", babble("Babble", seats, phases, "training.save_every=1"))
        sat = {}
        for progress in run.work():
            if progress.stage == "training":
                pair = load_policy(str(tmp_path / "run"), "test:Babble-v0")
                assert isinstance(pair, PolicyPerSeat)
                sat[progress.done] = {seat: own.name.partition("/")[2] for seat, own in pair.policies.items()}
        assert sat[1] == {"a": "one@1", "b": "three@0"}
        assert sat[2] == {"a": "two@1", "b": "three@1"}
        assert sat[3] == {"a": "one@2", "b": "three@1"}
