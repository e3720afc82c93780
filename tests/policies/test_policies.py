"""Policies and their agents: scripts, random play, people, models."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from marl_gem import (
    Response,
    Role,
    ToolSpec,
    views,
)
from marl_gem.errors import AgentError, ConfigError
from marl_gem.llm import Sampling
from marl_gem.policies import HumanPolicy, LLMPolicy, RandomPolicy, ScriptedPolicy
from marl_gem.policies.random import SMALL_TALK
from marl_gem.rollout import Job, collect
from marl_gem.seeding import derive_seed
from marl_gem.tools.calls import read_calls
from marl_gem.types import EpisodeError
from marl_gem.views import as_text
from tests.core.rollout_scenarios import ones, seats_of
from tests.toys import NumberGame, ScriptedLLM

# Agents


def act(agent: Any, observation: Any = "?", info: Mapping[str, Any] | None = None) -> Response:
    return asyncio.run(agent.act(observation, info or {}))


def test_a_script_of_texts() -> None:
    policy = ScriptedPolicy(iter(["one", "two"]), name="reader")
    first, second = policy.agent("a", Role(), 0), policy.agent("b", Role(), 0)
    assert [act(first).text, act(first).text, act(second).text] == ["one", "two", "one"]
    with pytest.raises(AgentError, match="the script of 'a' has ended"):
        act(first)
    assert policy.name == "reader"


def test_a_script_that_is_a_function() -> None:
    agent = ScriptedPolicy(lambda observation, info: f"{observation} {info['mood']}").agent("a", Role(), 0)
    assert act(agent, "hm", {"mood": "good"}) == Response("hm good")


def test_random_play_is_uniform_and_from_the_seed() -> None:
    def texts(seed: int) -> list[str]:
        agent = RandomPolicy().agent("a", Role(), seed)
        return [act(agent, info={"legal_actions": ["x", "y", "z"]}).text for _ in range(300)]

    assert texts(1) == texts(1) != texts(2)
    assert all(abs(texts(1).count(action) - 100) < 5 * (300 * 2 / 9) ** 0.5 for action in "xyz")


@pytest.mark.parametrize("info", [{}, {"legal_actions": []}], ids=str)
def test_random_play_babbles_where_no_actions_are_listed(info: dict[str, Any]) -> None:
    def texts(role: Role, observation: str) -> set[str]:
        agent = RandomPolicy().agent("a", role, 0)
        return {act(agent, observation, info).text for _ in range(200)}

    assert texts(Role(), "Say 'A [left]' or 'A [right]'.") == {"[left]", "[right]"}
    assert texts(Role(), "Hello.") == set(SMALL_TALK)
    look = ToolSpec("look", "Look.", {"type": "object", "properties": {"where": {"enum": ["up", "down"]}}})
    called = {text for text in texts(Role("", (look,)), "[wait] ") if text.startswith("<tool_call>")}
    assert {read_calls(text).calls[0].arguments["where"] for text in called} == {"up", "down"}


def test_a_person() -> None:
    shown: list[str] = []
    asked: list[str] = []

    def ask(prompt: str) -> str:
        asked.append(prompt)
        return "hello"

    agent = HumanPolicy(shown.append, ask).agent("a", Role("Be kind."), 0)
    assert act(agent, [{"type": "text", "text": "Well?"}, {"type": "image"}]) == Response("hello")
    assert (shown, asked) == (["Be kind.", "Well?\n[image]"], ["a> "])


def test_a_person_who_leaves() -> None:
    def leave(prompt: str) -> str:
        raise EOFError

    (episode,) = collect(NumberGame, [Job(0, HumanPolicy(lambda text: None, leave))])
    assert episode.error == EpisodeError("agent", "InputEnded", "the input of 'a' ended before the episode did", "a")


def model_with_tokens() -> ScriptedLLM:
    """A model with two answers; the first token of an answer is its number."""
    tokens: dict[str, Any] = {"logprobs": (-0.5, -0.1), "version": 3, "usage": {"prompt_tokens": 2}}
    return ScriptedLLM(*(Response("7", (1, 2), (number, 9), **tokens) for number in (1, 2)), name="scripted model@3")


@pytest.mark.parametrize("view", ["chat", "latest", "bare"])
def test_what_a_model_is_shown(view: str) -> None:
    llm = model_with_tokens()
    policy = LLMPolicy(llm, views.view(view), Sampling(5, 0.5))
    (episode,) = collect(NumberGame, [Job(3, seats_of(a=policy, b=ones))])
    (first, sampling, *_), (second, *_) = llm.requests
    now, later = ({"role": "user", "content": f"step {step}"} for step in (0, 2))
    system = [{"role": "system", "content": "You are a."}]
    answer = {"role": "assistant", "content": episode.turns[0].response.text, "token_ids": (1, 9)}
    assert first == {"chat": [*system, now], "latest": [*system, now], "bare": [now]}[view]
    assert second == {"chat": [*system, now, answer, later], "latest": [*system, later], "bare": [later]}[view]
    assert sampling == Sampling(5, 0.5)


def test_what_a_model_answers_goes_into_the_record_whole() -> None:
    llm = model_with_tokens()
    (episode,) = collect(NumberGame, [Job(3, seats_of(a=LLMPolicy(llm), b=ones))])
    first, second = (turn.response for turn in episode.turns_of("a"))
    assert (first.prompt_ids, first.token_ids, first.logprobs, first.version) == ((1, 2), (1, 9), (-0.5, -0.1), 3)
    assert second.token_ids == (2, 9)
    assert episode.usage == {"prompt_tokens": 4}
    assert episode.models == {"a": "scripted model@3", "b": "scripted"}


def test_every_answer_of_a_model_has_a_seed_of_its_own() -> None:
    llm = ScriptedLLM()
    collect(NumberGame, [Job(seed, LLMPolicy(llm)) for seed in (0, 1, 0)])
    seeds = llm.seeds
    assert len(seeds) == 12 and len(set(seeds)) == 8
    assert seeds[0] == derive_seed(derive_seed(0, "a"), 0)


def test_a_role_without_instructions_is_no_system_message() -> None:
    history = [views.Exchange("?", None)]
    assert views.chat(Role(), history) == views.latest(Role(), history) == [{"role": "user", "content": "?"}]
    with pytest.raises(ConfigError, match="there is no view 'wide'; choose one of chat, latest, bare"):
        views.view("wide")


def test_an_observation_as_text() -> None:
    assert as_text("hello") == "hello"
    assert as_text([{"type": "text", "text": "a"}, {"type": "audio"}]) == "a\n[audio]"


def test_derived_seeds() -> None:
    assert derive_seed(0, "a") == 1481238324449861677, "the same on every machine, in every run"
    assert all(0 <= derive_seed(number) < 2**63 for number in range(100))
    assert len({derive_seed(*parts) for parts in [(0,), (1,), (0, 1), (1, 0), ("a",), ("a", "\ud800"), ()]}) == 7
