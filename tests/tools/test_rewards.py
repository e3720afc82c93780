"""Rewards as functions of turns and episodes: in a scenario, when a run is scored again, and the rubrics that ship."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from marl_gem.errors import ConfigError, LLMError, ScenarioFault
from marl_gem.llm import Sampling
from marl_gem.policies import ScriptedPolicy
from marl_gem.rollout import Job, collect
from marl_gem.specs import ScenarioSpec
from marl_gem.tools import Context, Reward, load_reward, reward
from marl_gem.tools.rubrics import exact_match, f1, fits_schema, judge, matches
from marl_gem.types import Episode, Response, Turn
from marl_gem.wrappers import RewardEnv, TimeLimit
from tests.toys import Chat, NumberGame


@reward
def brief(turn: Turn) -> float:
    return -len(turn.response.text) / 10


@reward
def seeded(episode: Episode, agent: str, context: Context) -> float:
    return float(context.seed == episode.seed and context.agent == agent)


@reward
async def slow(episode: Episode, agent: str) -> float:
    await asyncio.sleep(0)
    return float(len(episode.turns_of(agent)))


BATCHES: list[int] = []


@reward(max_batch=3)
def together(episodes: list[Episode], agents: list[str]) -> list[float]:
    BATCHES.append(len(episodes))
    return [float(len(episode.turns_of(agent))) for episode, agent in zip(episodes, agents, strict=True)]


def episode(*texts: str) -> Episode:
    turns = tuple(Turn("ann", "?", Response(text)) for text in texts)
    return Episode("0", "toy", 7, turns, {"ann": 0.0}, "terminated")


def value(of: Reward, *texts: str) -> float:
    async def wait() -> float:
        given = of(episode(*texts), "ann")
        return given if isinstance(given, float) else await given

    return asyncio.run(wait())


def test_a_reward_of_an_episode_and_an_agent_is_what_scoring_again_calls() -> None:
    assert brief(episode("abc", "abcd"), "ann") == pytest.approx(-0.7)
    assert brief(episode("abc"), "bob") == 0.0 and seeded(episode(), "ann") == 1.0
    assert value(slow, "a", "b") == 2.0 and value(together, "a") == 1.0


def test_a_reward_of_many_episodes_gets_them_together() -> None:
    async def play() -> list[float]:
        return list(await asyncio.gather(*(together(episode(*"abcdefg"[:n]), "ann") for n in range(7))))  # type: ignore

    BATCHES.clear()
    assert asyncio.run(play()) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert sum(BATCHES) == 7 and max(BATCHES) == 3


def test_one_who_waits_for_a_batch_and_is_cancelled_does_not_hold_up_the_others() -> None:
    async def play() -> float:
        first = asyncio.ensure_future(together(episode("a"), "ann"))  # type: ignore[arg-type]
        second = asyncio.ensure_future(together(episode("a", "b"), "ann"))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        first.cancel()
        return await second

    assert asyncio.run(play()) == 2.0


@pytest.mark.parametrize("bad", ["much", None, float("nan"), float("inf"), 10**400])
def test_what_is_no_number_is_a_fault_that_names_the_reward(bad: Any) -> None:
    @reward
    def odd(episode: Episode, agent: str) -> float:
        return bad  # type: ignore[no-any-return]

    with pytest.raises(ScenarioFault, match="the reward odd gave 'ann' the reward"):
        odd(episode("a"), "ann")


def test_functions_that_cannot_be_rewards() -> None:
    def of_text(text: str) -> float:
        return 0.0

    with pytest.raises(TypeError, match="the reward of_text takes a Turn, an Episode and a str"):
        reward(of_text)


# In a scenario


def always(text: str) -> ScriptedPolicy:
    return ScriptedPolicy(lambda observation, info: text)


@pytest.mark.parametrize("scored", [slow, together, seeded])
def test_a_reward_of_episodes_is_paid_at_the_end(scored: Reward) -> None:
    jobs = [Job(seed, always("3")) for seed in range(3)]
    plain = collect(lambda: NumberGame(), jobs)
    for before, after in zip(plain, collect(lambda: RewardEnv(NumberGame(), scored, weight=2.0), jobs), strict=True):
        assert after.error is None and len(after.turns) == len(before.turns)
        for agent in before.returns:
            gain = 1.0 if scored is seeded else len(before.turns_of(agent))
            assert after.returns[agent] == pytest.approx(before.returns[agent] + 2.0 * gain)


def test_a_reward_of_turns_is_paid_in_each_turn_and_may_replace_the_scenarios() -> None:
    env = RewardEnv(TimeLimit(Chat(), 2), brief, replace=True)
    env.reset(seed=1)
    first, _ = env.possible_agents[:2]
    _, rewards, *_ = env.step({env.acting[0]: "hello"})
    assert rewards[first] == pytest.approx(-0.5) and env.returns[first] == pytest.approx(-0.5)
    _, rewards, *_ = env.step({env.acting[0]: "a"})
    assert env.done and sum(env.returns.values()) == pytest.approx(-0.6)


def test_some_agents_may_be_paid() -> None:
    env = RewardEnv(Chat(), brief, agents=Chat.possible_agents[1])
    env.reset(seed=1)
    env.step({"a": "hello"})
    env.step({"b": "hello"})
    assert env.returns == {"a": 1.0, "b": 0.5}
    with pytest.raises(ConfigError, match="has no agent 'nobody'"):
        RewardEnv(Chat(), brief, agents="nobody")
    with pytest.raises(ConfigError, match="weight is a finite number"):
        RewardEnv(Chat(), brief, weight=float("nan"))


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_reward_that_raises_is_an_error_of_the_episode(asynchronous: bool) -> None:
    def fail(turn: Turn) -> float:
        raise LLMError("the judge is ill") if asynchronous else ZeroDivisionError("oh")

    async def fail_later(turn: Turn) -> float:
        return fail(turn)

    (played,) = collect(lambda: RewardEnv(Chat(), fail_later if asynchronous else fail), [Job(0, always("a"))])
    assert played.error is not None and played.error.origin == ("llm" if asynchronous else "env")


def test_rewards_by_name(tmp_path: Path) -> None:
    file = tmp_path / "my_rewards.py"
    file.write_text(
        "from marl_gem.types import Turn\ndef one(turn: Turn) -> float:\n    return 1.0\ndef odd(x):\n    return 0\n"
    )
    env = ScenarioSpec.parse("tests.toys:Chat", wrappers=[f"reward={file}:one,weight=3"]).make()
    env.reset(seed=0)
    env.step({env.acting[0]: "a"})
    assert sum(env.returns.values()) == 4.0  # the scenario pays 1
    assert value(load_reward('exact_match:answer=["Rome", "Roma"]'), "The roma!") == 1.0
    assert value(load_reward("matches:pattern=^a+$"), "b", "aa") == 1.0
    assert value(load_reward("f1:answer=blue whale")) == 0.0
    for wrong in ("exact_match", "exact_match:text=a", "guess", f"{file}:odd", f"{file}:none", "guess:answer=3"):
        with pytest.raises(ConfigError):
            load_reward(wrong)


# Rubrics


@pytest.mark.parametrize(
    ("text", "answer", "exact", "share"),
    [
        ("The Eiffel  tower.", "eiffel tower", 1.0, 1.0),
        ("a blue whale", ["whale", "the whale shark"], 0.0, 2 / 3),
        ("red", "blue", 0.0, 0.0),
        ("", "", 1.0, 1.0),
        ("", "a word", 0.0, 0.0),
    ],
)
def test_exact_match_and_f1(text: str, answer: Any, exact: float, share: float) -> None:
    assert exact_match(text, answer) == exact and f1(text, answer) == pytest.approx(share)


def test_patterns_and_schemas() -> None:
    assert (matches("the answer is 42", r"\b42\b"), matches("142", r"\b42\b")) == (1.0, 0.0)
    pytest.importorskip("jsonschema")
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    texts = ['{"a": 1}', '```json\n{"a": 1}\n```', '{"a": "1"}', "{}", "a = 1", "[" * 100_000]
    assert [fits_schema(text, schema) for text in texts] == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]


class Marks:
    """A model that gives one mark."""

    name = "marks"

    def __init__(self, text: str) -> None:
        self.text = text

    async def complete(self, messages: Any, sampling: Any, seed: int, tools: Any = ()) -> Response:
        assert "How polite" in messages[0]["content"] and "Answer: please" in messages[0]["content"]
        return Response(self.text)


def test_a_model_as_judge() -> None:
    sampling = Sampling(max_tokens=16)
    assert value(judge(Marks("I give it 8."), "How polite?", sampling), "please") == 0.8
    for text in ("none", "11", "-1"):
        with pytest.raises(LLMError, match="marks should give a mark from 0 to 10"):
            value(judge(Marks(text), "How polite?", sampling), "please")
