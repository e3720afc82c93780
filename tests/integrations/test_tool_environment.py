"""A scenario as a class whose methods are tools."""

from __future__ import annotations

import inspect

import pytest

from marl_gem.errors import ConfigError
from marl_gem.integrations import SeatRunner, Start
from marl_gem.integrations.tool_environment import OVER, tool_environment
from marl_gem.specs import ScenarioSpec
from tests.toys import NumberGame, always


def test_tools_of_the_role_are_methods_and_the_turn_stays_with_the_caller() -> None:
    spec = ScenarioSpec.parse(NumberGame, tools=["calculator"])
    environment = tool_environment(SeatRunner(spec, ["a"], {"b": always("7")}))()
    assert environment.act("1") == OVER and environment.get_reward() == 0.0
    text = environment.reset(start=Start(3).to_text(), prompt="ignored")
    assert text.startswith("You are a.") and text.endswith("step 0")
    calculator = environment.calculator  # type: ignore[attr-defined]
    assert list(inspect.signature(calculator).parameters) == ["expression"]
    assert "expression:" in calculator.__doc__
    assert "42" in calculator(expression="6 * 7")
    assert environment.act("2") == "step 2"
    assert environment.act("3") == OVER and environment.act("3") == OVER
    assert environment.get_reward() == 5.0 == environment.get_reward()
    environment.reset(start="3")
    assert environment.get_reward() == 0.0  # the model has left the episode before its end
    assert environment.act("3") == OVER


def test_several_seats_are_refused() -> None:
    with pytest.raises(ConfigError, match="one agent, not a, b"):
        tool_environment(SeatRunner(NumberGame))
