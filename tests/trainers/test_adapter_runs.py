"""Runs of policies that are adapters over one model, and what else a checkpoint holds beside weights."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from marl_gem.errors import CheckpointError, ConfigError
from marl_gem.rollout import Job, collect
from marl_gem.specs import ScenarioSpec
from marl_gem.trainers import checkpoint
from marl_gem.trainers.backends.adapters import AdapterModel
from marl_gem.trainers.backends.local import LocalBackend
from marl_gem.trainers.run import TrainingRun
from tests.trainers.support import KUHN, desk, kuhn, rows_without_times, weights, work


def adapters(base: Path, *assignments: str) -> tuple[str, ...]:
    return (f"policy.start_from={base}", "policy.lora_rank=4", "imitation.steps=5", *assignments)


class TestAdapters:
    def test_two_policies_share_one_model_on_the_device(self, base: Path, tmp_path: Path) -> None:
        config = desk(*adapters(base), "seats.user=user", "phases=[]", "training.updates=2", "imitation.steps=2")
        run = TrainingRun.start(tmp_path / "run", config)
        work(run)
        assert run.loop is not None
        models = []
        for learner in run.loop.learners.values():
            assert isinstance(learner.backend, LocalBackend)
            models.append(learner.backend.model)
        user, assistant = models
        assert isinstance(user, AdapterModel) and isinstance(assistant, AdapterModel)
        assert user.shared is assistant.shared
        found = weights(run.loop)
        assert not all(torch.equal(found[name], found[name.replace("user/", "assistant/")]) for name in found)

    @pytest.mark.parametrize(
        "assignments",
        [("league.draw=episode",), ("algorithm.name=ppo", "algorithm.options.epochs=2", "training.precision=bfloat16")],
        ids=["league", "critic"],
    )
    def test_a_resumed_run_equals_an_unbroken_one(
        self, assignments: tuple[str, ...], base: Path, tmp_path: Path
    ) -> None:
        config = kuhn(*adapters(base), *assignments, "training.updates=4")
        unbroken, broken = (TrainingRun.start(tmp_path / name, config) for name in ("unbroken", "broken"))
        work(unbroken)
        work(broken, until=3)
        resumed = TrainingRun.resume(tmp_path / "broken", config)
        work(resumed)
        assert rows_without_times(tmp_path / "broken") == rows_without_times(tmp_path / "unbroken")
        assert unbroken.loop is not None and resumed.loop is not None
        expected, found = weights(unbroken.loop), weights(resumed.loop)
        assert expected.keys() == found.keys() and all(torch.equal(found[name], expected[name]) for name in found)

    def test_a_checkpoint_holds_adapters_and_not_the_model(self, base: Path, tmp_path: Path) -> None:
        run = TrainingRun.start(tmp_path / "run", kuhn(*adapters(base), "training.updates=2"))
        work(run)
        folder = checkpoint.newest(tmp_path / "run") / "policy" / "model"
        assert not (folder / "model.safetensors").exists() and not (folder / "config.json").exists()
        size = sum(value.numel() for value in load_file(folder / "adapter_model.safetensors").values())
        assert size < sum(value.numel() for value in load_file(base / "model.safetensors").values())
        policy = checkpoint.load_policy(tmp_path / "run", KUHN)
        (episode,) = collect(ScenarioSpec.parse(KUHN).make, [Job(0, policy)])
        assert not episode.error and episode.turns[0].response.version == 2

    def test_another_model_in_the_place_of_the_base_is_noticed(self, base: Path, tmp_path: Path) -> None:
        copied = tmp_path / "model"
        shutil.copytree(base, copied)
        work(TrainingRun.start(tmp_path / "run", kuhn(*adapters(copied), "training.updates=1")))
        weights_file = copied / "model.safetensors"
        weights_file.write_bytes(weights_file.read_bytes()[:-4] + b"abcd")
        (copied / "config.json").write_text((copied / "config.json").read_text() + " ")
        with pytest.raises(CheckpointError, match="is not the model over which they were trained"):
            checkpoint.load_policy(tmp_path / "run", KUHN)
        shutil.rmtree(copied)
        with pytest.raises(CheckpointError, match="cannot be read"):
            checkpoint.load_policy(tmp_path / "run", KUHN)

    @pytest.mark.parametrize(
        ("assignments", "complaint"),
        [
            (("policy.lora_rank=4",), "name its folder in policy.start_from"),
            (("policy.start_from=BASE", "policy.lora_rank=4", "policy.lora_targets=['x']"), "policy.lora_targets"),
        ],
    )
    def test_what_makes_no_sense_is_an_error(
        self, assignments: tuple[str, ...], complaint: str, base: Path, tmp_path: Path
    ) -> None:
        with pytest.raises(ConfigError, match=complaint):
            work(TrainingRun.start(tmp_path / "run", kuhn(*(a.replace("BASE", str(base)) for a in assignments))))

    def test_bfloat16_halves_the_pool(self, base: Path, tmp_path: Path) -> None:
        config = kuhn(*adapters(base), "training.precision=bfloat16", "training.updates=3")
        run = TrainingRun.start(tmp_path / "run", config)
        work(run)
        frozen = load_file(checkpoint.newest(tmp_path / "run") / "policy" / "frozen.safetensors")
        kept = {name: value for name, value in frozen.items() if name.startswith("version-")}
        assert kept and {value.dtype for value in kept.values()} == {torch.bfloat16}
        checkpoint.load(tmp_path / "run")


class TestMemories:
    @pytest.mark.parametrize(
        "assignments",
        [("algorithm.name=rae",), ("algorithm.name=ppo", "algorithm.options.epochs=2"), ("league.prioritized=1",)],
        ids=["running means", "critic", "league"],
    )
    def test_a_resumed_run_equals_an_unbroken_one(self, assignments: tuple[str, ...], tmp_path: Path) -> None:
        config = kuhn("imitation.steps=10", *assignments)
        unbroken, broken = (TrainingRun.start(tmp_path / name, config) for name in ("unbroken", "broken"))
        work(unbroken)
        work(broken, until=3)
        resumed = TrainingRun.resume(tmp_path / "broken", config)
        work(resumed)
        assert rows_without_times(tmp_path / "broken") == rows_without_times(tmp_path / "unbroken")

    def test_a_damaged_critic_is_noticed(self, tmp_path: Path) -> None:
        config = kuhn("imitation.steps=5", "algorithm.name=ppo", "training.updates=1")
        run = TrainingRun.start(tmp_path / "run", config)
        work(run)
        assert run.loop is not None
        critic = run.loop.learners["policy"].critic
        assert critic is not None
        with torch.no_grad():
            critic.head.bias.fill_(torch.nan)
        run.loop.updates = 2
        with pytest.raises(Exception, match=r"critic/weights/head\.bias holds numbers that are not finite"):
            checkpoint.save(tmp_path / "run" / "checkpoints", run.loop)
