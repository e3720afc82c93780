"""Rollouts that overlap with updates: which weights play, what is learned from older ones, how runs end and resume."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from marl_gem.errors import ConfigError, MarlGemError, TrainingError
from marl_gem.trainers.algorithms import Advantages, Needs, TokenBatch, make_algorithm
from marl_gem.trainers.algorithms.base import IMPORTANCE_CAP, truncated
from marl_gem.trainers.algorithms.rebn import ReBN
from marl_gem.trainers.backends.frozen import load_weights
from marl_gem.trainers.backends.local import LocalBackend
from marl_gem.trainers.batch import Batch
from marl_gem.trainers.loop import TrainingLoop
from marl_gem.trainers.pipeline import Pipeline
from marl_gem.trainers.run import TrainingRun
from marl_gem.trainers.samplers.in_process import InProcessSampler
from marl_gem.trainers.sections import TrainConfig
from marl_gem.trainers.tiny import tiny_model, tiny_tokenizer
from marl_gem.types import Episode
from tests.trainers.support import babble, kuhn, rows, warmed_up, weights, work

SHORT = ("imitation.steps=5", "imitation.episodes=20", "training.episodes=8")


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert not rollout_threads()


def rollout_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "marl_gem-rollouts"]


def played(config: TrainConfig, updates: int) -> tuple[TrainingLoop, list[list[Episode]], list[dict[str, Any]]]:
    """A loop after some updates, their episodes and their metrics."""
    loop, _ = warmed_up(config)
    try:
        found = [loop.update() for _ in range(updates)]
    finally:
        loop.close()
    return loop, [episodes for _, episodes in found], [metrics for metrics, _ in found]


def versions(episodes: list[Episode]) -> set[int]:
    return {turn.response.version for episode in episodes for turn in episode.turns}


def texts(episodes: list[Episode]) -> list[list[str]]:
    return [[turn.response.text for turn in episode.turns] for episode in episodes]


class TestWhichWeightsPlay:
    @pytest.mark.parametrize("staleness", [1, 3])
    def test_they_are_as_old_as_configured_and_not_older(self, staleness: int) -> None:
        config = kuhn(*SHORT, f"training.staleness={staleness}", "training.opponent_pool_fraction=0")
        _, episodes, metrics = played(config, 5)
        assert [versions(batch) for batch in episodes] == [{max(0, update - staleness)} for update in range(5)]
        ages = [float(min(update, staleness)) for update in range(5)]
        assert [row["staleness"] for row in metrics] == ages and [row["staleness_max"] for row in metrics] == ages

    def test_answers_have_the_probabilities_of_the_weights_that_are_recorded(self) -> None:
        loop, _ = warmed_up(kuhn(*SHORT, "training.staleness=1", "training.learning_rate=0.05"))
        sampler = loop.learners["policy"].sampler
        assert isinstance(sampler, InProcessSampler)
        known = []
        for _ in range(4):
            known.append(loop.learners["policy"].backend.weights())
            _, episodes = loop.update()
        loop.close()
        copied = sampler.playing_copy()
        differences: dict[int, list[float]] = {}
        for response in (turn.response for episode in episodes for turn in episode.turns):
            for version in (2, 3):
                load_weights(copied.llm.model, known[version])
                difference = copied.llm.logprob(response.prompt_ids, response.token_ids) - sum(response.logprobs)
                if response.version == 2:  # not of an opponent from the pool
                    differences.setdefault(version, []).append(abs(difference))
        assert max(differences[2]) < 1e-4 < 1e-2 < max(differences[3])

    def test_without_staleness_nothing_plays_ahead(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Pipeline, "__init__", lambda *_: pytest.fail("a pipeline was made"))
        _, episodes, metrics = played(kuhn(*SHORT, "training.opponent_pool_fraction=0"), 2)
        assert [versions(batch) for batch in episodes] == [{0}, {1}] and "staleness" not in metrics[0]

    def test_a_run_follows_from_its_seed(self) -> None:
        seats = ("seats={player_0='a', player_1='b'}", "league.draw=episode", "training.opponent_pool_fraction=0.5")
        config = kuhn(*SHORT, *seats, "training.staleness=2", "training.updates=4")
        (first, some, _), (second, others, _) = played(config, 4), played(config, 4)
        found, expected = weights(first), weights(second)
        assert all(torch.equal(found[name], expected[name]) for name in expected)
        assert [texts(batch) for batch in some] == [texts(batch) for batch in others]

    def test_no_more_is_played_than_there_are_updates(self) -> None:
        loop, _ = warmed_up(kuhn(*SHORT, "training.updates=2", "training.staleness=3"))
        loop.update()
        assert loop._pipeline is not None and loop._pipeline.pending == 1
        loop.update()
        assert loop._pipeline.pending == 0
        loop.close()


class TestOverlap:
    def test_episodes_are_played_while_an_update_is_computed(
        self, babble_games: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The first update ends only after a turn of the second one's episodes."""
        turns = threading.Event()
        sample, step = InProcessSampler.load, LocalBackend.step

        def loaded(sampler: InProcessSampler, snapshot: Any) -> None:
            sample(sampler, snapshot)
            loads.append(snapshot.version)
            if len(loads) == 2:
                turns.set()

        def waiting_step(backend: LocalBackend, **options: Any) -> float:
            assert turns.wait(60), "nothing was played meanwhile"
            return step(backend, **options)

        loads: list[int] = []
        monkeypatch.setattr(InProcessSampler, "load", loaded)
        monkeypatch.setattr(LocalBackend, "step", waiting_step)
        seats = dict.fromkeys("abc", "x")
        loop, _ = warmed_up(babble("Babble", seats, "training.staleness=1", "imitation.steps=0"))
        loop.update()
        loop.close()
        assert loads[:2] == [0, 0]

    def test_adapters_play_and_learn_at_once(self, tmp_path: Path) -> None:
        tokenizer = tiny_tokenizer(["Your card is the King. check bet call fold"], split="words", tools=True)
        tiny_model(tokenizer, width=16, layers=1, heads=2, context=128).save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        lora = (f"policy.start_from={tmp_path}", "policy.lora_rank=2", "training.learning_rate=0.1")
        loop, _ = warmed_up(kuhn(*SHORT, *lora, "imitation.steps=5", "training.staleness=1"))
        sampler = loop.learners["policy"].sampler
        assert isinstance(sampler, InProcessSampler)
        playing = sampler.playing_copy().llm.model
        assert playing.shared is not sampler.llm.model.shared
        of_base = {value.data_ptr() for name, value in sampler.llm.model.shared.model.named_parameters()}
        copied = [name for name, v in playing.shared.model.named_parameters() if v.data_ptr() not in of_base]
        assert copied and all(".lora_" in name for name in copied)
        for _ in range(3):
            metrics, _ = loop.update()
        loop.close()
        assert metrics["staleness"] == 1 and metrics["logprob_diff_max"] > 1e-3


class TestWhatIsLearned:
    def tokens(self) -> tuple[TokenBatch, torch.Tensor]:
        logprobs = torch.tensor([[-1.0, -2.0, 0.0], [-0.5, -3.0, -1.0]], dtype=torch.float64, requires_grad=True)
        behaviour = torch.tensor([[-2.5, -1.0, 0.0], [-0.5, -3.2, -0.8]], dtype=torch.float64)
        advantages = torch.tensor([[1.0, 1.0, 0.0], [-2.0, -2.0, -2.0]], dtype=torch.float64)
        counts = (advantages != 0).double()
        zeros = torch.zeros_like(counts)
        columns = (advantages, advantages.clamp(min=0), advantages.clamp(max=0), counts, counts, zeros, zeros)
        return TokenBatch(logprobs, behaviour, behaviour, *columns, 0.0, False, 0.0, 2, 5), logprobs

    def test_the_gradient_of_a_linear_loss_has_truncated_importance_weights(self) -> None:
        tokens, logprobs = self.tokens()
        loss = truncated(make_algorithm("rebn", {}).loss)(tokens)
        (gradient,) = torch.autograd.grad(loss, logprobs)
        weight = [[IMPORTANCE_CAP, math.exp(-1.0), 1.0], [1.0, math.exp(0.2), math.exp(-0.2)]]
        expected = -torch.tensor(weight, dtype=torch.float64) * tokens.advantages / tokens.denominator
        torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=0)

    def test_on_policy_nothing_changes(self) -> None:
        tokens, logprobs = self.tokens()
        tokens = tokens._replace(behaviour_logprobs=logprobs.detach())
        loss = make_algorithm("rebn", {}).loss
        assert truncated(loss)(tokens).item() == loss(tokens).item()

    def test_rows_are_folded_only_where_tokens_had_the_same_probability(self, steps: list[dict[str, Any]]) -> None:
        played(kuhn(*SHORT, "training.staleness=1", "training.opponent_pool_fraction=0"), 2)
        folded = 0
        for rows_of_step in (step["rows"] for step in steps):
            shares = [[p / max(c, 1) for p, c in zip(row.logprobs, row.counts, strict=True)] for row in rows_of_step]
            keys = [(row.ids, tuple(share)) for row, share in zip(rows_of_step, shares, strict=True)]
            assert len(set(keys)) == len(keys)
            folded += sum(max(row.counts) > 1 for row in rows_of_step)
        assert folded

    @pytest.mark.parametrize("name", ["grpo", "ppo", "reinforce_pp"])
    def test_losses_with_ratios_are_left_as_they_are(self, name: str) -> None:
        assert make_algorithm(name, {}).needs.off_policy
        kuhn("training.staleness=1", f"algorithm.name={name}")

    def test_a_loss_that_cannot_be_corrected_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Squared:
            Options, METRICS = ReBN.Options, ReBN.METRICS
            needs = Needs()

            def __init__(self, options: Any) -> None: ...

            def advantages(self, batch: Batch) -> Advantages:
                return Advantages([0.0] * len(batch.transitions))

            def loss(self, tokens: TokenBatch) -> torch.Tensor:
                return (tokens.advantages * tokens.logprobs).square().sum()

        monkeypatch.setattr("marl_gem.trainers.algorithms._algorithms", {"squared": Squared})
        with pytest.raises(ConfigError, match=r"training\.staleness is 1, but the loss of policy neither"):
            kuhn("training.staleness=1", "algorithm.name=squared")
        kuhn("algorithm.name=squared")


class TestEndings:
    def test_a_run_that_is_interrupted_goes_on(self, tmp_path: Path) -> None:
        """What was played ahead is thrown away and played anew with the newest weights."""
        config = kuhn(*SHORT, "training.staleness=2", "training.updates=5", "training.opponent_pool_fraction=0")
        run = TrainingRun.start(tmp_path / "run", config)
        work(run, until=3)
        assert not rollout_threads()
        run.save()
        resumed = TrainingRun.resume(tmp_path / "run", config)
        work(resumed)
        ages = [row["staleness"] for row in rows(tmp_path / "run") if row["stage"] == "training"]
        assert ages == [0, 1, 2, 0, 1]
        assert resumed.report is not None

    def test_a_failure_of_the_learner_ends_the_rollouts(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        run = TrainingRun.start(tmp_path / "run", kuhn(*SHORT, "training.staleness=1"))
        monkeypatch.setattr(LocalBackend, "step", raising(TrainingError("the step failed"), after=6))
        with pytest.raises(TrainingError, match="the step failed"):
            work(run)

    def test_a_failure_of_all_episodes_ends_the_run(self, babble_games: None, monkeypatch: pytest.MonkeyPatch) -> None:
        loop, _ = warmed_up(babble("Babble", dict.fromkeys("abc", "x"), "training.staleness=1", "imitation.steps=0"))
        loop.update()
        monkeypatch.setattr("tests.trainers.support.Babble.observe", raising(RuntimeError("no observation")))
        with pytest.raises(MarlGemError, match="no observation"):
            for _ in range(2):
                loop.update()
        loop.close()
        loop.close()

    def test_a_failure_outside_the_episodes_reaches_the_loop(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop, _ = warmed_up(kuhn(*SHORT, "training.staleness=1"))
        monkeypatch.setattr(InProcessSampler, "load", raising(RuntimeError("no weights")))
        with pytest.raises(RuntimeError, match="no weights"):
            loop.update()
        loop.close()

    def test_ctrl_c_while_episodes_are_awaited(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        run = TrainingRun.start(tmp_path / "run", kuhn(*SHORT, "training.staleness=1"))
        monkeypatch.setattr(Pipeline, "next", raising(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            work(run)
        assert not rollout_threads()


def raising(error: BaseException, after: int = 0) -> Any:
    """A function that raises from a call on."""
    calls: list[int] = []

    def call(*_: Any, **__: Any) -> float:
        calls.append(1)
        if len(calls) > after:
            raise error
        return 0.0

    return call
