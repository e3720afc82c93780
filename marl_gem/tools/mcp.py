"""The tools of an MCP server, as tools of agents.

    marl-gem check game:KuhnPoker-v0 --tool "mcp:command=python my_server.py"

Each agent of an episode has a session of its own, with the same state for all its calls.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import Mapping
from functools import partial
from typing import Any

from marl_gem.errors import ConfigError, MissingPackage, ResourceError
from marl_gem.faults import message_of
from marl_gem.tools.context import Context
from marl_gem.tools.functions import Tool, tool_spec
from marl_gem.tools.names import makes_tools
from marl_gem.tools.resources import Resource, ResourcePool, in_resource_loop
from marl_gem.tools.result import ToolResult
from marl_gem.types import ContentPart


@makes_tools
def mcp(
    command: str = "", url: str = "", *, server: Any = None, size: int = 64, timeout: float = 60.0, keep: bool = False
) -> list[Tool]:
    """The tools of an MCP server. It is asked for them once.

    Args:
        command: the command line of a server that speaks over its standard streams.
        url: the address of a server that speaks HTTP.
        server: a server in this process, such as an `MCPServer`.
        size: the most sessions at the same time.
        timeout: seconds that a start or a call may take.
        keep: whether a session is used again by the next episode, for servers that keep nothing; else it is ended.

    Raises:
        ConfigError: none of the three is given, or more than one.
        ResourceError: the server cannot be started, or does not answer.
        MissingPackage: the package mcp is not installed.
    """
    if sum(map(bool, (command, url, server is not None))) != 1:
        raise ConfigError("mcp: name a server by its command or its url, as in mcp:command=python my_server.py")
    try:
        from mcp import StdioServerParameters
    except ImportError as error:
        raise MissingPackage("mcp", "mcp", "the tools of an MCP server") from error
    if command:
        program, *arguments = shlex.split(command)
        where: Any = StdioServerParameters(command=program, args=arguments)
    else:
        where = url or server
    pool = ResourcePool(
        partial(Session, where, keep), size, timeout, name=f"MCP server {command or url or 'in process'}"
    )
    with pool.lease() as session:
        return [_tool(listed, pool, timeout) for listed in session.tools]


class Session(Resource):
    """A session with a server. It lives in a task of its own, because a client must be closed where it was opened."""

    def __init__(self, where: Any, keep: bool) -> None:
        self._where, self._keep = where, keep
        self._ending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._client: Any = None
        self._dead = False
        self.tools: list[Any] = []

    async def start(self) -> None:
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._serve(ready))
        await ready

    async def reset(self) -> None:
        if not self._keep:
            raise NotImplementedError("what a server keeps of a session is unknown, so another one is started")

    async def healthy(self) -> bool:
        return self._task is not None and not self._task.done() and not self._dead

    async def stop(self) -> None:
        self._ending.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=5.0)
            self._task.cancel()

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool; an error of the tool is a result.

        Raises:
            ResourceError: the server has ended.
        """
        try:
            result = await self._client.call_tool(name, dict(arguments))
        except Exception as error:
            if await self._answers():
                raise
            self._dead = True
            raise ResourceError(f"the MCP server ended before it answered {name}: {message_of(error)}") from error
        parts = [_part(content) for content in result.content]
        texts = [part["text"] for part in parts if part["type"] == "text"]
        content = "\n".join(texts) if len(texts) == len(parts) else parts
        return ToolResult(
            f"Error: {content}" if result.is_error and isinstance(content, str) else content,
            "refused" if result.is_error else "",
        )

    async def _answers(self) -> bool:
        """Whether the server still answers anything."""
        try:
            async with asyncio.timeout(5.0):
                await self._client.list_tools()
        except Exception:
            return False
        return True

    async def _serve(self, ready: asyncio.Future[None]) -> None:
        from mcp import Client

        try:
            async with Client(self._where, cache=None) as client:
                self._client = client
                cursor, first = None, True
                while first or cursor:
                    listed = await client.list_tools(cursor=cursor)
                    self.tools += listed.tools
                    cursor, first = listed.next_cursor, False
                if not ready.done():
                    ready.set_result(None)
                await self._ending.wait()
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error if isinstance(error, Exception) else ConnectionError("it was cancelled"))
            elif isinstance(error, Exception):
                logging.getLogger(__name__).info("a session with an MCP server ended: %s", error)
            if not isinstance(error, Exception):
                raise


def _tool(listed: Any, pool: ResourcePool[Session], timeout: float) -> Tool:
    async def run(arguments: dict[str, Any], context: Context) -> Any:
        async def use(resources: Mapping[str, Any], inner: Context) -> ToolResult:
            result: ToolResult = await resources["session"].call(listed.name, arguments)
            return result

        return await in_resource_loop(context.leases.use(f"agent {context.agent}", {"session": pool}, use, context))

    return Tool(tool_spec(listed.name, listed.description or "", listed.input_schema), run, timeout=timeout)


def _part(content: Any) -> ContentPart:
    """A part of an answer: text and images as they are, others as JSON."""
    if content.type == "text":
        return {"type": "text", "text": content.text}
    if content.type == "image":
        return {"type": "image", "url": f"data:{content.mime_type};base64,{content.data}"}
    return {"type": "text", "text": content.model_dump_json()}
