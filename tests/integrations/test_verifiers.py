"""verifiers plays a scenario with an agent of its own for each seat, against a model that streams from a script."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("verifiers")

import verifiers.v1 as vf
from aiohttp import web
from verifiers.v1.utils.loaders import load_environment, resolve_env_config

from marl_gem.errors import ConfigError
from marl_gem.integrations import SeatRunner, Start
from marl_gem.integrations.verifiers import environment
from tests.toys import NumberGame, one_agent

MODULE = "marl_gem_numbers"


@asynccontextmanager
async def model(answer: Callable[[list[dict[str, Any]]], str]) -> AsyncIterator[str]:
    """The address of a chat server that streams what `answer` makes of the messages."""

    async def chat(request: web.Request) -> web.StreamResponse:
        text = answer((await request.json())["messages"])
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        chunk = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "tiny"}
        delta = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
        end = {"index": 0, "delta": {}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        for part in ({**chunk, "choices": [delta]}, {**chunk, "choices": [end], "usage": usage}):
            await response.write(f"data: {json.dumps(part)}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        return response

    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


class Two(NumberGame):
    """One turn for each agent."""

    length = 2


def test_every_seat_is_an_agent_with_a_trace_and_a_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")  # verifiers calls uv
    monkeypatch.setenv("MODEL_KEY", "none")
    module: Any = ModuleType(MODULE)
    module.ScenarioTaskset, module.ScenarioEnv = environment(SeatRunner(Two), [Start(5), Start(6)])
    module.__all__ = ["ScenarioEnv", "ScenarioTaskset"]
    monkeypatch.setitem(sys.modules, MODULE, module)
    env = load_environment(resolve_env_config({"taskset": {"id": MODULE}}))
    tasks = list(env.taskset.load())
    assert [Start.from_text(task.data.start) for task in tasks] == [Start(5), Start(6)]

    def answer(messages: list[dict[str, Any]]) -> str:
        return "1" if "You are a." in json.dumps(messages) else "2"

    async def play() -> Any:
        async with model(answer) as url, env.serving():
            client = vf.EvalClientConfig(base_url=url, api_key_var="MODEL_KEY")
            return await env.run_episode(tasks[0], vf.ModelContext(model="tiny", client=client))

    episode = asyncio.run(play())
    assert not episode.errors, episode.errors
    assert episode.ok
    assert {trace.agent.name: trace.reward for trace in episode.traces} == {"a": 1.0, "b": 2.0}


def test_a_seat_that_cannot_name_a_role_is_refused() -> None:
    runner = SeatRunner(lambda: one_agent(possible_agents=("taskset",)))
    with pytest.raises(ConfigError, match="'taskset' cannot name a role in verifiers"):
        environment(runner, [Start(0)])
