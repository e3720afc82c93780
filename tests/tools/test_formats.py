"""How calls are written in a response: native calls, tags, blocks of code, GEM's MCP tags."""

from __future__ import annotations

import time
from typing import Any

import pytest

from marl_gem.tools import tool
from marl_gem.tools.calls import BrokenCall
from marl_gem.tools.formats import FORMATS, call_format
from marl_gem.types import ToolCall


def search(query: str, top: int = 3) -> str:
    """Find passages."""
    return query


def shell(command: str) -> str:
    return command


def now() -> str:
    return "noon"


TOOLS = {made.name: made.spec for made in (tool(search), tool(shell), tool(now), tool(name="python")(shell))}


def calls(name: str, text: str) -> list[Any]:
    return call_format(name).read(text, TOOLS)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("tags", "I look. <search> Rome </search>", [("search", {"query": "Rome"})]),
        ("tags", "<search>a</search><shell>ls</shell>", [("search", {"query": "a"}), ("shell", {"command": "ls"})]),
        ("tags", "<search>Rome", [("search", {"query": "Rome"})]),
        ("tags", "<now></now>", [("now", {})]),
        ("tags", "<weather>Rome</weather> <search >x", []),
        ("tags", "<search><shell>ls</shell></search>", [("search", {"query": "<shell>ls</shell>"})]),
        ("fenced", "```python\nprint(1)\nprint(2)\n```", [("python", {"command": "print(1)\nprint(2)"})]),
        (
            "fenced",
            "a\n```bash\nls\n```\nb\n```py\n1\n```",
            [("shell", {"command": "ls"}), ("python", {"command": "1"})],
        ),
        ("fenced", "```\nprint(1)\n```\n```json\n{}\n```", []),
        ("fenced", "```python\nprint(1)", [("python", {"command": "print(1)"})]),
        ("fenced", "no code: ``` and ```", []),
        (
            "mcp",
            '<tool_call><tool_name>search</tool_name><arguments>{"query": "Rome"}</arguments></tool_call>',
            [("search", {"query": "Rome"})],
        ),
        ("mcp", "<tool_call><tool_name> now </tool_name></tool_call>", [("now", {})]),
        ("tool_call", '<tool_call>{"name": "now"}</tool_call>', [("now", {})]),
        ("tool_call", "no call", []),
    ],
)
def test_calls_in_a_text(name: str, text: str, expected: list[tuple[str, dict[str, Any]]]) -> None:
    assert calls(name, text) == [ToolCall(*call) for call in expected]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<tool_call>search Rome</tool_call>", "a call is <tool_name>"),
        ("<tool_call><tool_name>search</tool_name><arguments>{oops</arguments></tool_call>", "not JSON"),
        ("<tool_call><tool_name>search</tool_name><arguments>[1]</arguments></tool_call>", "must be an object"),
    ],
)
def test_broken_calls_say_why(text: str, reason: str) -> None:
    (call,) = calls("mcp", text)
    assert isinstance(call, BrokenCall) and reason in call.reason


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("part", ["<search>", "```python\n", "<tool_call>", "```", "<tool_name>", "\ud800`"], ids=ascii)
def test_any_text_is_read_in_linear_time(name: str, part: str) -> None:
    begun = time.perf_counter()
    calls(name, part * 50_000)
    assert time.perf_counter() - begun < 20  # quadratic time would be minutes


@pytest.mark.parametrize(
    ("name", "words"), [("tags", "<search>...</search>"), ("fenced", "```python"), ("mcp", "NAME")]
)
def test_a_format_that_models_do_not_know_is_explained(name: str, words: str) -> None:
    text = call_format(name).explain(list(TOOLS.values()))
    assert words in text and "- search(query: string, top?: integer): Find passages." in text
    assert call_format("tool_call").explain(list(TOOLS.values())) == ""
