"""What a page says of a run: results by grade, team and role, pass^k, the budget; also before there is a report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from marl_gem.env import MultiAgentEnv
from marl_gem.evaluation import Budget, evaluate, tournament
from marl_gem.runs.library import RunLibrary
from marl_gem.runs.lock import run_lock
from marl_gem.selectors.parallel import ParallelSelector
from marl_gem.viewer.api import Api
from tests.toys import OneAnswer, always
from tests.viewer.library import answering, evaluated
from tests.viewer.recorded import episode, write_run


def shown(folder: Path) -> dict[str, Any]:
    """What the page is answered for the run."""
    return Api(RunLibrary(folder, with_empty=True)).run({"run": [folder.name]})


class TestSoFar:
    """Of a run without a report, or one that goes on: the same numbers from its episodes."""

    SAME = ("success", "passes", "grades", "tasks", "tags", "measure", "planned", "pending")

    def test_grades_and_passes_are_those_of_the_report(self, tmp_path: Path) -> None:
        folder = evaluated(tmp_path / "run", answering("some", "yes", "no", "yes"), repeats=2)
        reported = shown(folder)["results"]
        (folder / "report.json").unlink()
        found = shown(folder)["results"]
        assert found["so_far"] and not reported["so_far"]
        assert {name: found[name] for name in self.SAME} == {name: reported[name] for name in self.SAME}
        assert [row["grade"] for row in found["grades"]] == ["easy", "hard"] and len(found["passes"]["solver"]) == 2

    def test_a_run_that_goes_on_is_counted_anew(self, tmp_path: Path) -> None:
        folder = evaluated(tmp_path / "run", answering("some", "yes", "no", "yes"), repeats=2)
        path = folder / "episodes.jsonl"
        lines = [
            line for line in path.read_text().splitlines(keepends=True) if '"1.1"' not in line and '"2.1"' not in line
        ]
        path.write_text("".join(lines))
        assert not shown(folder)["results"]["so_far"], "the report that there is"
        with run_lock(folder):
            found = shown(folder)
        assert found["row"]["status"] == "running"
        assert (found["results"]["planned"], found["results"]["pending"]) == (6, 2)
        assert [(row["grade"], row["tasks"]) for row in found["results"]["grades"]] == [("easy", 1), ("hard", 2)]
        rows = Api(RunLibrary(folder)).episodes({"run": ["run"], "grade": ["hard"]})
        assert rows["total"] == 2 and {row["grade"] for row in rows["rows"]} == {"hard"}

    def test_episodes_that_no_evaluation_wrote_have_none(self, tmp_path: Path) -> None:
        assert shown(write_run(tmp_path / "run", [episode()]))["results"] is None
        assert shown(write_run(tmp_path / "broken", [episode()], kind="eval"))["results"] is None


class Teams(MultiAgentEnv):
    """Two agents, a team each; the return is the number that the agent says."""

    possible_agents = ("left", "right")
    selector = ParallelSelector()

    def _reset(self, options: Mapping[str, Any]) -> None:
        self.infos = {"left": {"team": "red", "role": "chief"}, "right": {"team": "blue"}}

    def observe(self, agent: str) -> str:
        return "Well?"

    def _process_actions(self, actions: dict[str, str]) -> None:
        self.rewards = {agent: float(text) for agent, text in actions.items()}
        self.terminations = dict.fromkeys(self.agents, True)


def test_teams_and_roles(tmp_path: Path) -> None:
    evaluate(Teams, {"left": always("1"), "right": always("0")}, n=3, out=tmp_path / "run")
    expected = [("team", "blue", 0.0, 3), ("team", "red", 1.0, 3), ("role", "chief", 1.0, 3)]

    def rows() -> list[tuple[str, str, float, int]]:
        found = shown(tmp_path / "run")["results"]["tags"]
        return [(row["tag"], row["name"], row["return"]["mean"], row["success"]["n"]) for row in found]

    assert rows() == expected
    (tmp_path / "run" / "report.json").unlink()
    assert rows() == expected
    tournament(Teams, {"x": always("1"), "y": always("0")}, n=2, out=tmp_path / "cup")
    found = shown(tmp_path / "cup")["results"]["tags"]
    assert {(row["name"], row["player"]) for row in found} >= {("red", "x"), ("red", "y"), ("blue", "x")}


def test_the_budget(tmp_path: Path) -> None:
    evaluate(OneAnswer, always("1"), n=5, out=tmp_path / "run", budget=Budget(episodes=2, cost=1.5), concurrency=1)
    assert shown(tmp_path / "run")["results"]["budget"] == {
        "episodes": {"limit": 2, "used": 2},
        "cost": {"limit": 1.5, "used": 0.0},
    }
