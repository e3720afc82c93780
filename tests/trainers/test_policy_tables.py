"""What differs for one policy: [policies.NAME], algorithms side by side, and who learns when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from marl_gem.errors import ConfigError
from marl_gem.policies import PolicyPerSeat
from marl_gem.specs import load_policy
from marl_gem.trainers import checkpoint
from marl_gem.trainers.loop import TrainingLoop
from marl_gem.trainers.policy_tables import for_policy
from marl_gem.trainers.run import TrainingRun
from marl_gem.trainers.start import start
from tests.trainers.support import babble, changed, desk, kuhn, rows, weights, work

BOTH = ('seats={player_0 = "one", player_1 = "two"}', "imitation.steps=0", "training.opponent_pool_fraction=0")
PAIR = {"a": "one", "b": "two", "c": "random"}


def who_learned(loop: TrainingLoop, updates: int) -> list[str]:
    """The policies that each of the next updates changed."""
    found = []
    for _ in range(updates):
        before = weights(loop)
        loop.update()
        found.append(" ".join(sorted(changed(loop, before))))
    return found


class TestTables:
    def test_a_table_lies_over_the_sections(self) -> None:
        config = desk(
            "policies.user.learning_rate=0.5",
            "policies.user.temperature=0.7",
            'policies.user.algorithm={name = "rloo", options = {group_size = 4}}',
            "policies.assistant.algorithm.options.group_by=all",
        )
        user, assistant = for_policy(config, "user"), for_policy(config, "assistant")
        assert (user.training.learning_rate, user.policy.temperature, user.policy.view) == (0.5, 0.7, "chat")
        assert (user.algorithm.name, user.algorithm.options) == ("rloo", {"group_size": 4})
        assert (assistant.training, assistant.policy) == (config.training, config.policy)
        assert (assistant.algorithm.name, assistant.algorithm.options) == ("rebn", {"group_by": "all"})

    @pytest.mark.parametrize(
        ("assignment", "complaint"),
        [
            (
                "policies.users.kl=0",
                "policies.users is about a policy that holds no seat; there are .*Did you mean user",
            ),
            ("policies.user.learning_rat=1", "policies.user: unknown field `learning_rat`. Did you mean learning_rate"),
            (
                "policies.user.updates=3",
                r"policies.user.updates: it is the same for all policies; set it in \[training\]",
            ),
            ("policies.user.lora_targets=[]", r"it is the same for all policies; set it in \[policy\]"),
            ("policies.user.kl=-1", "policies.user: .*>= 0.*kl"),
            ("policies.user.temperature=0", "policies.user: .*temperature"),
            ("policies.user.kl=inf", "training.kl is a finite number"),
            ("policies.user.algorithm=grop", "no algorithm 'grop'.*Did you mean 'grpo'"),
            ("policies.user.algorithm.options.bas=1", "algorithm.options of 'rebn'.*bas"),
            ("policies.user.heads=3", "policy.width is a multiple of policy.heads"),
            ("policies.user.lora_rank=2", "policy.lora_rank: adapters need a model"),
            ("policies.user.reward=curiculum=1", "no reward 'curiculum'.*Did you mean 'curriculum'"),
            ("policies.user.reward=curriculum=0.5", "reward curriculum=0.5 of user is of groups.*training.group_size"),
            ("training.group_size=5", "training.episodes is a multiple of the algorithm's group size, 5, not 12"),
        ],
    )
    def test_nonsense_is_an_error_that_says_what_there_is(self, assignment: str, complaint: str) -> None:
        with pytest.raises(ConfigError, match=complaint):
            desk(assignment)

    def test_in_self_play_the_policy_has_the_name_policy(self) -> None:
        assert for_policy(kuhn("policies.policy.kl=0"), "policy").training.kl == 0
        with pytest.raises(ConfigError, match="there are policy"):
            kuhn("policies.player_0.kl=0")

    def test_groups_have_one_size(self) -> None:
        tables = (
            "policies.user.algorithm={name = 'grpo', options = {group_size = 4}}",
            "policies.assistant.algorithm={name = 'rloo', options = {group_size = 6}}",
        )
        with pytest.raises(
            ConfigError, match=r"same size, but the algorithm of assistant asks for 6 and .* user asks for 4"
        ):
            desk(*tables)


@pytest.mark.usefixtures("babble_games")
class TestAlgorithmsSideBySide:
    def test_each_policy_learns_in_its_way(self, steps: list[dict[str, Any]], tmp_path: Path) -> None:
        tables = (
            "policies.two.algorithm={name = 'grpo', options = {group_size = 4}}",
            "policies.two.learning_rate=0.002",
            "policies.two.kl=0.5",
            "policies.one.max_grad_norm=0.25",
            "policies.one.max_tokens=1",
            "policies.one.layers=2",
            "training.updates=1",
            "training.episodes=8",
        )
        config = babble("Babble", PAIR, "imitation.steps=0", *tables)
        run = TrainingRun.start(tmp_path / "run", config)
        work(run)
        one, two = steps
        assert (one["learning_rate"], one["kl_weight"], one["max_grad_norm"]) == (1e-3, 0.2, 0.25)
        assert (two["learning_rate"], two["kl_weight"], two["max_grad_norm"]) == (2e-3, 0.5, 1.0)
        row = next(row for row in rows(tmp_path / "run") if row["stage"] == "training")
        assert row["groups/two"] == 2 and "zero_variance/one" in row and "zero_variance/two" not in row
        learners = checkpoint.load(tmp_path / "run").learners
        assert [len(learners[name].backend.model.transformer.h) for name in ("one", "two")] == [2, 1]  # type: ignore[attr-defined]
        afterwards = load_policy(str(tmp_path / "run"), "test:Babble-v0")
        assert isinstance(afterwards, PolicyPerSeat)
        limits = {seat: policy.sampling.max_tokens for seat, policy in afterwards.policies.items()}  # type: ignore[attr-defined]
        assert limits == {"a": 1, "b": 4}

    def test_a_policy_without_groups_learns_from_those_of_the_other(self) -> None:
        loop = start(kuhn(*BOTH, "policies.two.algorithm={name = 'grpo', options = {group_size = 4}}"))[0]
        _, episodes = loop.update()
        cards = [str(episode.turns[0].observation) for episode in episodes]
        assert all(cards[index] == cards[index - index % 4] for index in range(16)) and len(set(cards)) > 1

    def test_what_several_algorithms_remember_is_in_the_checkpoint(self, tmp_path: Path) -> None:
        tables = "policies.one.algorithm=rae", "policies.two.algorithm={name = 'rae', options = {decay = 0.5}}"
        config = kuhn(*BOTH, *tables)
        loop = start(config)[0]
        loop.update()
        checkpoint.save(tmp_path, loop)
        restored = checkpoint.load(tmp_path, config)
        for name, algorithm in loop.algorithms.items():
            assert restored.algorithms[name].state() == algorithm.state() != {}  # type: ignore[attr-defined]


class TestWhoLearnsWhen:
    def test_a_policy_that_is_frozen_plays_and_stays_as_it_is(self) -> None:
        loop = start(kuhn(*BOTH, 'learning=["two"]'))[0]
        before = weights(loop)
        metrics, episodes = loop.update()
        assert changed(loop, before) == {"two"}
        assert {episode.models["player_0"] for episode in episodes} == {"one@0"}
        assert "return/player_1" in metrics and "return/player_0" not in metrics

    def test_a_phase_says_who_learns_and_the_next_lets_all(self) -> None:
        loop = start(kuhn(*BOTH, 'phases=[{start = 1, learning = ["one"]}, {start = 2}]', "training.updates=3"))[0]
        assert who_learned(loop, 3) == ["one two", "one", "one two"]

    def test_policies_learn_by_turns(self) -> None:
        loop = start(kuhn(*BOTH, "training.alternate_every=2"))[0]
        assert who_learned(loop, 5) == ["one", "one", "two", "two", "one"]
        assert all(learner.backend.reference is not None for learner in loop.learners.values())

    @pytest.mark.usefixtures("babble_games")
    def test_one_who_does_not_learn_may_meet_as_an_earlier_version(self) -> None:
        alone = ("training.opponent_pool_fraction=1", "training.alternate_every=1", "training.pool_size=9")
        loop = start(babble("Babble", PAIR, "imitation.steps=0", "training.updates=5", *alone))[0]
        met = [{episode.models["b"] for episode in loop.update()[1]} for _ in range(5)]
        assert met[0] == {"two@0"} and met[4] <= {"two@0", "two@1", "two@2"}

    @pytest.mark.usefixtures("babble_games")
    def test_who_is_to_learn_holds_a_seat(self) -> None:
        with pytest.raises(ConfigError, match="learning: 'three' holds no seat from update 0 on; there are one, two"):
            start(babble("Babble", PAIR, 'learning=["three"]'))

    def test_equal_algorithms_are_one_and_see_all_agents(self) -> None:
        loop = start(kuhn(*BOTH))[0]
        assert loop.algorithms["one"] is loop.algorithms["two"]
        apart = start(kuhn(*BOTH, "policies.one.gamma=0.5"))[0]
        assert apart.algorithms["one"] is not apart.algorithms["two"]
        assert all(torch.equal(a, b) for a, b in zip(weights(loop).values(), weights(apart).values(), strict=True))
