"""Envs, agents and policies that fail."""

from __future__ import annotations

import asyncio
import signal
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from marl_gem import (
    Episode,
    MultiAgentEnv,
    Response,
    Role,
)
from marl_gem.errors import AgentError, ConfigError, LLMError, MarlGemError, UnknownScenario
from marl_gem.policies import ScriptedPolicy
from marl_gem.rollout import Job, collect, stream
from marl_gem.types import EpisodeError, from_json, to_json
from tests.core.rollout_scenarios import ones, seats_of
from tests.toys import Delayed, Failing, NumberGame, SimultaneousNumbers

# What goes wrong


NEIGHBOURS = 3


def beside(make: Callable[[], MultiAgentEnv], seating: Any, seed: int = 0) -> EpisodeError:
    """The error of an episode; its neighbours, played before, beside and after it, are well."""
    for concurrency in (1, 2, 9):
        good = [Job(seed, seats_of(a=ones, b=ones)) for seed in range(NEIGHBOURS)]
        episodes = collect(make, [*good, Job(seed, seating), *good], concurrency=concurrency)
        bad = episodes.pop(NEIGHBOURS)
        assert [episode.error for episode in episodes] == [None] * 2 * NEIGHBOURS
        assert all(episode.returns == {"a": 2.0, "b": 2.0} for episode in episodes)
        assert bad.ending == "error" and bad.error
    assert bad.error
    return bad.error


def test_an_env_that_fails() -> None:
    error = beside(NumberGame, seats_of(a=ScriptedPolicy(["1", "break"]), b=ones))
    assert (error.origin, error.type, error.agent) == ("env", "ScenarioFault", None)
    assert "_process_actions raised RuntimeError at step 3" in error.message and "broken" in error.message


def test_an_env_that_fails_keeps_the_turns_before() -> None:
    (episode,) = collect(NumberGame, [Job(0, seats_of(a=ScriptedPolicy(["3", "break"]), b=ones))])
    assert [turn.response.text for turn in episode.turns] == ["3", "1", "break"]
    assert episode.returns == {"a": 3.0, "b": 1.0}


@pytest.mark.parametrize("in_a_thread", [True, False])
def test_an_env_that_fails_in_its_step_or_ends_the_program(in_a_thread: bool) -> None:
    for kind in (RuntimeError, StopIteration, GeneratorExit, SystemExit, KeyboardInterrupt, asyncio.CancelledError):

        class Breaks(NumberGame):
            blocking = in_a_thread

            def step(self, actions: Any, kind: Any = kind) -> Any:
                if "break" in actions.values():
                    raise kind("broken")
                return super().step(actions)

        assert beside(Breaks, ScriptedPolicy(["break"])) == EpisodeError("env", kind.__name__, "broken")


def test_an_env_that_failed_is_closed_and_not_used_again() -> None:
    made, closed, used = [], [], []

    class Watched(NumberGame):
        def reset(self, *arguments: Any, **options: Any) -> Any:
            used.append(self)
            return super().reset(*arguments, **options)

        def close(self) -> None:
            closed.append(self)

    def make() -> MultiAgentEnv:
        made.append(Watched())
        return made[-1]

    collect(make, [Job(0, ones), Job(0, ScriptedPolicy(["break"])), Job(0, ones), Job(0, ones)], concurrency=1)
    first, second = made
    assert used == [first, first, second, second] and closed == [first, second]


def test_where_ctrl_c_is_ignored_a_keyboard_interrupt_is_the_env_s_own() -> None:
    class Interrupts(NumberGame):
        def _process_actions(self, actions: dict[str, str]) -> None:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as for what a shell starts in the background
    try:
        (episode,) = collect(Interrupts, [Job(0, ones)], warn=False)
    finally:
        signal.signal(signal.SIGINT, before)
    assert episode.error == EpisodeError("env", "KeyboardInterrupt", "")


def test_a_role_that_cannot_be_told_is_the_env_s_failure() -> None:
    class Speechless(NumberGame):
        def role(self, agent: str) -> Role:
            raise RuntimeError("no words")

    (episode,) = collect(Speechless, [Job(0, ones)])
    assert episode.error == EpisodeError("env", "RuntimeError", "no words", "a")
    assert (episode.roles, episode.turns) == ({}, ())


def test_what_is_no_role_is_the_env_s_failure() -> None:
    class Tells(NumberGame):
        def role(self, agent: str) -> Any:
            return f"You are {agent}."

    (episode,) = collect(Tells, [Job(0, ones)])
    message = "role('a') gave 'You are a.'; it must give a Role"
    assert episode.error == EpisodeError("env", "ScenarioFault", message, "a")
    assert from_json(to_json(episode), Episode) == episode


@pytest.mark.parametrize(
    ("how", "origin", "kind"),
    [
        (RuntimeError("no idea"), "agent", "RuntimeError"),
        (AgentError("no idea"), "agent", "AgentError"),
        (LLMError("no idea"), "llm", "LLMError"),
        (TimeoutError("no idea"), "agent", "TimeoutError"),
        (asyncio.CancelledError("no idea"), "agent", "CancelledError"),
        (StopIteration("no idea"), "agent", "RuntimeError"),
        (SystemExit("no idea"), "agent", "SystemExit"),
        ("no idea", "agent", "AgentError"),
        (None, "agent", "AgentError"),
        (Response(7), "agent", "AgentError"),  # type: ignore[arg-type]
    ],
    ids=repr,
)
@pytest.mark.parametrize("make", [NumberGame, SimultaneousNumbers])
def test_an_agent_that_fails(make: Callable[[], MultiAgentEnv], how: Any, origin: str, kind: str) -> None:
    if make is SimultaneousNumbers:
        make = type("Short", (SimultaneousNumbers,), {"length": 2})
    error = beside(make, seats_of(a=ones, b=Failing(how)))
    assert (error.origin, error.type, error.agent) == (origin, kind, "b")


def test_a_policy_that_cannot_take_a_seat() -> None:
    class Refuses:
        name = "refuses"

        def agent(self, agent_id: str, role: Role, seed: int) -> Any:
            raise RuntimeError("not there")

    assert beside(NumberGame, seats_of(a=ones, b=Refuses())) == EpisodeError("agent", "RuntimeError", "not there", "b")


@pytest.mark.parametrize("make", [NumberGame, SimultaneousNumbers])
def test_a_missing_seat(make: Callable[[], MultiAgentEnv]) -> None:
    (episode,) = collect(make, [Job(0, seats_of(b=ones))])
    assert episode.error == EpisodeError(
        "agent", "AgentError", "there is no policy for 'a', only for ['b']; seat one", "a"
    )
    assert episode.turns == ()


def test_a_bad_seed_does_not_show_the_last_episode_s_returns() -> None:
    _, bad, _ = collect(NumberGame, [Job(0, ones), Job(-1, ones), Job(0, ones)], concurrency=1)
    assert bad.error and bad.error.type == "InvalidOption"
    assert (bad.returns, bad.turns, bad.final_infos) == ({}, (), {})


@pytest.mark.parametrize("kind", [MarlGemError, OSError, SystemExit])
@pytest.mark.parametrize("concurrency", [1, 3])
def test_an_env_that_cannot_be_made_any_more_is_the_failure_of_its_episode(
    kind: type[BaseException], concurrency: int
) -> None:
    made: list[Any] = []

    def make() -> MultiAgentEnv:
        made.append(None)
        if len(made) > concurrency:
            raise kind("no more")
        return NumberGame()

    jobs = [*(Job(0, ones) for _ in range(4)), Job(0, ScriptedPolicy(["break"])), *(Job(0, ones) for _ in range(9))]
    *_, last = episodes = collect(make, jobs, concurrency=concurrency)
    assert len([episode for episode in episodes if not episode.error]) >= 4
    if concurrency == 1:
        assert last.error == EpisodeError("env", kind.__name__, "no more") and last.ending == "error"
        assert from_json(to_json(last), Episode) == last


@pytest.mark.parametrize("error", [UnknownScenario("no such id"), ConfigError("no such thing")], ids=repr)
def test_a_scenario_that_was_asked_for_wrongly_ends_the_stream(error: MarlGemError) -> None:
    def make() -> MultiAgentEnv:
        raise error

    with pytest.raises(type(error), match="no such"):
        collect(make, [Job(0, ones)] * 10)


def test_jobs_that_raise_end_the_stream() -> None:
    def jobs() -> Iterator[Job]:
        yield Job(0, ones)
        raise ValueError("no more jobs")

    async def all_of_them() -> None:
        async for _ in stream(NumberGame, jobs()):
            pass

    with pytest.raises(ValueError, match="no more jobs"):
        asyncio.run(all_of_them())


def test_an_env_that_cannot_be_closed_is_a_warning() -> None:
    class Clings(NumberGame):
        def close(self) -> None:
            raise OSError("stuck")

    jobs = [Job(0, ones), Job(1, ScriptedPolicy(["break"])), *(Job(seed, Delayed(lambda _: 0.01)) for seed in (2, 3))]
    with pytest.warns(RuntimeWarning, match=r"Clings: close\(\) raised OSError: stuck"):
        episodes = collect(Clings, jobs, concurrency=4)
    assert [bool(episode.error) for episode in episodes] == [False, True, False, False]


def test_a_warning_says_that_all_episodes_failed() -> None:
    jobs = [Job(seed, ScriptedPolicy(["break"])) for seed in range(3)]
    expected = r"all 3 episodes failed, the first in env: ScenarioFault: .*broken.*episode\.error says why"
    with pytest.warns(RuntimeWarning, match=expected):
        collect(NumberGame, jobs)
    with pytest.warns(RuntimeWarning, match="the episode failed in agent, agent 'b': "):
        collect(NumberGame, [Job(0, {"a": ones})])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        collect(NumberGame, jobs, warn=False)
        collect(NumberGame, [*jobs, Job(9, ones)])
        collect(NumberGame, [])
