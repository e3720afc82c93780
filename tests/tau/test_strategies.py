"""Strategies by name, for models that a server has."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import marl_gem
import marl_gem.scenarios.tau
from marl_gem.cli import app
from marl_gem.errors import ConfigError, RegistryError
from marl_gem.policies import Policy
from marl_gem.rollout import Job, collect
from marl_gem.scenarios.tau.dialogue import STOP
from marl_gem.scenarios.tau.env import TauEnv
from marl_gem.scenarios.tau.registration import register_strategies
from marl_gem.scenarios.tau.strategies import gold_dialogues
from marl_gem.specs import ScenarioSpec, assign_seats, load_policies, parse_assignment
from marl_gem.types import Episode
from tests.tau.ticket_desk import DESK, respond

# Strategies by name, of models that a server has


MINI = "tau:retail-mini-v0"
URL = "http://127.0.0.1:9/v1"
SECRET = "my account holds 4711"


def part(body: dict[str, Any]) -> str:
    """Whose part a model is asked to take."""
    instructions = str(body["messages"][0]["content"])
    if "plays a customer of a support desk" in instructions:
        return "judge"
    return "user" if instructions.startswith("You are a customer") else "assistant"


def converse(body: dict[str, Any]) -> str:
    """A customer who stops after one answer, an assistant who gives one, and a judge who is content; in any form."""
    instructions = str(body["messages"][0]["content"])
    if part(body) == "judge":
        return "yes"
    if part(body) == "user":
        said = STOP if "I see." in str(body["messages"]) else "My order is late."
        return f"Thought: {SECRET}\nReply: {said}" if "Reply:" in instructions else said
    return "Thought: hm\nAction: " + respond("I see.") if "Action:" in instructions else "I see."


@contextmanager
def served(answer: Callable[[dict[str, Any]], str] = converse) -> Iterator[Any]:
    """A server of the models "tiny" and "critic" in a thread of its own, beside rollouts that hold this one."""
    pytest.importorskip("aiohttp")
    from tests.fake_server import FakeServer

    server, loop = FakeServer(answer=answer, models=["tiny", "critic"]), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(10)
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def seat_all(seats: Sequence[str], id: str = MINI, **options: Any) -> dict[str, Policy]:
    scenario = ScenarioSpec(id, options)
    return load_policies(assign_seats(map(parse_assignment, seats), scenario.inspect()), scenario)


def play_mini(*seats: str, tasks: int = 1) -> list[Episode]:
    seating = seat_all(seats)
    jobs = [Job(seed, seating, options={"task": seed}) for seed in range(tasks)]
    episodes = collect(lambda: marl_gem.make(MINI), jobs)
    assert not any(episode.error for episode in episodes), episodes[0].error
    return episodes


def asked_as(server: Any, who: str) -> list[dict[str, Any]]:
    return [call.body for call in server.calls if part(call.body) == who]


def test_the_thought_of_a_user_that_a_server_plays_never_reaches_the_assistant() -> None:
    with served() as server:
        (episode,) = play_mini(f"user=tiny@{server.url},strategy=react", f"assistant=tiny@{server.url}")
    first, last = episode.turns_of("user")
    assert first.response.text == "My order is late." and first.response.reasoning == SECRET
    assert last.response.text == STOP and episode.ending == "terminated"
    assert SECRET in json.dumps(asked_as(server, "user")[1]), "the user remembers it"
    (heard,) = asked_as(server, "assistant")
    assert SECRET not in json.dumps(heard) and heard["messages"][-1]["content"] == "My order is late."
    assert episode.models == {"user": "tiny (react)", "assistant": "tiny"}


def test_one_name_is_another_strategy_in_the_other_seat() -> None:
    with served() as server:
        both = f"tiny@{server.url},strategy=react"
        (episode,) = play_mini(f"user={both}", f"assistant={both}")
    told = {who: asked_as(server, who)[0]["messages"][0]["content"] for who in ("user", "assistant")}
    assert "Reply:" in told["user"] and "Action:" not in told["user"]
    assert "Action:" in told["assistant"] and "Reply:" not in told["assistant"]
    assert [turn.response.text for turn in episode.turns] == ["My order is late.", "I see.", STOP]
    assert episode.turns_of("assistant")[0].response.reasoning == "hm"


@pytest.mark.parametrize(("judge", "critic"), [("", "tiny"), (",judge=critic@{url},temperature=0.5", "critic")])
@pytest.mark.parametrize("strategy", ["verify", "reflect"])
def test_the_model_judges_itself_or_another_one_does(strategy: str, judge: str, critic: str) -> None:
    def refuse(body: dict[str, Any]) -> str:
        return "no: too blunt" if part(body) == "judge" else converse(body)

    with served(refuse) as server:
        who = f"tiny@{server.url},strategy={strategy}{judge.format(url=server.url)}"
        (episode,) = play_mini(f"user={who}", f"assistant=tiny@{server.url}")
    assert episode.models["user"] == f"tiny ({strategy} by {critic})"
    assert [body["model"] for body in asked_as(server, "judge")] == [critic] * 4
    asked = asked_as(server, "user")
    assert [body["model"] for body in asked] == ["tiny"] * 6
    told_why = [False, strategy == "reflect", strategy == "reflect"]
    assert ["too blunt" in str(body["messages"]) for body in asked] == told_why * 2
    opening = episode.turns_of("user")[0].response
    assert opening.text == "My order is late." and opening.usage["prompt_tokens"] == 7 * (3 + 2), "limits see them all"


def test_few_shot_shows_dialogues_about_train_tasks() -> None:
    with served() as server:
        episodes = play_mini(f"user=tiny@{server.url}", f"assistant=tiny@{server.url},strategy=few-shot", tasks=3)
    assert episodes[0].models["assistant"] == "tiny (5-shot)"
    asked = asked_as(server, "assistant")
    told = {str(body["messages"][0]["content"]) for body in asked}
    domain = marl_gem.make(MINI).domain  # type: ignore[attr-defined]
    dialogues = gold_dialogues(domain)
    assert len(dialogues) == len(domain.splits["train"]) and len(set(dialogues)) == len(dialogues)
    assert len(told) == 3, "they are drawn anew for each episode"
    for text in told:
        shown = [dialogue for dialogue in dialogues if dialogue in text]
        assert len(shown) == text.count("\nExample ") == 5
        assert not any(task.instruction in text for task in domain.splits["test"])
    assert asked[0]["tools"], "and it calls tools by itself"


def test_few_shot_makes_its_examples_also_where_an_event_loop_is_running() -> None:
    async def seat() -> Policy:
        gold_dialogues.cache_clear()
        return seat_all([f"user=tiny@{URL}", f"assistant=tiny@{URL},strategy=few-shot"])["assistant"]

    assert asyncio.run(seat()).name == "tiny (5-shot)"


@pytest.fixture
def desk(restored_registry: None) -> str:
    """The desk with one ticket, by an id of its own; it has no train tasks."""
    marl_gem.register("desk:Ticket-v0", lambda: TauEnv(DESK), agents=2)
    register_strategies("desk:Ticket-v0")
    return "desk:Ticket-v0"


def test_a_domain_of_ones_own_has_them_too(desk: str) -> None:
    assert seat_all([f"user=tiny@{URL},strategy=react", f"assistant=tiny@{URL}"], desk)["user"].name == "tiny (react)"
    with pytest.raises(
        ConfigError, match=r"train tasks of desk, which it does not have, only test; in Python, .*few_sh"
    ):
        seat_all([f"user=tiny@{URL}", f"assistant=tiny@{URL},strategy=few-shot"], desk)


@pytest.mark.parametrize(
    ("seat", "told"),
    [
        (f"user=tiny@{URL},strategy=reflection", "offers official, react, reflect, verify. Did you mean 'reflect'"),
        (f"user=tiny@{URL},strategy=few-shot", f"{MINI} has no strategy 'few-shot' for 'user'"),
        (f"assistant=tiny@{URL},strategy=verify", "'verify' for 'assistant'; it offers act, few-shot, official, react"),
        (f"assistant=tiny@{URL},strategy=react,judge=tiny@{URL}", "the strategy 'react' of 'assistant' needs no judge"),
        (f"assistant=tiny@{URL},strategy=few-shot", "train tasks of retail-mini, which are being played"),
    ],
)
def test_a_strategy_that_the_seat_does_not_have(seat: str, told: str) -> None:
    other = {"user": "assistant", "assistant": "user"}[seat.partition("=")[0]]
    with pytest.raises((RegistryError, ConfigError), match=told):
        seat_all([seat, f"{other}=scripted:oracle"], split="train")


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "200"})


@pytest.mark.slow
def test_a_grid_tells_strategies_apart_and_goes_on(tmp_path: Path) -> None:
    with served() as server:
        tiny = f"tiny@{server.url}"
        asked = ["eval", MINI, "--grid", "--seat", f"user={tiny}", "--seat", f"user={tiny},strategy=react"]
        for strategy in ("act", "few-shot"):
            asked += ["--seat", f"assistant={tiny},strategy={strategy}"]
        asked += ["--cache", str(tmp_path / "answers.sqlite"), "--out"]
        begun = run(*asked, tmp_path / "grid", "-n", 2)
        assert begun.exit_code == 0, begun.output
        calls = len(server.calls)
        more = run("eval", *asked[-3:], tmp_path / "grid", "--resume", "-n", 3)
        assert more.exit_code == 0, more.output
        assert len(server.calls) == calls * 3 // 2, "two of the three tasks were played already"
        assert run(*asked, tmp_path / "again", "-n", 3).exit_code == 0
        assert len(server.calls) == calls * 3 // 2, "and the cache knows all of them"
        others = [str(word).replace("strategy=act", "strategy=react") for word in asked]
        refused = run(*others, tmp_path / "grid", "--resume", "-n", 3)
        assert isinstance(refused.exception, ConfigError) and "strategy=act" in str(refused.exception)
    report = json.loads((tmp_path / "grid" / "report.json").read_text())
    assert (report["grid"]["rows"], report["grid"]["columns"]) == (
        ["tiny", "tiny (react)"],
        ["tiny (act)", "tiny (5-shot)"],
    )
    players = report["matches"][3]["players"]
    assert players["user"] == {"who": f"{tiny},strategy=react", "label": "tiny (react)", "model": "tiny (react)"}
    assert sorted(path.name for path in (tmp_path / "grid").iterdir() if path.is_dir()) == [
        "01_tiny_tiny-act",
        "02_tiny_tiny-5-shot",
        "03_tiny-react_tiny-act",
        "04_tiny-react_tiny-5-shot",
    ]


def test_a_scenario_is_listed_with_who_may_sit_in_it() -> None:
    listed = run("list", MINI).stdout.split()
    assert {"scripted:oracle", "MODEL,strategy=verify[,judge=MODEL]", "MODEL,strategy=few-shot"} <= set(listed)
    assert listed[listed.index("MODEL,strategy=act") - 1] == "assistant"
    assert "no strategies of its own" in run("list", "game:KuhnPoker-v0").stdout
