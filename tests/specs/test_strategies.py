"""Strategies and scripted policies, which come with a scenario, by a policy's text."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import marl_gem
from marl_gem import registry
from marl_gem.errors import MarlGemError, RegistryError
from marl_gem.llm.models import Models
from marl_gem.policies import Policy, ScriptedPolicy
from marl_gem.rollout import Job, collect
from marl_gem.specs import PolicySpec, ScenarioSpec, load_policies
from marl_gem.specs.loading import MAX_TOKENS
from marl_gem.types import Role

pytest.importorskip("aiohttp")

from tests.event_loop import async_test
from tests.fake_server import FakeServer
from tests.policy_texts import KUHN, URL, answer, load
from tests.toys import Chat

# Strategies of a seat


class Instructed:
    """A policy whose instructions go on with `how`."""

    def __init__(self, policy: Policy, how: str, judge: Policy | None = None) -> None:
        self.policy, self.how, self.judge = policy, how, judge

    @property
    def name(self) -> str:
        return f"{self.policy.name} ({self.how}{f' under {self.judge.name}' if self.judge else ''})"

    def agent(self, agent_id: str, role: Role, seed: int) -> Any:
        return self.policy.agent(agent_id, Role(f"{role.instructions} {self.how}"), seed)


@pytest.fixture
def strategies(restored_registry: None) -> None:
    """Strategies of Kuhn poker: "opener" of both agents, which differs between them, "judged" of the first."""
    registry.register_strategy(KUHN, "player_0", "opener", Instructed, how="opens")
    registry.register_strategy(KUHN, "player_1", "opener", Instructed, how="waits")
    registry.register_strategy(KUHN, "player_0", "judged", Instructed, needs=["judge"], how="is judged")


@async_test
async def test_a_strategy_depends_on_the_seat(strategies: None) -> None:
    async with FakeServer() as server:
        text = f"tiny@{server.url},strategy=opener,temperature=0.5"
        first, second = (load(text, agents=[agent]) for agent in ("player_0", "player_1"))
        await answer(first)
        await answer(second)
        spec = PolicySpec.parse(text)
        seating = load_policies({"player_0": spec, "player_1": spec}, KUHN)
        for agent, policy in seating.items():
            await policy.agent(agent, Role("You play poker."), 7).act("Check or bet?", {})
    message = [call.body["messages"][0]["content"] for call in server.calls]
    assert message == ["You play poker. opens", "You play poker. waits"] * 2
    assert (first.name, second.name) == ("tiny (opens)", "tiny (waits)")
    assert {call.body["temperature"] for call in server.calls} == {0.5}


@async_test
async def test_who_judges(strategies: None, tmp_path: Path) -> None:
    models = Models(tmp_path / "answers.sqlite")
    async with FakeServer(models=["tiny", "critic"]) as server:
        text = f"tiny@{server.url},strategy=judged"
        alone = load(text, agents=["player_0"], models=models)
        under = load(f"{text},judge=critic@{server.url},max_tokens=5", agents=["player_0"], models=models)
        assert (await answer(under.judge)).text == "ok"
    assert alone.judge is alone.policy and alone.name == "tiny (is judged under tiny)"
    assert under.judge.llm is models.get(f"critic@{server.url}"), "judges share models and their cache with all"
    assert under.policy.sampling.max_tokens == 5 and under.judge.sampling.max_tokens == MAX_TOKENS
    assert server.calls[0].body["model"] == "critic"


@pytest.mark.parametrize(
    ("agent", "text", "message"),
    [
        ("player_0", "strategy=open", r"has no strategy 'open' for 'player_0'; it offers judged, opener. Did you mean"),
        ("player_1", "strategy=judged", r"has no strategy 'judged' for 'player_1'; it offers opener\.$"),
        ("player_1", f"strategy=opener,judge=tiny@{URL}", "the strategy 'opener' of 'player_1' needs no judge"),
    ],
)
def test_strategies_that_make_no_sense(strategies: None, agent: str, text: str, message: str) -> None:
    with pytest.raises(MarlGemError, match=message):
        load(f"tiny@{URL},{text}", agents=[agent])


def test_strategies_where_there_are_none() -> None:
    with pytest.raises(RegistryError, match=f"{KUHN} has no strategy 'react' for 'player_0'; it offers none"):
        load(f"tiny@{URL},strategy=react", agents=["player_0"])


# Scripted policies


CARDS = "cards:Kuhn-v0"


@pytest.fixture
def scripted(restored_registry: None, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any, Any]]:
    """A family of two scenarios with policies; the list holds what the policies' makers were called with."""
    calls: list[tuple[str, Any, Any]] = []

    def passing(scenario: str, options: Mapping[str, Any], text: str = "[check]") -> Policy:
        calls.append((scenario, dict(options), text))
        return ScriptedPolicy(lambda observation, info: text, "passing")

    module = ModuleType("of_scripts")
    module.passing = passing  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "of_scripts", module)
    for id in (CARDS, "cards:Again-v0"):
        marl_gem.register(id, "marl_gem.scenarios.games.kuhn_poker:KuhnPoker", agents=2)
    registry.register_policy("cards", "calm", passing)
    registry.register_policy(CARDS, "bold", "of_scripts:passing", text="[bet]", description="Always bets.")
    return calls


def test_a_scenarios_own_policies(scripted: list[Any]) -> None:
    scenario = ScenarioSpec(CARDS, {"max_steps": 9})
    seats = {"player_0": PolicySpec.parse("scripted:calm"), "player_1": PolicySpec.parse("scripted:bold")}
    (episode,) = collect(scenario.make, [Job(1, load_policies(seats, scenario))])
    assert [turn.response.text for turn in episode.turns][:2] == ["[check]", "[bet]"]
    assert scripted == [(CARDS, {"max_steps": 9}, "[check]"), (CARDS, {"max_steps": 9}, "[bet]")]
    assert registry.policies(CARDS)["bold"].description == "Always bets."


def test_a_familys_policies_and_a_scenarios_own_come_together(scripted: list[Any]) -> None:
    assert set(registry.policies(CARDS)) == {"calm", "bold"}
    assert set(registry.policies("cards:Again-v0")) == {"calm"}
    registry.register_policy(CARDS, "calm", "of_scripts:passing", text="[bet]")
    registry.make_policy(CARDS, "calm")
    assert scripted[-1][2] == "[bet]", "the scenario's own hides its family's"


def test_a_policy_gets_the_options_that_its_scenario_is_registered_with(scripted: list[Any]) -> None:
    marl_gem.register("cards:Short-v0", "marl_gem.scenarios.games.kuhn_poker:KuhnPoker", max_steps=3, deck="short")
    load("scripted:calm", ScenarioSpec("cards:Short-v0", {"max_steps": 5}))
    assert scripted == [("cards:Short-v0", {"max_steps": 5, "deck": "short"}, "[check]")]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bald", r"has no scripted policy 'bald'; it offers bold, calm. Did you mean 'bold'\?"),
        ("oracle", "it offers bold, calm.$"),
    ],
)
def test_a_script_that_does_not_exist(scripted: list[Any], name: str, message: str) -> None:
    with pytest.raises(RegistryError, match=message):
        load(f"scripted:{name}", CARDS)


def test_scripts_where_there_are_none(scripted: list[Any]) -> None:
    marl_gem.register("test:Chat-v0", Chat)
    with pytest.raises(RegistryError, match="it offers none"):
        load("scripted:x", "test:Chat-v0")
    with pytest.raises(RegistryError, match="There is no scenario"):
        load("scripted:x", "no:Such-v0")


def test_a_scripts_name_is_taken_once(scripted: list[Any]) -> None:
    for name in ("calm", ""):
        with pytest.raises(RegistryError, match=r"needs another name than .*; it offers \['calm'\]"):
            registry.register_policy("cards", name, "of_scripts:passing")
