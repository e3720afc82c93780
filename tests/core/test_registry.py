"""From an id to an env, and what is said when that fails."""

from __future__ import annotations

import importlib.metadata
import sys
from types import ModuleType
from typing import Any

import pytest

import marl_gem
from marl_gem import MultiAgentEnv, SequentialSelector, registry
from marl_gem.errors import ConfigError, InvalidOption, RegistryError, UnavailableScenario, UnknownScenario
from marl_gem.policies import Policy, ScriptedPolicy


class Echo(MultiAgentEnv):
    possible_agents = ("a",)
    selector = SequentialSelector()

    def __init__(self, greeting: str, loud: bool = False) -> None:
        self.greeting, self.loud = greeting, loud

    def observe(self, agent: str) -> str:
        return self.greeting

    def _process_actions(self, actions: dict[str, str]) -> None:
        pass


@pytest.fixture(autouse=True)
def echo(restored_registry: None) -> None:
    marl_gem.register("echo:Echo-v0", Echo, description="Says it again.", greeting="hello")


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("game:kuhnpoker-v0", "game:KuhnPoker-v0"),
        ("GAME:KUHNPOKER-V0", "game:KuhnPoker-v0"),
        ("KuhnPoker-v0", "game:KuhnPoker-v0"),
        ("game:KuhnPoker", "game:KuhnPoker-v0"),
        ("game:KuhnPokr-v0", "game:KuhnPoker-v0"),
        ("game:KuhnPoker-v1", "game:KuhnPoker-v0"),
        ("gam:KuhnPoker-v0", "game:KuhnPoker-v0"),
        ("Echo", "echo:Echo-v0"),
        ("tictactoe", "ta:TicTacToe-v0"),
        ("ta:TicTacTo-v0", "ta:TicTacToe-v0"),
    ],
)
def test_did_you_mean(asked: str, meant: str) -> None:
    with pytest.raises(UnknownScenario, match="Did you mean") as caught:
        marl_gem.make(asked)
    assert repr(meant) in str(caught.value) and "marl-gem list" in str(caught.value)


@pytest.mark.parametrize("asked", ["", ":", "xxxxxxxxxxxx:qqqqqqqqqq"])
def test_nothing_is_suggested_for_nonsense(asked: str) -> None:
    with pytest.raises(UnknownScenario, match="There is no scenario") as caught:
        registry.get(asked)
    assert not asked.startswith("x") or "Did you mean" not in str(caught.value)


def made(id: str, **options: Any) -> Any:
    return marl_gem.make(id, **options)


def test_make_gives_a_fresh_env_that_knows_its_id() -> None:
    env, other = made("echo:Echo-v0"), made("echo:Echo-v0", greeting="hi", loud=True)
    assert env is not other and env.scenario == "echo:Echo-v0"
    assert (env.greeting, env.loud, other.greeting, other.loud) == ("hello", False, "hi", True)
    assert Echo("hi").scenario == "Echo"


def test_an_unknown_option_is_refused_and_the_known_ones_told() -> None:
    with pytest.raises(InvalidOption, match=r"echo:Echo-v0: .*'volume'.* It takes: loud, max_steps"):
        marl_gem.make("echo:Echo-v0", volume=3)


def test_a_missing_option_is_told() -> None:
    marl_gem.register("test:Mute-v0", Echo)
    with pytest.raises(InvalidOption, match="'greeting'"):
        marl_gem.make("test:Mute-v0")


def test_max_steps() -> None:
    env = marl_gem.make("echo:Echo-v0", max_steps=2)
    env.reset()
    while not env.done:
        env.step({"a": ""})
    assert env.steps == 2
    assert marl_gem.make("echo:Echo-v0").max_steps is None


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "3"], ids=repr)
def test_max_steps_that_make_no_sense(wrong: Any) -> None:
    with pytest.raises(InvalidOption, match="max_steps is a whole number"):
        marl_gem.make("echo:Echo-v0", max_steps=wrong)


def test_unavailable() -> None:
    marl_gem.register("echo:Far-v0", "no.such.module:Thing", unavailable="it needs the moon; wait for night")
    with pytest.raises(UnavailableScenario, match="it needs the moon"):
        marl_gem.make("echo:Far-v0")
    assert "echo:Far-v0" in [scenario.id for scenario in marl_gem.list("echo")]


def test_a_taken_id_and_one_without_a_family() -> None:
    with pytest.raises(RegistryError, match="registered already"):
        marl_gem.register("echo:Echo-v0", Echo)
    for id in ("Echo-v0", "test:", ":Echo-v0", ""):
        with pytest.raises(RegistryError, match="family:Name-v0"):
            marl_gem.register(id, Echo)


def test_list() -> None:
    everything = [scenario.id for scenario in marl_gem.list()]
    assert everything == sorted(everything)
    assert {"game:KuhnPoker-v0", "echo:Echo-v0", "ta:TicTacToe-v0"} <= set(everything)
    assert [scenario.id for scenario in marl_gem.list("game")] == [id for id in everything if id.startswith("game:")]
    assert marl_gem.list("nothing") == []
    (echo,) = marl_gem.list("echo")
    assert (echo.description, echo.agents, echo.options) == ("Says it again.", (1, 1), {"greeting": "hello"})


def test_a_plug_in_is_imported_when_it_is_first_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = []

    class Point(importlib.metadata.EntryPoint):
        def load(self) -> ModuleType:
            loads.append(self.name)
            marl_gem.register("plug:Echo-v0", "plug_in:make", agents=(2, 4))
            return plug_in

    plug_in = ModuleType("plug_in")
    plug_in.make = lambda: Echo("plugged in")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "plug_in", plug_in)
    points = [Point("plug", "plug_in", registry.GROUP)]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda *, group: points if group == registry.GROUP else [])

    marl_gem.make("echo:Echo-v0")
    assert loads == []
    assert [made("plug:Echo-v0").greeting for _ in range(2)] == ["plugged in"] * 2
    assert registry.get("plug:Echo-v0").agents == (2, 4)
    marl_gem.list()
    assert loads == ["plug"]


def test_a_plug_in_that_cannot_be_loaded_leaves_the_others_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "broken_plug_in.py").write_text(
        "import marl_gem\nmarl_gem.register('broken:Half-v0', dict)\n"
        "marl_gem.registry.register_strategy('broken', 'a', 'half', dict)\nraise RuntimeError('no licence')"
    )
    monkeypatch.syspath_prepend(tmp_path)
    point = importlib.metadata.EntryPoint("broken", "broken_plug_in", registry.GROUP)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda *, group: [point])
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match=r"broken:\.\.\. of broken_plug_in .* RuntimeError: no licence"):
            assert "echo:Echo-v0" in [scenario.id for scenario in marl_gem.list()]
        with pytest.raises(RegistryError, match="no licence"):
            marl_gem.make("broken:Half-v0")


# Strategies


QUIET = ScriptedPolicy(["hello"], "quiet")
STRICT = ScriptedPolicy(["no"], "strict")


def marked(policy: Policy, mark: str = "!") -> Policy:
    return ScriptedPolicy([], f"{policy.name}{mark}")


def judged(policy: Policy, judge: Policy) -> Policy:
    return ScriptedPolicy([], f"{policy.name} by {judge.name}")


def greeted(policy: Policy, env: Echo, times: int) -> Policy:
    return ScriptedPolicy([], f"{policy.name}: {env.greeting * times} of {env.scenario}")


def named(agent: str, name: str, **given: Any) -> str:
    return registry.make_strategy("echo:Echo-v0", agent, name, QUIET, **given).name


def test_a_strategy_is_one_of_a_seat(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("of_strategies")
    module.marked = marked  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "of_strategies", module)
    registry.register_strategy("echo", "a", "loud", marked)
    registry.register_strategy("echo", "b", "loud", "of_strategies:marked", mark="?", description="Asks.")
    registry.register_strategy("echo:Other-v0", "a", "shy", marked)
    assert (named("a", "loud"), named("b", "loud")) == ("quiet!", "quiet?")
    offered = registry.strategies("echo:Echo-v0")
    assert {agent: list(names) for agent, names in offered.items()} == {"a": ["loud"], "b": ["loud"]}
    assert offered["b"]["loud"].description == "Asks."
    registry.register_strategy("echo:Echo-v0", "a", "loud", marked, mark="...")
    assert named("a", "loud") == "quiet...", "the scenario's own goes before its family's"
    assert named("b", "loud") == "quiet?"


def test_a_strategy_is_given_what_it_needs() -> None:
    registry.register_strategy("echo", "a", "judged", judged, needs=["judge"])
    registry.register_strategy("echo", "a", "greeted", greeted, needs=["env"], times=2)
    assert named("a", "judged") == "quiet by quiet", "by default a policy judges itself"
    assert named("a", "judged", judge=STRICT) == "quiet by strict"
    assert named("a", "greeted") == "quiet: hellohello of echo:Echo-v0"
    assert named("a", "greeted", options={"greeting": "hi"}) == "quiet: hihi of echo:Echo-v0"
    with pytest.raises(ConfigError, match="the strategy 'greeted' of 'a' needs no judge"):
        named("a", "greeted", judge=STRICT)


def test_a_strategy_that_does_not_exist_is_told_with_those_of_its_seat() -> None:
    with pytest.raises(RegistryError, match=r"echo:Echo-v0 has no strategy 'loud' for 'a'; it offers none\.$"):
        named("a", "loud")
    registry.register_strategy("echo", "a", "loud", marked)
    registry.register_strategy("echo", "a", "shy", marked)
    registry.register_strategy("echo", "b", "lout", marked)
    with pytest.raises(RegistryError, match=r"'lout' for 'a'; it offers loud, shy\. Did you mean 'loud'\?"):
        named("a", "lout")
    with pytest.raises(UnknownScenario):
        registry.strategies("echo:Ecko-v0")


def test_a_strategys_name_is_taken_once_in_a_seat() -> None:
    registry.register_strategy("echo", "a", "loud", marked)
    registry.register_strategy("echo", "b", "shy", marked)
    for name in ("loud", ""):
        with pytest.raises(RegistryError, match=r"another name than .* for a strategy of 'a'; it offers \['loud'\]"):
            registry.register_strategy("echo", "a", name, marked)
    with pytest.raises(RegistryError, match=r"'odd' needs \['moon'\]; there is only judge, env"):
        registry.register_strategy("echo", "a", "odd", marked, needs=["moon"])  # type: ignore[list-item]
