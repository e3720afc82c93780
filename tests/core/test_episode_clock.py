"""What counts against an episode's limit of seconds: in virtual time, and with a server that goes away."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from marl_gem import Episode, MultiAgentEnv, Response, Role
from marl_gem.episode_clock import infrastructure, waiting_for_model
from marl_gem.errors import ContextTooLong, LLMError, ServerUnreachable, TransientLLMError
from marl_gem.llm.retry import Backoff, CircuitBreaker, Retrying
from marl_gem.policies import LLMPolicy
from marl_gem.rollout import Job, play_episode, stream
from marl_gem.types import EpisodeError, Limits
from tests.event_loop import run_in_virtual_time
from tests.toys import NumberGame, SimultaneousNumbers

HANGS = float("inf")
BUSY = TransientLLMError("busy")
AWAY = ServerUnreachable("away")

Call = tuple[float, BaseException | None]
"""The seconds that a call takes, and what it raises then."""


class Timed:
    """A model whose calls take the seconds of a script, and raise what it says; later ones answer at once."""

    name = "timed"

    def __init__(self, *calls: Call) -> None:
        self.calls = list(calls)

    async def complete(self, *_: Any) -> Response:
        seconds, error = self.calls.pop(0) if self.calls else (0.0, None)
        await (asyncio.Event().wait() if seconds == HANGS else asyncio.sleep(seconds))
        if error:
            raise error
        return Response("1")


def retrying(*calls: Call, failures: int = 99) -> Retrying:
    """The pauses between attempts are 1 s, 2 s, 4 s ..."""
    backoff = Backoff(1.0, 64.0, sleep=asyncio.sleep, clock=lambda: asyncio.get_running_loop().time())
    backoff.wait = lambda failures: 2.0 ** (failures - 1)  # type: ignore[method-assign]
    return Retrying(Timed(*calls), backoff=backoff, breaker=CircuitBreaker(failures, 900.0, backoff))


def play(
    limit: float, make: Callable[[], MultiAgentEnv] = NumberGame, **llms: Retrying | Timed
) -> tuple[Episode, float]:
    """An episode with this limit, and the seconds that it took; agents without a model answer at once."""

    async def timed() -> tuple[Episode, float]:
        seating = {agent: LLMPolicy(llms.get(agent, Timed())) for agent in "ab"}
        episode = await play_episode(make(), Job(0, seating, limits=Limits(seconds=limit)))
        return episode, asyncio.get_running_loop().time()

    return run_in_virtual_time(timed())


def cut_by_limit(episode: Episode) -> bool:
    assert episode.error is None
    return episode.limit == "seconds" and episode.ending == "truncated"


# One agent


def test_retries_and_failed_attempts_do_not_count() -> None:
    episode, seconds = play(10, a=retrying((5, BUSY), (5, BUSY), (5, BUSY), (3, None)))
    assert episode.ending == "terminated" and episode.turns[0].response.retries == 3
    assert seconds == 3 * 5 + (1 + 2 + 4) + 3


def test_waits_for_an_unreachable_server_do_not_count() -> None:
    episode, seconds = play(10, a=retrying(*[(0.5, AWAY)] * 7, failures=3))
    assert episode.ending == "terminated" and seconds > 20


def test_answers_count_also_beside_retries() -> None:
    llm = retrying((5, BUSY), (6, None), (5, BUSY), (6, None))
    episode, seconds = play(10, a=llm)
    assert cut_by_limit(episode) and [turn.agent for turn in episode.turns] == ["a", "b"]
    assert seconds == 5 + 1 + 6 + 5 + 1 + 6, "the last call might have failed, so it was waited for"


def test_an_answer_after_the_limit_cuts_the_episode() -> None:
    episode, seconds = play(10, a=Timed((15, None)))
    assert cut_by_limit(episode) and episode.turns == () and seconds == 15


def test_a_call_that_fails_after_the_limit_is_no_reason_to_end() -> None:
    episode, seconds = play(10, a=retrying((19, BUSY), (9, None)))
    assert episode.ending == "terminated" and seconds == 19 + 1 + 9


def test_a_call_that_is_never_answered_is_the_model_s_failure() -> None:
    for llm, before in ((Timed((HANGS, None)), 0), (retrying((5, BUSY), (HANGS, None)), 6)):
        episode, seconds = play(10, a=llm)
        message = "no answer from timed: neither within the episode's limit of 10 s nor in as long again"
        assert episode.error == EpisodeError("llm", "TransientLLMError", message, "a")
        assert episode.ending == "error" and episode.limit == "" and seconds == before + 20


def test_a_permanent_error_after_the_limit_is_the_model_s_failure() -> None:
    episode, _ = play(10, a=Timed((15, LLMError("401"))))
    assert episode.error == EpisodeError("llm", "LLMError", "401", "a")


class Works:
    """An agent that works without a model, in between calls one, and gives it some time."""

    name = "works"

    def __init__(self, before: float, call: Callable[[], Any], after: float = 0.0) -> None:
        self.before, self.call, self.after = before, call, after

    def agent(self, agent_id: str, role: Role, seed: int) -> Works:
        return self

    async def act(self, observation: Any, info: Any) -> Response:
        await asyncio.sleep(self.before)
        await self.call()
        await asyncio.sleep(self.after)
        return Response("1")


def play_with(policy: Any, limit: float) -> tuple[Episode, float]:
    async def timed() -> tuple[Episode, float]:
        episode = await play_episode(NumberGame(), Job(0, policy, limits=Limits(seconds=limit)))
        return episode, asyncio.get_running_loop().time()

    return run_in_virtual_time(timed())


async def nothing() -> None: ...


def test_the_limit_strikes_at_once_where_no_model_is_called() -> None:
    episode, seconds = play_with(Works(60, nothing), 10)
    assert cut_by_limit(episode) and seconds == 10


def test_the_time_of_a_call_that_the_agent_gave_up_does_not_count() -> None:
    async def impatient() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                with waiting_for_model("tiny"):
                    await asyncio.Event().wait()

    episode, seconds = play_with(Works(1, impatient), 10)
    assert episode.ending == "terminated" and seconds == 4 * 6


def test_a_prompt_that_is_too_long_is_an_answer() -> None:
    async def too_long() -> None:
        with pytest.raises(ContextTooLong), waiting_for_model("tiny"):
            await asyncio.sleep(3)
            raise ContextTooLong("too long")

    episode, seconds = play_with(Works(1, too_long), 10)
    assert cut_by_limit(episode) and seconds == 12, "it was in flight at 10 s"


def test_calls_that_begin_after_the_limit_do_not_defer_it() -> None:
    async def call(seconds: float) -> None:
        with waiting_for_model("tiny"):
            await asyncio.sleep(seconds)

    async def calls_without_end() -> None:
        """There is always a call in flight."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(100):
                tasks.create_task(call(3))
                await asyncio.sleep(2)

    episode, seconds = play_with(Works(0, calls_without_end), 10)
    assert cut_by_limit(episode) and seconds == 11, "when the calls have ended that began before"


def test_a_limit_holds_where_nothing_ever_waits() -> None:
    class Endless(NumberGame):
        length = 10**9

    now = iter(range(10**6))

    async def timed() -> Episode:
        asyncio.get_running_loop().time = lambda: float(next(now))  # type: ignore[method-assign]
        return await play_episode(Endless(), Job(0, LLMPolicy(Instant()), limits=Limits(seconds=100)))

    episode = asyncio.run(timed())
    assert cut_by_limit(episode) and episode.turns


class Instant:
    name = "instant"

    async def complete(self, *_: Any) -> Response:
        return Response("1")


# Several agents at once


def test_no_time_counts_while_any_agent_waits_for_infrastructure() -> None:
    slow = Timed((8, None))
    episode, seconds = play(10, SimultaneousNumbers, a=slow, b=retrying((4, BUSY), (4, BUSY), (4, None)))
    assert episode.ending == "terminated" and seconds == 4 + 1 + 4 + 2 + 4


def test_the_time_of_failed_attempts_that_overlap_is_left_out_once() -> None:
    episode, seconds = play(
        10, SimultaneousNumbers, a=retrying((6, BUSY), (8, None)), b=retrying((9, BUSY), (3, BUSY), (7, None))
    )
    # a fails until 6 and waits until 7; b until 9, waits until 10, fails until 13, waits until 15, answers at 22
    assert episode.ending == "terminated" and seconds == 22


def test_the_limit_waits_for_every_call_in_flight() -> None:
    cut, seconds = play(10, SimultaneousNumbers, a=Timed((12, None)), b=Timed((15, None)))
    assert cut_by_limit(cut) and seconds == 15
    goes_on, seconds = play(10, SimultaneousNumbers, a=Timed((12, None)), b=retrying((15, BUSY), (1, None)))
    assert goes_on.ending == "terminated" and seconds == 17
    failed, seconds = play(10, SimultaneousNumbers, a=Timed((12, None)), b=Timed((HANGS, None)))
    assert failed.error and failed.error.origin == "llm" and failed.error.agent is None and seconds == 20


# Outside of an episode, and in threads


def test_outside_of_an_episode_both_do_nothing() -> None:
    with infrastructure(), waiting_for_model("tiny"):
        pass


def test_waits_in_a_blocking_step_do_not_count() -> None:
    class Waits(NumberGame):
        blocking = True
        length = 1

        def _process_actions(self, actions: dict[str, str]) -> None:
            with infrastructure():
                threading.Event().wait(0.4)
            super()._process_actions(actions)

    episode = asyncio.run(play_episode(Waits(), Job(0, LLMPolicy(Timed()), limits=Limits(seconds=0.3))))
    assert episode.ending == "terminated" and episode.seconds > 0.3


# A server that goes away


class Asking(MultiAgentEnv):
    possible_agents = ("a",)
    selector = NumberGame.selector
    max_steps = 3

    def observe(self, agent: str) -> str:
        return f"episode {self.seed}"

    def _process_actions(self, actions: dict[str, str]) -> None:
        self.rewards["a"] = float(actions["a"] == "ok")


@pytest.mark.slow
def test_no_episode_is_cut_because_the_server_was_away() -> None:
    pytest.importorskip("aiohttp")
    from marl_gem.llm.http import HTTPModel
    from tests.fake_server import FakeServer

    server = FakeServer(latency=0.02)

    async def outage() -> None:
        while server.statuses[200] < 30:  # of 180 calls: some are in flight
            await asyncio.sleep(0.005)
        await server.stop()
        await asyncio.sleep(2.5)
        await server.start()

    async def scenario() -> list[Episode]:
        await server.start()
        llm = Retrying(HTTPModel(server.url), backoff=Backoff(0.02, 0.2))
        jobs = [Job(seed, LLMPolicy(llm), id=str(seed), limits=Limits(seconds=2)) for seed in range(60)]
        disturbing = asyncio.create_task(outage())
        async with asyncio.timeout(60):
            episodes = [episode async for episode in stream(Asking, jobs, concurrency=10)]
            await disturbing
        await server.stop()
        return episodes

    episodes = asyncio.run(scenario())
    assert len(episodes) == 60 and all(episode.returns == {"a": 3.0} for episode in episodes)
    assert max(episode.seconds for episode in episodes) > 2, "some were played during the outage"
