"""A seat of a scenario as an MCP server: a real client plays, over standard streams and in this process."""

from __future__ import annotations

import base64
import sys
from collections.abc import Mapping
from typing import Any

import pytest

pytest.importorskip("mcp")

from mcp import Client, StdioServerParameters

from marl_gem import MultiAgentEnv, Role, SequentialSelector, ToolSpec
from marl_gem.cli.mcp import MOST_CHARACTERS, SeatClient, mcp_server
from marl_gem.policies import ScriptedPolicy
from marl_gem.specs import ScenarioSpec
from marl_gem.types import Observation
from tests.event_loop import async_test

KUHN = ScenarioSpec.parse("game:KuhnPoker-v0")


class Pictures(MultiAgentEnv):
    """Two turns; the first shows a picture, and an action "fail" makes the scenario fail."""

    possible_agents = ("ann",)
    selector = SequentialSelector()
    tasks = 2

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset({})
        self.number = options.get("task", 0)

    def role(self, agent: str) -> Role:
        return Role("Look.", (ToolSpec("ring", "Rings a bell."),))

    def observe(self, agent: str) -> Observation:
        picture = "data:image/png;base64," + base64.b64encode(b"dot").decode()
        return [{"type": "text", "text": f"task {self.number}"}, {"type": "image", "url": picture}]

    def _process_action(self, agent: str, action: str) -> None:
        if action == "fail":
            raise RuntimeError("the scenario broke")
        self.terminations[agent] = self.steps > 0


def kuhn() -> SeatClient:
    return SeatClient(KUHN, "player_1", {"player_0": ScriptedPolicy(lambda observation, info: "[bet]")}, 0)


async def call(client: Client, name: str, **arguments: Any) -> tuple[str, bool]:
    """The texts of an answer, and whether it is an error."""
    result = await client.call_tool(name, arguments)
    return "\n".join(getattr(part, "text", f"({part.type})") for part in result.content), bool(result.is_error)


@async_test
async def test_a_client_plays_a_seat() -> None:
    seat = kuhn()
    async with Client(mcp_server(seat)) as client:
        assert sorted(tool.name for tool in (await client.list_tools()).tools) == ["act", "observe", "reset"]
        for name, arguments in (("observe", {}), ("act", {"action": "[call]"})):
            text, failed = await call(client, name, **arguments)
            assert failed and "no episode has begun; call reset" in text
        first, _ = await call(client, "reset", seed=3)
        assert "You play one hand of Kuhn poker and move second" in first and "Moves so far: bet" in first
        shown, _ = await call(client, "observe")
        assert shown in first and "It is your turn" in shown
        end, failed = await call(client, "act", action="[call]")
        assert not failed and "The episode is over (terminated)" in end and "Your return is" in end
        again, _ = await call(client, "observe")
        assert again == end
        text, failed = await call(client, "act", action="[call]")
        assert failed and "the episode is over; call reset" in text
        assert (await call(client, "reset", seed=3))[0] == first
    await seat.leave()


@async_test
async def test_calls_that_make_no_sense_are_errors_and_the_episode_goes_on() -> None:
    seat = kuhn()
    async with Client(mcp_server(seat)) as client:
        first, _ = await call(client, "reset")
        for name, arguments in (
            ("act", {"action": "x" * (MOST_CHARACTERS + 1)}),
            ("act", {"action": 3}),
            ("act", {}),
            ("reset", {"seed": -1}),
            ("reset", {"seed": "soon"}),
        ):
            assert (await call(client, name, **arguments))[1], (name, arguments)
        assert (await call(client, "observe"))[0] in first
        failed, _ = await call(client, "reset", task=1)
        assert "The episode failed in env" in failed and "task" in failed
        other, _ = await call(client, "reset")
        assert "It is your turn" in other
    await seat.leave()


@async_test
async def test_pictures_tools_tasks_and_scenarios_that_fail() -> None:
    seat = SeatClient(ScenarioSpec.parse(f"{__name__}:Pictures"), "ann", {}, 0)
    async with Client(mcp_server(seat)) as client:
        shown = (await client.call_tool("reset", {"task": 1})).content
        assert [part.type for part in shown] == ["text", "text", "image", "text"]
        assert shown[2].data == base64.b64encode(b"dot").decode() and shown[1].text == "task 1"
        assert "Look." in shown[0].text and "ring(): Rings a bell." in shown[0].text
        failed, _ = await call(client, "act", action="fail")
        assert "The episode failed in env: " in failed and "the scenario broke" in failed
    await seat.leave()


@pytest.mark.slow
@async_test
async def test_the_command_serves_over_standard_streams() -> None:
    arguments = ["-m", "marl_gem.cli", "mcp", "game:KuhnPoker-v0", "--as", "player_1", "--seed", "5"]
    async with Client(StdioServerParameters(command=sys.executable, args=arguments)) as client:
        shown, _ = await call(client, "reset")
        assert "It is your turn" in shown
        for _ in range(3):
            shown, failed = await call(client, "act", action="[call]" if "[call]" in shown else "[check]")
            if failed or "over" in shown:
                break
        assert not failed and "The episode is over (terminated)" in shown
