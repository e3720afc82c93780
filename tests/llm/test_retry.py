"""Retries: how many, the waits between them, and one half-open probe at a time while a server is unreachable."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from marl_gem import Response, ToolSpec
from marl_gem.errors import ConfigError, ContextTooLong, LLMError, ServerUnreachable, TransientLLMError
from marl_gem.llm import Sampling
from marl_gem.llm.retry import Backoff, CircuitBreaker, Retrying
from marl_gem.types import Message

UNREACHABLE = ServerUnreachable("no connection")
BUSY = TransientLLMError("busy")


class Clock:
    """Time that passes only in `sleep`; `sleeps` records all of them."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sleeps: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        wake = self.now + seconds
        for _ in range(5):  # whoever else has something to do now does it first
            await asyncio.sleep(0)
        self.now = max(self.now, wake)

    def backoff(self, first: float = 1.0, cap: float = 8.0, share: float = 1.0) -> Backoff:
        """One that always draws this share of the bound."""

        class Fixed(random.Random):
            def uniform(self, low: float, high: float) -> float:
                return low + share * (high - low)

        return Backoff(first, cap, rng=Fixed(), clock=self, sleep=self.sleep)


class Scripted:
    """A model that raises these errors, one a call, and answers afterwards. None is an answer too."""

    name = "scripted"

    def __init__(self, *errors: BaseException | None) -> None:
        self.errors = list(errors)
        self.calls = 0
        self.live = self.most_live = 0

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, seed: int, tools: Sequence[ToolSpec] = ()
    ) -> Response:
        self.calls += 1
        self.live += 1
        self.most_live = max(self.most_live, self.live)
        try:
            await asyncio.sleep(0)
            error = self.errors.pop(0) if self.errors else self.otherwise()
        finally:
            self.live -= 1
        if error:
            raise error
        return Response(f"{messages[0]['content']} {sampling.max_tokens} {seed} {len(tools)}")

    def otherwise(self) -> BaseException | None:
        return None


class Server(Scripted):
    """A model that is reachable at some times of the clock."""

    def __init__(self, clock: Clock, there: Callable[[float], bool]) -> None:
        super().__init__()
        self.clock, self.there = clock, there

    def otherwise(self) -> BaseException | None:
        return None if self.there(self.clock.now) else UNREACHABLE


async def ask(llm: Retrying) -> Response:
    async with asyncio.timeout(30):
        return await llm.complete([{"role": "user", "content": "hi"}], Sampling(max_tokens=3), 7, [ToolSpec("t")])


async def ask_all(llm: Retrying, count: int) -> list[Response | BaseException]:
    return await asyncio.gather(*(ask(llm) for _ in range(count)), return_exceptions=True)


# One call


def test_a_good_answer_passes_through() -> None:
    llm = Retrying(Scripted())
    assert asyncio.run(ask(llm)) == Response("hi 3 7 1") and llm.name == "scripted"


def test_transient_errors_are_retried_and_counted() -> None:
    clock = Clock()
    model = Scripted(BUSY, BUSY, UNREACHABLE, BUSY)
    assert asyncio.run(ask(Retrying(model, backoff=clock.backoff()))) == Response("hi 3 7 1", retries=4)
    assert clock.sleeps == [1, 2, 4, 8] and model.calls == 5


def test_waits_are_uniform_up_to_a_bound_that_doubles_and_is_capped() -> None:
    backoff = Backoff(1.0, 5.0, rng=random.Random(0))
    for failures, bound in ((1, 1.0), (2, 2.0), (3, 4.0), (4, 5.0), (10_000, 5.0)):
        waits = [backoff.wait(failures) for _ in range(300)]
        assert 0 <= min(waits) < 0.1 * bound and 0.9 * bound < max(waits) <= bound


@pytest.mark.parametrize("error", [LLMError("401"), ContextTooLong("too long"), ValueError("a bug")])
def test_other_errors_are_not_retried(error: Exception) -> None:
    clock, model = Clock(), Scripted(BUSY, error)
    with pytest.raises(type(error)) as caught:
        asyncio.run(ask(Retrying(model, backoff=clock.backoff())))
    assert caught.value is error and model.calls == 2


def test_attempts_are_limited() -> None:
    clock, model = Clock(), Scripted(*[BUSY] * 9)
    with pytest.raises(TransientLLMError, match="gave up after 3 attempts in 3 s; the last error: busy") as caught:
        asyncio.run(ask(Retrying(model, attempts=3, backoff=clock.backoff())))
    assert model.calls == 3 and caught.value.__cause__ is BUSY


@pytest.mark.parametrize(("error", "given"), [(BUSY, {"retry_for": 20}), (UNREACHABLE, {"patience": 20})])
def test_the_time_of_retries_is_limited(error: TransientLLMError, given: dict[str, float]) -> None:
    clock, model = Clock(), Scripted(*[error] * 99)
    breaker = CircuitBreaker(failures=99, backoff=clock.backoff())
    with pytest.raises(TransientLLMError, match="gave up after 5 attempts in 15 s"):
        asyncio.run(ask(Retrying(model, attempts=99, breaker=breaker, backoff=clock.backoff(), **given)))  # type: ignore[arg-type]


def test_an_unreachable_server_is_waited_for_longer_than_one_that_answers_with_errors() -> None:
    clock = Clock()
    server = Server(clock, lambda now: now >= 2000)
    llm = Retrying(server, patience=3000, retry_for=10, backoff=clock.backoff())
    assert asyncio.run(ask(llm)).text == "hi 3 7 1" and clock.now >= 2000


@pytest.mark.parametrize("given", [{"patience": float("nan")}, {"patience": -1}, {"attempts": 0}, {"retry_for": -1}])
def test_numbers_that_make_no_sense_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(given))):
        Retrying(Scripted(), **given)


def test_a_server_may_ask_for_a_wait() -> None:
    clock, model = Clock(), Scripted(TransientLLMError("busy", 30), TransientLLMError("busy", 0))
    assert asyncio.run(ask(Retrying(model, backoff=clock.backoff()))).retries == 2
    assert clock.sleeps == [31, 2], "plus the backoff, so that not all callers return at the same moment"


def test_a_server_that_asks_for_too_long_a_wait_is_not_waited_for() -> None:
    clock, model = Clock(), Scripted(TransientLLMError("come back tomorrow", 86400))
    with pytest.raises(TransientLLMError, match=r"86400 s, and the limit is 120 s: come back") as caught:
        asyncio.run(ask(Retrying(model, backoff=clock.backoff())))
    assert caught.value.retry_after == 86400 and clock.sleeps == []


# An unreachable server


def test_a_server_that_comes_back_costs_retries_and_no_calls() -> None:
    """Fifty callers, a server unreachable from 0 to 60 s: one probe at a time."""
    clock = Clock()
    server = Server(clock, lambda now: now >= 60)
    answers = asyncio.run(ask_all(Retrying(server, patience=900, backoff=clock.backoff()), 50))
    assert all(isinstance(answer, Response) for answer in answers)
    assert server.calls < 50 + 20 + 50, "all once, then probes, then all again"
    assert 60 <= clock.now < 120


def test_an_unreachable_server_and_its_return_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    server = Server(clock, lambda now: now >= 100)
    breaker = CircuitBreaker(3, 900.0, clock.backoff())
    asyncio.run(ask_all(Retrying(server, backoff=clock.backoff(), breaker=breaker), 20))
    lost, back = [record.getMessage() for record in caplog.records]
    assert lost == (
        "no connection. Its calls wait up to 900 s for it; --wait SECONDS changes that, for one model wait=SECONDS "
        "after its URL"
    )
    assert back.startswith("reachable again after 1")


def test_a_wait_is_announced_within_seconds_also_to_a_single_caller(caplog: pytest.LogCaptureFixture) -> None:
    """By default a minute is waited."""
    clock = Clock()
    server = Server(clock, lambda now: now >= 10)
    llm = Retrying(server, backoff=clock.backoff(first=3.0))
    assert asyncio.run(ask(llm)).retries == 3 and not llm.breaker.is_open
    assert [record.getMessage()[:42] for record in caplog.records] == [
        "no connection. Its calls wait up to 60 s f",
        "reachable again after 17 s",
    ]


def test_there_is_one_probe_at_a_time() -> None:
    async def scenario() -> None:
        clock = Clock()
        server = Server(clock, lambda now: now >= 100)
        llm = Retrying(server, patience=900, backoff=clock.backoff())
        await ask_all_until_open(llm, server)
        server.most_live = 0
        waiting = [asyncio.create_task(ask(llm)) for _ in range(30)]
        while clock.now < 90:
            await asyncio.sleep(0)
        assert server.most_live == 1
        assert {answer.text for answer in await asyncio.gather(*waiting)} == {"hi 3 7 1"}
        assert not llm.breaker.is_open

    asyncio.run(scenario())


async def ask_all_until_open(llm: Retrying, server: Server) -> None:
    """Let so many calls fail that the breaker opens, and give these up."""
    calls = [asyncio.create_task(ask(llm)) for _ in range(llm.breaker.failures)]
    while not llm.breaker.is_open:
        await asyncio.sleep(0)
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)


def test_a_server_that_stays_unreachable_fails_all_waiting_calls_and_later_ones_quickly() -> None:
    async def scenario() -> None:
        clock = Clock()
        server = Server(clock, lambda now: now >= 1000)
        llm = Retrying(server, patience=100, backoff=clock.backoff())
        answers = await ask_all(llm, 20)
        assert {type(answer) for answer in answers} == {TransientLLMError}
        assert all("no connection" in str(answer) for answer in answers)
        assert clock.now == 100
        probes = server.calls
        later = await ask_all(llm, 20)
        assert {type(answer) for answer in later} == {TransientLLMError}
        assert clock.now == 100 and server.calls - probes <= 1
        clock.now = 2000.0
        assert {type(answer) for answer in await ask_all(llm, 20)} == {Response}, "it is reachable again"

    asyncio.run(scenario())


def test_answers_of_any_kind_show_that_a_server_is_reachable() -> None:
    clock = Clock()
    breaker = CircuitBreaker(failures=3, backoff=clock.backoff())
    twice = [UNREACHABLE] * 2
    model = Scripted(*twice, BUSY, *twice, None, *twice, LLMError("401"))
    llm = Retrying(model, breaker=breaker, backoff=clock.backoff())
    assert asyncio.run(ask(llm)).retries == 5
    assert isinstance(asyncio.run(ask_all(llm, 1))[0], LLMError)
    assert not breaker.is_open and model.calls == 9


def test_a_cancelled_probe_lets_the_next_caller_be_the_probe() -> None:
    async def scenario() -> None:
        clock = Clock()
        server = Server(clock, lambda now: now >= 100)
        llm = Retrying(server, patience=900, backoff=clock.backoff(first=10.0))
        await ask_all_until_open(llm, server)
        first, *others = [asyncio.create_task(ask(llm)) for _ in range(4)]
        await asyncio.sleep(0)
        first.cancel()
        done, _ = await asyncio.wait([first, *others])
        assert first.cancelled() and len(done) == 4
        assert [other.result().text for other in others] == ["hi 3 7 1"] * 3

    asyncio.run(scenario())


def test_one_breaker_may_serve_several_models_and_loops() -> None:
    clock = Clock()
    breaker = CircuitBreaker(failures=2, patience=50, backoff=clock.backoff())
    first, other = Scripted(*[UNREACHABLE] * 99), Scripted(*[UNREACHABLE] * 99)
    asyncio.run(ask_all(Retrying(first, patience=50, breaker=breaker, backoff=clock.backoff()), 2))
    assert breaker.is_open
    with pytest.raises(TransientLLMError, match="unreachable for 50 s"):
        asyncio.run(ask(Retrying(other, breaker=breaker, backoff=clock.backoff())))
    assert other.calls == 0


def test_cancelling_ends_a_call_wherever_it_is() -> None:
    async def scenario(*errors: BaseException) -> None:
        model = Scripted(*errors)
        call = asyncio.create_task(ask(Retrying(model, backoff=Backoff(60, 60, rng=random.Random(1)))))
        while not model.calls:
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scenario(BUSY))
    asyncio.run(scenario(UNREACHABLE))


# A real server


def test_a_server_killed_and_started_again_costs_retries_and_no_episodes() -> None:
    pytest.importorskip("aiohttp")
    from marl_gem import MultiAgentEnv, SequentialSelector
    from marl_gem.llm.http import HTTPModel
    from marl_gem.policies import LLMPolicy
    from marl_gem.rollout import Job, stream
    from tests.fake_server import FakeServer

    class Asking(MultiAgentEnv):
        possible_agents = ("a",)
        selector = SequentialSelector()
        max_steps = 3

        def observe(self, agent: str) -> str:
            return f"episode {self.seed}"

        def _process_actions(self, actions: dict[str, Any]) -> None:
            self.rewards["a"] = float(actions["a"] == "ok")

    async def scenario() -> None:
        server = FakeServer(latency=0.02)
        await server.start()

        async def restart() -> None:
            for answered in (100, 600):  # of 1,200 calls: there are calls in flight each time it stops
                while server.statuses[200] < answered:
                    await asyncio.sleep(0.005)
                await server.stop()
                await asyncio.sleep(0.5)
                await server.start()

        llm = Retrying(HTTPModel(server.url), backoff=Backoff(0.02, 0.2))
        jobs = [Job(seed, LLMPolicy(llm), id=str(seed)) for seed in range(400)]
        restarting = asyncio.create_task(restart())
        async with asyncio.timeout(60):
            episodes = [episode async for episode in stream(Asking, jobs, concurrency=40)]
            await restarting
        assert sorted(int(episode.id) for episode in episodes) == list(range(400))
        assert all(episode.returns == {"a": 3.0} and not episode.error for episode in episodes)
        retries = [turn.response.retries for episode in episodes for turn in episode.turns]
        assert sum(map(bool, retries)) >= server.cancelled > 0
        assert sum(retries) < 400
        await server.stop()

    asyncio.run(scenario())
