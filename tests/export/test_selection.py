"""Exports of grids, of selected episodes, as Parquet, and with native calls of tools."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from marl_gem.cli import app
from marl_gem.errors import MissingPackage
from marl_gem.evaluation import evaluate
from marl_gem.export.chat import rows, write_chat
from marl_gem.export.native_calls import with_native_calls
from marl_gem.export.selection import Selection
from marl_gem.policies import ScriptedPolicy
from marl_gem.runs.reader import RunReader
from marl_gem.tools.calls import write_call
from marl_gem.types import Episode, Response, Role, ToolSpec, Turn, to_json
from tests.toys import OneAnswer, RockPaperScissors

needs_datasets = pytest.mark.skipif(
    not importlib.util.find_spec("datasets"), reason="the package datasets is not installed"
)
needs_pyarrow = pytest.mark.skipif(
    not importlib.util.find_spec("pyarrow"), reason="the package pyarrow is not installed"
)
LOOK = ToolSpec("look", "Look somewhere.", {"type": "object", "properties": {"at": {"type": "string"}}})


class Graded(OneAnswer):
    tasks = 4
    grades = ("easy", "hard", "easy", "hard")


def says(text: str) -> ScriptedPolicy:
    return ScriptedPolicy(lambda observation, info: text, name=f"says {text}")


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("ascii").splitlines()]


def export(*words: str | Path) -> Any:
    return CliRunner().invoke(app, ["export", *map(str, words)])


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "grid"
    evaluate(Graded, {"solver": [says("yes"), says("no")]}, out=folder)
    return folder


def test_a_grid_is_exported_with_all_combinations(grid: Path, tmp_path: Path) -> None:
    result = export(grid, "--out", tmp_path / "all.jsonl")
    assert result.exit_code == 0 and "8 rows of 8 episodes" in result.output
    found = read(tmp_path / "all.jsonl")
    assert {(row["run"], row["model"]) for row in found} == {
        ("01_says-yes", "says yes"),
        ("02_says-no", "says no"),
    }
    assert {(row["task"], row["grade"]) for row in found} == {(0, "easy"), (1, "hard"), (2, "easy"), (3, "hard")}
    assert export(grid, "--run", "01_says-yes", "--out", tmp_path / "cell.jsonl").exit_code == 0
    assert len(read(tmp_path / "cell.jsonl")) == 4


@pytest.mark.parametrize(
    ("words", "tasks"),
    [
        (["--success"], [0, 1, 2, 3]),
        (["--model", "* no", "--grade", "hard"], [1, 3]),
        (["--tasks", "1-2", "--model", "says yes"], [1, 2]),
        (["--agent", "sol*", "--tasks", "0"], [0, 0]),
        (["--success", "--model", "says no"], []),
    ],
)
def test_episodes_are_selected(grid: Path, tmp_path: Path, words: list[str], tasks: list[int]) -> None:
    assert export(grid, "--out", tmp_path / "some.jsonl", *words).exit_code == 0
    assert sorted(row["task"] for row in read(tmp_path / "some.jsonl")) == tasks


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--agent", "user"], "there is no agent 'user' in 01_says-yes, 02_says-no; its agents are solver"),
        (["--model", "gpt"], "there is no model 'gpt'"),
        (["--grade", "odd"], "there is no grade 'odd' in 01_says-yes, 02_says-no; its grades are easy, hard"),
        (["--tasks", "x"], "'x' names no tasks"),
    ],
)
def test_what_fits_nothing_is_an_error(grid: Path, tmp_path: Path, words: list[str], message: str) -> None:
    result = export(grid, "--out", tmp_path / "none.jsonl", *words)
    assert result.exception and message in str(result.exception)
    assert list(tmp_path.iterdir()) == []


def test_agents_are_selected_by_their_model(tmp_path: Path) -> None:
    evaluate(RockPaperScissors, {"a": says("rock"), "b": says("paper")}, n=3, out=tmp_path / "run")
    write_chat(RunReader(tmp_path / "run"), tmp_path / "x.jsonl", Selection(models=("says paper",)))
    assert {row["agent"] for row in read(tmp_path / "x.jsonl")} == {"b"}


# Calls of tools

CALLS = [write_call("look", {"at": "the ü sky"}), write_call("wait", {})]
TURNS = (
    Turn("a", "See?", Response(f"Hm.\n{CALLS[0]}{CALLS[1]}", reasoning="so")),
    Turn(
        "a",
        [
            {"type": "tool_result", "name": "look", "text": "blue"},
            {"type": "tool_result", "name": "wait", "text": "waited"},
        ],
        Response("It is blue."),
    ),
)


def talk(**changes: Any) -> Episode:
    fields: dict[str, Any] = {"id": "one", "scenario": "test:Talk-v0", "seed": 7, "ending": "terminated"}
    fields |= {"turns": TURNS, "returns": {"a": 1.0}, "roles": {"a": Role("Look.", (LOOK,))}}
    return Episode(**(fields | changes))


def test_native_calls_stand_beside_the_text() -> None:
    (row,) = rows(talk(), native_calls=True)
    _, _, answer, first, second, last = row["messages"]
    assert answer["content"] == "Hm." and answer["reasoning_content"] == "so"
    assert [(call["type"], call["function"]["name"]) for call in answer["tool_calls"]] == [
        ("function", "look"),
        ("function", "wait"),
    ]
    assert json.loads(answer["tool_calls"][0]["function"]["arguments"]) == {"at": "the ü sky"}
    ids = [call["id"] for call in answer["tool_calls"]]
    assert len({*ids}) == 2 and [first["tool_call_id"], second["tool_call_id"]] == ids
    assert (last["content"], last["tool_calls"], last["tool_call_id"]) == ("It is blue.", [], "")
    (text,) = rows(talk())
    assert text["messages"][2]["content"] == TURNS[0].response.text and "tool_calls" not in text["messages"][2]


def test_a_call_that_cannot_be_read_stays_in_the_text() -> None:
    text = "<tool_call>{oh</tool_call>"
    (message,) = with_native_calls([{"role": "assistant", "content": text}], {})
    assert (message["content"], message["tool_calls"]) == (text, [])


# Files that trainers read


def a_run(folder: Path) -> RunReader:
    folder.mkdir()
    plain = [talk(id=f"plain {n}", turns=(Turn("a", "x" * 900_000, Response("A")),), roles={}) for n in range(12)]
    tokens = Response("B", (1, 2), (3,), (-0.5,))
    episodes = [*plain, talk(turns=(Turn("a", "?", tokens),), id="tokens"), talk(options={"task": 3})]
    (folder / "episodes.jsonl").write_text("".join(f"{to_json(episode)}\n" for episode in episodes))
    return RunReader(folder)


@needs_pyarrow
@pytest.mark.parametrize("native", [False, True])
def test_a_parquet_file_has_the_same_rows(tmp_path: Path, native: bool) -> None:
    from pyarrow import parquet

    run = a_run(tmp_path / "run")
    for name in ("x.parquet", "x.jsonl"):
        write_chat(run, tmp_path / name, native_calls=native)
    by_id = {row["episode"]: row for row in read(tmp_path / "x.jsonl")}
    assert {row["episode"]: row for row in parquet.read_table(tmp_path / "x.parquet").to_pylist()} == by_id
    assert by_id["tokens"]["input_ids"] == [1, 2, 3] and by_id["one"]["task"] == 3


def test_a_missing_pyarrow_is_an_error_that_names_the_install_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    run = a_run(tmp_path / "run")
    with pytest.raises(MissingPackage, match=r"pip install 'marl-gem\[parquet\]'"):
        write_chat(run, tmp_path / "x.parquet")
    assert not (tmp_path / "x.parquet").exists()


@needs_datasets
@pytest.mark.parametrize("name", ["x.jsonl", "x.parquet"])
def test_datasets_loads_native_calls_whatever_comes_first(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import datasets

    write_chat(a_run(tmp_path / "run"), tmp_path / name, native_calls=True)
    kind = "json" if name.endswith("l") else "parquet"
    loaded = datasets.load_dataset(
        kind, data_files=str(tmp_path / name), split="train", cache_dir=str(tmp_path / "cache")
    )
    by_id = {row["episode"]: row for row in loaded}
    assert len(by_id) == 14 and by_id["one"]["task"] == 3 and by_id["plain 1"]["task"] is None
    assert by_id["one"]["messages"][2]["tool_calls"][0]["function"]["name"] == "look"
    assert by_id["plain 1"]["messages"][-1]["tool_calls"] == []


@pytest.mark.slow
@needs_datasets
@pytest.mark.parametrize("native", [False, True])
def test_trl_renders_the_rows(tmp_path: Path, native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What its SFT trainer does with a conversation and its tools."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import datasets

    rendering = pytest.importorskip("trl.data_utils", reason="the package trl is not installed")

    from marl_gem.trainers.tiny import CHAT_TEMPLATE, tiny_tokenizer

    tokenizer = tiny_tokenizer(["Look. See? Hm. It is blue."] * 3, tools=True)
    calls = "{% for m in messages %}{% for c in m.tool_calls or [] %}[{{ c.function.name }}]{% endfor %}{% endfor %}"
    tokenizer.chat_template = "{% if tools %}{{ tools | tojson }}{% endif %}" + CHAT_TEMPLATE + calls
    write_chat(a_run(tmp_path / "run"), tmp_path / "x.jsonl", native_calls=native)
    loaded = datasets.load_dataset(
        "json", data_files=str(tmp_path / "x.jsonl"), split="train", cache_dir=str(tmp_path / "cache")
    )
    row = next(row for row in loaded if row["episode"] == "one")
    assert rendering.is_conversational(row)
    text = rendering.apply_chat_template(row, tokenizer, tools=json.loads(row["tools"]))["text"]
    assert '"description": "Look somewhere."' in text and "It is blue." in text
    assert ("[look][wait]" in text) == native and (CALLS[0] in text) != native
