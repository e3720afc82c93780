"""Tools by name: on a command line, in a table, in a training file."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from marl_gem.cli import app
from marl_gem.errors import ConfigError, InvalidOption
from marl_gem.specs import ScenarioSpec
from marl_gem.tools import Tool, load_tools, makes_tools, names, register_tool, registered_tools, tool
from marl_gem.tools.calculator import calculator
from marl_gem.trainers.config import parse
from marl_gem.wrappers import ToolEnv

KUHN = "game:KuhnPoker-v0"

FILE = """
from marl_gem.tools import makes_tools, tool

@tool
def weather(city: str) -> str:
    return f"rain in {city}"

def double(number: int) -> int:
    return 2 * number

def bare(number):
    return number

@makes_tools
def several(count: int = 2):
    return [tool(name=f"tool_{index}")(double) for index in range(count)]
"""


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(names, "_registered", dict(names._registered))
    monkeypatch.setattr(names, "_loaded", {})
    yield


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "my_tools.py"
    path.write_text(FILE)
    return str(path)


def names_of(tools: list[Tool]) -> list[str]:
    return [made.name for made in tools]


def test_a_registered_tool_a_tool_and_a_function() -> None:
    def plain(text: str) -> str:
        return text

    assert names_of(load_tools(["calculator", tool(name="other")(plain), plain])) == ["calculator", "other", "plain"]
    assert load_tools("calculator") == [calculator] == load_tools(calculator)


def test_tools_in_a_file_and_in_a_module(file: str) -> None:
    assert names_of(load_tools([f"{file}:weather", f"{file}:double"])) == ["weather", "double"]
    assert load_tools("marl_gem.tools.calculator:calculator") == [calculator]


def test_equal_texts_give_the_same_tools(file: str) -> None:
    assert load_tools(f"{file}:weather")[0] is load_tools(f"{file}:weather")[0]


def test_a_factory_takes_values(file: str) -> None:
    register_tool("several", f"{file}:several", description="Some tools.")
    assert names_of(load_tools("several")) == ["tool_0", "tool_1"]
    assert names_of(load_tools("several:count=1")) == ["tool_0"]
    assert registered_tools()["several"] == "Some tools." and "calculator" in registered_tools()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("calculater", "there is no tool 'calculater'; there are calculator, .* Did you mean 'calculator'?"),
        ("calculator:digits=3", "'calculator:digits=3' takes no values"),
        ("calculator:three", "write name:parameter=value"),
        ("FILE:missing", "has no attribute 'missing'"),
        ("FILE:bare", "number lacks an annotation"),
        ("no_such_file.py:weather", "there is no file 'no_such_file.py'"),
        ("no_such_module:weather", "No module named 'no_such_module'"),
        ("several:size=3", "'several:size=3' cannot be made: TypeError"),
        ("", "there is no tool ''"),
    ],
)
def test_what_cannot_be_found_says_why(text: str, message: str, file: str) -> None:
    register_tool("several", f"{file}:several")
    with pytest.raises(ConfigError, match=message):
        load_tools(text.replace("FILE", file))


def test_names_that_cannot_be_registered() -> None:
    with pytest.raises(ConfigError, match="registered already"):
        register_tool("calculator", calculator)
    with pytest.raises(ConfigError, match="no name for a tool"):
        register_tool("two words", calculator)


# Where scenarios are named


def wrappers_of(spec: ScenarioSpec) -> list[str]:
    return [wrapper.name for wrapper in spec.wrappers]


def test_a_scenario_with_tools() -> None:
    spec = ScenarioSpec.parse({"id": KUHN, "tools": ["calculator"]})
    assert spec == ScenarioSpec.parse(KUHN, tools=["calculator"]) == ScenarioSpec.parse(spec.to_data())
    env = spec.make()
    assert isinstance(env, ToolEnv) and [made.name for made in env.role("player_0").tools] == ["calculator"]


def test_tools_stand_between_the_wrappers_that_change_actions_and_the_others() -> None:
    wrappers = ["time_limit=9", "parse_action=boxed", "show_history"]
    spec = ScenarioSpec.parse(KUHN, wrappers=wrappers, tools=["calculator"])
    assert wrappers_of(spec) == ["time_limit", "parse_action", "tools", "show_history"]
    assert spec.make().possible_agents == ("player_0", "player_1")
    assert wrappers_of(ScenarioSpec.parse(KUHN, wrappers=["show_history"], tools=["calculator"]))[0] == "tools"


def test_tools_that_cannot_be_used_are_refused_where_the_scenario_is_made() -> None:
    with pytest.raises(InvalidOption, match="there is no tool 'calc'"):
        ScenarioSpec.parse(KUHN, tools=["calc"]).make()
    with pytest.raises(ConfigError, match=r"scenario\.tools is a list"):
        ScenarioSpec.parse({"id": KUHN, "tools": "calculator"})


@pytest.mark.parametrize(
    "values",
    [
        {"scenario": KUHN, "tools": ["calculator"]},
        {"scenario": {"id": KUHN, "tools": ["calculator"]}},
        {"scenarios": [{"id": KUHN, "tools": ["calculator"]}]},
    ],
)
def test_tools_in_a_training_file(values: dict[str, Any]) -> None:
    config = parse(values, "test")
    assert config.scenarios[0].tools == ("calculator",)
    assert wrappers_of(config.scenarios[0].spec) == ["tools"] == wrappers_of(config.scenarios[0].test_spec)


def test_tools_on_the_command_line(file: str) -> None:
    result = CliRunner().invoke(app, ["check", KUHN, "--tool", f"{file}:weather", "--tool", "calculator"])
    assert result.exit_code == 0, result.output
    result = CliRunner().invoke(app, ["check", KUHN, "--tool", "calc"])
    assert result.exit_code != 0


def test_tools_are_light_to_import() -> None:
    code = "import sys, marl_gem.tools, marl_gem.wrappers; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert not loaded & {"torch", "numpy", "docstring_parser", "bm25s", "mcp"}


def test_a_marked_factory_is_no_tool_itself() -> None:
    @makes_tools
    def none() -> list[Tool]:
        return []

    register_tool("none", none)
    assert load_tools("none") == []
