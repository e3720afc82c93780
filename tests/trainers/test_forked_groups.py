"""Groups of episodes that continue from the same state in mid-episode."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest

from marl_gem import MultiAgentEnv, Response, Role, SequentialSelector, registry
from marl_gem.errors import ConfigError
from marl_gem.llm import Sampling
from marl_gem.policies import LLMPolicy, RandomPolicy
from marl_gem.policies.continuation import Continuation
from marl_gem.rollout import Job, collect
from marl_gem.trainers.algorithms.base import Advantages
from marl_gem.trainers.algorithms.rloo import RLOO
from marl_gem.trainers.batch import Batch
from marl_gem.trainers.loop import TrainingLoop
from marl_gem.types import Episode
from marl_gem.views import chat
from tests.toys import ScriptedLLM
from tests.trainers.support import babble, kuhn, warmed_up


class Steps(MultiAgentEnv):
    """One agent speaks up to four times. Its k-th turn pays k, or more; any text but "yes" may end it."""

    possible_agents = ("a",)
    selector = SequentialSelector()

    def _reset(self, options: Any) -> None:
        super()._reset(options)
        self.heard: list[str] = []

    def observe(self, agent: str) -> str:
        return f"You said: {', '.join(self.heard) or 'nothing'}."

    def legal_actions(self, agent: str) -> list[str]:
        return ["yes", "no"]

    def _process_actions(self, actions: dict[str, str]) -> None:
        (text,) = actions.values()
        self.heard.append(text)
        self.rewards = {"a": float(self.steps + len(text) % 3)}
        if self.steps >= 4 or (text != "yes" and self.rng.random() < 0.2):
            self.terminations = {"a": True}


@pytest.fixture(autouse=True)
def steps_game() -> Iterator[None]:
    with registry.preserved():
        registry.register("test:Steps-v0", Steps, agents=1)
        yield


def forked(*assignments: str) -> Any:
    return babble(
        "Steps",
        {"a": "x"},
        "algorithm.name=rloo",
        "algorithm.options.group_size=3",
        "training.group_start=fork",
        "training.episodes=24",
        "training.gamma=1",
        "imitation.steps=20",
        *assignments,
    )


def played(config: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Episode], Batch, Advantages]:
    """The episodes of an update, the batch that the algorithm got, and its advantages."""
    seen: list[tuple[Batch, Advantages]] = []
    advantages = RLOO.advantages

    def recorded(algorithm: RLOO, batch: Batch) -> Advantages:
        seen.append((batch, advantages(algorithm, batch)))
        return seen[-1][1]

    monkeypatch.setattr(RLOO, "advantages", recorded)
    loop: TrainingLoop = warmed_up(config)[0]
    try:
        _, episodes = loop.update()
    finally:
        loop.close()
    return episodes, *seen[0]


def texts(episode: Episode) -> list[str]:
    return [turn.response.text for turn in episode.turns]


class TestGroups:
    @pytest.mark.parametrize("staleness", [0, 1])
    def test_they_share_a_beginning_that_is_not_trained(self, monkeypatch: pytest.MonkeyPatch, staleness: int) -> None:
        episodes, batch, _ = played(forked(f"training.staleness={staleness}"), monkeypatch)
        first_turns = {part[0].episode: part[0].turn for part in batch.trajectories}
        by_id = {episode.id: episode for episode in episodes}
        groups: dict[str, list[str]] = {}
        for part in batch.trajectories:
            assert [t.turn for t in part] == list(range(part[0].turn, len(by_id[part[0].episode].turns)))
            groups.setdefault(part[0].group, []).append(part[0].episode)
        assert len(groups) == 8 and {len(members) for members in groups.values()} == {3}
        for members in groups.values():
            (start,) = {first_turns[member] for member in members}
            assert len({tuple(texts(by_id[member])[:start]) for member in members}) == 1
            assert len({part[0].prompt_ids for part in batch.trajectories if part[0].episode in members}) == 1
        assert len(set(first_turns.values())) > 1  # not all from the first turn
        assert any(len({tuple(texts(by_id[member])) for member in members}) > 1 for members in groups.values())

    def test_advantages_compare_what_came_after(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """By hand: rewards from the shared state on, less the mean of the other two's."""
        episodes, batch, advantages = played(forked(), monkeypatch)
        by_id = {episode.id: episode for episode in episodes}
        start = {part[0].episode: part[0].turn for part in batch.trajectories}
        after = {id: sum(turn.reward for turn in by_id[id].turns[first:]) for id, first in start.items()}
        group_of = {part[0].episode: part[0].group for part in batch.trajectories}
        assert any(after[id] != by_id[id].returns["a"] for id in after)
        for transition, advantage in zip(batch.transitions, advantages.values, strict=True):
            id = transition.episode
            future = sum(turn.reward for turn in by_id[id].turns[transition.turn :])
            others = [after[other] for other in after if group_of[other] == group_of[id] and other != id]
            assert advantage == pytest.approx(future - sum(others) / 2, abs=1e-12)

    def test_the_turn_is_drawn_among_those_of_the_learning_seats(self) -> None:
        rloo = ("algorithm.name=rloo", "algorithm.options.group_size=2", "training.group_start=fork")
        loop, _ = warmed_up(kuhn(*rloo, "training.episodes=80"))
        plan = loop._plan(0)
        _, repeated = asyncio.run(loop.player.play(plan))
        learning = {entry.id: entry.learning for entry in plan.episodes}
        assert {0, 1} <= {sum(count.values()) for id, count in repeated.items() if len(learning[id]) == 2}
        second = [count for id, count in repeated.items() if learning[id] == ("player_1",)]
        assert any(second)
        for count in filter(None, second):  # its first turn comes after one of the other seat
            assert count["player_0"] >= 1

    def test_an_algorithm_without_groups_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="no algorithm compares groups of episodes"):
            kuhn("training.group_start=fork")


class TestContinuation:
    def test_other_policies_repeat_themselves(self) -> None:
        first = collect(Steps, [Job(5, RandomPolicy(), "first", repeat=9)])[0]
        policy = Continuation(RandomPolicy(), first.turns[:1], Job(5, RandomPolicy(), repeat=9).seed_of("a"))
        (again,) = collect(Steps, [Job(5, {"a": policy}, "again", repeat=1)])
        assert texts(again) == texts(first) and not again.error

    def test_a_model_is_shown_what_came_before_and_asked_only_for_the_rest(self) -> None:
        llm = ScriptedLLM("yes", "yes", "yes", "yes")
        (first,) = collect(Steps, [Job(1, LLMPolicy(llm, chat, Sampling()), "first")])
        other = ScriptedLLM("no", "yes", "yes")
        policy = Continuation(LLMPolicy(other, chat, Sampling()), first.turns[:2], 0)
        (again,) = collect(Steps, [Job(1, {"a": policy}, "again", repeat=1)])
        assert texts(again)[:3] == ["yes", "yes", "no"] and again.turns[:2] == first.turns[:2]
        shown = [message["content"] for message in other.prompts[0] if message["role"] == "assistant"]
        assert shown == ["yes", "yes"]

    def test_what_does_not_repeat_itself_is_an_error(self) -> None:
        (first,) = collect(Steps, [Job(1, LLMPolicy(ScriptedLLM(default="yes"), chat), "first")])

        class Forgetful(Steps):
            def observe(self, agent: str) -> str:
                return f"{super().observe(agent)} {random.SystemRandom().random()}"

        policy = Continuation(LLMPolicy(ScriptedLLM(), chat), first.turns[:2], 0)
        (failed,) = collect(Forgetful, [Job(1, {"a": policy})])
        assert failed.error is not None and "did not repeat itself" in failed.error.message

    def test_so_is_a_policy_that_does_not(self) -> None:
        class Moody:
            name = "moody"

            def agent(self, agent_id: str, role: Role, seed: int) -> Any:
                return self

            async def act(self, observation: Any, info: Any) -> Response:
                return Response("no")

        (first,) = collect(Steps, [Job(1, LLMPolicy(ScriptedLLM(default="yes"), chat), "first")])
        (failed,) = collect(Steps, [Job(1, {"a": Continuation(Moody(), first.turns[:2], 0)})])
        assert failed.error is not None and "its policy did not repeat itself" in failed.error.message
