"""Demonstrations, and the warm start on them."""

from __future__ import annotations

from typing import Any

import pytest

from marl_gem import registry
from marl_gem.errors import ConfigError
from marl_gem.rollout import Job, collect
from marl_gem.trainers.demonstrations import collect_demonstrations, demonstration_trajectories
from marl_gem.trainers.rows import merge
from marl_gem.trainers.start import start
from marl_gem.trainers.tiny import tiny_tokenizer
from marl_gem.views import view
from tests.trainers.support import DESK, desk, warmed_up

pytestmark = pytest.mark.slow


class TestDemonstrations:
    def test_each_is_told_its_own_task(self) -> None:
        shown = collect_demonstrations(desk())[0]
        wishes = {one.roles["user"].instructions for one in shown}
        assert len(shown) == 60 and len(wishes) > 20
        tools = registry.make(DESK).domain.specs  # type: ignore[attr-defined]
        told = [one.roles["assistant"] for one in shown if "assistant" in one.roles]
        assert len(told) > 30 and all(role.tools == tools for role in told)
        assert {one.models["user"] for one in shown} == {"scripted:novice"}

    def test_turns_that_extend_one_another_are_read_at_once(self) -> None:
        loop: Any = start(desk())[0]
        shown, llm = collect_demonstrations(desk())[0], loop.learners["assistant"].sampler.llm
        together = demonstration_trajectories(shown, ["assistant"], llm, view("chat"))
        apart = demonstration_trajectories(shown, ["assistant"], llm, view("latest"))
        turns = [turn for one in shown for turn in one.turns_of("assistant")]
        assert sum(map(len, together)) == sum(map(len, apart)) == len(apart) == len(turns)
        assert len(together) == len([one for one in shown if one.turns_of("assistant")])
        assert len(merge(together, fold=True)) <= len(together)
        said = [llm.tokenizer.decode(t.action_ids, skip_special_tokens=True) for own in together for t in own]
        assert sorted(said) == sorted(turn.response.text for turn in turns)

    def test_prompts_are_those_of_play(self) -> None:
        """What is imitated is what a policy will be shown, token for token."""
        config = desk()
        loop: Any = start(config)[0]
        ((shown,),) = collect_demonstrations(desk("imitation.episodes=1"))
        sampler = loop.learners["user"].sampler
        (own,) = demonstration_trajectories([shown], ["user"], sampler.llm, view("chat"))
        seating = {**loop.player.policies(loop.phases[0], 0), "user": sampler.policy}
        (played,) = collect(loop.specs[0].make, [Job(shown.seed, seating)])
        assert own[0].prompt_ids == played.turns[0].response.prompt_ids

    def test_what_does_not_fit_the_model_is_told(self) -> None:
        with pytest.raises(ConfigError, match=r"a turn of 'assistant' .* reads 40; set policy.context higher"):
            warmed_up(desk("policy.context=40"))

    def test_words_are_tokens_with_what_stands_before_them(self) -> None:
        text = '<tool_call>{"name": "find", "arguments": {"name": "ann"}}</tool_call>'
        tokenizer = tiny_tokenizer([text, "I am ann.", "tool"] * 3, split="words", tools=True)
        pieces = [tokenizer.decode([token]) for token in tokenizer.encode(text)]
        assert pieces == [
            "<tool_call",
            '>{"name',
            '": "find',
            '", "arguments',
            '": {"name',
            '": "ann',
            '"}}</tool_call',
            ">",
        ]
        assert "<|tool|>" in tokenizer.get_vocab()
        assert tokenizer.decode(tokenizer.encode("Zoë?\n\ud7ff")) == "Zoë?\n\ud7ff"
