"""Answers that are kept: what counts as the same question, several askers and processes, files that are no cache."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures.thread import _global_shutdown_lock
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import marl_gem
from marl_gem.errors import ConfigError, LLMError, RecordError, TransientLLMError
from marl_gem.llm import LLM, Sampling
from marl_gem.llm.cache import FORMAT, Cached, ResponseCache, request_key
from marl_gem.llm.retry import Backoff, Retrying
from marl_gem.policies import LLMPolicy
from marl_gem.rollout import Job, collect
from marl_gem.types import Message, Response, ToolSpec

ROOT = Path(__file__).parents[2]
HELLO: list[Message] = [{"role": "user", "content": "hello"}]
PLAIN = Sampling()


class Counting:
    """Answers how often it was asked, after `wait`; the first `failures` times it fails."""

    def __init__(self, name: str = "counting", *, failures: int = 0, **attributes: Any) -> None:
        self.name, self.failures = name, failures
        self.asked = self.ended = 0
        self.free = asyncio.Event()
        self.free.set()
        for attribute, value in attributes.items():
            setattr(self, attribute, value)

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, seed: int, tools: Sequence[ToolSpec] = ()
    ) -> Response:
        self.asked += 1
        number = self.asked
        try:
            await self.free.wait()
        finally:
            self.ended += 1
        if number <= self.failures:
            raise TransientLLMError("not now")
        return Response(
            f"answer {number}",
            (1, 2),
            (3, 4),
            (-0.5, -0.25),
            usage={"prompt_tokens": 2, "completion_tokens": 2},
            reasoning="hm",
            cost=0.125,
            seconds=1.5,
            retries=2,
        )


def ask(llm: LLM, messages: Sequence[Message] = HELLO, sampling: Sampling = PLAIN, seed: int = 7) -> Response:
    return asyncio.run(llm.complete(messages, sampling, seed))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "answers.sqlite"


# What is kept


def test_the_same_question_is_asked_once_and_its_answer_outlives_the_process(file: Path) -> None:
    model = Counting()
    first = ask(Cached(model, file))
    gc.collect()
    again = ask(Cached(model, file))
    assert model.asked == 1
    assert not first.cached and again.cached
    assert msgspec.structs.replace(again, cached=False) == first, "cost, tokens, seconds and retries are as they were"


def test_a_cache_keeps_the_models_name_and_any_text(file: Path) -> None:
    class Odd(Counting):
        async def complete(self, *arguments: Any) -> Response:
            self.asked += 1
            return Response("\ud800 \x00 é \U0001f600")

    cached = Cached(odd := Odd("some model"), file)
    assert cached.name == "some model"
    messages: list[Message] = [{"role": "user", "content": [{"type": "image", "url": "data:,\udfff\x00"}]}]
    assert ask(cached, messages).text == ask(cached, messages).text == "\ud800 \x00 é \U0001f600"
    assert odd.asked == 1


@pytest.mark.parametrize(
    "other",
    [
        {"llm": Counting("another")},
        {"llm": Counting(url="http://elsewhere/v1")},
        {"llm": Counting(extra_body={"top_k": 5})},
        {"llm": Counting(logprobs="off")},
        {"messages": [{"role": "system", "content": "hello"}]},
        {"messages": [*HELLO, *HELLO]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]},
        {"messages": [{"role": "tool", "content": "hello", "name": "look"}]},
        {"sampling": Sampling(temperature=0.5)},
        {"sampling": Sampling(top_p=0.5)},
        {"sampling": Sampling(max_tokens=65)},
        {"sampling": Sampling(stop=("x",))},
        {"seed": 8},
        {"tools": (ToolSpec("look"),)},
        {"tools": (ToolSpec("look", "Look."),)},
    ],
)
def test_what_makes_another_question(other: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"llm": Counting(), "messages": HELLO, "sampling": PLAIN, "seed": 7, "tools": ()}
    assert request_key(**asked) == request_key(**asked | {"llm": Counting(), "messages": [dict(HELLO[0])]})
    assert request_key(**asked) != request_key(**asked | other)


def test_the_order_of_names_makes_no_other_question() -> None:
    first, second = {"type": "object", "title": "x"}, {"title": "x", "type": "object"}
    keys = {request_key(Counting(), HELLO, PLAIN, 7, [ToolSpec("look", "", schema)]) for schema in (first, second)}
    assert len(keys) == 1


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant"]), st.text(max_size=3)), min_size=1, max_size=3))
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_two_conversations_share_a_key(lines: list[tuple[str, str]]) -> None:
    messages: list[Message] = [{"role": role, "content": text} for role, text in lines]
    joined: list[Message] = [{"role": lines[0][0], "content": "".join(text for _, text in lines)}]
    same = request_key(Counting(), messages, PLAIN, 7, ()) == request_key(Counting(), joined, PLAIN, 7, ())
    assert same == (messages == joined)


def test_what_fails_is_asked_again(file: Path) -> None:
    cached = Cached(model := Counting(failures=1), file)
    with pytest.raises(TransientLLMError, match="not now"):
        ask(cached)
    assert (ask(cached).cached, ask(cached).cached, model.asked) == (False, True, 2)


def test_around_retries_the_answer_is_kept_with_what_it_took(file: Path) -> None:
    async def sleep(seconds: float) -> None:
        pass

    model = Counting(failures=2, url="http://there/v1")
    first, again = (ask(Cached(Retrying(model, backoff=Backoff(sleep=sleep)), file)) for _ in range(2))
    assert (first.retries, again.retries, again.cached, model.asked) == (4, 4, True, 3)
    assert ask(Cached(model, file)).cached, "wrappers are no part of the question"


def test_a_model_without_a_name_is_refused(file: Path) -> None:
    with pytest.raises(ConfigError, match="needs the name of the model"):
        Cached(Retrying(Counting(model=None)), file)


# Several at once


def test_concurrent_callers_of_one_question_are_answered_by_one_call(file: Path) -> None:
    async def many() -> list[Response]:
        model.free = asyncio.Event()
        callers = [asyncio.create_task(cached.complete(HELLO, PLAIN, 7)) for _ in range(20)]
        other = asyncio.create_task(cached.complete(HELLO, PLAIN, 8))
        await until(lambda: model.asked == 2)
        model.free.set()
        await other
        return await asyncio.gather(*callers)

    cached = Cached(model := Counting(), file)
    responses = asyncio.run(many())
    assert model.asked == 2
    assert len({response.text for response in responses}) == 1
    assert [response.cached for response in responses].count(False) == 1, "it was paid for once"


def test_concurrent_callers_share_a_failure_and_may_ask_again(file: Path) -> None:
    async def many() -> None:
        outcomes = await asyncio.gather(*(cached.complete(HELLO, PLAIN, 7) for _ in range(5)), return_exceptions=True)
        assert all(isinstance(outcome, TransientLLMError) for outcome in outcomes)
        assert (await cached.complete(HELLO, PLAIN, 7)).text == "answer 2"

    cached = Cached(model := Counting(failures=1), file)
    asyncio.run(many())
    assert model.asked == 2


@pytest.mark.parametrize("leaver", [0, 1])
def test_a_caller_that_leaves_takes_the_answer_from_nobody(file: Path, leaver: int) -> None:
    async def two() -> Response:
        model.free = asyncio.Event()
        callers = [asyncio.create_task(cached.complete(HELLO, PLAIN, 7)) for _ in range(2)]
        await until(lambda: model.asked == 1)
        callers[leaver].cancel()
        await asyncio.wait([callers[leaver]])
        assert callers[leaver].cancelled() and model.ended == 0
        model.free.set()
        return await callers[1 - leaver]

    cached = Cached(model := Counting(), file)
    response = asyncio.run(two())
    assert (response.text, response.cached, model.asked) == ("answer 1", False, 1)


def test_a_question_that_nobody_waits_for_is_asked_no_further(file: Path) -> None:
    async def leave() -> Response:
        model.free = asyncio.Event()
        callers = [asyncio.create_task(cached.complete(HELLO, PLAIN, 7)) for _ in range(3)]
        await until(lambda: model.asked == 1)
        for caller in callers:
            caller.cancel()
        await asyncio.wait(callers)
        assert model.ended == 1 and asyncio.all_tasks() == {asyncio.current_task()}
        model.free.set()
        return await cached.complete(HELLO, PLAIN, 7)

    cached = Cached(model := Counting(), file)
    assert asyncio.run(leave()).text == "answer 2"


def test_a_failure_that_nobody_hears_is_not_reported_by_asyncio(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Stubborn(Counting):
        async def complete(self, *arguments: Any) -> Response:
            self.asked += 1
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise LLMError("broken while it was cancelled") from None
            raise AssertionError

    async def leave() -> None:
        caller = asyncio.create_task(cached.complete(HELLO, PLAIN, 7))
        await until(lambda: model.asked == 1)
        caller.cancel()
        await asyncio.wait([caller])
        assert caller.cancelled()
        gc.collect()

    cached = Cached(model := Stubborn(), file)
    asyncio.run(leave())
    gc.collect()
    assert not caplog.records


def test_a_cache_serves_one_event_loop_after_the_other_also_after_a_cut_one(file: Path) -> None:
    async def cut() -> None:
        model.free = asyncio.Event()
        caller = asyncio.create_task(cached.complete(HELLO, PLAIN, 7))
        await until(lambda: model.asked == 1)
        assert not caller.done()  # and `asyncio.run` cancels it

    cached = Cached(model := Counting(), file)
    asyncio.run(cut())
    model.free = asyncio.Event()
    model.free.set()
    assert (ask(cached).cached, ask(cached).cached) == (False, True)


def test_two_models_share_a_cache(file: Path) -> None:
    cache = ResponseCache(file)
    model, other = Cached(Counting("one"), cache), Cached(Counting("other"), cache)
    assert [ask(llm).cached for llm in (model, other, model, other)] == [False, False, True, True]


def test_a_run_that_is_played_again_asks_nothing_and_repeats_ask_anew(file: Path) -> None:
    class Mover(Counting):
        """Plays Kuhn poker: checks or bets by the seed it is given."""

        async def complete(
            self, messages: Sequence[Message], sampling: Sampling, seed: int, tools: Sequence[ToolSpec] = ()
        ) -> Response:
            self.asked += 1
            return Response("[bet]" if seed % 2 else "[check]", cost=0.5, usage={"completion_tokens": 1})

    def play(repeats: Sequence[int]) -> list[Any]:
        policy = LLMPolicy(Cached(model, file))
        jobs = [Job(seed, policy, f"{seed}.{repeat}", repeat=repeat) for seed in range(5) for repeat in repeats]
        return collect(lambda: marl_gem.make("game:KuhnPoker-v0"), jobs)

    model = Mover()
    first = play([0, 1])
    asked = model.asked
    assert asked == sum(len(episode.turns) for episode in first)
    again = play([0, 1])
    assert model.asked == asked
    assert all(turn.response.cached for episode in again for turn in episode.turns)
    assert [(e.returns, e.cost, e.usage) for e in again] == [(e.returns, e.cost, e.usage) for e in first]
    play([2])
    assert model.asked > asked


# Several processes

ASKER = """
import asyncio, sys
from marl_gem.llm import LLM, Sampling
from marl_gem.llm.cache import Cached
from marl_gem.types import Response

class Model:
    name = "model"
    async def complete(self, messages, sampling, seed, tools=()):
        return Response(f"answer {seed}")

async def main():
    cached = Cached(Model(), sys.argv[1])
    for start in range(0, 300, 30):
        seeds = range(start, start + 30)
        asked = [cached.complete([{"role": "user", "content": "x"}], Sampling(), seed) for seed in seeds]
        for seed, response in zip(seeds, await asyncio.gather(*asked)):
            assert response.text == f"answer {seed}"

asyncio.run(main())
"""


@pytest.mark.slow
def test_several_processes_use_one_file_from_its_beginning(file: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", ASKER, str(file)]
    askers = [subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    errors = [asker.communicate(timeout=60)[1] for asker in askers]
    assert [asker.returncode for asker in askers] == [0] * 4, errors
    connection = sqlite3.connect(file)
    assert connection.execute("SELECT count(*) FROM answers").fetchone() == (300,)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_what_a_killed_process_had_kept_is_there(file: Path) -> None:
    code = ASKER.replace("asyncio.run(main())", "").replace("import asyncio", "import os, signal, asyncio")
    code += "\nasyncio.run(main()); os.kill(os.getpid(), signal.SIGKILL)"
    killed = subprocess.run([sys.executable, "-c", code, str(file)], cwd=ROOT, check=False)
    assert killed.returncode == -9
    model = Counting("model")
    assert ask(Cached(model, file), [{"role": "user", "content": "x"}], seed=5).text == "answer 5"


# Files that are no cache


def keep_one(file: Path) -> None:
    """A cache with one answer."""
    cache = ResponseCache(file)
    ask(Cached(Counting(), cache))
    cache.close()


def change(file: Path, statement: str) -> None:
    connection = sqlite3.connect(file)
    connection.execute(statement)
    connection.commit()
    connection.close()


def text_file(file: Path) -> None:
    file.write_text("not a database, but long enough to be looked at as if it were one. " * 20)


def zeros_in_the_header(file: Path) -> None:
    keep_one(file)
    file.write_bytes(bytes(50) + file.read_bytes()[50:])


def of_another_program(file: Path) -> None:
    change(file, "CREATE TABLE songs (title TEXT)")


def of_a_later_format(file: Path) -> None:
    keep_one(file)
    change(file, f"PRAGMA user_version = {FORMAT + 1}")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (text_file, "not a database"),
        (zeros_in_the_header, "not a database"),
        (of_another_program, "another program"),
        (of_a_later_format, f"has format {FORMAT + 1}"),
        (Path.mkdir, "unable to open"),
    ],
)
def test_a_file_that_is_no_cache_is_told_and_left_as_it_is(
    file: Path, spoil: Callable[[Path], None], message: str
) -> None:
    spoil(file)
    before = file.read_bytes() if file.is_file() else b""
    with pytest.raises(RecordError, match=message) as caught:
        ResponseCache(file)
    assert str(file) in str(caught.value) and "name another file" in str(caught.value)
    assert (file.read_bytes() if file.is_file() else b"") == before


def test_folders_are_made_and_a_place_that_cannot_be_is_told(tmp_path: Path) -> None:
    ResponseCache(tmp_path / "a" / "b" / "answers.sqlite")
    assert (tmp_path / "a" / "b" / "answers.sqlite").exists()
    (tmp_path / "file").touch()
    with pytest.raises(RecordError, match="cannot be used"):
        ResponseCache(tmp_path / "file" / "answers.sqlite")


@pytest.mark.parametrize("response", ["'{'", "'{}'", "'[1]'", "x'00ff'"])
def test_a_damaged_answer_is_told(file: Path, response: str) -> None:
    keep_one(file)
    change(file, f"UPDATE answers SET response = {response}")
    with pytest.raises(LLMError, match="cannot be read") as caught:
        ask(Cached(Counting(), file))
    assert str(file) in str(caught.value)


def test_pages_that_are_damaged_later_are_told(file: Path) -> None:
    async def fill() -> None:
        await asyncio.gather(*(cached.complete(HELLO, PLAIN, seed) for seed in range(500)))

    cached = Cached(Counting(), file)
    asyncio.run(fill())
    assert isinstance(cached.cache, ResponseCache)
    cached.cache.close()
    with file.open("r+b") as damaged:
        damaged.seek(4096)
        damaged.write(b"\xff" * (file.stat().st_size - 4096))
    with pytest.raises(LLMError, match="cannot be read"):
        ask(Cached(Counting(), file), seed=3)


def test_where_nothing_can_be_written_the_run_goes_on_with_one_warning(file: Path) -> None:
    cached = Cached(model := Counting(), file)
    change(file, "CREATE TRIGGER full BEFORE INSERT ON answers BEGIN SELECT RAISE(ABORT, 'disk is full'); END")
    with pytest.warns(RuntimeWarning, match="stores no responses: disk is full") as caught:
        assert [ask(cached, seed=seed).text for seed in range(3)] == ["answer 1", "answer 2", "answer 3"]
    assert len(caught) == 1 and model.asked == 3


def test_an_answer_that_is_no_plain_data_is_answered_and_not_kept(file: Path) -> None:
    class Odd(Counting):
        async def complete(self, *arguments: Any) -> Response:
            return Response("ok", logprobs=(float("nan"),))

    with pytest.warns(RuntimeWarning, match="stores no responses"):
        assert ask(Cached(Odd(), file)).text == "ok"


def test_a_closed_cache_says_so(file: Path) -> None:
    cache = ResponseCache(file)
    cache.close()
    cache.close()
    with pytest.raises(LLMError, match="is closed"):
        ask(Cached(Counting(), cache))


def test_a_cache_that_nobody_has_any_more_lets_go_of_its_thread_and_file(file: Path) -> None:
    before = set(threading.enumerate())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cached = Cached(Counting(), file)
        ask(cached)
        (thread,) = set(threading.enumerate()) - before
        deadline = time.monotonic() + 5
        del cached
        gc.collect()
        thread.join(5)
        assert not thread.is_alive()
        while Path(f"{file}-wal").exists():  # until the connection is closed too
            gc.collect()
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_cache_may_go_in_the_middle_of_another_pool_s_work(file: Path) -> None:
    """A collection may come while its thread holds the lock that all pools share; nothing may wait for that then."""
    cached = Cached(Counting(), file)
    ask(cached)
    cached.itself = cached  # type: ignore[attr-defined]  # so that only a collection lets go of it
    del cached

    def collect() -> None:
        with _global_shutdown_lock:
            gc.collect()

    at_work = threading.Thread(target=collect, daemon=True)
    at_work.start()
    at_work.join(10)
    assert not at_work.is_alive()


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what must come soon."""
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.002)
