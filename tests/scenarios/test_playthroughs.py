"""Every scenario that works here has a playthrough, and plays as it says there, line by line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import marl_gem
from marl_gem import MultiAgentEnv, ParallelSelector, Role, SequentialSelector, ToolSpec, registry
from marl_gem.errors import RecordError, UnknownScenario
from marl_gem.testing import playthrough, playthrough_file, replay
from marl_gem.types import Metadata
from tests.suites import sampled

FOLDER = Path(__file__).parents[1] / "playthroughs"
ALL = [scenario.id for scenario in marl_gem.list()]
AVAILABLE = [scenario.id for scenario in sampled(marl_gem.list()) if not scenario.unavailable]


BORROWED = {"tau:retail-v0", "tau:airline-v0"}
"""Played with data that may not be copied here, not even into a playthrough."""

TO = f"--out {FOLDER.relative_to(FOLDER.parents[2])}"


@pytest.mark.parametrize("id", AVAILABLE)
def test_a_scenario_plays_as_it_did(id: str) -> None:
    file = FOLDER / playthrough_file(id)
    if not file.exists():
        if id in BORROWED:
            pytest.skip("its data may not be copied here; its -mini-v0 has a playthrough")
        if marl_gem.make(id).blocking:
            pytest.skip("it plays with a service over the network")
        pytest.fail(f"{id} has none; read what this writes and commit it: marl-gem playthrough {id} {TO}", False)
    then = file.read_text("utf-8")
    now = replay(then)
    if now != then:
        changes = "\n".join(difflib.unified_diff(then.splitlines(), now.splitlines(), "then", "now", lineterm="", n=2))
        command = re.search(r"marl-gem .*", then)
        pytest.fail(f"{id} plays differently now. If that is meant: {command and command[0]} {TO}\n{changes}", False)


def test_every_playthrough_is_of_a_scenario() -> None:
    expected = {FOLDER / playthrough_file(id) for id in ALL}
    strays = [str(file) for file in FOLDER.rglob("*") if file.is_file() and file not in expected]
    assert strays == [], "these belong to no scenario that is registered; delete them"


def test_playthroughs_are_small_and_any_editor_shows_them() -> None:
    for file in FOLDER.rglob("*.txt"):
        text = file.read_bytes().decode("utf-8")
        assert len(text) < 12_000, file
        assert not re.search(r"[^\S\n ]|[\x00-\x09\x7f-\x9f\u2028\ufeff\ud800-\udfff]", text), file


# What a playthrough tells


class Duel(MultiAgentEnv):
    """Both say a number at once, for some rounds; a guest joins in the first one."""

    possible_agents = ("left", "right")
    selector = ParallelSelector()
    metadata = Metadata(zero_sum=True, turn_order="parallel", reward_range=(-1.0, 1.0), joins=True)
    greeting = "Say a number."

    def __init__(self, rounds: int = 9, guests: bool = True) -> None:
        self.rounds, self.guests = rounds, guests

    def role(self, agent: str) -> Role:
        return Role(f"You are {agent}.", (ToolSpec("look", "Looks.", {"type": "object"}),))

    def observe(self, agent: str) -> Any:
        if agent == "guest":
            return [{"type": "text", "text": "Welcome."}, {"type": "image", "image": "data:" + "0" * 1000}]
        return f"{self.greeting}\n\nIt is round {self.steps}.\t\x00\ud800\n" + f"A long line {'.' * 60}\n" * 30

    def legal_actions(self, agent: str) -> list[str] | None:
        return [f"[{number}]" for number in range(20)] if agent == "left" else None

    def _process_actions(self, actions: dict[str, str]) -> None:
        self.infos["left"]["heard"] = actions["right"]
        if self.steps == 1 and self.guests:
            self.add_agent("guest")
        if self.steps == self.rounds:
            self.rewards = {"left": 1.0, "right": -1.0}
            self.terminations = dict.fromkeys(self.agents, True)


class Replier(MultiAgentEnv):
    """Shows what was said last."""

    possible_agents = ("a",)
    selector = SequentialSelector()
    max_steps = 3

    def _reset(self, options: Mapping[str, Any]) -> None:
        self.said = 'b says "[nothing]"'

    def observe(self, agent: str) -> str:
        return self.said

    def legal_actions(self, agent: str) -> list[str]:
        return ['a says "\ud800"', 'step 3\n4 {"a": ""} 00000000']

    def _process_actions(self, actions: dict[str, str]) -> None:
        self.said = actions["a"]


@pytest.fixture
def register() -> Iterator[Callable[[str, type[MultiAgentEnv]], None]]:
    """Registers a scenario for the time of a test, or until another takes its id."""
    with ExitStack() as stack:

        def register(id: str, made_by: type[MultiAgentEnv]) -> None:
            stack.close()
            stack.enter_context(registry.preserved())
            marl_gem.register(id, made_by, agents=(1, 2))

        yield register


def test_what_it_tells(register: Any) -> None:
    register("test:Duel-v0", Duel)
    text = playthrough("test:Duel-v0", seed=4)
    assert replay(text) == text == playthrough("test:Duel-v0", seed=4)
    assert text.startswith(
        "# What happened, and must happen again. Made by:\n#   marl-gem playthrough test:Duel-v0 --seed 4\n"
        "scenario: test:Duel-v0\nseed: 4\nagents: left, right\n"
        "metadata: zero-sum, parallel, rewards from -1 to 1, agents may join\n"
        '\nrole of left\n  | You are left.\n  tool look: {"type": "object"}\n  | Looks.\n'
    )
    assert re.search(r"\n\nrole of guest\n  \| You are guest\.\n(.*\n){2}\nstep 2\n", text)
    assert "left sees\n  | Say a number.\n  |\n  | It is round 0.\\t\\x00\\ud800\n  | A long line" in text
    assert re.search(r"\n  \.\.\. \d+ more characters; all of it is [0-9a-f]{8}\n", text)
    assert re.search(r"\n  legal: \[0\], \[1\], .*, \[7\], \.\.\. 20 in all [0-9a-f]{8}\n", text)
    assert re.search(r'guest sees\n  \| Welcome\.\n  \| \{"image": "data:0+ \.\.\. 795 more characters; all', text)
    assert re.search(r'\ninfo of left: \{"heard": ".*"\}\n', text)
    assert re.search(r'\n\n7 \{"left": "\[\d+\]", "right": ".*", "guest": ".*"\} [0-9a-f]{8}\n8 ', text)
    assert re.search(r"\nrewards: left \+1, right -1, guest \+0\n(.*\n)*left is terminated and sees\n", text)
    assert text.endswith("\nover after 9 steps\nreturns: left +1, right -1, guest +0\n")


def test_options_are_part_of_it(register: Any) -> None:
    register("test:Duel-v0", Duel)
    text = playthrough("test:Duel-v0", options={"rounds": 2, "guests": False})
    assert "--seed 0 -o guests=false -o rounds=2\n" in text
    assert text.endswith("over after 2 steps\nreturns: left +1, right -1\n")
    assert replay(text) == text


def test_a_long_episode_stops(register: Any) -> None:
    register("test:Duel-v0", Duel)
    text = playthrough("test:Duel-v0", steps=3)
    assert text.endswith("stopped after 3 steps\nreturns: left +0, right +0, guest +0\n")
    assert replay(text) == text


def test_texts_that_look_like_playthroughs_do_no_harm(register: Any) -> None:
    register("test:Replier-v0", Replier)
    for seed in range(8):
        text = playthrough("test:Replier-v0", seed)
        assert replay(text) == text
        assert text.count("\na says ") == 3


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"greeting": "Say any number."}, "  | Say any number."),
        ({"metadata": Metadata(joins=True)}, "metadata: agents may join"),
        ({"role": lambda self, agent: Role()}, "role of left"),
        ({"legal_actions": lambda self, agent: None}, None),
        ({"observe": lambda self, agent: Duel.observe(self, agent) + "!"}, None),  # beyond where it is cut
    ],
)
def test_whatever_changes_is_seen(register: Any, change: dict[str, Any], line: str | None) -> None:
    register("test:Duel-v0", Duel)
    then = playthrough("test:Duel-v0", options={"guests": False})
    register("test:Duel-v0", type("Duel", (Duel,), change))
    now = replay(then)
    assert now != then
    assert line is None or line in now.splitlines()


def test_a_change_in_a_step_told_in_brief_is_seen_there(register: Any) -> None:
    class Later(Duel):
        def observe(self, agent: str) -> Any:
            return super().observe(agent) if self.steps != 8 else "Something else."

    register("test:Duel-v0", Duel)
    then = playthrough("test:Duel-v0").splitlines()
    register("test:Duel-v0", Later)
    now = replay("\n".join([*then, ""])).splitlines()
    differing = [one for one, other in zip(then, now, strict=True) if one != other]
    assert len(differing) == 1 and differing[0].startswith('8 {"left": ')


def test_where_the_actions_no_longer_fit_it_stops(register: Any) -> None:
    class Alone(Duel):
        selector = SequentialSelector()  # type: ignore[assignment]

        def _process_actions(self, actions: dict[str, str]) -> None:
            pass

    register("test:Duel-v0", Duel)
    then = playthrough("test:Duel-v0")
    register("test:Duel-v0", Alone)
    assert replay(then).splitlines()[-1].startswith("cannot go on: test:Duel-v0: actions must come from exactly")


def test_what_is_no_playthrough_is_refused() -> None:
    for text in ("", "hello", "scenario: game:KuhnPoker-v0\n\n", "seed: 1\n\nstep 1\n"):
        with pytest.raises(RecordError, match="this is no playthrough"):
            replay(text)
    with pytest.raises(UnknownScenario):
        playthrough("game:NoSuchGame-v0")
