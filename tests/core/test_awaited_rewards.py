"""Rewards that have to be awaited, as a judge's: `step` waits for them, rollouts await them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from marl_gem import MultiAgentEnv
from marl_gem.env import Step
from marl_gem.episode_clock import waiting_for_model
from marl_gem.errors import EpisodeOver, LLMError, ScenarioFault
from marl_gem.policies import ScriptedPolicy
from marl_gem.rollout import Job, collect, play_episode
from marl_gem.types import EpisodeError, Limits
from marl_gem.vector import VectorEnv
from marl_gem.wrappers import (
    EpisodeStatistics,
    ParseAction,
    RecordEpisodes,
    RewardScale,
    ShowHistory,
    TimeLimit,
    Wrapper,
)
from tests.core.rollout_scenarios import ones, played, timeless
from tests.event_loop import run_in_virtual_time
from tests.toys import NumberGame, SimultaneousNumbers


class Judged(NumberGame):
    """The number game, where a judge gives the rewards."""

    awaits = True

    def __init__(self, judge: Callable[[str], Awaitable[float]] | None = None) -> None:
        self.judge = judge or number

    def fork(self) -> Any:
        fork = super().fork()
        fork.judge = self.judge
        return fork

    def _process_actions(self, actions: dict[str, str]) -> None:
        super()._process_actions(actions)
        for agent, text in actions.items():
            self.rewards[agent] = self._judged(agent, text)  # type: ignore[assignment]

    async def _judged(self, agent: str, text: str) -> float:
        reward = await self.judge(text)
        self.infos[agent]["judged"] = text
        return reward


async def number(text: str) -> float:
    await asyncio.sleep(0)
    return float(text)


class JudgedTogether(Judged, SimultaneousNumbers): ...


def episode_by_hand(env: MultiAgentEnv) -> list[Step]:
    env.reset(seed=3)
    steps = []
    while not env.done:
        steps.append(env.step(dict.fromkeys(env.acting, "2")))
    return steps


def test_step_waits_for_them() -> None:
    plain, judged = episode_by_hand(NumberGame()), episode_by_hand(Judged())
    assert [step[1] for step in judged] == [step[1] for step in plain]
    assert judged[0][4] == {"a": {"read": "2", "judged": "2"}, "b": {"legal_actions": ["1", "2", "3"]}}


def test_step_waits_for_them_within_a_running_loop() -> None:
    async def in_a_notebook() -> list[Step]:
        return episode_by_hand(Judged())

    assert asyncio.run(in_a_notebook()) == episode_by_hand(Judged())


def test_step_async_is_step() -> None:
    async def by_hand() -> list[Step]:
        env = Judged()
        env.reset(seed=3)
        steps = []
        while not env.done:
            steps.append(await env.fork().step_async(dict.fromkeys(env.acting, "2")))
            assert steps[-1] == await env.step_async(dict.fromkeys(env.acting, "2"))
        with pytest.raises(EpisodeOver):
            await env.step_async({})
        return steps

    assert asyncio.run(by_hand()) == episode_by_hand(Judged())


def test_a_rollout_awaits_them_beside_each_other() -> None:
    """A thousand episodes at a time, each waiting 3 s for each of its 4 judgements; no threads."""

    async def slow(text: str) -> float:
        await asyncio.sleep(3)
        assert threading.current_thread() is threading.main_thread()
        return float(text)

    async def play() -> float:
        episodes = await asyncio.gather(*(play_episode(Judged(slow), Job(seed, ones)) for seed in range(1000)))
        assert {tuple(episode.returns.items()) for episode in episodes} == {(("a", 2.0), ("b", 2.0))}
        return asyncio.get_running_loop().time()

    assert run_in_virtual_time(play()) == 12


def test_judges_of_one_step_are_asked_at_the_same_time() -> None:
    met: list[str] = []

    async def meets(text: str) -> float:
        met.append(text)
        while len(met) % 2:
            await asyncio.sleep(0.001)
        return float(text)

    assert episode_by_hand(JudgedTogether(meets)) == episode_by_hand(JudgedTogether())


def test_a_vector_of_envs_waits_for_all_at_the_same_time() -> None:
    count = threading.Barrier(4)

    async def meets(text: str) -> float:
        await asyncio.to_thread(count.wait, 30)
        return float(text)

    with VectorEnv(lambda: Judged(meets), 4, seed=1) as envs:
        envs.reset()
        results = envs.step([{"a": "2"}] * 4)
    assert [result.rewards for result in results] == [{"a": 2.0, "b": 0.0}] * 4


# Failures


async def fails(text: str) -> float:
    raise LLMError("no judgement")


async def breaks(text: str) -> float:
    raise KeyError("no judgement")


async def nonsense(text: str) -> Any:
    return "good"


def test_a_judge_that_fails_is_the_model_s_failure() -> None:
    (episode,) = played(lambda: Judged(fails), Job(0, ones))
    assert episode.error == EpisodeError("llm", "LLMError", "no judgement")
    env = Judged(fails)
    env.reset(seed=0)
    with pytest.raises(LLMError, match="no judgement"):
        env.step({"a": "1"})
    with pytest.raises(EpisodeOver, match="not reset after a failure"):
        env.step({"b": "1"})
    env.judge = number
    assert len(episode_by_hand(env)) == 4


@pytest.mark.parametrize("judge", [breaks, nonsense])
def test_a_reward_that_raises_or_is_no_number_is_the_scenario_s_fault(judge: Any) -> None:
    (episode,) = played(lambda: Judged(judge), Job(0, ones))
    assert episode.error and (episode.error.origin, episode.error.type) == ("env", "ScenarioFault")
    with pytest.raises(ScenarioFault):
        episode_by_hand(Judged(judge))


def test_an_awaitable_that_is_not_declared_is_a_fault() -> None:
    class Undeclared(Judged):
        awaits = False

    with pytest.raises(ScenarioFault, match="or awaitables of them where the env declares awaits = True"):
        episode_by_hand(Undeclared())


def test_what_fails_cancels_the_other_judges() -> None:
    cancelled = []

    async def first_fails(text: str) -> float:
        if text == "1":
            raise LLMError("no judgement")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(text)
            raise
        return 0.0

    seats = {"a": ScriptedPolicy(["1"]), "b": ScriptedPolicy(["2"])}
    (episode,) = collect(lambda: JudgedTogether(first_fails), [Job(0, seats)])
    assert episode.error and episode.error.origin == "llm" and cancelled == ["2"]


# The limit of seconds


def play_with_limit(judge: Callable[[str], Awaitable[float]]) -> tuple[Any, float]:
    async def play() -> tuple[Any, float]:
        episode = await play_episode(Judged(judge), Job(0, ones, limits=Limits(seconds=10)))
        return episode, asyncio.get_running_loop().time()

    return run_in_virtual_time(play())


def test_the_time_of_a_judge_does_not_count() -> None:
    async def slow(text: str) -> float:
        with waiting_for_model("judge", counts=False):
            await asyncio.sleep(8)
        return float(text)

    episode, seconds = play_with_limit(slow)
    assert episode.ending == "terminated" and seconds == 32


def test_a_judge_that_never_answers_is_the_model_s_failure() -> None:
    async def hangs(text: str) -> float:
        with waiting_for_model("judge", counts=False):
            await asyncio.Event().wait()
        return 0.0

    episode, seconds = play_with_limit(hangs)
    assert episode.error and episode.error.origin == "llm" and seconds == 20
    assert episode.error.message.startswith("no answer from judge:")


# Wrappers


class Doubles(Wrapper):
    """A wrapper that overrides `step` itself, as one may."""

    changes = frozenset({"rewards"})

    def step(self, actions: Any) -> Step:
        observations, rewards, *others = super().step(actions)
        return observations, {agent: 2 * reward for agent, reward in rewards.items()}, *others  # type: ignore[return-value]


WRAPPERS: list[Callable[[MultiAgentEnv], MultiAgentEnv]] = [
    lambda env: TimeLimit(env, 3),
    lambda env: RewardScale(env, 3.0),
    lambda env: EpisodeStatistics(env),
    lambda env: ParseAction(env, "tagged:answer"),
    lambda env: ShowHistory(env),
    lambda env: EpisodeStatistics(TimeLimit(RewardScale(env, 3.0), 3)),
]


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_wrappers_forward_them(wrap: Callable[[MultiAgentEnv], MultiAgentEnv]) -> None:
    class Numbers(NumberGame):
        """As if it had been judged."""

        def _process_actions(self, actions: dict[str, str]) -> None:
            super()._process_actions(actions)
            for agent, text in actions.items():
                self.infos[agent]["judged"] = text

    env = wrap(Judged())
    assert env.awaits and not env.blocking
    assert episode_by_hand(env) == episode_by_hand(wrap(Numbers()))
    jobs = [Job(seed, ones) for seed in range(3)]
    plain = [msgspec.structs.replace(timeless(e), scenario="Judged") for e in collect(lambda: wrap(Numbers()), jobs)]
    assert [timeless(episode) for episode in collect(lambda: wrap(Judged()), jobs)] == plain


def test_a_recorder_records_a_judge_that_fails(tmp_path: Any) -> None:
    async def step() -> None:
        env = RecordEpisodes(Judged(fails), tmp_path)
        env.reset(seed=0)
        with pytest.raises(LLMError):
            await env.step_async({"a": "1"})
        env.close()

    asyncio.run(step())
    assert '"no judgement"' in (tmp_path / "episodes.jsonl").read_text("utf-8")


def test_a_wrapper_with_its_own_step_is_stepped_in_a_thread_and_the_judge_asked_in_the_rollout() -> None:
    threads = set()

    async def judge(text: str) -> float:
        threads.add(threading.current_thread())
        return float(text)

    for wrap in (Doubles, lambda env: TimeLimit(Doubles(env), 10)):
        env = wrap(Judged())
        assert env.blocking and not env.awaits
        (episode,) = collect(lambda wrap=wrap: wrap(Judged(judge)), [Job(0, ones)])  # type: ignore[misc]
        assert [turn.reward for turn in episode.turns] == [2.0] * 4
    assert threads == {threading.main_thread()}


def test_around_step_may_step_the_env_never_or_twice() -> None:
    class Pairs(Wrapper):
        """ "stay" is no step of the env; "twice" is two."""

        def around_step(self, actions: Any) -> Any:
            if "stay" in actions.values():
                return dict.fromkeys(actions, "stay"), {}, {}, {}, {}
            if "twice" in actions.values():
                yield {"a": "1"}
                return (yield {"b": "2"})
            return (yield actions)

    for play in (lambda env, actions: env.step(actions), lambda env, actions: asyncio.run(env.step_async(actions))):
        env = Pairs(Judged())
        env.reset(seed=0)
        assert play(env, {"a": "stay"})[0] == {"a": "stay"} and env.steps == 0
        assert play(env, {"a": "twice"})[1] == {"a": 0.0, "b": 2.0} and env.steps == 2
