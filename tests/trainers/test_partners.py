"""Held-out partners in reports, and cross-play between runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from marl_gem.errors import ConfigError
from marl_gem.trainers.run import TrainingRun, read_report
from tests.trainers.support import babble, desk, wide_terminal, work

PAIR = {"a": "one", "b": "two", "c": "random"}


@pytest.mark.usefixtures("babble_games")
class TestPartners:
    def test_they_stand_beside_the_pair_and_not_in_the_score(self, tmp_path: Path) -> None:
        partners = 'evaluation.partners={a = ["random"], c = ["random"]}'
        config = babble("Babble", PAIR, "imitation.steps=0", "training.updates=1", partners)
        work(TrainingRun.start(tmp_path / "run", config))
        report = read_report(tmp_path / "run")
        for moment in (report.before, report.after):
            assert [matchup.seats for matchup in moment.matchups] == [PAIR]
            assert [matchup.seats for matchup in moment.partners] == [{**PAIR, "a": "random"}, PAIR]
            assert [set(matchup.agents) for matchup in moment.partners] == [{"b"}, {"a", "b"}]
            assert moment.score == moment.matchups[0].score
        assert [end.seats for end in report.phase_ends] == [PAIR]

    @pytest.mark.parametrize(
        ("partners", "complaint"),
        [
            ("{d = ['random']}", "evaluation.partners: test:Babble-v0 has no agent 'd'"),
            ("{a = ['scripted:nobody']}", "nobody"),
            ("{a = ['two']}", "evaluation.partners.a names policies that do not learn here, not 'two'"),
            ("{a = ['human']}", "evaluation.partners.a: 'human' cannot hold a seat in training"),
        ],
    )
    def test_nonsense_is_an_error_before_the_run(self, partners: str, complaint: str, tmp_path: Path) -> None:
        with pytest.raises(Exception, match=complaint):
            TrainingRun.start(tmp_path / "run", babble("Babble", PAIR, f"evaluation.partners={partners}"))
        assert not (tmp_path / "run").exists()


def test_earlier_versions_and_other_runs_are_partners(finished_desk: Path) -> None:
    config = desk(f'evaluation.partners={{user = ["{finished_desk}", "{finished_desk}@5", "scripted:novice"]}}')
    assert len(config.evaluation.partners["user"]) == 3
    with pytest.raises(ConfigError, match="assistant"):
        desk("evaluation.partners={assistant = ['user']}")


@pytest.mark.slow
def test_every_pair_of_two_runs_is_played_and_the_worst_comes_first(finished_desk: Path) -> None:
    script = Path(__file__).parents[2] / "benchmarks/cross_play.py"
    command = [sys.executable, str(script), str(finished_desk), "--also", "scripted:expert", "-n", "4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=wide_terminal(), check=True)
    pairs = json.loads(done.stdout)["pairs"]
    assert len(pairs) == 4 and all(pair["episodes"] == 4 for pair in pairs)
    assert [pair["success"] for pair in pairs] == sorted(pair["success"] for pair in pairs)
    assert pairs[-1]["seats"] == ["scripted:expert", "scripted:expert"] and pairs[-1]["success"] == 1.0
    assert f"{finished_desk}: together" in done.stderr
