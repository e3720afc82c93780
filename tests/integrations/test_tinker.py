"""The Tinker cookbook's own rollout, with a completer that answers from a script."""

from __future__ import annotations

import asyncio
import runpy
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tinker_cookbook")

from tinker_cookbook.completers import TokenCompleter, TokensWithLogprobs
from tinker_cookbook.rl.data_processing import assemble_training_data, compute_advantages
from tinker_cookbook.rl.rollouts import do_group_rollout
from tinker_cookbook.supervised import types as supervised_types
from tinker_cookbook.supervised.data import FromConversationFileBuilder

from marl_gem.errors import MarlGemError
from marl_gem.export.chat import write_chat
from marl_gem.integrations import SeatRunner, Start, per_agent_advantages
from marl_gem.integrations.tinker import SeatGroupBuilder
from marl_gem.rollout import Job, collect
from marl_gem.runs.reader import RunReader
from marl_gem.types import to_json
from tests.docs.pages import ROOT
from tests.integrations.words import WordTokenizer
from tests.toys import NumberGame, always

TOKENIZER: Any = WordTokenizer()


class NamedTokenizer(WordTokenizer):
    """With what the cookbook's renderers ask for besides."""

    name_or_path, bos_token = "words", None


class FakeCompleter(TokenCompleter):  # type: ignore[misc]
    """Answers one digit after another, and ends each answer by the token that it is asked to stop at."""

    def __init__(self, digits: str) -> None:
        self.digits = iter(digits)

    async def __call__(self, model_input: Any, stop: Any, *, max_tokens: int | None = None) -> TokensWithLogprobs:
        await asyncio.sleep(0)
        tokens = [*TOKENIZER.encode(next(self.digits)), stop[0]]
        return TokensWithLogprobs(tokens, [-0.5] * len(tokens))


def rollout(builder: SeatGroupBuilder, digits: str) -> Any:
    return asyncio.run(do_group_rollout(builder, FakeCompleter(digits)))


def test_the_cookbook_trains_each_seat_with_its_per_agent_advantage() -> None:
    builder = SeatGroupBuilder(SeatRunner(NumberGame, tokenizer=TOKENIZER), Start(3), episodes=3)
    group = rollout(builder, "192837465123")
    returns = [next(iter(metrics.values())) for metrics in group.metrics_G]
    seats = [next(iter(metrics)) for metrics in group.metrics_G]
    assert seats == ["return/a"] * 3 + ["return/b"] * 3 and len(set(returns)) > 2
    (advantages,) = compute_advantages([group])
    assert advantages.tolist() == pytest.approx(per_agent_advantages(returns, seats), abs=1e-6)
    data, _ = assemble_training_data([group], [advantages])
    assert len(data) == 6  # the turns of a seat are one sequence
    for trajectory in group.trajectories_G:
        first, second = trajectory.transitions
        prefix = first.ob.to_ints() + first.ac.tokens
        assert second.ob.to_ints()[: len(prefix)] == prefix


def test_a_frozen_seat_is_no_trajectory_and_returns_are_given_as_they_are() -> None:
    runner = SeatRunner(NumberGame, others={"b": always("7")}, tokenizer=TOKENIZER)
    group = rollout(SeatGroupBuilder(runner, Start(3), episodes=2, normalize=False), "1234")
    assert sorted(group.get_total_rewards()) in ([3.0, 7.0], [4.0, 6.0])


def test_a_failed_episode_raises() -> None:
    runner = SeatRunner(NumberGame, others={"b": always("break")}, tokenizer=TOKENIZER)
    with pytest.raises(MarlGemError, match="failed in env"):
        rollout(SeatGroupBuilder(runner, Start(3), episodes=2), "1234")


def test_the_example_rolls_out_a_group(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "train_with_tinker.py"), run_name="__main__")
    assert "12 trajectories of player_0, player_1" in capsys.readouterr().out


def test_its_sft_reader_takes_exported_chats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every word that an agent said is trained on, and nothing that it was shown."""
    episodes = collect(NumberGame, [Job(seed, {"a": always("7"), "b": always("8")}) for seed in range(2)])
    tokenizer = NamedTokenizer()
    (tmp_path / "episodes.jsonl").write_text("".join(f"{to_json(episode)}\n" for episode in episodes))
    write_chat(RunReader(tmp_path), tmp_path / "chats.jsonl")
    monkeypatch.setattr(supervised_types, "get_tokenizer", lambda name: tokenizer)
    common = supervised_types.ChatDatasetBuilderCommonConfig(
        model_name_for_tokenizer="words", renderer_name="role_colon", max_length=None, batch_size=4
    )
    builder = FromConversationFileBuilder(common_config=common, file_path=str(tmp_path / "chats.jsonl"))
    dataset, _ = builder()
    trained = []
    for datum in dataset.get_batch(0):
        targets, weights = (datum.loss_fn_inputs[name].tolist() for name in ("target_tokens", "weights"))
        trained.append({tokenizer.decode([token]) for token, weight in zip(targets, weights, strict=True) if weight})
    assert len(trained) == 4  # two agents in two episodes
    assert sorted(word for words in trained for word in words & {"7", "8"}) == ["7", "7", "8", "8"]
