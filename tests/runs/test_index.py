"""The index and the reader: every episode is found, whatever is in the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from marl_gem.errors import RecordError
from marl_gem.runs.files import write_json
from marl_gem.runs.index import EpisodeIndex
from marl_gem.runs.reader import RunReader
from marl_gem.types import Response, Turn, to_json
from marl_gem.viewer.overview import overview
from marl_gem.viewer.text import show_transcript
from tests.viewer.recorded import (
    episode,
    failed,
    games,
    keys,
    opened,
    write_run,
)


def test_every_episode_is_listed_and_read_back_as_it_was(tmp_path: Path) -> None:
    played = [*games("game:TicTacToe-v0", 20), *games("game:KuhnPoker-v0", 20), episode(), failed()]
    run = opened(write_run(tmp_path / "run", played))
    entries = run.entries()
    assert [run.read(entry) for entry in entries] == played
    assert [entry.key for entry in entries] == [str(number) for number in range(1, 43)]
    for entry, record in zip(entries, played, strict=True):
        summary = entry.summary
        assert summary and (summary.id, summary.seed, summary.returns, summary.ending) == (
            record.id,
            record.seed,
            record.returns,
            record.ending,
        )
        assert (summary.turns, summary.models, summary.error) == (len(record.turns), record.models, record.error)
        assert set(summary.illegal) == {turn.agent for turn in record.turns if "illegal" in turn.info}


def test_a_summary_counts_tokens_once(tmp_path: Path) -> None:
    (entry,) = opened(write_run(tmp_path, [episode()])).entries()
    assert entry.summary and (entry.summary.tokens, entry.summary.cost, entry.summary.seconds) == (42, 0.002, 2.5)


@pytest.mark.parametrize(
    ("responses", "cost"),
    [
        ([Response("a script's"), Response("a model's", cost=0.5, seconds=1.0)], 0.5),
        ([Response("a model's", seconds=1.0), Response("another's", cost=0.5, seconds=1.0)], None),
        (
            [
                Response("a cache's", token_ids=(1, 2), cached=True, cost=0.5),
                Response("a model's", cost=0.25, seconds=0.1),
            ],
            0.25,
        ),
        ([Response("a model's", token_ids=(1,))], None),
        ([], 0.0),
    ],
)
def test_the_cost_of_an_episode(tmp_path: Path, responses: list[Response], cost: float | None) -> None:
    turns = tuple(Turn("a", "?", response) for response in responses)
    (entry,) = opened(write_run(tmp_path, [episode(0, turns=turns)])).entries()
    assert entry.summary and entry.summary.cost == cost


def test_new_episodes_are_found_and_a_torn_line_is_reported_at_every_byte(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [episode(0)])
    run, line = opened(folder), to_json(episode(1)).encode() + b"\n"
    begun = (folder / "episodes.jsonl").read_bytes()
    assert len(run.entries()) == 1
    for length in range(1, len(line) - 1):
        (folder / "episodes.jsonl").write_bytes(begun + line[:length])
        first, torn = run.entries()
        assert first.summary and not torn.summary and "not finished" in torn.broken
        with pytest.raises(RecordError, match=r"not an? Episode"):
            run.read(torn)
    for lines in (line[:-1], line, line + line):  # what has no newline yet may still be all there
        (folder / "episodes.jsonl").write_bytes(begun + lines)
        ids = [entry.summary.id for entry in run.entries() if entry.summary]
        assert ids == ["talk-0", *["talk-1"] * max(1, lines.count(b"\n"))]


def test_a_file_that_was_cut_and_written_on_is_read_anew(tmp_path: Path) -> None:
    path = write_run(tmp_path, [episode(number) for number in range(5)]) / "episodes.jsonl"
    file = EpisodeIndex(path)
    file.refresh()
    others = [episode(0), *(episode(number, scenario="test:Other-v0") for number in range(10, 17))]
    path.write_text("".join(f"{to_json(record)}\n" for record in others))
    file.refresh()
    assert [entry.summary.id for entry in file.entries if entry.summary] == [record.id for record in others]
    path.unlink()
    file.refresh()
    assert file.entries == []


@pytest.mark.parametrize(
    "line",
    [
        b"<html>502 Bad Gateway</html>",
        b"{}",
        b"null",
        b'"\xff\xfe"',
        b"[" * 100_000,
        b'{"id":' * 5_000,
        b"\x00\x00",
        to_json(episode()).replace("1.0", "NaN").encode(),
        to_json(episode()).replace('"terminated"', '"exploded"').encode(),
        to_json(episode()).encode()[:-40],
    ],
    ids=lambda line: repr(line[:12]),
)
def test_a_broken_line_is_reported_and_hides_no_other(tmp_path: Path, line: bytes) -> None:
    folder = write_run(tmp_path, [episode(0)])
    with (folder / "episodes.jsonl").open("ab") as file:
        file.write(line + b"\n\n  \n" + to_json(episode(1)).encode() + b"\n")
    run = opened(folder)
    first, broken, last = run.entries()
    assert (first.key, broken.key, last.key) == ("1", "2", "5") and first.summary and last.summary
    assert not broken.summary and broken.broken
    with pytest.raises(RecordError):
        run.read(broken)
    assert keys(run, filters=frozenset({"broken"})) == ["2"] and keys(run, filters=frozenset({"success"})) == ["1", "5"]
    assert {"1", "5"} <= set(keys(run, text="sunny")) and keys(run, seat="user") == ["1", "5"]
    assert overview(run.entries()).broken == 1


def test_infinite_numbers_break_a_line(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [episode(0)])
    (folder / "episodes.jsonl").write_text(to_json(episode(0)).replace('"cost":0.002', '"cost":-1e999') + "\n")
    (entry,) = opened(folder).entries()
    assert not entry.summary and "not an Episode" in entry.broken


def test_a_flipped_bit_in_a_report_is_shown_as_damage(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [episode()])
    run = opened(folder)
    assert run.report == {} and run.problem("report.json") == ""
    write_json(folder / "report.json", {"tokens": 7})
    assert run.report == {"tokens": 7} and run.problem("report.json") == ""
    (folder / "report.json").write_text((folder / "report.json").read_text().replace("7", "5", 1))
    assert run.report == {} and "report.json cannot be read, or is damaged: it does not fit" in run.problem(
        "report.json"
    )


texts = st.text(st.characters(exclude_categories=()), max_size=30)


@given(st.lists(st.builds(lambda text, seed: (text, seed), texts, st.integers(0, 2**70)), min_size=1, max_size=4))
@pytest.mark.slow
def test_any_text_can_be_listed_found_and_shown(pairs: list[tuple[str, int]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        played = [
            episode(0, id=text, seed=seed, turns=(Turn(text, text, Response(f"<{text}>"), info={text: text}),))
            for text, seed in pairs
        ]
        run = opened(write_run(Path(folder), played))
        assert [entry.summary.seed for entry in run.entries() if entry.summary] == [record.seed for record in played]
        with (Path(folder) / "shown").open("w", encoding="utf-8") as file:
            for entry, record in zip(run.entries(), played, strict=True):
                assert run.read(entry) == record
                show_transcript(Console(file=file, force_terminal=True), run, entry)


@pytest.mark.parametrize(
    ("returns", "report", "labels"),
    [
        ([{"a": 1.0, "b": -1.0}, {"a": 0.0, "b": 0.0}], {}, [("win", "loss"), ("draw", "draw")]),
        ([{"a": 1.0, "b": 1.0}, {"a": 0.0, "b": 0.5}], {}, [("success", "success"), ("failure", "success")]),
        ([{"a": 0.5, "b": 0.25}], {"measure": "win rate"}, [("win", "loss")]),
        (
            [{"a": 1.0, "b": -1.0}, {"a": 0.0, "b": 0.0}],
            {"measure": "success rate"},
            [("success", "failure"), ("failure", "failure")],
        ),
        ([{"a": 0.5}, {"a": 0.0}], {}, [("success",), ("failure",)]),
    ],
)
def test_outcomes_of_old_records(
    tmp_path: Path, returns: list[dict[str, float]], report: dict[str, str], labels: list[tuple[str]]
) -> None:
    folder = write_run(tmp_path, [episode(0, returns=values, final_infos={}) for values in returns])
    (folder / "report.json").write_text(json.dumps(report))
    found = [entry.summary.outcomes for entry in opened(folder).entries() if entry.summary]
    assert [tuple(outcome.label for outcome in outcomes.values()) for outcomes in found] == labels


def test_the_scenarios_own_success_counts(tmp_path: Path) -> None:
    lost = episode(0, returns={"a": 5.0, "b": -5.0}, final_infos={"a": {"success": False}, "b": {"success": True}})
    (entry,) = opened(write_run(tmp_path, [lost])).entries()
    assert entry.summary and [outcome.label for outcome in entry.summary.outcomes.values()] == ["loss", "win"]


@pytest.mark.parametrize(
    ("config", "scenarios"),
    [
        ({"scenario": "a:A-v0"}, ["a:A-v0"]),
        ({"scenario": {"id": "a:A-v0"}}, ["a:A-v0"]),
        ({"scenarios": [{"id": "a:A-v0", "weight": 2.0}, {"id": "b:B-v0"}]}, ["a:A-v0", "b:B-v0"]),
        ({"scenario": 7}, []),
        ({"scenarios": {"id": "a"}}, []),
        ({}, []),
    ],
)
def test_the_scenarios_of_a_configuration(tmp_path: Path, config: dict[str, Any], scenarios: list[str]) -> None:
    write_run(tmp_path, [episode()])
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert RunReader(tmp_path).scenarios == scenarios


def test_endless_files_and_lines_are_refused_before_they_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "episodes.jsonl"
    monkeypatch.setattr("marl_gem.runs.index.MOST_LINES", 3)
    monkeypatch.setattr("marl_gem.runs.index.MOST_BYTES", 10)
    path.write_text("x\n" * 3)
    assert len(RunReader(tmp_path).entries()) == 3
    for content in ("x\n" * 4, "x" * 11, "x\n" + "x" * 100):
        path.write_text(content)
        with pytest.raises(RecordError, match="is no file of episodes: it has more than"):
            RunReader(tmp_path).entries()
