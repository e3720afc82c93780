"""MapObservation and ShowHistory."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

import marl_gem
from marl_gem import MultiAgentEnv, Response, Role, ToolSpec
from marl_gem.errors import ConfigError, EpisodeOver, LLMError, ScenarioFault
from marl_gem.policies import LLMPolicy, ScriptedPolicy, summarizer
from marl_gem.rollout import Job, collect
from marl_gem.types import Observation
from marl_gem.views import as_json, chat, plain, summary
from marl_gem.wrappers import (
    MapObservation,
    ObservationWrapper,
    ParseAction,
    ShowHistory,
    TimeLimit,
    boxed,
)
from tests.toys import ScriptedLLM, full_state
from tests.wrappers.wrapped import (
    Inn,
    Race,
    every_env,
    say,
)

# MapObservation


def test_texts_are_mapped_and_pictures_stay() -> None:
    env = MapObservation(Race(), str.upper)
    observations, _ = env.reset(seed=0)
    inner = env.unwrapped.observe("left")
    assert observations["left"] == env.observe("left") == [{**inner[0], "text": "YOU HAVE RUN 0."}, inner[1]]  # type: ignore[dict-item]
    assert inner == Race.observe(env.unwrapped, "left"), "what the env gave is as it was"  # type: ignore[arg-type]
    tool = [{"type": "tool_result", "name": "f", "text": "as it is"}]
    assert MapObservation(Race(), str.upper).observation("left", tool) == tool


def test_final_observations_are_mapped_too_and_once() -> None:
    env = MapObservation(MapObservation(Inn(), lambda text: f"{text}1"), lambda text: f"{text}2")
    env.reset(seed=0)
    *_, infos = say(env, "banish cat")
    assert infos["cat"]["final_observation"] == env.observe("cat")
    assert env.observe("cat") == f"{env.unwrapped.observe('cat')}12"


@pytest.mark.parametrize("agents", ["ann", ["ann", "dan"], iter(["ann"])], ids=["one", "some", "an iterator"])
def test_some_agents_are_shown_something_else(agents: str | Iterable[str]) -> None:
    env = MapObservation(Inn(), lambda text: "fog", agents)
    assert env.reset(seed=0)[0] == {"ann": "fog"}
    observations, *_ = say(env, "banish cat")
    assert observations == {"bob": env.unwrapped.observe("bob")}
    assert env.observe("ann") == "fog"


@pytest.mark.parametrize("function", [len, lambda text: None, json.loads], ids=["number", "None", "raises"])
def test_a_function_that_gives_no_text_is_a_fault(function: Any) -> None:
    env = MapObservation(Inn(), function, agents="bob")
    env.reset(seed=4)
    with pytest.raises(ScenarioFault, match=r"Inn: MapObservation\.observation raised \w+ at step 1 .* seed 4"):
        say(env, "hello")
    with pytest.raises(EpisodeOver, match="not reset after a failure"):
        say(env, "hello")
    assert env.done
    env.reset()
    assert env.agents == ("ann", "bob", "cat")
    with pytest.raises(ConfigError, match="takes a function"):
        MapObservation(Inn(), "upper")  # type: ignore[arg-type]


def test_an_observation_of_one_s_own() -> None:
    class Named(ObservationWrapper):
        def observation(self, agent: str, observation: Observation) -> Observation:
            return f"[{agent}] {observation}"

    env = Named(Inn())
    assert env.reset(seed=0)[0]["ann"] == f"[ann] {env.unwrapped.observe('ann')}"


# ShowHistory


def counting_model() -> ScriptedLLM:
    """A model that answers with the number of messages in the prompt."""
    return ScriptedLLM(default=lambda messages: f"{len(messages)}")


@every_env
@pytest.mark.parametrize("view", ["chat", "latest", "bare", "observations", "transcript", "window:2"])
def test_a_loop_sees_what_a_model_would(make: Callable[[], MultiAgentEnv], view: str) -> None:
    """What an agent with this view shows its model is what the wrapper shows, as one text."""
    model = counting_model()
    (episode,) = collect(make, [Job(5, LLMPolicy(model, marl_gem.views.view(view)))])
    assert not episode.error
    texts = {agent: [turn.response.text for turn in episode.turns_of(agent)] for agent in episode.returns}
    env = ShowHistory(make(), view)
    observations, _ = env.reset(seed=5)
    shown: list[Any] = []
    while not env.done:
        shown += observations.values()
        observations, *_, infos = env.step({agent: texts[agent].pop(0) for agent in env.acting})
        for agent, info in infos.items():
            assert info.get("final_observation", env.observe(agent)) == env.observe(agent)
    assert [*map(plain, model.prompts)] == shown
    assert [*map(tuple, texts.values())] == [()] * len(texts)


def test_a_template_may_be_given_by_name() -> None:
    by_name, by_function = ShowHistory(Inn(), "chat", "json"), ShowHistory(Inn(), "chat", as_json)
    assert by_name.reset(seed=0) == by_function.reset(seed=0)
    assert say(by_name, "3", "3")[0] == say(by_function, "3", "3")[0]


def test_the_whole_history_stands_in_one_text() -> None:
    env = ShowHistory(Inn())
    observations, _ = env.reset(seed=1, options={"inn": "Swan"})
    opened = env.unwrapped.observe("ann").removeprefix("ann")
    assert observations == {"ann": f"You are ann, a guest.\n\nann{opened}"}
    (now,) = say(env, "3", "hm", "banish bob")[0].values()
    heard = env.unwrapped.observe("ann")
    assert now == f"You are ann, a guest.\n\nann{opened}\n\nYour answer: 3\n\n{heard}"
    assert env.observe("bob").endswith(f"Your answer: hm\n\nbob{heard[3:]}")
    assert env.role("ann") == Role(tools=(ToolSpec("ring"),)), "the instructions stand in the text"
    observations, _ = env.reset(seed=1, options={"inn": "Swan"})
    assert observations == {"ann": f"You are ann, a guest.\n\nann{opened}"}


def test_content_parts_stay_and_a_template_makes_what_it_likes() -> None:
    env = ShowHistory(Race(), chat)
    env.reset(seed=1)
    (left, _) = say(env, "slow")[0].values()
    assert [part.get("text") or part["url"] for part in left] == [
        "You have run 0.",
        "data:,0",
        "Your answer: slow",
        "You have run 1.",
        "data:,1",
    ]
    as_chat = ShowHistory(Inn(), "chat", as_json)
    as_chat.reset(seed=1)
    say(as_chat, "a", "b", "c")
    assert [message["role"] for message in json.loads(str(as_chat.observe("ann")))] == [
        "system",
        "user",
        "assistant",
        "user",
    ]
    counted = ShowHistory(Inn(), "chat", lambda messages: str(len(messages)))
    assert counted.reset()[0] == {"ann": "2"}


def test_the_whole_answer_is_remembered_where_the_env_is_given_a_part() -> None:
    env = ShowHistory(ParseAction(MapObservation(TimeLimit(Inn(), 9), str.upper), boxed()), "transcript")
    env.reset(seed=1)
    say(env, r"I am kind: \boxed{tip bob}", "hm", "hm")
    assert env.returns["bob"] == 2.0
    text = str(env.observe("ann"))
    assert r"Your answer: I am kind: \boxed{tip bob}" in text and "ANN HEARS: THE CROWN OPENS" in text


def test_a_model_that_sums_up_is_waited_for() -> None:
    writer = counting_model()
    env = ShowHistory(Inn(), summary(summarizer(writer), keep=1, every=1))
    assert env.blocking and not ShowHistory(Inn()).blocking
    env.reset(seed=1)
    say(env, "3", "4", "5", "6")
    text = env.observe("ann")
    assert "What came before, in short:\n2" in str(text)
    asked = len(writer.requests)
    assert env.observe("ann") == text and env.fork().observe("ann") == text
    assert len(writer.requests) == asked == 3, "nothing is summed up twice"


class OneLoopModel:
    """Answers with the number of messages; fails when it is used in two event loops at the same time."""

    name = "one loop"

    def __init__(self) -> None:
        self.loops: list[Any] = []
        self.most = 0

    async def complete(self, messages: Sequence[Any], sampling: Any, seed: int, tools: Any = ()) -> Response:
        loop = asyncio.get_running_loop()
        self.loops.append(loop)
        self.most = max(self.most, len(self.loops))
        assert set(self.loops) == {loop}
        await asyncio.sleep(0.002)
        self.loops.remove(loop)
        return Response(f"{len(messages)}")


def test_rollouts_wait_in_threads() -> None:
    def make() -> MultiAgentEnv:
        return ShowHistory(TimeLimit(Inn(), 12), summary(summarizer(writer), keep=1, every=1))  # type: ignore[arg-type]

    writer = OneLoopModel()
    script = ScriptedPolicy(lambda observation, info: "3" if "in short" in str(observation) else "0")
    episodes = collect(make, [Job(seed, script) for seed in range(20)], concurrency=8)
    assert [episode.error for episode in episodes] == [None] * 20
    assert {episode.returns["ann"] for episode in episodes} == {9.0}
    assert writer.most > 1 and not any("history" in thread.name for thread in threading.enumerate())


def test_within_an_event_loop_waiting_is_refused_and_nothing_has_changed() -> None:
    env = ShowHistory(Inn(), summary(summarizer(counting_model()), keep=1, every=1))  # type: ignore[arg-type]

    async def work() -> None:
        with pytest.raises(ConfigError, match=r"would block the event loop.*asyncio\.to_thread.*LLMPolicy"):
            env.reset(seed=1)
        await asyncio.to_thread(env.reset, seed=1)
        before = full_state(env)
        for call in (lambda: say(env, "3"), lambda: env.observe("ann"), env.reset):
            with pytest.raises(ConfigError, match="would block"):
                call()
        assert full_state(env) == before
        await asyncio.to_thread(say, env, "3")
        sync = ShowHistory(Inn(), summary(lambda text: "short", 1, 1))
        sync.reset()
        say(sync, "3", "4", "5", "6")

    asyncio.run(work())


def test_a_view_that_fails_is_told() -> None:
    def short(role: Role, history: Any) -> Any:
        if len(history) > 1:
            raise LookupError("too long")
        return chat(role, history)

    env = ShowHistory(Inn(), short)
    env.reset(seed=3)
    say(env, "a", "b")
    with pytest.raises(ScenarioFault, match=r"ShowHistory\.observation raised LookupError at step 3 .*too long"):
        say(env, "c")
    with pytest.raises(EpisodeOver):
        say(env, "d")
    env.reset(seed=3)
    say(env, "a", "b")

    async def away(text: str) -> str:
        raise LLMError("no answer")

    env = ShowHistory(Inn(), summary(away, 1, 1))
    env.reset(seed=3)
    with pytest.raises(LLMError, match="no answer"):
        say(env, "a", "b", "c")


def test_views_and_templates_that_are_none() -> None:
    with pytest.raises(ConfigError, match="no view 'wide'"):
        ShowHistory(Inn(), "wide")
    with pytest.raises(ConfigError, match="no template 'wide'; choose one of plain, json"):
        ShowHistory(Inn(), "chat", "wide")
    for wrong in ((7,), (None,), ("chat", 7)):
        with pytest.raises(ConfigError, match="functions, not"):
            ShowHistory(Inn(), *wrong)  # type: ignore[arg-type]
