"""The list of runs, a run's results, and two runs side by side: what the server answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from marl_gem.errors import RecordError
from marl_gem.runs.library import RunLibrary
from marl_gem.runs.lock import run_lock
from marl_gem.types import to_json
from marl_gem.viewer.api import Api
from tests.viewer.library import answering, competed, evaluated
from tests.viewer.recorded import episode, failed, write_run
from tests.viewer.test_training import training_run


def api(path: Path) -> Api:
    return Api(RunLibrary(path, with_empty=True))


def rows(path: Path) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in api(path).runs({})["runs"]}


def test_each_run_says_what_it_is_and_how_it_did(tmp_path: Path) -> None:
    evaluated(tmp_path / "evaluation", answering("half", "yes", "no", "no"))
    evaluated(tmp_path / "grid", [answering("half", "yes", "no", "no"), answering("good", "yes", "yes", "no")])
    competed(tmp_path / "tournament")
    training_run(tmp_path / "training")
    (tmp_path / "training" / "report.json").write_text('{"seconds": 3}')
    (tmp_path / "played").mkdir()
    (tmp_path / "played" / "episodes.jsonl").write_text(to_json(episode()) + "\n")
    found = rows(tmp_path)
    kinds = {name: row["kind"] for name, row in found.items() if not row["parent"]}
    assert kinds == {name: name for name in ("evaluation", "grid", "tournament", "training", "played")}
    assert {row["status"] for row in found.values()} == {"finished"}
    assert {row["parent"] for row in found.values() if row["name"].startswith("grid/")} == {"grid"}
    evaluation = found["evaluation"]
    assert evaluation["score"]["value"] == pytest.approx(1 / 3) and evaluation["score"]["of"] == "solver"
    assert (evaluation["episodes"], evaluation["planned"], evaluation["seats"]) == (3, 3, ["solver: half"])
    assert found["grid"]["score"]["of"] == "best solver: good"
    assert found["tournament"]["score"]["what"] == "rating" and found["tournament"]["episodes"] == 12
    assert found["training"]["score"]["value"] == pytest.approx(0.6) and found["training"]["episodes"] == 44
    assert found["played"]["episodes"] is None, "it is not read for the list"


def test_a_run_that_is_not_complete_says_why(tmp_path: Path) -> None:
    evaluated(tmp_path / "broken", answering("broken", "break", "break", "break"))
    evaluated(tmp_path / "part", answering("part", "yes", "break", "no"))
    evaluated(tmp_path / "killed", answering("part", "yes", "no", "no"))
    (tmp_path / "killed" / "report.json").unlink()
    evaluated(tmp_path / "begun", answering("part", "yes", "no", "no"))
    for name in ("report.json", "episodes.jsonl", "errors.jsonl"):
        (tmp_path / "begun" / name).unlink()
    write_run(tmp_path / "failures", [], [failed(1)])
    training_run(tmp_path / "training", updates=2)
    write_run(tmp_path / "damaged", [episode()])
    (tmp_path / "damaged" / "report.json").write_text("{")
    found = {name: (row["status"], row["why"]) for name, row in rows(tmp_path).items()}
    expected = {
        "broken": ("failed", "all 3 episodes failed; env: ScenarioFault: GradedTasks"),
        "part": ("interrupted", "pending: 1 of 3 episodes, of which 1 failed (env: ScenarioFault: GradedTasks"),
        "killed": ("interrupted", "it has no report"),
        "begun": ("empty", "no episode has been played"),
        "failures": ("failed", "every episode failed"),
        "training": ("interrupted", "marl-gem train --resume training goes on"),
        "damaged": ("failed", "report.json cannot be read"),
    }
    assert found.keys() == expected.keys()
    for name, (status, why) in expected.items():
        assert found[name][0] == status and why in found[name][1], name


def test_a_run_that_goes_on_is_running(tmp_path: Path) -> None:
    folder = training_run(tmp_path / "run", updates=2)
    asked = api(tmp_path)
    with run_lock(folder):
        first = asked.runs({})
        assert first["runs"][0]["status"] == "running"
        assert asked.runs({"stamp": [first["stamp"]]}) == {"stamp": first["stamp"]}, "nothing has changed"
    assert asked.runs({"stamp": [first["stamp"]]})["runs"][0]["status"] == "interrupted"


def test_a_library_may_be_empty_at_first(tmp_path: Path) -> None:
    asked = api(tmp_path)
    assert asked.runs({})["runs"] == []
    write_run(tmp_path / "run", [episode()])
    assert [row["name"] for row in asked.runs({})["runs"]] == ["run"]
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "config.json").write_text('{"model_type": "qwen2"}')
    assert [row["name"] for row in asked.runs({})["runs"]] == ["run"], "the weights of a model are no run"


def test_the_results_of_an_evaluation(tmp_path: Path) -> None:
    evaluated(tmp_path / "run", answering("half", "yes", "no", "no"), repeats=2)
    run = api(tmp_path).run({"run": ["run"]})
    found = run["results"]
    assert found["baselines"] == {"lazy": pytest.approx(1 / 3)} and run["tasks"] == 3
    assert [(row["grade"], row["tasks"], row["success"]["solver"]["mean"]) for row in found["grades"]] == [
        ("easy", 1, 1.0),
        ("hard", 2, 0.0),
    ]
    assert [value["k"] for value in found["passes"]["solver"]] == [1, 2]
    assert found["tasks"][1]["solved"] == {"solver": (0, 2)} and found["tasks"][1]["reasons"]["solver"] == {
        "wrong sum": 2
    }
    assert run["agents"][0]["reasons"] == {"wrong sum": 4}


def test_episodes_by_task_grade_and_reason(tmp_path: Path) -> None:
    evaluated(tmp_path / "run", answering("half", "yes", "no", "?"))
    asked = api(tmp_path)

    def ids(**query: str) -> list[str]:
        answer = asked.episodes({"run": ["run"], **{name: [value] for name, value in query.items()}})
        return [row["id"] for row in answer["rows"]]

    assert ids(grade="hard") == ["1.0", "2.0"] and ids(grade="easy") == ["0.0"] and ids(grade="none") == []
    assert ids(reason="wrong sum") == ["1.0"] and ids(task="2") == ["2.0"]
    assert ids(sort="task") == ["0.0", "1.0", "2.0"] and ids(sort="task", reverse="1")[0] == "2.0"
    grades = [row["grade"] for row in asked.episodes({"run": ["run"]})["rows"]]
    assert sorted(grades) == ["easy", "hard", "hard"]


def test_two_evaluations_side_by_side(tmp_path: Path) -> None:
    evaluated(tmp_path / "a", answering("first", "yes", "no", "no"))
    evaluated(tmp_path / "b", answering("second", "no", "yes", "yes"))
    (part,) = api(tmp_path).comparison({"run": ["a"], "run2": ["b"]})["parts"]
    (subject,) = part["comparison"]["subjects"]
    assert subject["success"]["difference"]["mean"] == pytest.approx(1 / 3) and subject["pairs"] == 3
    assert [flip["id"] for flip in subject["gained"]] == ["1.0", "2.0"]
    assert [flip["id"] for flip in subject["lost"]] == ["0.0"]


def test_two_grids_side_by_side(tmp_path: Path) -> None:
    for name, answers in (("a", ("yes", "no", "no")), ("b", ("yes", "yes", "no"))):
        evaluated(tmp_path / name, [answering("x", *answers), answering("y", "no", "no", "no")])
    asked = api(tmp_path)
    parts = asked.comparison({"run": ["a"], "run2": ["b"]})["parts"]
    assert [(part["name"], part["before"]) for part in parts] == [("01_x", "a/01_x"), ("02_y", "a/02_y")]
    gained = [[flip["id"] for flip in part["comparison"]["subjects"][0]["gained"]] for part in parts]
    assert gained == [["01:1.0"], []]
    evaluated(tmp_path / "c", answering("x", "no", "no", "no"))
    asked.runs({})
    with pytest.raises(RecordError, match="is a grid, and the other is not"):
        asked.comparison({"run": ["a"], "run2": ["c"]})


def test_runs_without_a_scenario_in_common_say_so(tmp_path: Path) -> None:
    evaluated(tmp_path / "a", answering("first", "yes", "no", "no"))
    write_run(tmp_path / "b", [episode()])
    (part,) = api(tmp_path).comparison({"run": ["a"], "run2": ["b"]})["parts"]
    assert "no scenario in common" in part["problem"] and part["comparison"] is None


def test_reports_that_are_none_break_nothing(tmp_path: Path) -> None:
    for number, content in enumerate(
        ["[]", '{"format": 2, "matches": [5]}', '{"format": 2, "kind": ["x"]}', '{"x": 1}']
    ):
        folder = write_run(tmp_path / str(number), [episode()])
        (folder / "report.json").write_text(content)
        (folder / "config.json").write_text(json.dumps({"kind": {}, "seats": 5, "players": [1], "scenario": 3}))
    asked = api(tmp_path)
    for row in asked.runs({})["runs"]:
        assert row["status"] in ("finished", "failed")
        assert asked.run({"run": [row["name"]]})["results"] is None
