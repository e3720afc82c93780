"""One episode that the other side steps: it takes a seat's question, answers it, and takes the next one.

    episode = SteppedEpisode(runner, Start(seed=7))
    question = await episode.question("player_0")
    while question is not None:
        question = await episode.step("player_0", "[4]")
    print((await episode.result()).returns)

Several seats are stepped independently of one another, by the same caller or by one each. Everything else of the
episode, our policies and the env, runs as a task beside them. `LoopThread` serves callers without an event loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from contextlib import aclosing, suppress
from typing import Any, NamedTuple, Self, TypeVar

from marl_gem.errors import AgentError, MarlGemError
from marl_gem.integrations.outside_model import Answer, Request
from marl_gem.integrations.seat_runner import SeatRunner, Start
from marl_gem.policies import Agent, LLMPolicy
from marl_gem.policies.base import Info
from marl_gem.rollout import Job, stream
from marl_gem.tools.calls import write_call
from marl_gem.types import Episode, Observation, Response, Role, to_json
from marl_gem.views import as_text

Result = TypeVar("Result")


class Question(NamedTuple):
    """What a seat is to answer: the request, what is new to the agent, and the info that came with it."""

    agent: str
    request: Request
    observation: Observation
    info: Mapping[str, Any]

    @property
    def text(self) -> str:
        """What is new to the agent, as text."""
        return as_text(self.observation)

    @property
    def instructions(self) -> str:
        """The agent's instructions as text: the system message, and its tools with the way to call them."""
        first = self.request.messages[0]
        parts = [str(first["content"])] if first["role"] == "system" else []
        if self.request.tools:
            tools = "\n".join(map(to_json, self.request.tools))
            call = write_call("NAME", {"PARAMETER": "VALUE"})
            parts.append(
                f"You have these tools, each with the JSON schema of its arguments:\n{tools}\nCall one so: {call}"
            )
        return "\n\n".join(parts)


class SteppedEpisode:
    """An episode whose questions wait until they are answered. Make it in a running event loop, or by a `LoopThread`.

    `close` it where it may not have come to its end.

    Args:
        runner: whose seats are whose.
        start: how the episode starts.
    """

    def __init__(self, runner: SeatRunner, start: Start) -> None:
        self._seats = {agent: _Seat(runner, agent) for agent in runner.seats}
        job = runner.job(start, dict(self._seats))
        self._task = asyncio.create_task(_play(runner, job))
        self._task.add_done_callback(self._end)

    async def question(self, agent: str) -> Question | None:
        """The question that waits for this seat, as soon as there is one; None when the episode is over.

        Raises:
            AgentError: this seat is not the other side's.
        """
        seat = self._seat(agent)
        await seat.changed.wait()
        return seat.pending and seat.pending[0]

    async def next_question(self) -> Question | None:
        """The question that waits for any seat, the first in their order; None when the episode is over."""
        waiting = [asyncio.create_task(seat.changed.wait()) for seat in self._seats.values()]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
        return next((seat.pending[0] for seat in self._seats.values() if seat.pending), None)

    def answer(self, agent: str, answer: Answer) -> None:
        """Answer the question that waits for this seat, by a text or a `Completion`.

        Raises:
            AgentError: none waits, or this seat is not the other side's.
        """
        seat = self._seat(agent)
        if seat.pending is None:
            raise AgentError(f"nothing is asked of {agent!r} now; take its question first")
        _, future = seat.pending
        seat.pending = None
        seat.changed.clear()
        if not future.done():
            future.set_result(answer)
        if self._task.done():
            seat.changed.set()

    async def step(self, agent: str, answer: Answer) -> Question | None:
        """Answer, and wait for the seat's next question; None when the episode is over."""
        self.answer(agent, answer)
        return await self.question(agent)

    @property
    def done(self) -> bool:
        """Whether the episode is over."""
        return self._task.done()

    async def result(self) -> Episode:
        """The episode, when it is over.

        Raises:
            MarlGemError: it failed, and why.
        """
        episode = await asyncio.shield(self._task)
        if error := episode.error:
            raise MarlGemError(
                f"the episode of {episode.scenario} with seed {episode.seed} failed in {error.origin} ({error.type}): "
                f"{error.message}"
            )
        return episode

    async def close(self) -> None:
        """Leave the episode where it is, and free what it uses."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.wait([self._task])

    def _seat(self, agent: str) -> _Seat:
        if agent not in self._seats:
            raise AgentError(f"{agent!r} is not the other side's; its seats are {', '.join(self._seats)}")
        return self._seats[agent]

    def _end(self, task: asyncio.Task[Episode]) -> None:
        for seat in self._seats.values():
            seat.pending = None
            seat.changed.set()


async def _play(runner: SeatRunner, job: Job) -> Episode:
    async with aclosing(stream(runner.spec.make, [job], concurrency=1)) as episodes:
        async for episode in episodes:
            return episode
    raise AssertionError("a stream of one job gives one episode")


class _Seat:
    """The policy of one seat: each question waits in `pending` until it is answered."""

    name = "outside"

    def __init__(self, runner: SeatRunner, agent: str) -> None:
        self._agent = agent
        self._policy: LLMPolicy = runner.policy(self._ask, max_batch=1)
        self.pending: tuple[Question, asyncio.Future[Answer]] | None = None
        self.changed = asyncio.Event()
        """Whether a question waits, or the episode is over."""
        self.current: tuple[Observation, Info] = ("", {})

    def agent(self, agent_id: str, role: Role, seed: int) -> Agent:
        return _SeatAgent(self, self._policy.agent(agent_id, role, seed))

    async def _ask(self, requests: list[Request]) -> list[Answer]:
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        observation, info = self.current
        self.pending = Question(self._agent, requests[0], observation, info), future
        self.changed.set()
        return [await future]


class _SeatAgent:
    def __init__(self, seat: _Seat, inner: Agent) -> None:
        self._seat, self._inner = seat, inner

    async def act(self, observation: Observation, info: Info) -> Response:
        self._seat.current = observation, dict(info)
        return await self._inner.act(observation, info)


class LoopThread:
    """An event loop in a thread, for callers that have none: `thread.call(episode.question("player_0"))`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="marl_gem-integrations", daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine in the loop, and return or raise what it does."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def begin(self, runner: SeatRunner, start: Start) -> SteppedEpisode:
        """Begin an episode in the loop."""

        async def begin() -> SteppedEpisode:
            return SteppedEpisode(runner, start)

        return self.call(begin())

    def close(self) -> None:
        """End the loop and its thread; whatever still runs there is cancelled."""
        if self._loop.is_closed():
            return

        async def end() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._loop.shutdown_asyncgens()

        self.call(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
