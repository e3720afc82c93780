"""marl-gem mcp: a seat of a scenario as an MCP server, for agents that speak that protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing, suppress
from typing import Annotated, Any

import typer

from marl_gem import bounds
from marl_gem.cli.terminal import Options, Tools, Wrappers, number, read_scenario
from marl_gem.errors import ConfigError, MissingPackage
from marl_gem.policies import Info, Policy
from marl_gem.rollout import Job, stream
from marl_gem.runs.outcomes import outcomes
from marl_gem.seeding import derive_seed
from marl_gem.specs import ScenarioSpec, assign_seats, load_policies, parse_assignment
from marl_gem.tools.signature import usage
from marl_gem.types import ContentPart, Episode, Observation, Response, Role

MOST_CHARACTERS = 100_000
"""A longer action is refused."""


def serve(
    scenario: Annotated[str, typer.Argument(help="A scenario id, module:Class or path/to/file.py:Class.")],
    agent: Annotated[
        str | None, typer.Option("--as", metavar="AGENT", help="The seat of the client; by default the first.")
    ] = None,
    seats: Annotated[
        list[str] | None,
        typer.Option("--seat", metavar="AGENT=WHO", help="Who holds another seat; by default random. May be repeated."),
    ] = None,
    seed: Annotated[int, number(bounds.SEED, help="Fixes every random choice but the client's.")] = 0,
    wrappers: Wrappers = None,
    tools: Tools = None,
    options: Options = None,
) -> None:
    """Offer a seat as an MCP server over standard input and output: its tools are reset, observe and act.

    The server plays one episode at a time. It opens no port, and ends when its input ends.
    """
    spec = read_scenario(scenario, options, wrappers, tools)
    agents = spec.inspect().agents
    chosen = agent or agents[0]
    if chosen not in agents:
        raise ConfigError(f"{spec.id} has no agent {chosen!r}; its agents are {', '.join(agents)}")
    policies = load_policies(assign_seats(map(parse_assignment, seats or []), spec.inspect()), spec)
    mcp_server(SeatClient(spec, chosen, policies, seed)).run()


class SeatClient:
    """Plays episodes in which a client holds one seat.

    Args:
        spec: the scenario.
        agent: the client's seat.
        policies: who holds the other seats.
        seed: the seeds of episodes follow from it, where the client names none.
    """

    def __init__(self, spec: ScenarioSpec, agent: str, policies: Mapping[str, Policy], seed: int) -> None:
        self.spec, self.agent = spec, agent
        self._seating = {**policies, agent: _Seat(self)}
        self._seed, self._count = seed, 0
        self._play: asyncio.Task[Episode] | None = None
        self._turn = asyncio.Event()  # set while the client is asked for an action
        self._action: asyncio.Future[str] | None = None
        self._lock = asyncio.Lock()
        self.role, self.observation = Role(), ""  # type: Role, Observation

    async def reset(self, seed: int | None = None, task: int | None = None) -> list[ContentPart]:
        """Begin a new episode, and leave the one before; what the client is told first."""
        async with self._lock:
            await self.leave()
            if seed is None:
                seed = derive_seed(self._seed, "mcp", self._count)
            self._count += 1
            self._turn.clear()
            self.role = Role()
            job = Job(seed, self._seating, options={} if task is None else {"task": task})
            self._play = asyncio.create_task(self._episode(job))
            shown = await self._shown()
            return [*_introduction(self.role), *shown]

    async def observe(self) -> list[ContentPart]:
        """What the client was shown last."""
        self._playing()
        async with self._lock:
            return await self._shown()

    async def act(self, action: str) -> list[ContentPart]:
        """Take the client's turn, and wait for its next one or the end.

        Raises:
            ValueError: there is no episode, it is over, or the action is too long; the message says so.
        """
        if len(action) > MOST_CHARACTERS:
            raise ValueError(f"an action has at most {MOST_CHARACTERS:,} characters, not {len(action):,}")
        async with self._lock:
            if self._playing().done() or self._action is None:
                raise ValueError("the episode is over; call reset")
            self._turn.clear()
            self._action.set_result(action)
            return await self._shown()

    async def leave(self) -> None:
        """Leave the episode, if there is one."""
        if self._play is not None and not self._play.done():
            self._play.cancel()
            with suppress(asyncio.CancelledError):
                await self._play

    async def asked(self, observation: Observation) -> str:
        """The client's answer to an observation."""
        self.observation = observation
        self._action = asyncio.get_running_loop().create_future()
        self._turn.set()
        return await self._action

    def _playing(self) -> asyncio.Task[Episode]:
        if self._play is None:
            raise ValueError("no episode has begun; call reset")
        return self._play

    async def _episode(self, job: Job) -> Episode:
        async with aclosing(stream(self.spec.make, [job], concurrency=1)) as episodes:
            return await anext(episodes)

    async def _shown(self) -> list[ContentPart]:
        """The client's next observation, or how the episode ended."""
        play = self._playing()
        turn = asyncio.create_task(self._turn.wait())
        await asyncio.wait({play, turn}, return_when=asyncio.FIRST_COMPLETED)
        turn.cancel()
        if not play.done():
            return [*_parts(self.observation), _text("[It is your turn: call act.]")]
        self._action = None
        return _ending(play.result(), self.agent)


class _Seat:
    """The client's seat in an episode."""

    name = "mcp"

    def __init__(self, client: SeatClient) -> None:
        self._client = client

    def agent(self, agent_id: str, role: Role, seed: int) -> _Seat:
        self._client.role = role
        return self

    async def act(self, observation: Observation, info: Info) -> Response:
        return Response(await self._client.asked(observation))


def mcp_server(client: SeatClient) -> Any:
    """An `MCPServer` with the tools reset, observe and act.

    Raises:
        MissingPackage: the package mcp is not installed.
    """
    try:
        from mcp.server.mcpserver import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
    except ImportError as error:
        raise MissingPackage("mcp", "mcp", "an MCP server") from error
    about = f"A seat of {client.spec.id}: you are {client.agent}. Call reset, then act until the episode is over."
    server = MCPServer(f"marl-gem {client.spec.id}", instructions=about)

    @server.tool(structured_output=False)
    async def reset(seed: int | None = None, task: int | None = None) -> list[Any]:
        """Begin a new episode, and see your instructions and your first observation.

        seed: episodes with equal seeds begin equally; by default another one each time.
        task: the number of a task, from 0, where there are several.
        """
        if seed is not None and not 0 <= seed < 2**63:
            raise ToolError("a seed is a number from 0 up")
        return _blocks(await client.reset(seed, task))

    @server.tool(structured_output=False)
    async def observe() -> list[Any]:
        """See your last observation again."""
        try:
            return _blocks(await client.observe())
        except ValueError as error:
            raise ToolError(str(error)) from None

    @server.tool(structured_output=False)
    async def act(action: str) -> list[Any]:
        """Take your turn with this text, and see your next observation or how the episode ended."""
        try:
            return _blocks(await client.act(action))
        except ValueError as error:
            raise ToolError(str(error)) from None

    return server


def _introduction(role: Role) -> list[ContentPart]:
    lines = [role.instructions] if role.instructions else []
    if role.tools:
        lines.append('An action may call these tools as <tool_call>{"name": ..., "arguments": {...}}</tool_call>:')
        lines += [f"- {usage(tool)}: {' '.join(tool.description.split())}" for tool in role.tools]
    return [_text("\n".join(lines))] if lines else []


def _ending(episode: Episode, agent: str) -> list[ContentPart]:
    """What the client sees at the end."""
    if episode.error:
        return [_text(f"[The episode failed in {episode.error.origin}: {episode.error.message}. Call reset.]")]
    last = episode.final_infos.get(agent, {}).get("final_observation", "")
    outcome = outcomes(episode)[agent].label
    came_to = f"Your return is {episode.returns.get(agent, 0.0):g}: {outcome}."
    return [*_parts(last), _text(f"[The episode is over ({episode.ending}). {came_to} Call reset for another.]")]


def _parts(observation: Observation) -> list[ContentPart]:
    return [_text(observation)] if isinstance(observation, str) else observation


def _text(text: str) -> ContentPart:
    return {"type": "text", "text": text}


def _blocks(parts: list[ContentPart]) -> list[Any]:
    """Parts as content of the protocol: text and images with their data; of other images the address."""
    from mcp.types import ImageContent

    blocks: list[Any] = []
    for part in parts:
        kind, _, data = str(part.get("url", "")).removeprefix("data:").partition(";base64,")
        if part.get("type") == "image" and data:
            blocks.append(ImageContent(type="image", data=data, mime_type=kind))
        else:
            blocks.append(str(part.get("text", part.get("url", ""))))
    return [block for block in blocks if block != ""]
