"""marl-gem play: seats, wrappers, and what the episodes came to."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from marl_gem.cli import app
from marl_gem.cli.play import play
from marl_gem.errors import AgentError, ConfigError, InvalidOption, MarlGemError, RecordError, RegistryError
from marl_gem.policies import HumanPolicy
from marl_gem.policies.human import read_line
from marl_gem.tools.calls import read_calls
from marl_gem.types import Episode, ToolCall, ToolSpec, from_json

KUHN = "game:KuhnPoker-v0"


def run(*arguments: str | Path, input: str = "", code: int = 0) -> str:
    result = CliRunner().invoke(app, ["play", *map(str, arguments)], input=input, env={"COLUMNS": "200"})
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code
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


# Rounds, speakers and hearers


def test_a_dialogue_is_shown_once_with_who_hears_it() -> None:
    text = run("tau:desk-v0", "--seat", "*=scripted:expert", "--seed", "0")
    lines = text.splitlines()
    assert lines[0] == "-- round 1: user"
    assert "user (scripted:expert) to assistant: I want to cancel my parcel." in lines
    assert text.count("I want to cancel my parcel.") == 1
    assert 'assistant (scripted:expert): calls look_up {"name": "Ann"}' in lines
    assert any(line.startswith("assistant sees: look_up -> ") for line in lines)


def test_agents_that_act_together_are_a_round() -> None:
    lines = run("tests.toys:Crowd", "-o", "agents=20").splitlines()
    assert lines[0] == "-- round 1: citizen_0, citizen_1, citizen_2 and 17 others together"
    assert lines[1] == "citizen_0, citizen_1, citizen_2 and 17 others see: Yes or no?"
    assert len([line for line in lines if "(random): " in line]) == 20


# A person


HUMAN = ("tau:desk-v0", "--seat", "user=scripted:expert", "--seat", "assistant=human")


def test_a_person_calls_tools(tmp_path: Path) -> None:
    lines = ["Who are you?", "/look_up name=Ann", '/tool cancel {"name": "Ann"}', "//slash", "/quit"]
    text = run(*HUMAN, "--out", tmp_path / "e", input="\n".join(lines))
    assert "/redirect name=STRING to=STRING" in text and "-- round 2: assistant (you)" in text
    (episode,) = episodes(tmp_path / "e")
    texts = [turn.response.text for turn in episode.turns if turn.agent == "assistant"]
    assert texts[1:] == [
        '<tool_call>{"name": "look_up", "arguments": {"name": "Ann"}}</tool_call>',
        '<tool_call>{"name": "cancel", "arguments": {"name": "Ann"}}</tool_call>',
        "/slash",
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/lok_up name=Ann", "there is no tool 'lok_up', only look_up, cancel, redirect"),
        ("/look_up", "name is missing"),
        ("/look_up nme=Ann", "'nme=Ann' is no argument"),
        ('/tool look_up {"name": ', "Expecting value"),
        ('/look_up name="Ann', "No closing quotation"),
        ("/help", "//... says a text that begins with /"),
    ],
)
def test_a_call_that_cannot_be_read_is_explained_and_asked_for_again(line: str, message: str) -> None:
    assert message in run(*HUMAN, input=f"{line}\n/quit\n")


def test_arguments_are_read_as_their_types_say() -> None:
    schema = {"properties": {"n": {"type": "integer"}, "all": {"type": "boolean"}, "text": {"type": "string"}}}
    tools = {"add": ToolSpec("add", parameters=schema)}
    assert read_calls(read_line("/add n=3 all=true text='a b'", tools)).calls == [
        ToolCall("add", {"n": 3, "all": True, "text": "a b"})
    ]
    with pytest.raises(ValueError, match="n is of the type integer, not 'three'"):
        read_line("/add n=three", tools)
    assert read_line("/add n=3", {}) == "/add n=3", "where a seat has no tools, it is a text"


def test_whoever_leaves_keeps_what_was_played(tmp_path: Path) -> None:
    file = tmp_path / "e"
    seats = ("--seat", "player_0=human", "-n", "3", "--out", file, "--force")
    assert "2 of 3 episodes are in" in run(KUHN, *seats, input="[bet]\n/quit\n")
    first, second = episodes(file)
    assert first.error is None and second.error and second.error.type == "PersonLeft"
    run(KUHN, *seats, input="[bet]\n", code=1)
    assert [bool(episode.error) for episode in episodes(file)] == [False, True]


def test_ctrl_c_keeps_what_was_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = ["[bet]"]

    def ask(prompt: str) -> str:
        if not answers:
            raise KeyboardInterrupt
        return answers.pop()

    monkeypatch.setitem(play.__globals__, "person", lambda: HumanPolicy(lambda text: None, ask))
    text = run(KUHN, "--seat", "player_0=human", "-n", "3", "--out", tmp_path / "e", code=130)
    assert "was interrupted by Ctrl-C" in text
    assert [bool(episode.error) for episode in episodes(tmp_path / "e")] == [False, True]


# Options of reset


def test_options_of_reset_reach_every_episode(tmp_path: Path) -> None:
    run("tests.toys:Village", "--reset", "village=Oslo", "-n", "2", "-o", "max_steps=3", "--out", tmp_path / "e")
    for episode in episodes(tmp_path / "e"):
        assert episode.options == {"village": "Oslo"} and "of Oslo" in episode.roles["ann"].instructions


def test_an_option_of_reset_that_is_refused() -> None:
    with pytest.raises(MarlGemError, match=r"takes no reset options, but got \['deck'\]"):
        run(KUHN, "--reset", "deck=short")
