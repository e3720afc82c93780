"""Looking at runs: what is found in a folder, what a list and a transcript show, and who may ask the server."""

from __future__ import annotations

import base64
import http.client
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

import marl_gem
from marl_gem.cli.view import view
from marl_gem.errors import MarlGemError, RecordError
from marl_gem.policies import Policy, RandomPolicy, ScriptedPolicy
from marl_gem.rollout import Job, collect
from marl_gem.runs.index import EpisodeIndex
from marl_gem.runs.library import OPEN_RUNS, RunLibrary
from marl_gem.runs.parts import response_parts
from marl_gem.runs.reader import RunReader
from marl_gem.tools.calls import write_call
from marl_gem.types import Episode, EpisodeError, Response, Role, ToolSpec, Turn, to_json
from marl_gem.viewer.overview import overview
from marl_gem.viewer.query import Query, select
from marl_gem.viewer.server import FIRST_PORT, Server
from marl_gem.viewer.text import show_episodes, show_runs, show_transcript, visible
from marl_gem.viewer.transcript import transcript

# Runs to look at


def png(width: int = 24, height: int = 16) -> str:
    """A picture, as a data: URL."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress((b"\0" + b"\x40\x80\xc0" * width) * height)
    file = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    return f"data:image/png;base64,{base64.b64encode(file).decode()}"


HOSTILE = (
    '<script>window.hacked=1</script><img src=x onerror="window.hacked=1"><svg onload="window.hacked=1">'
    '<a href="javascript:window.hacked=1">x</a><style>*{display:none}</style></div></script>'
    "\x00\x1b[31m\x1b]0;owned\x07 \ud800 \u202e {{7*7}} ${window.hacked=1}"
)


def episode(number: int = 0, **changes: Any) -> Episode:
    """A short conversation in which `user` asks and `assistant` looks something up."""
    turns = (
        Turn("user", "You want to know the weather in Zürich.", Response(f"How is the weather? ({number})")),
        Turn(
            "assistant",
            f"How is the weather? ({number})",
            Response(
                f"One moment.\n{write_call('weather', {'town': 'Zürich'})}",
                reasoning="I must look it up first.",
                prompt_ids=(1, 2, 3),
                token_ids=(7, 8),
                logprobs=(-0.1, -2.5),
                usage={"prompt_tokens": 30, "completion_tokens": 12},
                cost=0.002,
                seconds=1.5,
                retries=2,
            ),
        ),
        Turn(
            "assistant",
            [{"type": "tool_result", "name": "weather", "text": '{"sky": "cloudless"}'}],
            Response("It is Sunny."),
            reward=1.0,
            info={"checked": True},
        ),
    )
    fields: dict[str, Any] = {
        "id": f"talk-{number}",
        "scenario": "test:Talk-v0",
        "seed": 1000 + number,
        "turns": turns,
        "returns": {"user": 0.0, "assistant": 1.0},
        "ending": "terminated",
        "models": {"user": "gpt", "assistant": "qwen"},
        "usage": {"prompt_tokens": 30, "completion_tokens": 12, "cached_tokens": 20},
        "cost": 0.002,
        "seconds": 2.5,
        "final_infos": {"assistant": {"success": True, "final_observation": "Thank you, goodbye."}},
    }
    return Episode(**(fields | changes))


POLICY = "\n".join(["You are a forecaster.", *(f"Rule {number}: be brief." for number in range(1, 40))])
TOWN = {"type": "string", "description": "as on maps"}
WEATHER = ToolSpec("weather", "Tells the weather.", {"type": "object", "properties": {"town": TOWN}})


def told(number: int = 0, **changes: Any) -> Episode:
    """The same conversation, and it is known what each was told."""
    return episode(number, roles={"user": Role("You plan a walk."), "assistant": Role(POLICY, (WEATHER,))}, **changes)


def failed(number: int = 0) -> Episode:
    error = EpisodeError("llm", "TransientLLMError", "the server answered 503", "assistant")
    return episode(number, turns=episode().turns[:1], ending="error", error=error, final_infos={})


def write_run(folder: Path, episodes: Sequence[Episode], owed: Sequence[Episode] = (), **config: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "episodes.jsonl").write_text("".join(f"{to_json(one)}\n" for one in episodes))
    if owed:
        (folder / "errors.jsonl").write_text("".join(f"{to_json(one)}\n" for one in owed))
    (folder / "config.json").write_text(json.dumps({"scenario": "test:Talk-v0", **config}))
    return folder


def games(scenario: str, count: int, policy: Policy = RandomPolicy()) -> list[Episode]:  # noqa: B008 - it has no state
    jobs = [Job(seed, policy) for seed in range(count)]
    with ThreadPoolExecutor() as thread:  # Playwright keeps an event loop running in this one
        return thread.submit(collect, lambda: marl_gem.make(scenario), jobs).result()


def opened(path: Path) -> RunReader:
    library = RunLibrary(path)
    return library.open(next(iter(library.runs())))


def keys(run: RunReader, **query: Any) -> list[str]:
    return [entry.key for entry in select(run, Query(**query))]


# What is found in a file


def test_every_episode_is_listed_and_read_back_as_it_was(tmp_path: Path) -> None:
    played = [*games("game:TicTacToe-v0", 20), *games("game:KuhnPoker-v0", 20), episode(), failed()]
    run = opened(write_run(tmp_path / "run", played))
    entries = run.entries()
    assert [run.read(entry) for entry in entries] == played
    assert [entry.key for entry in entries] == [str(number) for number in range(1, 43)]
    for entry, one in zip(entries, played, strict=True):
        told = entry.summary
        assert told and (told.id, told.seed, told.returns, told.ending) == (one.id, one.seed, one.returns, one.ending)
        assert (told.turns, told.models, told.error) == (len(one.turns), one.models, one.error)
        assert set(told.illegal) == {turn.agent for turn in one.turns if "illegal" in turn.info}


def test_a_summary_counts_what_models_read_and_wrote_once(tmp_path: Path) -> None:
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
def test_what_an_episode_cost(tmp_path: Path, responses: list[Response], cost: float | None) -> None:
    turns = tuple(Turn("a", "?", response) for response in responses)
    (entry,) = opened(write_run(tmp_path, [episode(0, turns=turns)])).entries()
    assert entry.summary and entry.summary.cost == cost


def test_new_episodes_are_seen_and_a_torn_line_is_told_at_every_byte(tmp_path: Path) -> None:
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
    for whole in (line[:-1], line, line + line):  # what has no newline yet may still be all there
        (folder / "episodes.jsonl").write_bytes(begun + whole)
        ids = [entry.summary.id for entry in run.entries() if entry.summary]
        assert ids == ["talk-0", *["talk-1"] * max(1, whole.count(b"\n"))]


def test_a_file_that_was_cut_and_written_on_is_read_anew(tmp_path: Path) -> None:
    path = write_run(tmp_path, [episode(number) for number in range(5)]) / "episodes.jsonl"
    file = EpisodeIndex(path)
    file.refresh()
    others = [episode(0), *(episode(number, scenario="test:Other-v0") for number in range(10, 17))]
    path.write_text("".join(f"{to_json(one)}\n" for one in others))
    file.refresh()
    assert [entry.summary.id for entry in file.entries if entry.summary] == [one.id for one in others]
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
def test_a_broken_line_is_told_and_hides_no_other(tmp_path: Path, line: bytes) -> None:
    folder = write_run(tmp_path, [episode(0)])
    with (folder / "episodes.jsonl").open("ab") as file:
        file.write(line + b"\n\n  \n" + to_json(episode(1)).encode() + b"\n")
    run = opened(folder)
    first, broken, last = run.entries()
    assert (first.key, broken.key, last.key) == ("1", "2", "5") and first.summary and last.summary
    assert not broken.summary and broken.broken
    with pytest.raises(RecordError):
        run.read(broken)
    assert keys(run, filters=frozenset({"broken"})) == ["2"] and keys(run, filters=frozenset({"won"})) == ["1", "5"]
    assert {"1", "5"} <= set(keys(run, text="sunny")) and keys(run, seat="user") == ["1", "5"]
    assert overview(run.entries()).broken == 1


def test_numbers_without_end_break_a_line(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [episode(0)])
    (folder / "episodes.jsonl").write_text(to_json(episode(0)).replace('"cost":0.002', '"cost":-1e999') + "\n")
    (entry,) = opened(folder).entries()
    assert not entry.summary and "not an Episode" in entry.broken


texts = st.text(st.characters(exclude_categories=()), max_size=30)


@given(st.lists(st.builds(lambda text, seed: (text, seed), texts, st.integers(0, 2**70)), min_size=1, max_size=4))
def test_any_text_can_be_listed_found_and_shown(told: list[tuple[str, int]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        played = [
            episode(0, id=text, seed=seed, turns=(Turn(text, text, Response(f"<{text}>"), info={text: text}),))
            for text, seed in told
        ]
        run = opened(write_run(Path(folder), played))
        assert [entry.summary.seed for entry in run.entries() if entry.summary] == [one.seed for one in played]
        with (Path(folder) / "shown").open("w", encoding="utf-8") as file:
            for entry, one in zip(run.entries(), played, strict=True):
                assert run.read(entry) == one
                show_transcript(Console(file=file, force_terminal=True), run, entry)


def test_search_finds_what_was_seen_said_and_thought_and_nothing_else(tmp_path: Path) -> None:
    odd = episode(1, turns=(Turn("user", "\ud800 STRAßE", Response("half \udc00 a character")),), final_infos={})
    run = opened(write_run(tmp_path, [told(0), odd], [failed(2)]))
    both, first, second, owed = ["1", "2", "e1"], ["1"], ["2"], ["e1"]
    for text, found in {
        "sunny": first,
        "SUNNY": first,
        "zürich": ["1", "e1"],
        "zÜRICH": ["1", "e1"],
        "cloudless": first,
        '"sky": "cloud': first,
        "must look it up": first,
        "goodbye": first,
        "straße": second,
        "half": second,
        "503": owed,
        "talk-": both,
        "forecaster": [],
        "observation": [],
        "token_ids": [],
        "no such words": [],
    }.items():
        assert keys(run, text=text) == found, text


def test_filters_ask_about_the_agents_that_are_chosen(tmp_path: Path) -> None:
    won = {"returns": {"a": 1.0, "b": -1.0}, "models": {"a": "gpt", "b": "qwen"}, "final_infos": {}}
    drew = won | {"returns": {"a": 0.0, "b": 0.0}, "models": {"a": "qwen", "b": "gpt"}}
    unpriced = Turn("b", "?", Response("!", usage={"prompt_tokens": 1}))
    cut = won | {"ending": "truncated", "limit": "turns", "turns": (unpriced,) * 3, "seconds": 99.0}
    dear = Response("!", cost=9.0, seconds=1.0)
    illegal = won | {"turns": (Turn("b", "?", dear, info={"illegal": "no"}),)}
    run = opened(write_run(tmp_path, [episode(0, **one) for one in (won, drew, cut, illegal)], [failed(9)]))
    for query, found in [
        ({"filters": {"won"}}, ["1", "3", "4"]),
        ({"filters": {"lost"}, "seat": "a"}, []),
        ({"filters": {"lost"}, "seat": "b"}, ["1", "3", "4"]),
        ({"filters": {"drew"}, "model": "gpt"}, ["2"]),
        ({"filters": {"illegal"}, "seat": "a"}, []),
        ({"filters": {"illegal"}}, ["4"]),
        ({"filters": {"cut"}}, ["3"]),
        ({"filters": {"cut", "lost"}}, ["3"]),
        ({"filters": {"error"}}, ["e1"]),
        ({"filters": {"failed"}}, ["e1"]),
        ({"model": "qwen", "seat": "a"}, ["2"]),
        ({"seat": "user"}, ["e1"]),
        ({"sort": "cost"}, ["4", "1", "2", "e1", "3"]),
        ({"sort": "seconds"}, ["3", "1", "2", "4", "e1"]),
        ({"sort": "turns", "reverse": True}, ["4", "e1", "1", "2", "3"]),
        ({"sort": "return", "seat": "b"}, ["2", "1", "3", "4"]),
        ({"reverse": True}, ["e1", "4", "3", "2", "1"]),
    ]:
        filters = frozenset(query.pop("filters", ()))  # type: ignore[call-overload]
        assert keys(run, filters=filters, **query) == found, query
    with pytest.raises(RecordError, match="no filter 'wun'; choose from won"):
        keys(run, filters=frozenset({"wun"}))
    with pytest.raises(RecordError, match="cannot be sorted by 'luck'"):
        keys(run, sort="luck")


@pytest.mark.parametrize(
    ("returns", "report", "fared"),
    [
        ([{"a": 1.0, "b": -1.0}, {"a": 0.0, "b": 0.0}], {}, [("won", "lost"), ("drew", "drew")]),
        ([{"a": 1.0, "b": 1.0}, {"a": 0.0, "b": 0.5}], {}, [("won", "won"), ("lost", "won")]),
        ([{"a": 0.5, "b": 0.25}], {"measure": "win rate"}, [("won", "lost")]),
        (
            [{"a": 1.0, "b": -1.0}, {"a": 0.0, "b": 0.0}],
            {"measure": "success rate"},
            [("won", "lost"), ("lost", "lost")],
        ),
        ([{"a": 0.5}, {"a": 0.0}], {}, [("won",), ("lost",)]),
    ],
)
def test_who_won(
    tmp_path: Path, returns: list[dict[str, float]], report: dict[str, str], fared: list[tuple[str]]
) -> None:
    folder = write_run(tmp_path, [episode(0, returns=one, final_infos={}) for one in returns])
    (folder / "report.json").write_text(json.dumps(report))
    found = [entry.summary.outcomes for entry in opened(folder).entries() if entry.summary]
    assert [tuple(one.values()) for one in found] == fared


def test_what_the_scenario_says_of_success_counts(tmp_path: Path) -> None:
    lost = episode(0, returns={"a": 5.0, "b": -5.0}, final_infos={"a": {"success": False}, "b": {"success": True}})
    (entry,) = opened(write_run(tmp_path, [lost])).entries()
    assert entry.summary and entry.summary.outcomes == {"a": "lost", "b": "won"}


def test_an_overview_counts_what_is_owed_once_it_has_no_other_attempt(tmp_path: Path) -> None:
    unpriced = tuple(Turn("user", "?", Response("!", token_ids=(1,))) for _ in range(3))
    run = opened(write_run(tmp_path, [episode(0), episode(1, turns=unpriced)], [failed(1), failed(2), failed(2)]))
    told = overview(run.entries())
    assert (told.episodes, told.failed, told.owed, told.errors) == (2, 3, 1, 0)
    assert (told.tokens, told.cost, told.unpriced, told.turns) == (84, 0.002, 1, 6)
    user, assistant = told.seats
    assert (assistant.won, assistant.mean_return, assistant.models) == (2, 1.0, {"qwen": 2})
    assert (user.won, user.lost, user.mean_return) == (0, 2, 0.0)


# What is found in a folder


def test_runs_are_found_in_folders_and_named_by_their_place(tmp_path: Path) -> None:
    write_run(tmp_path / "a" / "cell 1", [episode()])
    write_run(tmp_path / "b", [episode()])
    write_run(tmp_path / ".hidden", [episode()])
    write_run(tmp_path / "b" / "checkpoints" / "1", [episode()])
    write_run(tmp_path / "1" / "2" / "3" / "4" / "5", [episode()])
    (tmp_path / "only errors").mkdir()
    (tmp_path / "only errors" / "errors.jsonl").write_text(to_json(failed()) + "\n")
    os.utime(tmp_path / "b" / "episodes.jsonl", (2e9, 2e9))
    assert next(iter(RunLibrary(tmp_path).runs())) == "b", "the newest comes first"
    assert set(RunLibrary(tmp_path).runs()) == {"a/cell 1", "b", "only errors"}
    assert list(RunLibrary(tmp_path / "b").runs()) == ["b"]
    assert [entry.key for entry in opened(tmp_path / "only errors").entries()] == ["e1"]


def test_a_jsonl_file_is_a_run_too(tmp_path: Path) -> None:
    path = tmp_path / "games.jsonl"
    path.write_text(to_json(episode()) + "\n")
    assert len(opened(path).entries()) == 1


def test_a_place_without_runs_is_told(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="does not exist"):
        RunLibrary(tmp_path / "nowhere")
    with pytest.raises(RecordError, match=r"no run in .*: no episodes\.jsonl"):
        RunLibrary(tmp_path)
    write_run(tmp_path / "run", [])
    assert opened(tmp_path).entries() == []


def test_links_do_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    secret = write_run(tmp_path / "outside", [episode(0, id="secret")])
    (secret / "secret.png").write_bytes(b"secret")
    inside = write_run(tmp_path / "runs" / "one", [episode()])
    (inside / "curve.png").write_bytes(b"picture")
    (tmp_path / "runs" / "linked").symlink_to(secret)
    (tmp_path / "runs" / "two").mkdir()
    (tmp_path / "runs" / "two" / "episodes.jsonl").symlink_to(secret / "episodes.jsonl")
    (inside / "secret.png").symlink_to(secret / "secret.png")
    library = RunLibrary(tmp_path / "runs")
    assert list(library.runs()) == ["one"] and library.open("one").pictures == ["curve.png"]


def test_many_runs_are_not_all_kept_in_memory(tmp_path: Path) -> None:
    for number in range(OPEN_RUNS + 3):
        write_run(tmp_path / f"run{number:02}", [episode(number)])
    library = RunLibrary(tmp_path)
    runs = [library.open(name) for name in library.runs()]
    for run in runs:
        library.open(run.name).entries()
    assert sum(bool(run.files[0].entries) for run in runs) == OPEN_RUNS
    assert all(len(run.entries()) == 1 for run in runs)


# An episode taken apart


def test_a_response_is_taken_apart_in_its_order() -> None:
    text = f"first\n{write_call('a', {'x': 1})}\nthen{write_call('b', {})}<tool_call>{{no</tool_call>last"
    parts = response_parts(Response(text, reasoning="hm"))
    assert [(part.kind, part.name) for part in parts[:4]] == [
        ("reasoning", ""),
        ("text", ""),
        ("call", "a"),
        ("text", ""),
    ]
    assert [part.kind for part in parts[4:]] == ["call", "broken call", "text"]
    assert [part.text for part in parts if part.kind == "text"] == ["first", "then", "last"]
    assert json.loads(parts[2].text) == {"x": 1} and "not JSON" in parts[5].name


def test_thoughts_in_the_text_are_thoughts_and_other_text_is_kept_to_the_letter() -> None:
    assert [(p.kind, p.text) for p in response_parts(Response("<think>hm</think>\n\nyes"))] == [
        ("reasoning", "hm"),
        ("text", "yes"),
    ]
    assert [(p.kind, p.text) for p in response_parts(Response("  a\n\n b \n"))] == [("text", "  a\n\n b \n")]
    assert [p.text for p in response_parts(Response(""))] == [""]


def test_one_agents_view_shows_nothing_of_the_others() -> None:
    shown = transcript(episode(), "user")
    assert [turn.number for turn in shown.turns] == [1] and shown.ends == []
    assert "cloudless" not in str(shown) and "look it up" not in str(shown)
    whole = transcript(episode())
    assert [turn.agent for turn in whole.turns] == ["user", "assistant", "assistant"]
    assert [turn.total for turn in whole.turns] == [0.0, 0.0, 1.0]
    assert [(part.kind, part.name) for part in whole.turns[2].observation] == [("result", "weather")]
    assert whole.ends[0].agent == "assistant" and whole.ends[0].observation[0].text == "Thank you, goodbye."
    assert whole.turns[1].notes == ["30 + 12 tokens", "1.50 s", "$0.0020", "asked 3 times"]


def test_what_an_agent_was_told_is_shown_to_it_and_the_whole_table() -> None:
    whole = transcript(told()).roles
    assert [(one.agent, [(part.kind, part.name) for part in one.parts]) for one in whole] == [
        ("user", [("text", "")]),
        ("assistant", [("text", ""), ("tool", "weather")]),
    ]
    assert whole[1].parts[0].text == POLICY
    description, _, schema = whole[1].parts[1].text.partition("\n")
    assert description == "Tells the weather." and json.loads(schema) == WEATHER.parameters
    own = transcript(told(), "user")
    assert [one.agent for one in own.roles] == ["user"] and "forecaster" not in str(own)
    assert transcript(episode()).roles == transcript(episode(0, roles={"user": Role()})).roles == []


def test_parts_that_nobody_knows_are_shown_as_they_are() -> None:
    odd = [{"type": "sound", "url": 3}, {"type": "text"}, {"type": "image", "url": None}, {}]
    shown = transcript(episode(0, turns=(Turn("a", odd, Response("?")),), final_infos={"a": {"final_observation": 7}}))
    assert [part.kind for part in shown.turns[0].observation] == ["other"] * 4 and '"url": 3' in shown.turns[
        0
    ].observation[0].text
    assert shown.ends[0].observation[0].kind == "other"


# The server


@pytest.fixture
def serve() -> Iterator[Callable[[Path], Server]]:
    servers: list[Server] = []

    def start(path: Path) -> Server:
        server = Server(RunLibrary(path), 0)
        threading.Thread(target=lambda: server.serve_forever(0.01), daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def request(server: Server, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    response = connection.getresponse()
    answer = response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
    connection.close()
    return answer


def answer(server: Server, question: str) -> Any:
    status, _, body = request(server, f"/api/{question}")
    assert status == 200, body
    return json.loads(body)


def test_the_api_tells_what_the_page_needs(tmp_path: Path, serve: Callable[[Path], Server]) -> None:
    server = serve(write_run(tmp_path / "run", [episode(n) for n in range(250)], [failed(999)], seed=2**63))
    run = answer(server, "run?run=run")
    assert (run["episodes"], run["owed"]) == (250, 1) and json.loads(run["config"])["seed"] == 2**63
    page = answer(server, "episodes?run=run&start=200&count=100")
    assert page["total"] == 251 and len(page["rows"]) == 51 and page["rows"][0]["seed"] == "1200"
    assert len(answer(server, "episodes?run=run&count=99999")["rows"]) <= 500
    place = answer(server, "place?run=run&key=3&sort=seed")
    assert (place["place"], place["before"], place["after"]) == (248, "4", "2")
    assert answer(server, "place?run=run&key=3&filter=error")["place"] is None
    shown = answer(server, "episode?run=run&key=talk-7")
    assert (shown["key"], len(shown["turns"]), shown["turns"][1]["tokens"]) == ("8", 3, 2)
    assert "logprobs" not in json.dumps(shown)
    assert answer(server, "tokens?run=run&key=8&turn=2") == {
        "ids": [7, 8],
        "logprobs": [-0.1, -2.5],
        "prompt": [1, 2, 3],
    }


def test_the_api_tells_what_agents_were_told(tmp_path: Path, serve: Callable[[Path], Server]) -> None:
    server = serve(write_run(tmp_path / "run", [told(), episode()]))
    user, assistant = answer(server, "episode?run=run&key=1")["roles"]
    assert user == {"agent": "user", "parts": [{"kind": "text", "text": "You plan a walk."}]}
    assert [part["kind"] for part in assistant["parts"]] == ["text", "tool"]
    assert assistant["parts"][1]["name"] == "weather"
    assert answer(server, "episode?run=run&key=2")["roles"] == []


def test_twins_are_of_the_same_task(tmp_path: Path, serve: Callable[[Path], Server]) -> None:
    again = [episode(n, repeat=repeat) for n in range(3) for repeat in range(2)]
    write_run(tmp_path / "a", again)
    write_run(tmp_path / "b", again[::-1])
    server = serve(tmp_path)
    assert answer(server, "twin?run=a&key=4") == {"key": "3", "same": True}
    assert answer(server, "twin?run=a&key=4&other=b") == {"key": "3", "same": True}  # the one of the same repeat


def test_a_run_may_grow_while_it_is_looked_at(tmp_path: Path, serve: Callable[[Path], Server]) -> None:
    folder = write_run(tmp_path / "run", [episode(0)])
    server = serve(folder)
    for number in range(1, 4):
        with (folder / "episodes.jsonl").open("a") as file:
            file.write(to_json(episode(number)) + "\n")
        assert answer(server, "episodes?run=run")["total"] == answer(server, "run?run=run")["episodes"] == number + 1
    write_run(folder, [])
    assert answer(server, "episodes?run=run") == {"total": 0, "rows": []}


def test_what_json_cannot_hold_does_not_break_an_answer(tmp_path: Path, serve: Callable[[Path], Server]) -> None:
    folder = write_run(tmp_path / "run", [episode(0, id=HOSTILE, seed=2**80)])
    line = (folder / "episodes.jsonl").read_text()
    line = line.replace('"checked":true', '"checked":NaN').replace('"reward":1.0', '"reward":-1e999')
    (folder / "episodes.jsonl").write_text(line)
    server = serve(folder)
    shown = answer(server, "episode?run=run&key=1")
    assert shown.get("broken") or shown["turns"][2]["reward"] == "-inf"
    raw = folder / "episodes.jsonl"
    raw.write_text(to_json(episode(0)).replace('"reward":1.0', '"reward":1e999') + "\n")
    assert answer(server, "episode?run=run&key=1")["turns"][2]["total"] == "inf"


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("127.0.0.1:{port}", True),
        ("localhost:{port}", True),
        ("LOCALHOST:9999", True),  # a port that was forwarded
        ("[::1]:{port}", True),
        ("evil.example:{port}", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example:{port}", False),
        ("evil.example@localhost", True),  # still the name localhost, to whomever reads it
        ("localhost@evil.example", False),
        ("[", False),
        ("", False),
        ("0.0.0.0:{port}", False),
    ],
)
def test_it_answers_under_names_of_this_machine_alone(
    tmp_path: Path, serve: Callable[[Path], Server], host: str, allowed: bool
) -> None:
    server = serve(write_run(tmp_path / "run", [episode()]))
    for path in ("/", "/api/runs", "/app.js"):
        status, _, body = request(server, path, Host=host.format(port=server.server_address[1]))
        assert (status == 200) == allowed
        assert allowed or (status in (403, 404) and b"talk" not in body)


def test_other_sites_may_link_here_but_not_ask(tmp_path: Path, serve: Callable[[Path], Server]) -> None:
    server = serve(write_run(tmp_path / "run", [episode()]))
    for site in ("cross-site", "same-site"):
        assert request(server, "/", Sec_Fetch_Site=site, Sec_Fetch_Mode="navigate")[0] == 200
        assert request(server, "/api/runs", Sec_Fetch_Site=site, Sec_Fetch_Mode="navigate")[0] == 403
        assert request(server, "/api/runs", Sec_Fetch_Site=site, Sec_Fetch_Mode="no-cors")[0] == 403
        assert request(server, "/app.js", Sec_Fetch_Site=site, Sec_Fetch_Mode="no-cors")[0] == 403
    assert request(server, "/api/runs", Sec_Fetch_Site="same-origin", Sec_Fetch_Mode="cors")[0] == 200
    assert "access-control-allow-origin" not in request(server, "/api/runs", Origin="http://evil.example")[1]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"])
def test_it_is_for_reading_alone(tmp_path: Path, serve: Callable[[Path], Server], method: str) -> None:
    assert request(serve(write_run(tmp_path / "run", [episode()])), "/api/runs", method)[0] == 405


@pytest.mark.parametrize(
    "path",
    [
        "/../pyproject.toml",
        "/..%2f..%2fserver.py",
        "/page/../server.py",
        "/index.html/../../server.py",
        "//etc/passwd",
        "/api/../server.py",
        "/api/_run?run=run",
        "/picture?run=run&name=../secret.png",
        "/picture?run=run&name=config.json",
        "/picture?run=../outside&name=secret.png",
        "/api/run?run=..",
        "/api/run?run=/etc",
        "/api/run",
        "/api/episode?run=run&key=../1",
        "/api/episode?run=run&key=99",
        "/api/tokens?run=run&key=1&turn=99",
        "/api/tokens?run=run&key=1&turn=-1",
        "/api/episodes?run=run&start=x",
        "/api/episodes?run=run&filter=nothing",
        "/api/episodes?run=run&sort=__class__",
        "/%00",
        "/favicon.ico",
    ],
)
def test_nothing_else_can_be_had(tmp_path: Path, serve: Callable[[Path], Server], path: str) -> None:
    (tmp_path / "secret.png").write_bytes(b"secret")
    status, headers, body = request(serve(write_run(tmp_path / "run", [episode()])), path)
    assert (
        status == 404
        and headers["content-type"] == "application/json"
        and b"secret" not in body.replace(b"/secret.png", b"")
    )
    assert json.loads(body)["error"]


def test_every_answer_forbids_what_the_page_does_not_need(tmp_path: Path, serve: Callable[[Path], Server]) -> None:
    folder = write_run(tmp_path / "run", [episode()])
    (folder / "curve.png").write_bytes(b"\x89PNG")
    server = serve(folder)
    for path in ("/", "/app.js", "/style.css", "/icon.svg", "/api/runs", "/picture?run=run&name=curve.png", "/nothing"):
        _, headers, _ = request(server, path)
        policy = dict(rule.split(" ", 1) for rule in headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'none'" and policy["script-src"] == policy["style-src"] == "'self'"
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
        assert headers["server"] == "marl_gem"
    assert server.server_address[0] == "127.0.0.1"


def test_the_page_makes_no_markup_of_what_it_shows() -> None:
    page = Path(marl_gem.__file__).parent / "viewer" / "page"
    scripts = "".join(file.read_text() for file in page.glob("*.js"))
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "DOMParser", "Function("):
        assert word not in scripts
    assert "http" not in (page / "index.html").read_text() and "url(" not in (page / "style.css").read_text()


def test_many_ask_at_once(tmp_path: Path, serve: Callable[[Path], Server]) -> None:
    server = serve(write_run(tmp_path / "run", [episode(n) for n in range(300)]))
    answers: list[int] = []

    def ask(number: int) -> None:
        answers.append(answer(server, f"episodes?run=run&text=({number})&start=0")["total"])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert answers == [1] * 40


def test_a_port_that_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = RunLibrary(write_run(tmp_path / "run", [episode()]))
    first = Server(library, 0)
    port = first.server_address[1]
    with pytest.raises(MarlGemError, match=f"port {port} is taken"):
        Server(library, port)
    monkeypatch.setattr("marl_gem.viewer.server.FIRST_PORT", port)
    second = Server(library)
    assert port < second.server_address[1] < port + 100
    first.server_close()
    second.server_close()
    with pytest.raises(MarlGemError, match="from 0 to 65535"):
        Server(library, 70_000)
    assert FIRST_PORT > 1024


# The command

app = typer.Typer(pretty_exceptions_enable=False)
app.command("view")(view)
app.command("nothing")(lambda: None)  # with one command alone typer leaves its name out


def run_view(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["view", *map(str, arguments)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


def test_a_list_on_a_pipe_has_a_line_for_each_episode(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [episode(0, id="tab\there"), *(episode(n) for n in range(1, 300))], [failed(999)])
    code, printed = run_view(folder, "--text")
    head, *lines = [line.split("\t") for line in printed.splitlines()]
    assert code == 0 and head == ["#", "episode", "user", "assistant", "end", "turns", "tokens", "cost", "seconds"]
    assert len(lines) == 301 and {len(line) for line in lines} == {9} and lines[0][1] == "tab here"
    assert lines[5] == ["6", "talk-5", "+0 lost", "+1 won", "terminated", "3", "42", "$0.0020", "2.5"]
    _, printed = run_view(folder, "--text", "--filter", "error")
    assert [line.split("\t")[0] for line in printed.splitlines()] == ["#", "e1"]
    _, printed = run_view(folder, "--text", "--search", "(17)", "--sort", "turns", "-n", "5")
    assert [line.split("\t")[1] for line in printed.splitlines()] == ["episode", "talk-17"]


def test_a_transcript_on_a_pipe(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [episode(0)])
    _, whole = run_view(folder, "--text", "--episode", "talk-0")
    assert '-> weather { "town": "Zürich" }' in whole and '<- weather {"sky": "cloudless"}' in whole
    assert "(thought) I must look it up first." in whole and "--- 3 assistant  +1" in whole
    _, own = run_view(folder, "--text", "--episode", "1", "--agent", "user")
    assert "You want to know" in own and "cloudless" not in own and "thought" not in own
    with pytest.raises(RecordError, match="no agent 'nobody' in episode talk-0; its agents are user, assistant"):
        run_view(folder, "--text", "--episode", "1", "--agent", "nobody")
    with pytest.raises(RecordError, match="no episode 'x'"):
        run_view(folder, "--text", "--episode", "x")


def test_on_a_pipe_a_role_is_told_in_short_or_to_its_agent_in_full(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [told(0), episode(1)])
    _, whole = run_view(folder, "--text", "--episode", "1")
    assert "--- user's role\n    You plan a walk.\n\n" in whole
    short = "You are a forecaster. Rule 1: be brief. Rule 2"
    assert f"    {short}" in whole and f"... ({len(POLICY):,} characters)\n" in whole and "Rule 39" not in whole
    assert "    tools: weather\n    (all of it: --agent assistant)\n" in whole and "Tells the weather" not in whole
    assert whole.index("'s role") < whole.index("--- 1 user")
    _, own = run_view(folder, "--text", "--episode", "1", "--agent", "assistant")
    assert POLICY.replace("\n", "\n    ") in own and '"town": {' in own and "tool weather: Tells the weather." in own
    assert "plan a walk" not in own and "--agent" not in own
    _, old = run_view(folder, "--text", "--episode", "2")
    assert "told" not in old


def test_several_runs_in_a_terminal(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [episode(0)])
    write_run(tmp_path / "b", [episode(0)], [failed(1)])
    _, printed = run_view(tmp_path, "--text")
    assert {line.split("\t")[0] for line in printed.splitlines()[1:]} == {"a", "b"}
    with pytest.raises(MarlGemError, match="choose one with --run"):
        run_view(tmp_path, "--text", "--filter", "lost")
    _, printed = run_view(tmp_path, "--text", "--run", "b", "--filter", "failed")
    assert "TransientLLMError" in printed
    with pytest.raises(RecordError, match="no run 'c'"):
        run_view(tmp_path, "--text", "--run", "c")


def test_what_makes_no_sense_is_told_before_a_page_is_served(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [episode(0)])
    for arguments, message in {
        ("--filter", "wun"): "no filter 'wun'",
        ("--sort", "luck"): "cannot be sorted by 'luck'",
        ("--episode", "x"): "no episode 'x'",
        ("--port", "70000"): "from 0 to 65535",
    }.items():
        with pytest.raises(MarlGemError, match=message):
            run_view(tmp_path / "a", "--no-browser", *arguments)
    write_run(tmp_path / "b", [episode(0)])
    with pytest.raises(MarlGemError, match="choose one with --run"):
        run_view(tmp_path, "--no-browser", "--episode", "1")


@pytest.mark.parametrize("terminal", [True, False])
def test_nothing_in_a_run_can_steer_a_terminal(tmp_path: Path, terminal: bool) -> None:
    turns = (
        Turn(
            HOSTILE,
            [{"type": HOSTILE}, {"type": "image", "url": HOSTILE}],
            Response(HOSTILE),
            info={"illegal": HOSTILE},
        ),
    )
    roles = {HOSTILE: Role(HOSTILE, (ToolSpec(HOSTILE, HOSTILE, {HOSTILE: HOSTILE}),))}
    hostile = episode(
        0, id=HOSTILE, turns=turns, models={HOSTILE: HOSTILE}, returns={HOSTILE: 1.0}, limit=HOSTILE, roles=roles
    )
    library = RunLibrary(write_run(tmp_path / "\x1b[2Jrun", [hostile, episode(1, id="[bold]markup[/bold]")]))
    run = library.open(next(iter(library.runs())))
    with (tmp_path / "printed").open("w+", encoding="utf-8") as file:
        out = Console(file=file, force_terminal=terminal, color_system=None, width=100)
        show_runs(out, library)
        show_episodes(out, run, run.entries())
        show_transcript(out, run, run.entries()[0])
        show_transcript(out, run, run.entries()[0], HOSTILE)
        file.seek(0)
        printed = file.read()
    assert "[U+001B]" in printed and "<script>" in printed and "[bold]markup" in printed
    assert not set(printed) & {chr(code) for code in (0, 7, 0x1B, 0x202E)}


def test_what_cannot_be_seen_is_made_visible() -> None:
    assert visible("a\x1b[31m\u202e\ud800\x9b\r\n\tb") == "a[U+001B][31m[U+202E][U+D800][U+009B][U+000D]\n\tb"


def start_view(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    code = "import typer; from marl_gem.cli.view import view; typer.run(view)"
    command = [sys.executable, "-c", code, str(folder), "--no-browser", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_ctrl_c_ends_it_and_frees_the_port(tmp_path: Path) -> None:
    process = start_view(write_run(tmp_path / "run", [episode()]))
    assert process.stdout
    url = next(word for word in process.stdout.readline().split() if word.startswith("http://127.0.0.1:"))
    port = int(url.split(":")[2].rstrip("/"))
    with socket.create_connection(("127.0.0.1", port)):  # somebody still listens; nobody waits for that
        process.send_signal(signal.SIGINT)
        printed, complaints = process.communicate(timeout=10)
    assert process.returncode == 0 and "ended" in printed and complaints == ""
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", port))


# The page, in a browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    if not CHROMIUM:
        pytest.skip("there is no chromium")
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS.split())
        yield running
        running.close()


class Page:
    """A tab that notes what goes wrong in it, and where it asks for anything."""

    def __init__(self, browser: Any, server: Server, **options: Any) -> None:
        self.server = server
        self.tab = browser.new_page(**({"viewport": {"width": 1280, "height": 800}} | options))
        self.tab.set_default_timeout(10_000)
        self.wrong: list[str] = []
        self.asked: list[str] = []
        self.tab.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.tab.on("console", lambda message: message.type == "error" and self.wrong.append(message.text))
        self.tab.on("dialog", lambda dialog: self.wrong.append(f"dialog: {dialog.message}"))
        self.tab.on("request", lambda request: self.asked.append(request.url))

    def go(self, address: str = "") -> Any:
        self.tab.goto(f"{self.server.url}{address}")
        self.tab.wait_for_selector("main > *")
        return self.tab

    def press(self, *names: str) -> None:
        for name in names:
            self.tab.keyboard.press(name)

    def close(self) -> None:
        """Nothing may have gone wrong, and nothing was asked of anybody else."""
        self.tab.close()
        assert self.wrong == []
        assert all(url.startswith((self.server.url, "data:")) for url in self.asked), self.asked


@pytest.fixture
def show(browser: Any, serve: Callable[[Path], Server]) -> Iterator[Callable[..., Page]]:
    pages: list[Page] = []

    def start(path: Path, **options: Any) -> Page:
        pages.append(Page(browser, serve(path), **options))
        return pages[-1]

    yield start
    for page in pages:
        page.close()


def shown_keys(tab: Any) -> list[str]:
    """The numbers of the rows that are on the page, from the top."""
    rows = "[...document.querySelectorAll('.rows .row')].map((row) => [row.offsetTop, row.firstChild?.textContent])"
    return [key for _, key in sorted(tab.evaluate(rows))]


def test_from_all_runs_to_a_turn(tmp_path: Path, show: Callable[..., Page]) -> None:
    write_run(tmp_path / "first", [episode(n) for n in range(3)], [failed(9)])
    write_run(tmp_path / "second", games("game:KuhnPoker-v0", 5))
    page = show(tmp_path)
    tab = page.go()
    tab.wait_for_selector("text=1 owed")
    assert tab.locator(".runs tbody tr").count() == 2
    tab.click("text=first")
    tab.wait_for_selector(".rows .row >> nth=3")
    assert shown_keys(tab) == ["1", "2", "3", "e1"] and "4 episodes" in tab.inner_text(".filters")
    tab.click(".rows .row >> nth=1")
    tab.wait_for_selector(".turn >> nth=2")
    assert "key=2" in tab.url and tab.title().startswith("talk-1")
    tab.go_back()
    tab.wait_for_selector(".rows .row")


def test_a_row_is_found_by_filters_search_and_order(tmp_path: Path, show: Callable[..., Page]) -> None:
    played = games("game:KuhnPoker-v0", 300)
    page = show(write_run(tmp_path / "run", played))
    tab = page.go("#/run?run=run")
    tab.wait_for_selector("text=300 episodes")
    tab.click("button.chip.lost")
    tab.select_option("select[aria-label=seat]", label="player_0")
    lost = sum(one.returns["player_0"] < 0 for one in played)
    tab.wait_for_selector(f"text={lost} of 300 episodes")
    tab.select_option("select[aria-label=Order]", label="longest")
    tab.fill("input[type=search]", "Your card: K")
    kings = [
        str(number)
        for number, one in enumerate(played, 1)
        if one.returns["player_0"] < 0 and any("card: K" in str(turn.observation) for turn in one.turns)
    ]
    tab.wait_for_selector(f"text={len(kings)} of 300 episodes")
    assert set(shown_keys(tab)) <= set(kings)
    address = tab.url
    for part in ("filter=lost", "seat=player_0", "sort=turns", "text=Your+card"):
        assert part in address
    tab.goto("about:blank")
    tab.goto(address)  # the address alone brings it all back
    tab.wait_for_selector(f"text={len(kings)} of 300 episodes")
    assert tab.input_value("input[type=search]") == "Your card: K"
    assert tab.get_attribute("button.chip.lost", "aria-pressed") == "true"
    tab.fill("input[type=search]", "no such words")
    tab.wait_for_selector("text=No episode is like this.")


def test_a_long_list_scrolls_to_its_end(tmp_path: Path, show: Callable[..., Page]) -> None:
    page = show(write_run(tmp_path / "run", [episode(n) for n in range(3000)]))
    tab = page.go()
    tab.wait_for_selector("text=3,000 episodes")
    assert tab.locator(".rows .row").count() < 60, "only what can be seen is made"
    page.press("G")
    tab.wait_for_selector(".rows .row.selected >> text=talk-2999")
    page.press("k", "k", "Enter")
    tab.wait_for_selector("text=2,998 of 3,000")
    page.press("u")
    tab.wait_for_selector(".rows .row.selected >> text=talk-2997")


def test_keys(tmp_path: Path, show: Callable[..., Page]) -> None:
    page = show(write_run(tmp_path / "run", [episode(n) for n in range(4)]))
    tab = page.go("#/run?run=run")
    tab.wait_for_selector(".rows .row >> nth=3")
    page.press("j", "j", "k", "j", "Enter")
    tab.wait_for_selector("h1 >> text=talk-1")
    page.press("j", "j")
    assert tab.get_attribute(".turn.selected", "data-number") == "2" and "turn=2" in tab.url
    page.press("a")
    tab.wait_for_selector("button[aria-pressed=true] >> text=user")
    assert tab.locator(".turn").count() == 1
    page.press("J")
    tab.wait_for_selector("h1 >> text=talk-2")
    assert "agent=user" in tab.url, "the view stays"
    for name in ("talk-1", "talk-0"):
        page.press("K")
        tab.wait_for_selector(f"h1 >> text={name}")
    page.press("?")
    tab.wait_for_selector("dialog[open] >> text=next turn")
    page.press("?")
    page.press("u")
    tab.wait_for_selector(".rows .row.selected >> text=talk-0")
    page.press("x", "j", "x")
    tab.wait_for_selector(".pair .pane >> nth=1")
    assert "key=1" in tab.url and "key2=2" in tab.url


def test_a_transcript_as_the_table_sees_it_and_as_one_agent_did(tmp_path: Path, show: Callable[..., Page]) -> None:
    page = show(write_run(tmp_path / "run", [episode(0)]))
    tab = page.go("#/episode?run=run&key=1")
    tab.wait_for_selector(".turn >> nth=2")
    told = tab.inner_text("main")
    for part in ("It is Sunny.", "weather", "30 + 12 tokens", "asked 3 times", "Thank you, goodbye.", "gpt", "+1"):
        assert part in told
    folds = tab.locator("details.fold")
    assert folds.count() == 3 and tab.locator("details.fold[open]").count() == 0
    page.press("e")
    assert tab.locator("details.fold[open]").count() == 3 and "I must look it up first." in tab.inner_text("main")
    tab.click("text=tokens >> nth=-1")
    tab.wait_for_selector(".token >> nth=1")
    assert tab.locator(".token").all_inner_texts() == ["7", "8"]
    assert "0.905" in (tab.get_attribute(".token >> nth=0", "title") or "")
    doubts = tab.evaluate(
        "[...document.querySelectorAll('.token')].map((one) => getComputedStyle(one).backgroundColor)"
    )
    assert doubts[0] != doubts[1]
    tab.click(".views button >> text=user")
    tab.wait_for_selector(".views button[aria-pressed=true] >> text=user")
    assert "Sunny" not in tab.inner_text(".turns") and "Thank you" not in tab.inner_text(".turns")
    assert "You want to know" in tab.inner_text(".turns")


def test_what_agents_were_told_is_folded_until_it_is_asked_for(tmp_path: Path, show: Callable[..., Page]) -> None:
    page = show(write_run(tmp_path / "run", [told(0), episode(1)]))
    tab = page.go("#/episode?run=run&key=1")
    tab.wait_for_selector(".turn >> nth=2")
    beginning = tab.locator("li.role")
    assert beginning.count() == 2 and "role" in beginning.nth(0).inner_text()
    assert tab.locator(".turns > li").nth(0).get_attribute("class").startswith("role")
    assert not tab.is_visible("text=Rule 39") and not tab.is_visible("text=Tells the weather.")
    tab.click("li.role >> nth=1 >> summary >> nth=0")
    assert tab.is_visible("text=Rule 39: be brief.") and not tab.is_visible("text=as on maps")
    tab.click("li.role .fold.tool summary")
    assert tab.is_visible("text=as on maps")
    tab.click(".views button >> text=user")
    tab.wait_for_selector(".views button[aria-pressed=true] >> text=user")
    assert tab.locator("li.role").count() == 1 and "forecaster" not in tab.inner_text("main")
    page.press("e")
    assert tab.is_visible("li.role .text") and tab.inner_text("li.role .text") == "You plan a walk."
    tab = page.go("#/episode?run=run&key=2")
    tab.reload()
    tab.wait_for_selector(".turn >> nth=2")
    assert tab.locator("li.role").count() == 0


def test_pictures_are_shown_if_they_hold_themselves(tmp_path: Path, show: Callable[..., Page]) -> None:
    urls = [
        png(),
        "https://example.com/tracker.png",
        "javascript:window.hacked=1",
        "data:text/html,<script>window.hacked=1</script>",
        "data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciLz4=",
        "file:///etc/passwd",
    ]
    turns = (Turn("a", [{"type": "image", "url": url} for url in urls], Response("I see.")),)
    page = show(write_run(tmp_path / "run", [episode(0, turns=turns)]))
    tab = page.go("#/episode?run=run&key=1")
    tab.wait_for_function("document.querySelector('img.picture')?.naturalWidth === 24")
    assert tab.locator("img.picture").count() == 1 and tab.locator(".notloaded").count() == 5
    assert tab.evaluate("[...document.querySelectorAll('.notloaded a')].map((a) => a.href)") == urls[1:2]


def test_a_hostile_run_is_text_and_nothing_else(tmp_path: Path, show: Callable[..., Page]) -> None:
    parts = [{"type": "text", "text": HOSTILE}, {"type": HOSTILE, HOSTILE: HOSTILE}, {"type": "image", "url": HOSTILE}]
    parts += [{"type": "tool_result", "name": HOSTILE, "text": HOSTILE}]
    said = Response(HOSTILE + write_call(HOSTILE, {HOSTILE: HOSTILE}) + "<tool_call>" + HOSTILE, reasoning=HOSTILE)
    turns = (
        Turn(HOSTILE, parts, said, reward=1e308, info={"illegal": HOSTILE, HOSTILE: HOSTILE}),
        Turn(HOSTILE, "x" * 1_000_000, Response("\n" * 100_000 + "\u0301" * 100_000), reward=-1e308),
    )
    hostile = episode(
        0,
        id=HOSTILE,
        scenario=HOSTILE,
        seed=2**80,
        turns=turns,
        models={HOSTILE: HOSTILE},
        returns={HOSTILE: 1e308},
        ending="error",
        error=EpisodeError("env", HOSTILE, HOSTILE, HOSTILE),
        limit=HOSTILE,
        final_infos={HOSTILE: {"final_observation": HOSTILE, HOSTILE: HOSTILE}},
        options={HOSTILE: HOSTILE},
        roles={HOSTILE: Role(HOSTILE, (ToolSpec(HOSTILE, HOSTILE, {HOSTILE: HOSTILE}),))},
    )
    owed = msgspec.structs.replace(hostile, id="")
    folder = write_run(tmp_path / "<b>&\"'", [hostile, hostile], [owed], scenario=HOSTILE)
    with (folder / "episodes.jsonl").open("a") as file:
        file.write(f"{HOSTILE.encode('utf-8', 'replace').decode()}\n")
    write_run(tmp_path / "other", [episode(0)])
    page = show(tmp_path)
    for name, ready in [
        ("#/", "text=1 owed"),
        ("#/run?run=%3Cb%3E%26%22%27", "text=4 episodes"),
        ("#/episode?run=%3Cb%3E%26%22%27&key=1", ".turn >> nth=1"),
        ("#/episode?run=%3Cb%3E%26%22%27&key=e1", ".turn >> nth=1"),
        ("#/episode?run=%3Cb%3E%26%22%27&key=3", "pre.raw"),
        ("#/compare?run=%3Cb%3E%26%22%27&key=1&run2=other&key2=1", ".pane >> nth=1"),
        (
            "#/episode?run=<script>window.hacked=1</script>&key=<img src=x onerror=window.hacked=1>",
            "text=cannot be shown",
        ),
    ]:
        tab = page.go(name)
        tab.reload()
        tab.wait_for_selector(ready)
        if name.endswith("&key=1"):
            page.press("e")  # a megabyte is unfolded, too
        assert tab.evaluate("window.hacked") is None
        assert (
            tab.evaluate("document.querySelectorAll('main script, main style, main iframe, main [onerror]').length")
            == 0
        )
        assert tab.is_visible("main") and tab.evaluate("document.scripts.length") == 1
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name} is wider than its window"
    page.wrong[:] = [line for line in page.wrong if "404" not in line]  # of the run that there is not


def test_broken_lines_and_new_episodes(tmp_path: Path, show: Callable[..., Page]) -> None:
    folder = write_run(tmp_path / "run", [episode(0)])
    with (folder / "episodes.jsonl").open("a") as file:
        file.write("<html>502</html>\n" + to_json(episode(1))[:100])
    page = show(folder)
    tab = page.go("#/run?run=run")
    tab.wait_for_selector("text=is not finished")
    assert shown_keys(tab) == ["1", "2", "3"] and "2" in tab.inner_text(".tiles .lost")
    tab.click(".row.broken >> nth=0")
    tab.wait_for_selector("pre.raw >> text=<html>502</html>")
    (folder / "episodes.jsonl").write_text("".join(f"{to_json(episode(n))}\n" for n in range(7)))
    page.press("u")
    tab.wait_for_selector("text=7 episodes")
    with (folder / "episodes.jsonl").open("a") as file:
        file.write(to_json(episode(7)) + "\n")
    tab.click("text=1 new episode: show")
    tab.wait_for_selector("text=8 episodes")


def test_two_episodes_side_by_side(tmp_path: Path, show: Callable[..., Page]) -> None:
    other = episode(0, turns=(*episode().turns[:2], Turn("assistant", "?", Response("It rains."))))
    write_run(tmp_path / "a", [episode(0), episode(1)])
    write_run(tmp_path / "b", [episode(1), other])
    page = show(tmp_path)
    tab = page.go("#/episode?run=a&key=1")
    tab.wait_for_selector(".turn")
    page.press("c")
    tab.wait_for_selector(".side >> nth=1")
    tab.select_option(".side >> nth=1 >> select", label="b")
    tab.wait_for_selector("text=It rains.")  # the same task, found in the other run
    assert "run2=b" in tab.url and "key2=2" in tab.url
    assert tab.locator(".parting").count() == 2 and tab.inner_text(".turn[data-number='3'] .parting >> nth=0")
    page.press("j", "j")
    assert [one.get_attribute("data-number") for one in tab.locator(".turn.selected").all()] == ["2", "2"]
    page.press("a")
    tab.wait_for_selector(".side >> nth=1 >> .views button[aria-pressed=true] >> text=user")
    tab.click("[aria-label='Next episode'] >> nth=0")
    tab.wait_for_selector("h1 >> text=talk-1")


def test_what_the_records_say_is_on_the_page(tmp_path: Path, show: Callable[..., Page]) -> None:
    """Every turn of real games, with its reward; the chart has a line for each player."""
    played = games("game:KuhnPoker-v0", 3, ScriptedPolicy(lambda observation, info: "[check]"))
    page = show(write_run(tmp_path / "run", played))
    for key, one in enumerate(played, 1):
        tab = page.go(f"#/episode?run=run&key={key}")
        tab.reload()
        tab.wait_for_selector(".turn >> nth=1")
        cards = tab.locator(".turn").all()
        assert len(cards) == len(one.turns)
        for card, turn in zip(cards, one.turns, strict=True):
            told = card.inner_text()
            assert turn.agent in told and str(turn.observation) in told and turn.response.text in told
            assert (f"{'+' if turn.reward > 0 else '−'}{abs(turn.reward):g}" in told) == bool(turn.reward)
        assert tab.locator(".chart g.line").count() == 2
        assert all(
            str(value) in tab.inner_text(".seatlist").replace("−", "-") for value in map(int, one.returns.values())
        )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(tmp_path: Path, show: Callable[..., Page], scheme: str) -> None:
    page = show(write_run(tmp_path / "run", [episode(0)]), color_scheme=scheme)
    tab = page.go("#/episode?run=run&key=1")
    tab.wait_for_selector(".turn")

    def brightness() -> float:
        colour = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in colour.strip("rgb()").split(",")) / 765

    assert (brightness() > 0.5) == (scheme == "light")
    page.press("t")
    assert tab.inner_text("#theme") == "Light" and brightness() > 0.5
    page.press("t")
    assert tab.inner_text("#theme") == "Dark" and brightness() < 0.5
    tab.reload()
    tab.wait_for_selector(".turn")
    assert brightness() < 0.5, "it is remembered"


def test_a_narrow_window(tmp_path: Path, show: Callable[..., Page]) -> None:
    wide = episode(0, id="a" * 300, turns=(Turn("a", "b" * 5000, Response("|".join("c" * 900))),))
    write_run(tmp_path / "one", [episode(0), wide])
    write_run(tmp_path / "two", [episode(0)])
    page = show(tmp_path, viewport={"width": 380, "height": 700})
    for address in ("", "#/run?run=one", "#/episode?run=one&key=2", "#/compare?run=one&key=1&run2=one&key2=2"):
        tab = page.go(address)
        tab.reload()
        tab.wait_for_selector(".runs td, .row, .turn")
        assert tab.evaluate("document.documentElement.scrollWidth") <= 380, address


def test_the_page_says_so_when_the_viewer_is_gone(
    tmp_path: Path, browser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(RunLibrary(write_run(tmp_path / "run", [episode(n) for n in range(3)])), 0)
    threading.Thread(target=lambda: server.serve_forever(0.01), daemon=True).start()
    page = Page(browser, server)
    tab = page.go("#/run?run=run")
    tab.wait_for_selector(".rows .row")
    server.shutdown()
    server.server_close()
    tab.route("**", lambda route: route.abort())  # what a connection that is still open would answer
    tab.click(".rows .row >> nth=0")
    tab.wait_for_selector("text=marl-gem view")
    tab.close()
