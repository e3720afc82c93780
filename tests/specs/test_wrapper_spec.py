"""Wrappers by name: texts, tables and the registry."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import marl_gem
from marl_gem import MultiAgentEnv, registry
from marl_gem.env import Step
from marl_gem.errors import ConfigError, InvalidOption, RegistryError
from marl_gem.overrides import read_value, write_value
from marl_gem.rollout import Job, collect
from marl_gem.specs import ScenarioSpec, WrapperSpec
from marl_gem.wrappers import TimeLimit, Wrapper
from tests.policy_texts import KUHN
from tests.toys import Chat, NumberGame, always


@pytest.mark.parametrize(
    ("text", "name", "values", "canonical"),
    [
        ("time_limit=20", "time_limit", {"max_steps": 20}, "time_limit,max_steps=20"),
        ("time_limit , max_steps = 20", "time_limit", {"max_steps": 20}, "time_limit,max_steps=20"),
        ("reward_clip", "reward_clip", {}, "reward_clip"),
        ("reward_clip=-1,high=0.5", "reward_clip", {"low": -1, "high": 0.5}, "reward_clip,low=-1,high=0.5"),
        (
            "parse_action=tagged:answer",
            "parse_action",
            {"parser": "tagged:answer"},
            "parse_action,parser=tagged:answer",
        ),
        (
            r"parse_action=matching:(\d),(\d),otherwise=empty",
            "parse_action",
            {"parser": r"matching:(\d),(\d)", "otherwise": "empty"},
            r"parse_action,parser=matching:(\d),(\d),otherwise=empty",
        ),
        ("record_episodes='7'", "record_episodes", {"path": "7"}, 'record_episodes,path="7"'),
    ],
)
def test_a_text_and_its_record(text: str, name: str, values: dict[str, Any], canonical: str) -> None:
    spec = WrapperSpec.parse(text)
    assert spec == WrapperSpec(name, values) and str(spec) == spec.to_data() == canonical
    assert WrapperSpec.parse(canonical) == spec == WrapperSpec.parse({"name": name, "values": values})


def test_what_no_text_can_say_is_a_table() -> None:
    spec = WrapperSpec("record_episodes", {"path": "a,b=c"})
    assert spec.to_data() == {"name": "record_episodes", "values": {"path": "a,b=c"}}
    assert WrapperSpec.parse(spec.to_data()) == spec


@pytest.mark.parametrize(
    "value", [1, -1.5, 1e-9, True, "x", "true", "1", "", "a b", [1, "x", [True]], {"a": {"b": 1}}], ids=repr
)
def test_values_are_written_as_they_are_read(value: Any) -> None:
    assert read_value(write_value(value)) == value


@pytest.mark.parametrize(
    ("source", "kind", "message"),
    [
        ("time_limt=20", RegistryError, "there is no wrapper 'time_limt'; there are .* Did you mean 'time_limit'"),
        ("", RegistryError, "there is no wrapper ''; there are episode_statistics, parse_action"),
        ("time_limit", InvalidOption, "missing a required argument: 'max_steps'. time_limit takes max_steps"),
        ("time_limit,steps=20", InvalidOption, "time_limit takes max_steps"),
        ("time_limit=20,max_steps=30", InvalidOption, "sets max_steps twice. time_limit takes max_steps"),
        ({"name": "time_limit", "value": 3}, ConfigError, "a wrapper is text or a table with name and values"),
    ],
    ids=str,
)
def test_what_is_no_wrapper(source: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        WrapperSpec.parse(source)


@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        ("time_limit=0", "the wrapper time_limit,max_steps=0: .* from 1 up, not 0. time_limit takes max_steps"),
        ("time_limit=soon", "not 'soon'. time_limit takes max_steps"),
        ("parse_action=box", "there is no parser 'box'; write boxed, tagged:TAG or matching:REGEX. parse_action takes"),
        ("parse_action=matching:(", "is no regular expression"),
        ("show_history=cht", "Did you mean 'chat'.*show_history takes view, template"),
        ("show_history,template=xml", "there is no template 'xml'; choose one of plain, json"),
    ],
)
def test_values_that_a_wrapper_refuses(wrapper: str, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        marl_gem.make(KUHN, wrappers=[wrapper])


def test_an_order_that_makes_no_sense() -> None:
    with pytest.raises(InvalidOption, match="The right order is"):
        marl_gem.make(KUHN, wrappers=["episode_statistics", "time_limit=1"])


@pytest.mark.parametrize(
    "wrapper",
    [
        "time_limit=3",
        "parse_action",
        "parse_action=tagged:move",
        "show_history=latest,template=json",
        "step_penalty=0.1",
        "reward_scale=2",
        "reward_clip",
        "episode_statistics",
    ],
)
def test_every_wrapper_that_ships_plays(wrapper: str) -> None:
    episodes = collect(ScenarioSpec.parse(NumberGame, wrappers=[wrapper]).make, [Job(0, always("2"))])
    assert not episodes[0].error and episodes[0].turns


def test_wrappers_in_the_order_of_their_names(tmp_path: Path) -> None:
    file = tmp_path / "episodes.jsonl"
    env = marl_gem.make("tests.toys:Chat", wrappers=["time_limit=2", "reward_scale=10", f"record_episodes={file}"])
    episodes = collect(lambda: env, [Job(0, always("hi"))])
    assert episodes[0].returns == {"a": 10.0, "b": 10.0}
    assert '"returns":{"a":10.0,"b":10.0}' in file.read_text(), "the record stands outside the scaled rewards"
    assert isinstance(env.unwrapped, Chat)  # type: ignore[attr-defined]


# Registration


class Shout(Wrapper):
    """A wrapper of another package."""

    changes = frozenset({"actions"})

    def __init__(self, env: MultiAgentEnv, mark: str = "!") -> None:
        super().__init__(env)
        self._mark = mark

    def step(self, actions: Mapping[str, str]) -> Step:
        return super().step({agent: f"{text.upper()}{self._mark}" for agent, text in actions.items()})


def test_a_wrapper_from_outside(restored_registry: None) -> None:
    registry.register_wrapper("shout", Shout, description="Actions in capitals.")
    registry.register_wrapper("shout2", "tests.specs.test_wrapper_spec:Shout")
    assert registry.wrappers()["shout"].parameters == ("mark",)
    env = ScenarioSpec.parse(Chat, wrappers=["shout=?"]).make()
    env.reset()
    observations, *_ = env.step({"a": "hi"})
    assert observations == {"b": "HI?"}
    assert WrapperSpec.parse("shout2=?").values == {"mark": "?"}


@pytest.mark.parametrize(
    ("name", "message"),
    [("time_limit", "a wrapper 'time_limit' is registered already"), ("time-limit", "is no name"), ("", "is no name")],
)
def test_names_of_wrappers(restored_registry: None, name: str, message: str) -> None:
    with pytest.raises(RegistryError, match=message):
        registry.register_wrapper(name, TimeLimit)


def test_a_plug_in_may_bring_wrappers(restored_registry: None) -> None:
    assert list(registry.wrappers()) == sorted(registry.wrappers())
    registry.register_wrapper("shout", Shout)
    with registry.preserved():
        registry.register_wrapper("whisper", Shout)
    assert "shout" in registry.wrappers() and "whisper" not in registry.wrappers()
