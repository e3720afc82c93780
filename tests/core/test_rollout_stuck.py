"""Steps of blocking envs that do not return: the episode's limit and the end of a rollout let go of them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from marl_gem import env_threads
from marl_gem.policies import ScriptedPolicy
from marl_gem.rollout import Job, collect, play_episode, stream
from marl_gem.types import Limits
from tests.core.rollout_scenarios import ones, played
from tests.toys import NumberGame, always

stuck = always("stuck")
SHORT = Limits(seconds=0.5)
"""Long enough for a step to begin on a busy machine."""


class Sticky(NumberGame):
    """On "stuck" a step does not return before `release` is set. The classes of `sticky` have their own."""

    blocking = True
    release: threading.Event
    live: list[Sticky]
    closed: list[tuple[Sticky, str, bool]]

    def __init__(self) -> None:
        self.at_work = False
        self.live.append(self)

    def _process_actions(self, actions: dict[str, str]) -> None:
        self.at_work = True
        if "stuck" in actions.values():
            assert self.release.wait(60)
        self.at_work = False
        super()._process_actions(actions)

    def close(self) -> None:
        self.closed.append((self, threading.current_thread().name, self.at_work))


@pytest.fixture
def sticky(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(env_threads, "PATIENCE", 0.05)
    kind: Any = type("Sticky", (Sticky,), {"release": threading.Event(), "live": [], "closed": []})
    yield kind
    kind.release.set()
    deadline = time.monotonic() + 10
    while len(kind.closed) < len(kind.live) or any(t.name.startswith("marl_gem-env") for t in threading.enumerate()):
        assert time.monotonic() < deadline, (kind.closed, threading.enumerate())
        time.sleep(0.005)
    assert not any(at_work for _, _, at_work in kind.closed), "an env was closed while a step was at work"
    assert len({id(env) for env, _, _ in kind.closed}) == len(kind.closed)


def test_a_limit_of_seconds_lets_go_of_a_step_and_its_env(sticky: Any) -> None:
    jobs = [Job(0, stuck, limits=SHORT), *(Job(seed, ones) for seed in range(3))]
    with pytest.warns(RuntimeWarning, match=r"have not returned: 1 of Sticky\."):
        first, *others = collect(sticky, jobs, concurrency=1)
    assert (first.ending, first.limit, first.error) == ("truncated", "seconds", None)
    assert [turn.response.text for turn in first.turns] == ["stuck"] and first.returns == {"a": 0.0, "b": 0.0}
    assert all(episode.returns == {"a": 2.0, "b": 2.0} for episode in others)
    stuck_env, next_env = sticky.live
    assert [env for env, _, _ in sticky.closed] == [next_env] and stuck_env.at_work


def test_an_env_is_closed_in_its_thread_when_the_step_returns_after_all(sticky: Any) -> None:
    with pytest.warns(RuntimeWarning, match="have not returned"):
        collect(sticky, [Job(0, stuck, limits=SHORT)])
    assert not sticky.closed
    sticky.release.set()
    while not sticky.closed:
        time.sleep(0.005)
    ((env, thread, at_work),) = sticky.closed
    assert env is sticky.live[0] and thread.startswith("marl_gem-env") and not at_work


def test_steps_that_are_stuck_take_no_others_thread(sticky: Any) -> None:
    jobs = [Job(seed, ones) if seed % 4 else Job(seed, stuck, limits=SHORT) for seed in range(16)]
    with pytest.warns(RuntimeWarning) as warned:
        episodes = collect(sticky, jobs, concurrency=4)
    assert "have not returned: 4 of Sticky." in str(warned[-1].message)
    assert [episode.limit for episode in episodes] == ["seconds" if seed % 4 == 0 else "" for seed in range(16)]
    assert len(sticky.live) <= 4 + 4


def test_a_step_that_is_stuck_does_not_hold_up_the_end_of_a_rollout(sticky: Any) -> None:
    async def first_only() -> None:
        episodes = stream(sticky, [Job(0, stuck), Job(1, ones)], concurrency=2)
        assert (await anext(episodes)).seed == 1
        await episodes.aclose()

    with pytest.warns(RuntimeWarning, match=r"have not returned: 1 of Sticky\."):
        asyncio.run(asyncio.wait_for(first_only(), 30))


def test_a_step_that_returns_soon_is_waited_for_at_the_end(sticky: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env_threads, "PATIENCE", 60.0)

    async def first_only() -> None:
        episodes = stream(sticky, [Job(0, stuck), Job(1, ones)], concurrency=2)
        await anext(episodes)
        threading.Timer(0.1, sticky.release.set).start()
        await episodes.aclose()
        assert len(sticky.closed) == 2

    asyncio.run(first_only())


def test_one_episode_alone(sticky: Any) -> None:
    env = sticky()
    with pytest.warns(RuntimeWarning, match=r"have not returned: 1 of Sticky\."):
        episode = asyncio.run(play_episode(env, Job(0, stuck, limits=SHORT)))
    assert episode.limit == "seconds" and env.at_work
    sticky.closed.append((env, "", False))  # that is the caller's to do


def test_a_reset_that_is_stuck(sticky: Any) -> None:
    class Resets(sticky):  # type: ignore[misc]
        def _reset(self, options: Any) -> None:
            self.release.wait(60)

    with pytest.warns(RuntimeWarning, match="have not returned"):
        (episode,) = played(Resets, Job(0, ones, limits=SHORT))
    assert (episode.limit, episode.turns, episode.returns) == ("seconds", (), {})


def test_a_close_that_is_stuck_holds_up_nobody(sticky: Any) -> None:
    class Clings(sticky):  # type: ignore[misc]
        def close(self) -> None:
            self.release.wait(60)
            super().close()

    jobs = [Job(0, ScriptedPolicy(["break"])), *(Job(seed, ones) for seed in range(5))]
    with pytest.warns(RuntimeWarning, match="have not returned: 2 of Clings"):
        episodes = collect(Clings, jobs, concurrency=1)
    assert [bool(episode.error) for episode in episodes] == [True, *[False] * 5]
