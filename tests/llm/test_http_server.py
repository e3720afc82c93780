"""A model behind HTTP and its server: models, adapters, health, event loops, episodes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from aiohttp import web

from marl_gem import MultiAgentEnv, SequentialSelector
from marl_gem.errors import (
    LLMError,
    ServerUnreachable,
)
from marl_gem.llm.http import HTTPModel, Timeouts
from marl_gem.llm.retry import Backoff, Retrying
from marl_gem.policies import LLMPolicy
from marl_gem.rollout import Job, play_episode, stream
from marl_gem.types import Limits
from tests.event_loop import async_test, wait_until
from tests.fake_server import (
    FakeServer,
    edited,
    hang,
    status,
)
from tests.llm.http_helpers import ask, bare_server

ROOT = Path(__file__).parents[2]


# Models


@async_test
async def test_the_only_model_need_not_be_named() -> None:
    async with FakeServer() as server:
        await HTTPModel(server.url).load_adapter("mine", "/adapters/mine")
        model = HTTPModel(server.url)
        assert model.name == server.url
        await asyncio.gather(*(ask(model) for _ in range(5)))
        assert model.name == "tiny" and {call.body["model"] for call in server.calls} == {"tiny"}
    async with FakeServer(models=["a", "b"]) as server:
        with pytest.raises(LLMError, match="serves 2 models; name one: 'a', 'b'"):
            await ask(HTTPModel(server.url))


@async_test
async def test_adapters_are_loaded_replaced_and_unloaded() -> None:
    async with FakeServer() as server:
        model = HTTPModel(server.url, "tiny", adapter="mine")
        await model.load_adapter("mine", "/adapters/1")
        model.version = 1
        assert (await ask(model)).version == 1 and model.name == "tiny+mine@1"
        assert server.calls[0].body["model"] == "mine"
        with pytest.raises(LLMError, match="already been loaded"):
            await model.load_adapter("mine", "/adapters/2")
        await model.load_adapter("mine", "/adapters/2", replace=True)
        assert server.adapters == {"mine": "/adapters/2"}
        await model.unload_adapter("mine")
        with pytest.raises(LLMError, match="cannot be found"):
            await model.unload_adapter("mine")
        with pytest.raises(LLMError, match="We asked for 'mine'; it serves 'tiny'"):
            await ask(model)


@async_test
async def test_an_adapter_that_the_server_has_lost_is_loaded_again_once() -> None:
    async with FakeServer() as server:
        model = HTTPModel(server.url, "tiny", adapter="mine")
        await model.load_adapter("mine", "/adapters/1")
        server.adapters.clear()
        assert {answer.text for answer in await asyncio.gather(*(ask(model) for _ in range(5)))} == {"ok"}
        assert server.adapters == {"mine": "/adapters/1"}
        missing = status(404, "The model mine does not exist.")
        server.script.extend([missing, missing])
        with pytest.raises(LLMError, match="404"):
            await ask(model)


@async_test
async def test_a_replaced_adapter_uses_no_prefix_cache_of_the_old_one() -> None:
    async with FakeServer() as server:
        model, base = HTTPModel(server.url, "tiny", adapter="mine"), HTTPModel(server.url, "tiny")
        for _ in range(2):
            await model.load_adapter("mine", "/adapters/1", replace=True)
            await ask(model)
            await ask(model)
        await ask(base)
        first, again, second, still, none = (call.body.get("cache_salt") for call in server.calls)
        assert first == again != second == still
        assert first and second and none is None


@async_test
async def test_an_error_says_how_a_server_loads_adapters() -> None:
    async with bare_server(lambda request: web.Response(status=404)) as url:
        with pytest.raises(LLMError, match="VLLM_ALLOW_RUNTIME_LORA_UPDATING"):
            await HTTPModel(url, "tiny").load_adapter("mine", "/adapters/1")


@async_test
async def test_health() -> None:
    async with FakeServer() as server:
        model = HTTPModel(server.url, "tiny")
        await model.health()
        server.healthy = 404  # there is a list of models
        await model.health()
        server.healthy = 503
        with pytest.raises(ServerUnreachable, match="503"):
            await model.health()
    with pytest.raises(ServerUnreachable, match="Is the server running"):
        await model.health()


# Event loops and connections


def test_one_model_in_several_loops_leaves_nothing_open() -> None:
    """In a separate interpreter, whose warnings show what was not closed."""
    code = """
        import asyncio, gc, socket
        from marl_gem.llm import Sampling
        from marl_gem.llm.http import HTTPModel
        from tests.fake_server import FakeServer, hang

        async def use(model, close):
            asyncio.get_running_loop().slow_callback_duration = 60
            async with FakeServer(hang, port=port) as server:
                asking = [model.complete([{"role": "user", "content": "hi"}], Sampling(), 1) for _ in range(9)]
                stuck, *others = map(asyncio.create_task, asking)
                await asyncio.sleep(0.1)
                print(*[(await other).text for other in others])
                await HTTPModel(server.url).health()  # and that one is dropped
                gc.collect()
                if close:
                    stuck.cancel()
                    await asyncio.wait([stuck])
                    await model.aclose()
                    await model.aclose()

        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        model = HTTPModel(f"http://127.0.0.1:{port}")
        for close in (True, False, False):
            asyncio.run(use(model, close))
        dropped = HTTPModel(f"http://127.0.0.1:{port}")
        asyncio.run(use(dropped, False))
        del model, dropped
        gc.collect()
    """
    lines = [line.removeprefix("        ") for line in code.splitlines()]
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", "\n".join(lines)], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "ok ok ok ok ok ok ok ok\n" * 4


@async_test
async def test_cancelling_a_call_ends_it_at_the_server_too() -> None:
    async with FakeServer(hang) as server:
        model = HTTPModel(server.url, "tiny")
        call = asyncio.create_task(ask(model))
        await wait_until(lambda: bool(server.calls))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await wait_until(lambda: server.cancelled == 1)
        assert (await ask(model)).text == "ok"
        await model.aclose()


@async_test
async def test_waiting_for_a_connection_does_not_count_against_time_outs() -> None:
    async with FakeServer(latency=0.2) as server:
        model = HTTPModel(server.url, "tiny", connections=2, timeouts=Timeouts(5, 1, 1))
        started = time.monotonic()
        answers = await asyncio.gather(*(ask(model) for _ in range(12)))
        assert time.monotonic() - started > 1, "six rounds of 0.2 s: the last call waited longer than its time-out"
        assert all(answer.seconds < 1 for answer in answers)
        await model.aclose()


# Episodes


class Greeting(MultiAgentEnv):
    """Two agents with two turns each; "ok" is worth 1."""

    possible_agents = ("ann", "bob")
    selector = SequentialSelector()

    def observe(self, agent: str) -> str:
        return f"{agent} of {self.seed}: say ok"

    def _process_actions(self, actions: dict[str, str]) -> None:
        self.rewards = {agent: float(action == "ok") for agent, action in actions.items()}
        if self.steps == 4:
            self.terminations = dict.fromkeys(self.agents, True)


@async_test
@pytest.mark.slow
async def test_a_thousand_episodes_against_a_server_that_fails_three_calls_of_ten() -> None:
    async with FakeServer(failing=0.3, seed=1) as server:
        llm = Retrying(HTTPModel(server.url, "tiny"), attempts=30, backoff=Backoff(0.001, 0.02))
        jobs = [Job(seed, LLMPolicy(llm), id=str(seed)) for seed in range(1000)]
        episodes = [episode async for episode in stream(Greeting, jobs, concurrency=200)]
        assert sorted(int(episode.id) for episode in episodes) == list(range(1000))
        assert all(episode.returns == {"ann": 2.0, "bob": 2.0} and not episode.error for episode in episodes)
        retries = sum(turn.response.retries for episode in episodes for turn in episode.turns)
        assert len(server.calls) == 4000 + retries and 1000 < retries < 2500
        assert len(server.conversations) == 2000


@async_test
async def test_a_limit_on_tokens_counts_cached_ones_once() -> None:
    def cached(reply: dict[str, Any]) -> None:
        reply["usage"] = {"prompt_tokens": 8, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 8}}

    async with FakeServer(*[edited(cached)] * 4) as server:
        job = Job(0, LLMPolicy(HTTPModel(server.url)), limits=Limits(tokens=25))
        episode = await play_episode(Greeting(), job)
        assert (episode.limit, len(episode.turns)) == ("tokens", 3)
        assert episode.usage == {"prompt_tokens": 24, "completion_tokens": 6, "cached_tokens": 24}


def test_the_package_is_named_when_it_is_missing() -> None:
    code = "import sys; sys.modules['aiohttp'] = None; import marl_gem, marl_gem.llm.http"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ))
    assert "MissingPackage" in done.stderr and "marl-gem[llm]" in done.stderr
