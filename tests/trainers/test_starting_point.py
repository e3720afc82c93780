"""Where policies begin: with a model's folder, or with what another run has learned."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from marl_gem import cli
from marl_gem.errors import ConfigError
from marl_gem.policies import LLMPolicy
from marl_gem.rollout import Job, collect
from marl_gem.specs import PolicySpec, ScenarioSpec, load_policy
from marl_gem.trainers import checkpoint
from marl_gem.trainers.config import read_config
from marl_gem.trainers.run import TrainingRun
from marl_gem.trainers.start import start
from marl_gem.trainers.tiny import tiny_model, tiny_tokenizer
from tests.trainers.support import DESK, KUHN, desk, kuhn, rows, weights, work

pytestmark = pytest.mark.slow


def of(weights_of: dict[str, torch.Tensor], name: str) -> dict[str, torch.Tensor]:
    return {key.partition("/")[2]: value for key, value in weights_of.items() if key.startswith(f"{name}/")}


def equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(value, second[key]) for key, value in first.items())


class TestOtherRuns:
    def test_a_policy_begins_with_what_a_run_has_learned(self, finished_kuhn: Path, tmp_path: Path) -> None:
        assert kuhn().imitation.steps, "what another run has trained takes no warm start all the same"
        run = TrainingRun.start(tmp_path / "run", kuhn(f"policy.start_from={finished_kuhn}", "training.updates=1"))
        working = run.work()
        assert [next(working).stage, next(working).stage] == ["before", "before"]
        assert run.loop is not None
        assert equal(weights(run.loop), weights(checkpoint.load(finished_kuhn)))
        assert [row["stage"] for row in rows(tmp_path / "run")] == ["before"]

    def test_the_checkpoint_is_written_down_because_the_run_may_go_on(
        self, finished_kuhn: Path, tmp_path: Path
    ) -> None:
        config = kuhn(f"policy.start_from={finished_kuhn}", "training.updates=1", "training.episodes=8")
        run = TrainingRun.start(tmp_path / "run", config)
        assert read_config(tmp_path / "run").policy.start_from == f"{finished_kuhn}@6"
        work(run)
        TrainingRun.resume(tmp_path / "run", config)  # it is the same configuration
        with pytest.raises(ConfigError, match=r"start_from was .* and would be"):
            TrainingRun.resume(tmp_path / "run", kuhn(f"policy.start_from={finished_kuhn}@4", "training.updates=1"))

    def test_each_of_several_begins_with_its_namesake_or_with_one_that_is_named(self, finished_desk: Path) -> None:
        learned = weights(checkpoint.load(finished_desk))
        two = ("phases=[]", "seats.user=user", "imitation.steps=0")
        loop, _ = start(desk(*two, f"policy.start_from={finished_desk}"))
        assert equal(weights(loop), learned)
        loop, _ = start(desk(*two, f"policy.start_from={finished_desk}@4:user"))
        assert equal(of(weights(loop), "user"), of(weights(loop), "assistant"))
        assert not equal(of(weights(loop), "assistant"), of(learned, "assistant"))

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            ("RUN@3", r"policy.start_from: there is no checkpoint \S+@3; there is \S+@4, \S+@5"),
            ("RUN:nobody", "has no policy 'nobody'; it has assistant, user: write .*:assistant"),
            ("RUN", "has no policy 'policy'; it has assistant, user"),
            ("RUN,temperature=0", r"values such as temperature are set in \[policy\]"),
            ("random", "'random' is no model's folder and no run"),
            ("RUN@x", "policy.start_from: there is no policy"),
            ("RUN/nowhere", "policy.start_from: there is no folder"),
        ],
    )
    def test_what_is_not_there_is_told_before_anything_is_written(
        self, finished_desk: Path, tmp_path: Path, text: str, complaint: str
    ) -> None:
        text = text.replace("RUN", str(finished_desk))
        config = kuhn("imitation.steps=0")
        config = type(config)(**{**_fields(config), "policy": _with_start(config.policy, text)})
        with pytest.raises(ConfigError, match=complaint):
            TrainingRun.start(tmp_path / "run", config)
        assert not (tmp_path / "run").exists()

    def test_one_of_several_policies_is_seated_by_its_name(self, finished_desk: Path) -> None:
        spec = PolicySpec.parse(f"{finished_desk}@5:user,temperature=0")
        assert str(spec) == f"{finished_desk}@5:user,temperature=0"
        policy = load_policy(spec, DESK, agents=("assistant",))
        assert isinstance(policy, LLMPolicy) and "/user" in policy.llm.name
        with pytest.raises(Exception, match="has no policy 'nobody'; it has assistant, user"):
            load_policy(f"{finished_desk}:nobody", DESK)

    def test_a_checkpoint_of_another_run_is_an_opponent(self, finished_kuhn: Path, tmp_path: Path) -> None:
        league = ("league.past=0", f'league.fixed={{"{finished_kuhn}@4" = 1.0}}', "training.updates=1")
        run = TrainingRun.start(
            tmp_path / "run",
            kuhn(*league, f"evaluation.opponents=['{finished_kuhn}@6']", "imitation.steps=5", "training.episodes=8"),
        )
        work(run)
        assert any(name.endswith(f"{finished_kuhn}@4") for row in rows(tmp_path / "run") for name in row)
        with pytest.raises(Exception, match=r"there is no checkpoint \S+@5; there is \S+@4, \S+@6"):
            TrainingRun.start(tmp_path / "other", kuhn(f'league.fixed={{"{finished_kuhn}@5" = 1.0}}'))

    def test_the_command_line_asks_the_policy_as_its_run_did(
        self, finished_kuhn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        small = ("--set", "training.episodes=8", "--set", "evaluation.final_episodes=2", "--updates", "1")
        monkeypatch.setattr(
            "sys.argv",
            ["marl-gem", "train", KUHN, "--policy", str(finished_kuhn), "--runs", str(tmp_path), "--name", "x", *small],
        )
        with pytest.raises(SystemExit):
            cli.main()
        config = read_config(tmp_path / "x")
        assert (config.policy.view, config.policy.max_tokens, config.training.updates) == ("bare", 8, 1)
        capsys.readouterr()


def _fields(config: Any) -> dict[str, Any]:
    return {name: getattr(config, name) for name in config.__struct_fields__}


def _with_start(policy: Any, text: str) -> Any:
    return type(policy)(**{**_fields(policy), "start_from": text})


class TestAdapters:
    @pytest.fixture(scope="class")
    def base(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        folder = tmp_path_factory.mktemp("base") / "model"
        tokenizer = tiny_tokenizer(["Your card is the King. check bet call fold"], split="words")
        tiny_model(tokenizer, width=16, layers=1, heads=2, context=256).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    @pytest.fixture(scope="class")
    def trained(self, base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """A run of adapters."""
        folder = tmp_path_factory.mktemp("runs") / "adapters"
        settings = ("policy.lora_rank=4", "training.updates=1", "imitation.steps=10", "training.learning_rate=0.01")
        work(TrainingRun.start(folder, kuhn(f"policy.start_from={base}", *settings)))
        return folder

    def test_adapters_go_on_as_adapters_over_the_same_model(self, trained: Path, base: Path, tmp_path: Path) -> None:
        moved = Path(shutil.copytree(trained, tmp_path / "trained"))
        config = kuhn(f"policy.start_from={moved}", "policy.lora_rank=4", "training.updates=1")
        run = TrainingRun.start(tmp_path / "run", config)
        working = run.work()
        next(working)
        next(working)
        assert run.loop is not None and equal(weights(run.loop), weights(checkpoint.load(trained)))
        for _ in working:
            pass
        shutil.rmtree(moved)  # the model is needed, the other run is not
        assert checkpoint.load(tmp_path / "run").updates == 1
        checkpoint.load_policy(tmp_path / "run", KUHN)

    def test_adapters_of_another_size_are_told(self, trained: Path, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"has adapters with lora_rank = 4, not 8; set policy\.lora_rank so"):
            TrainingRun.start(tmp_path / "run", kuhn(f"policy.start_from={trained}", "policy.lora_rank=8"))

    def test_a_model_of_its_own_begins_with_adapter_and_base_merged(self, trained: Path, base: Path) -> None:
        loop, _ = start(kuhn(f"policy.start_from={trained}"))
        (learner,) = loop.learners.values()
        policy = checkpoint.load_policy(trained, KUHN)
        jobs = [Job(seed, policy) for seed in range(4)]
        turns = [turn for episode in collect(ScenarioSpec.parse(KUHN).make, jobs) for turn in episode.turns]
        merged: Any = learner.backend
        for turn in turns:
            prompt, answer = turn.response.prompt_ids or (), turn.response.token_ids or ()
            with torch.no_grad():
                logits = merged.model(torch.tensor([[*prompt, *answer]])).logits[0].double()
            found = torch.log_softmax(logits, -1)[len(prompt) - 1 : -1].gather(1, torch.tensor(answer)[:, None])[:, 0]
            assert torch.allclose(found, torch.tensor(turn.response.logprobs, dtype=torch.float64), atol=1e-4)
        plain, _ = start(kuhn(f"policy.start_from={base}", "imitation.steps=0"))
        assert weights(plain).keys() == weights(loop).keys() and not equal(weights(plain), weights(loop))

    def test_adapters_over_what_a_run_has_learned(self, finished_kuhn: Path, tmp_path: Path) -> None:
        config = kuhn(f"policy.start_from={finished_kuhn}", "policy.lora_rank=2", "training.updates=1")
        work(TrainingRun.start(tmp_path / "run", config))
        assert checkpoint.load(tmp_path / "run").updates == 1

    def test_adapters_share_one_model(self, finished_desk: Path, tmp_path: Path) -> None:
        two = ("phases=[]", "seats.user=user", "policy.lora_rank=2")
        with pytest.raises(ConfigError, match="adapters share one model, but here they would begin with several"):
            start(desk(*two, f"policy.start_from={finished_desk}", "imitation.steps=0"))
