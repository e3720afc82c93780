"""The tools of MCP servers: schemas, answers, images, errors, state, and servers that die."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from marl_gem.errors import ConfigError, ResourceError
from marl_gem.tools import Context, Tool, ToolResult, load_tools, names

pytest.importorskip("mcp")

from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from marl_gem.tools.mcp import mcp

SERVER = """
import os
from mcp.server.mcpserver import MCPServer

server = MCPServer("counter")
count = 0

@server.tool()
def next_number() -> str:
    "Counts."
    global count
    count += 1
    return f"{count} {os.getpid()}"

@server.tool()
def die() -> str:
    os._exit(1)

server.run()
"""


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(names, "_loaded", {})
    logging.disable(logging.CRITICAL)  # the servers log what their tools raise
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def tools() -> dict[str, Tool]:
    server = MCPServer("toy")

    @server.tool()
    def add(a: int, b: int = 1) -> int:
        """Add two numbers."""
        return a + b

    @server.tool(structured_output=False)
    def draw() -> list[Any]:
        return ["a dot", Image(data=b"dot", format="png")]

    @server.tool()
    def fail(how: str) -> str:
        if how == "politely":
            raise ToolError("no such file")
        raise ValueError("a secret of the server")

    return {made.name: made for made in mcp(server=server, keep=True)}


def call(tool: Tool, arguments: dict[str, Any], context: Context | None = None) -> ToolResult:
    return asyncio.run(tool.call(arguments, context))


def test_a_servers_tools_have_its_schemas(tools: dict[str, Tool]) -> None:
    spec = tools["add"].spec
    assert set(tools) == {"add", "draw", "fail"} and spec.description == "Add two numbers."
    assert spec.parameters["properties"]["a"]["type"] == "integer" and spec.parameters["required"] == ["a"]


def test_answers_images_and_errors(tools: dict[str, Tool]) -> None:
    assert call(tools["add"], {"a": 2, "b": 3}) == ToolResult("5")
    result = call(tools["draw"], {})
    assert result.text == "a dot" and result.images == [{"type": "image", "url": "data:image/png;base64,ZG90"}]
    refused = call(tools["fail"], {"how": "politely"})
    assert refused.error == "refused" and "no such file" in refused.text
    assert "secret" not in call(tools["fail"], {"how": "rudely"}).text
    wrong = call(tools["add"], {"a": "two"})
    assert wrong.error == "refused" and "valid integer" in wrong.text


def test_many_agents_at_the_same_time(tools: dict[str, Tool]) -> None:
    async def play() -> list[str]:
        results = await asyncio.gather(*(tools["add"].call({"a": number}) for number in range(20)))
        return [result.text for result in results]

    assert asyncio.run(play()) == [str(number + 1) for number in range(20)]


def test_a_server_is_named_by_one_of_three() -> None:
    for wrong in ({}, {"command": "a", "url": "b"}):
        with pytest.raises(ConfigError, match="name a server by its command or its url"):
            mcp(**wrong)


def test_a_server_that_cannot_be_started_is_no_fault_of_a_model(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="it cannot be started"):
        mcp(command=str(tmp_path / "no_such_program"), timeout=30.0)


@pytest.mark.slow
def test_a_server_in_a_process_keeps_an_agents_state_and_is_replaced_when_it_dies(tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    file.write_text(SERVER)
    count, die = load_tools(f"mcp:command={sys.executable} {file}")
    ann = Context("ann")
    (first, pid), (second, same) = (call(count, {}, ann).text.split() for _ in range(2))
    assert (first, second, pid) == ("1", "2", same)
    bob, other = call(count, {}, Context("bob", leases=ann.leases)).text.split()
    assert bob == "1" and other != pid
    os.kill(int(pid), signal.SIGKILL)
    for made in (count, die):
        with pytest.raises(ResourceError, match=f"ended before it answered {made.name}"):
            call(made, {}, ann)
        number, third = call(count, {}, ann).text.split()
        assert number == "1" and third not in (pid, other)
    ann.leases.release()
