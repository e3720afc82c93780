"""Tables keep to the width of a terminal, and no value in them is cut."""

from __future__ import annotations

import io
import itertools
import re
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.text import Text
from typer.testing import CliRunner

from marl_gem.cli import app, terminal
from marl_gem.cli.fitted_table import FittedTable, short_names
from marl_gem.cli.terminal import SafeConsole
from marl_gem.evaluation.seat_groups import seat_groups

CROWD = "tests.toys:Crowd"
WIDTH = 80


@pytest.fixture(autouse=True)
def narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for console in (terminal.out, terminal.err):
        monkeypatch.setattr(console, "width", WIDTH)


def drawn(table: FittedTable, width: int = WIDTH) -> str:
    stream = io.StringIO()
    SafeConsole(file=stream, width=width).print(table)
    return stream.getvalue()


def run(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, [*map(str, arguments)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def columns_of(text: str) -> int:
    """The width of the widest line, apart from lines with paths, which are whole for people to copy."""
    return max(cell_len(line.rstrip()) for line in text.splitlines() if "/pytest-" not in line)


# One table


@pytest.mark.parametrize(
    "name", ["a", "player_{}", "a_player_with_a_long_name_number_{}", "Qwen/Qwen3-{}B@http://h:1/v1", "选手{}"]
)
@pytest.mark.parametrize("columns", [2, 5, 9, 50])
def test_every_value_is_there_within_the_width(columns: int, name: str) -> None:
    names = [name.format(index) + (f"{index}" if "{" not in name else "") for index in range(columns)]
    table, count = FittedTable("seat", *names), itertools.count(100)
    values = []
    for row in names[:5]:
        cells = [f"{next(count)}.5% ({next(count)}.0–{next(count)}.0)" for _ in names]
        values += [word for cell in cells for word in cell.split()]
        table.add_row(row, *cells)
    text = drawn(table)
    assert columns_of(text) <= WIDTH
    words = set(text.split())
    assert not [value for value in values if value not in words]
    for full in names:
        assert full in text.replace("\n", ""), "a short name is explained below the table"


def test_a_table_that_fits_stays_as_it_is() -> None:
    table = FittedTable("seat", "success", title="4 episodes")
    table.add_row("a", Text("50.0%", "dim"))
    table.add_row("b")
    lines = [line.rstrip() for line in drawn(table).split("\n")]
    assert lines == ["4 episodes", "seat  success", "a     50.0%", "b", ""]


def test_prose_wraps_between_words_and_what_is_too_long_for_a_line_is_folded() -> None:
    table = FittedTable("option", "meaning")
    table.add_row("x" * 50, "word " * 40 + "y" * 200)
    text = drawn(table)
    assert columns_of(text) <= WIDTH and text.count("word") == 40
    assert "x" * 50 in text and text.count("y") == 200
    narrow = FittedTable("a", "b")
    narrow.add_row("12345", "67890")
    assert columns_of(drawn(narrow, width=4)) <= 4 and set("1234567890") <= set(drawn(narrow, width=4))


def test_what_others_wrote_is_no_markup() -> None:
    table = FittedTable("[red]seat[/]")
    table.add_row("[bold]\x1b[31m")
    assert "[red]seat[/]" in drawn(table) and "\x1b[31m" not in drawn(table)


# Names


def test_short_names() -> None:
    models = ["Qwen/Qwen3-4B-it@http://h:1/v1", "Qwen/Qwen3-8B-it@http://h:1/v1"]
    assert short_names([*models, "random"]) == {models[0]: "…4B…", models[1]: "…8B…"}
    assert short_names(["short", "also_short"]) == {}
    alike = [f"{'x' * 30}{number}{'y' * 30}" for number in range(12)]
    short = short_names(alike)
    assert len(set(short.values())) == 12 and all(len(name) <= 20 for name in short.values())
    assert not {*short.values()} & {*alike}


def test_seats_of_a_role_are_a_group_where_there_are_many() -> None:
    few = {"wolf": "tiny", "villager_1": "random", "villager_2": "random"}
    assert list(seat_groups(few)) == list(few)
    many = {"wolf": "tiny"} | {f"villager_{index}": "random" for index in range(30)}
    assert {name: len(agents) for name, agents in seat_groups(many).items()} == {"wolf": 1, "villager (30)": 30}
    mixed = many | {"villager_3": "tiny", "villager_4": "tiny"}
    assert list(seat_groups(mixed)) == ["wolf", "villager (28 × random)", "villager (2 × tiny)"]
    assert list(seat_groups({str(index): "random" for index in range(9)})) == [str(index) for index in range(9)]


# Commands


@pytest.mark.parametrize("agents", [2, 7, 50])
def test_commands_for_any_number_of_agents(agents: int, tmp_path: Path) -> None:
    played = run("play", CROWD, "-o", f"agents={agents}", "-n", "3")
    evaluated = run("eval", CROWD, "-o", f"agents={agents}", "-n", "3", "--out", tmp_path / "run")
    compared = run("compare", tmp_path / "run", tmp_path / "run")
    for text in (played, evaluated, compared):
        assert columns_of(text) <= WIDTH and not re.search(r"\d…", text)
        assert "success" in text and "success rate" not in text
    assert ("Seats that are alike" in evaluated) == ("Seats that are alike" in played) == (agents == 50)
    page = (tmp_path / "run" / "report.md").read_text()
    assert all(f"citizen_{index}" in page for index in range(agents)), "the file has every seat"


def test_a_grid_and_a_tournament_with_long_names(tmp_path: Path) -> None:
    seats = [f"citizen_0=replay:{tmp_path}/episodes-of-a-run-with-a-long-name-{index}.jsonl" for index in range(3)]
    for seat in seats:
        run("play", CROWD, "-n", "2", "--out", seat.partition("replay:")[2])
    grid = run("eval", CROWD, "--grid", *(f"--seat={seat}" for seat in seats), "-n", "2", "--out", tmp_path / "grid")
    players = [f"--player=an_entrant_with_a_long_name_{index}=random" for index in range(9)]
    tournament = run("tournament", CROWD, *players, "-n", "1", "--out", tmp_path / "cup")
    assert columns_of(grid) <= WIDTH and columns_of(tournament) <= WIDTH
    for index in range(9):
        assert f"an_entrant_with_a_long_name_{index}" in tournament
