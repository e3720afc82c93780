"""marl-gem play: seats, wrappers, and what the episodes came to."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from marl_gem.cli import app
from marl_gem.errors import AgentError, ConfigError, InvalidOption, MarlGemError, RecordError, RegistryError
from marl_gem.types import Episode, from_json

KUHN = "game:KuhnPoker-v0"


def run(*arguments: str | Path, input: str = "") -> str:
    result = CliRunner().invoke(app, ["play", *map(str, arguments)], input=input, env={"COLUMNS": "200"})
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def episodes(file: Path) -> list[Episode]:
    return [from_json(line, Episode) for line in file.read_text().splitlines()]


def test_thirty_solved_dialogues_are_thirty_successes() -> None:
    text = run("tau:desk-v0", "-n", "30", "--seat", "user=scripted:expert", "--seat", "assistant=scripted:expert")
    rows = [line for line in text.splitlines() if "scripted" in line or "expert" in line]
    assert "success" in text and "draw" not in text
    assert len(rows) == 2 and all("100.0%" in row for row in rows)


def test_a_contest_has_wins_draws_and_losses() -> None:
    text = run("game:TicTacToe-v0", "-n", "20")
    assert all(word in text for word in ("won", "drawn", "lost")) and "success" not in text


def test_a_person_plays_through_a_wrapper(tmp_path: Path) -> None:
    file = tmp_path / "games.jsonl"
    text = run(KUHN, "--seat", "player_0=human", "--wrap", "time_limit=1", "--out", file, input="[check]\n")
    assert "truncated after 1 turns" in text and "[check]" not in text.splitlines()[-1]
    (episode,) = episodes(file)
    assert episode.models == {"player_0": "human"} and episode.ending == "truncated"


def test_options_and_wrappers_reach_the_env(tmp_path: Path) -> None:
    file = tmp_path / "games.jsonl"
    run("tests.toys:NumberGame", "-n", "3", "--wrap", "reward_scale=10", "--wrap", "time_limit=2", "--out", file)
    for episode in episodes(file):
        assert len(episode.turns) == 2 and all(turn.reward in (10.0, 20.0, 30.0) for turn in episode.turns)
    run(KUHN, "-o", "max_steps=1", "--out", file, "--force")
    assert len(episodes(file)[0].turns) == 1


def test_the_same_seed_is_the_same_game(tmp_path: Path) -> None:
    for name in ("a", "b"):
        run(KUHN, "-n", "5", "--seed", "3", "--out", tmp_path / name)
    first, second = ([e.turns for e in episodes(tmp_path / name)] for name in ("a", "b"))
    assert first == second


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (["--seat", "player_2=random"], AgentError, "has no agent 'player_2'; its agents are player_0, player_1"),
        (["--seat", "player_0=random", "--seat", "player_0=human"], AgentError, "'player_0' is given 2 policies"),
        (["--seat", "player_0"], AgentError, "'player_0' lacks a side"),
        (["--seat", "player_0=rondom"], AgentError, "Did you mean random"),
        (["--seat", "player_0=random,temperature=0"], ConfigError, "random takes no 'temperature'"),
        (["--seat", "player_0=scripted:x"], RegistryError, "has no scripted policy 'x'"),
        (["--wrap", "time_limit=0"], InvalidOption, "time_limit takes max_steps"),
        (["--wrap", "tme_limit=0"], RegistryError, "Did you mean 'time_limit'"),
        (["-o", "deck=short"], InvalidOption, "It takes: max_steps"),
    ],
)
def test_what_makes_no_sense(arguments: list[str], kind: type[MarlGemError], message: str) -> None:
    with pytest.raises(kind, match=message):
        run(KUHN, *arguments)


def test_a_recording_is_never_overwritten_without_being_asked(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "games.jsonl"
    run(KUHN, "--out", file)
    before = file.read_text()
    with pytest.raises(RecordError, match="exists already; choose another name, or replace it with --force"):
        run(KUHN, "--seed", "1", "--out", file)
    assert file.read_text() == before
    run(KUHN, "--seed", "1", "--out", file, "--force")
    assert file.read_text() != before and [path.name for path in file.parent.iterdir()] == ["games.jsonl"]


def test_a_recording_that_cannot_be_written_is_an_error_before_the_first_episode(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RecordError, match="cannot write"):
        run("tests.toys:NumberGame", "--seat", "a=human", "--out", tmp_path / "file" / "games.jsonl")
    with pytest.raises(RecordError, match="is a folder"):
        run(KUHN, "--out", tmp_path)
