"""Seats that somebody else answers, with scripted parts."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from marl_gem.errors import AgentError, ConfigError, MarlGemError, MissingPackage
from marl_gem.integrations import (
    Completion,
    LoopThread,
    Request,
    SeatRunner,
    Start,
    SteppedEpisode,
    per_agent_advantages,
    samples,
    turn_advantages,
)
from marl_gem.policies import LLMPolicy
from marl_gem.rollout import stream
from marl_gem.trainers.algorithms import make_algorithm
from marl_gem.trainers.batch import Batch, trajectories
from marl_gem.views import bare
from tests.integrations.words import WordTokenizer
from tests.toys import NumberGame, ScriptedLLM, SimultaneousNumbers, ThreeTurns, always, one_agent

TOKENIZER: Any = WordTokenizer()


def in_tokens(text: str, logprob: float = -0.5) -> Completion:
    ids = (*TOKENIZER.encode(text), TOKENIZER.eos_token_id)
    return Completion(ids, (logprob,) * len(ids))


class Recorder:
    """Answers every request by the number of the call, and keeps the requests of each call."""

    def __init__(self) -> None:
        self.calls: list[list[Request]] = []

    def __call__(self, requests: list[Request]) -> Sequence[Completion]:
        self.calls.append(requests)
        return [in_tokens(str(len(self.calls))) for _ in requests]


def test_the_other_side_answers_its_seats_and_ours_are_played() -> None:
    runner = SeatRunner(NumberGame, ["a"], {"b": always("7")}, tokenizer=TOKENIZER)
    generate = Recorder()
    episodes = runner.play_sync(generate, [Start(seed) for seed in range(3)])
    assert [episode.seed for episode in episodes] == [0, 1, 2]
    assert [episode.returns for episode in episodes] == [{"a": 3.0, "b": 14.0}] * 3
    assert [len(call) for call in generate.calls] == [3, 3]  # all that wait are asked together
    assert episodes[0].models == {"a": "outside", "b": "7"}


def test_all_turns_of_a_seat_are_one_sample_whose_mask_marks_what_was_sampled() -> None:
    runner = SeatRunner(NumberGame, others={"b": always("7")}, tokenizer=TOKENIZER)
    (episode,) = runner.play_sync(Recorder(), [Start(0)])
    (sample,) = samples([episode], runner.seats)
    text = TOKENIZER.text(sample.prompt_ids)
    assert text == "<system> You are a. <user> step 0 <assistant>"
    assert TOKENIZER.text(sample.completion_ids) == "1 <end> <user> step 2 <assistant> 2 <end>"
    assert sample.mask == (1, 1, 0, 0, 0, 0, 1, 1)
    assert sample.logprobs == (-0.5, -0.5, 0.0, 0.0, 0.0, 0.0, -0.5, -0.5)
    assert (sample.agent, sample.reward, sample.turns) == ("a", 3.0, 2)


def test_a_view_that_forgets_gives_several_samples() -> None:
    runner = SeatRunner(NumberGame, others={"b": "random"}, tokenizer=TOKENIZER, view=bare)
    (episode,) = runner.play_sync(Recorder(), [Start(0)])
    assert [sample.turns for sample in samples([episode], runner.seats)] == [1, 1]


def test_seats_that_act_together_are_asked_together_each_by_its_function() -> None:
    runner = SeatRunner(SimultaneousNumbers, tokenizer=TOKENIZER)
    first, second = Recorder(), Recorder()
    (episode,) = runner.play_sync({"a": first, "b": second}, [Start(0)])
    assert len(first.calls) == len(second.calls) == 4
    assert {sample.agent: sample.reward for sample in samples([episode])} == {"a": 10.0, "b": 10.0}


def test_a_coroutine_function_lets_other_episodes_go_on() -> None:
    """Each request has a call of its own; the first returns only after the other episodes have ended."""
    runner = SeatRunner(ThreeTurns)
    finished = asyncio.Event()
    left = 3 * 4 - 3

    async def generate(requests: list[Request]) -> list[str]:
        nonlocal left
        if len(seeds) < 1:
            seeds.append(requests[0].seed)
            await finished.wait()
            return ["late"] * len(requests)
        left -= len(requests)
        if left == 0:
            finished.set()
        return ["ok"] * len(requests)

    seeds: list[int] = []

    async def play() -> list[float]:
        policy = runner.policy(generate, max_batch=1)
        jobs = [runner.job(Start(seed), {"player": policy}, str(seed)) for seed in range(4)]
        return [e.returns["player"] async for e in stream(runner.spec.make, jobs, concurrency=4)]

    assert asyncio.run(play()) == [3.0] * 4


@pytest.mark.parametrize(
    ("generate", "message"),
    [
        (lambda requests: [], "gave 0 answers to 1 requests"),
        (lambda requests: [Completion((1, 2), (0.1,))], "1 log-probabilities for 2 tokens"),
        (lambda requests: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_what_generate_does_wrong_is_the_error_of_the_episode(generate: Any, message: str) -> None:
    runner = SeatRunner(ThreeTurns, tokenizer=TOKENIZER)
    (episode,) = runner.play_sync(generate, [Start(0)])
    assert episode.error is not None and episode.error.origin == "llm"
    assert message in episode.error.message
    assert samples([episode]) == []


def test_answers_without_tokens_cannot_be_samples() -> None:
    runner = SeatRunner(ThreeTurns)
    (episode,) = runner.play_sync(lambda requests: ["text"] * len(requests), [Start(0)])
    assert episode.returns == {"player": 3.0}
    with pytest.raises(ConfigError, match="answered without tokens"):
        samples([episode])


def test_wrong_seats_are_named() -> None:
    with pytest.raises(AgentError, match="no agent 'c'; its agents are a, b"):
        SeatRunner(NumberGame, ["c"])
    with pytest.raises(AgentError, match="'a' is named in seats and in others"):
        SeatRunner(NumberGame, ["a"], {"a": "random"})
    with pytest.raises(AgentError, match="others names all of them"):
        SeatRunner(NumberGame, others={"a": "random", "b": "random"})
    with pytest.raises(AgentError, match="nobody answers b"):
        SeatRunner(NumberGame).play_sync({"a": Recorder()}, [Start(0)])


def test_a_pool_is_drawn_from_for_each_episode_and_the_same_start_draws_the_same() -> None:
    pool: Any = [always("1"), always("2"), always("3")]
    runner = SeatRunner(NumberGame, others={"b": pool}, tokenizer=TOKENIZER)
    starts = [Start(seed, repeat=repeat) for seed in range(4) for repeat in range(2)]
    opponents = [[e.models["b"] for e in runner.play_sync(Recorder(), starts)] for _ in range(2)]
    assert opponents[0] == opponents[1]
    assert set(opponents[0]) == {"1", "2", "3"}


def test_a_start_survives_being_a_text() -> None:
    assert Start.from_text(Start(7, {"task": 3}).to_text(), repeat=2) == Start(7, {"task": 3}, 2)
    assert Start.from_text("7") == Start(7)
    for text in ("seven", "-1", "[]", '{"seed": 1.5}', '{"options": {}}'):
        with pytest.raises(ConfigError, match="a start is a seed"):
            Start.from_text(text)


# Stepping


def test_a_stepped_episode_asks_and_is_answered_until_it_is_over() -> None:
    async def play() -> None:
        runner = SeatRunner(NumberGame, others={"b": always("7")}, tokenizer=TOKENIZER)
        episode = SteppedEpisode(runner, Start(0))
        question = await episode.question("a")
        assert question is not None and question.observation == "step 0"
        assert question.info["legal_actions"] == ["1", "2", "3"]
        assert question == await episode.question("a")  # it waits until it is answered
        question = await episode.step("a", in_tokens("1"))
        assert question is not None and [m["content"] for m in question.request.new_messages] == ["step 2"]
        assert await episode.step("a", in_tokens("2")) is None
        with pytest.raises(AgentError, match="nothing is asked of 'a'"):
            episode.answer("a", "3")
        with pytest.raises(AgentError, match="not the other side's"):
            await episode.question("b")
        played = await episode.result()
        assert played.returns == {"a": 3.0, "b": 14.0}
        assert [sample.turns for sample in samples([played], ["a"])] == [2]

    asyncio.run(play())


def test_several_callers_step_a_seat_each() -> None:
    async def seat(episode: SteppedEpisode, agent: str, text: str) -> float:
        question = await episode.question(agent)
        while question is not None:
            question = await episode.step(agent, text)
        return (await episode.result()).returns[agent]

    async def play(game: Any) -> list[float]:
        episode = SteppedEpisode(SeatRunner(game), Start(0))
        return list(await asyncio.gather(seat(episode, "a", "1"), seat(episode, "b", "2")))

    assert asyncio.run(play(NumberGame)) == [2.0, 4.0]
    assert asyncio.run(play(SimultaneousNumbers)) == [4.0, 8.0]


def test_a_failed_episode_raises_and_a_closed_one_ends() -> None:
    async def fail() -> None:
        episode = SteppedEpisode(SeatRunner(NumberGame, others={"b": "random"}), Start(3))
        await episode.question("a")
        assert await episode.step("a", "break") is None
        with pytest.raises(MarlGemError, match=r"seed 3 failed in env \(ScenarioFault\): .*broken"):
            await episode.result()

    async def leave() -> None:
        closed = []
        runner = SeatRunner(lambda: one_agent(close=lambda self: closed.append(1)))
        count = len(closed)
        episode = SteppedEpisode(runner, Start(0))
        await episode.question("a")
        await episode.close()
        assert episode.done and len(closed) == count + 1
        assert await episode.question("a") is None

    asyncio.run(fail())
    asyncio.run(leave())


def test_a_thread_serves_callers_without_an_event_loop() -> None:
    with LoopThread() as loop:
        episode = loop.begin(SeatRunner(ThreeTurns), Start(0))
        loop.begin(SeatRunner(ThreeTurns), Start(0))  # left in the middle
        question = loop.call(episode.question("player"))
        turns = 0
        while question is not None:
            question, turns = loop.call(episode.step("player", "x")), turns + 1
        assert turns == 3 and loop.call(episode.result()).returns == {"player": 3.0}
    loop.close()


# Advantages


def test_per_agent_advantages_normalize_each_agent_by_itself() -> None:
    assert per_agent_advantages([1.0, 0.0, 5.0, 7.0], ["a", "a", "b", "b"]) == [1.0, -1.0, -1.0, 1.0]
    assert per_agent_advantages([3.0, 3.0, 9.0], [0, 0, 1]) == [0.0, 0.0, 0.0]
    assert per_agent_advantages([], []) == []
    with pytest.raises(ValueError):
        per_agent_advantages([1.0], [])


@pytest.mark.parametrize("gamma", [1.0, 0.5])
def test_turn_advantages_are_those_of_the_algorithm(gamma: float) -> None:
    runner = SeatRunner(NumberGame, tokenizer=TOKENIZER)
    answers = iter("3121321232132132123213")

    def generate(requests: list[Request]) -> list[Completion]:
        return [in_tokens(next(answers)) for _ in requests]

    episodes = runner.play_sync(generate, [Start(seed) for seed in range(3)])
    batch = Batch([t for e in episodes for t in trajectories(e, ["a", "b"], gamma)], gamma)
    expected = iter(make_algorithm("rebn", {}).advantages(batch).values)
    advantages = turn_advantages(episodes, ["a", "b"], gamma=gamma)
    assert any(value for values in advantages.values() for value in values)
    for episode in episodes:
        for agent in ("a", "b"):
            assert advantages[episode.id, agent] == [next(expected) for _ in range(2)]
    for sample in samples(episodes, ["a", "b"], advantages):
        first, second = advantages[sample.episode, sample.agent]
        assert sample.advantages == (first, first, 0.0, 0.0, 0.0, 0.0, second, second)


def test_a_policy_of_ours_may_be_a_model() -> None:
    policy = LLMPolicy(ScriptedLLM(default="9"))
    runner = SeatRunner(NumberGame, others={"b": policy}, tokenizer=TOKENIZER)
    (episode,) = runner.play_sync(Recorder(), [Start(0)])
    assert episode.returns == {"a": 3.0, "b": 18.0}


@pytest.mark.parametrize("adapter", ["openenv", "skyrl_gym", "tinker", "trl", "verifiers", "verl"])
def test_an_adapter_without_its_package_says_how_to_install_it(adapter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("openenv", "skyrl_gym", "tinker", "trl", "verifiers", "verl"):
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"marl_gem.integrations.{adapter}", raising=False)
    with pytest.raises(MissingPackage, match=f"pip install 'marl-gem.{adapter.replace('_', '-')}.'"):
        importlib.import_module(f"marl_gem.integrations.{adapter}")
