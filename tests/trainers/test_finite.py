"""NaN and infinities never reach the weights: the update ends with an error, whatever brought them in."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import load_file

from marl_gem.errors import TrainingError
from marl_gem.llm.pretrained import not_finite
from marl_gem.trainers import checkpoint
from marl_gem.trainers.algorithms import Advantages, make_algorithm
from marl_gem.trainers.backends.adapters import CausalModel, SharedBase
from marl_gem.trainers.backends.frozen import copy_weights
from marl_gem.trainers.backends.local import LocalBackend
from marl_gem.trainers.backends.memory import Memory
from marl_gem.trainers.batch import Batch
from marl_gem.trainers.critic import TurnCritic
from marl_gem.trainers.learn import PolicyStep, learn
from marl_gem.trainers.learner import Learner
from marl_gem.trainers.opponent_pool import OpponentPool
from marl_gem.trainers.run import TrainingRun
from marl_gem.trainers.sections import TrainingConfig
from tests.trainers.support import kuhn, work
from tests.trainers.test_backend import conversation, tiny, tokenizer

NAN, INF = float("nan"), float("inf")
TRIALS = 20


class Silent:
    """A sampler that nobody asks."""

    def sync(self, backend: Any) -> None:
        pass


@dataclass
class Update:
    """All that goes into an update of the policies a and b, to be spoiled."""

    rng: random.Random
    learners: dict[str, Learner]
    batch: Batch
    algorithm: Any
    training: TrainingConfig
    hooks: list[Any] = field(default_factory=list)

    def model(self, name: str = "a") -> CausalModel:
        backend = self.learners[name].backend
        assert isinstance(backend, LocalBackend)
        return backend.model

    def change(self, change: Callable[[Any], dict[str, Any]]) -> None:
        """One transition of a, chosen at random."""
        parts = [list(part) for part in self.batch.trajectories]
        part = parts[self.rng.choice(range(0, len(parts), 2))]
        index = self.rng.randrange(len(part))
        part[index] = msgspec.structs.replace(part[index], **change(part[index]))
        self.batch = Batch(parts, self.batch.gamma)

    def advantage(self, value: float) -> None:
        inner = self.algorithm.advantages

        def advantages(batch: Batch) -> Advantages:
            found = inner(batch)
            values = list(found.values)
            values[self.rng.randrange(len(values))] = value
            return found._replace(values=values)

        self.algorithm.advantages = advantages

    def output(self, module: torch.nn.Module, value: float, *, after: int = 0) -> None:
        """One number of a module's output, in its pass number `after`."""
        passes = iter(range(1000))

        def hook(_: Any, __: Any, output: Any) -> Any:
            tensor = output[0] if isinstance(output, tuple) else output
            if next(passes) < after:
                return output
            spoiled = tensor.clone()
            spoiled.view(-1)[self.rng.randrange(spoiled.numel())] = value
            return (spoiled, *output[1:]) if isinstance(output, tuple) else spoiled

        self.hooks.append(module.register_forward_hook(hook))

    def gradient(self, parameters: list[torch.nn.Parameter], value: float) -> None:
        parameter = self.rng.choice(parameters)

        def hook(gradient: torch.Tensor) -> torch.Tensor:
            spoiled = gradient.clone()
            spoiled.view(-1)[self.rng.randrange(spoiled.numel())] = value
            return spoiled

        self.hooks.append(parameter.register_hook(hook))

    def loss(self, spoil: Callable[[torch.Tensor], torch.Tensor]) -> None:
        inner = self.algorithm.loss
        self.algorithm.loss = lambda tokens: spoil(inner(tokens))

    def reference(self) -> None:
        reference = copy_weights(self.model())
        name = self.rng.choice([name for name in reference if "ln" in name or "wte" in name])
        reference[name].view(-1)[:] = NAN
        self.learners["a"].backend.reference = reference

    def run(self) -> None:
        try:
            pull = 0.1 if self.learners["a"].backend.reference else 0.0
            learn(
                self.batch.trajectories,
                [name for name, _ in zip("ab" * len(self.batch.trajectories), self.batch.trajectories, strict=False)],
                {
                    name: PolicyStep(learner, self.algorithm, self.training, learning_rate=1e-3, kl_weight=pull)
                    for name, learner in self.learners.items()
                },
                name_metrics=True,
            )
        finally:
            for hook in self.hooks:
                hook.remove()


def logprobs(value: float) -> Callable[[Any], dict[str, Any]]:
    return lambda t: {"logprobs": (value, *t.logprobs[1:])}


def critic(update: Update) -> TurnCritic:
    found = update.learners["a"].critic
    assert found is not None
    return found


def spoil_critic(update: Update) -> None:
    with torch.no_grad():
        critic(update).head.weight[0, update.rng.randrange(16)] = NAN


def spoil_adapter(update: Update) -> None:
    _ = update.model().base_model  # which activates it: only then its parameters have gradients
    update.gradient(list(update.model().parameters()), NAN)


Inject = Callable[[Update], Any]
CASES: dict[str, tuple[str, dict[str, Any], Inject]] = {
    "reward, NaN": ("rebn", {}, lambda u: u.change(lambda t: {"return_": NAN})),
    "reward, infinite": ("rebn", {}, lambda u: u.change(lambda t: {"return_": -INF})),
    "reward, too large": ("grpo", {}, lambda u: u.change(lambda t: {"return_": 1e200})),
    "advantage, NaN": ("rebn", {}, lambda u: u.advantage(NAN)),
    "advantage, infinite": ("ppo", {}, lambda u: u.advantage(INF)),
    "advantage, beyond float32": ("rebn", {}, lambda u: u.advantage(-1e300)),
    "behaviour, NaN, merged": ("rebn", {}, lambda u: u.change(logprobs(NAN))),
    "behaviour, NaN, ratio": ("grpo", {}, lambda u: u.change(logprobs(NAN))),
    "behaviour, infinite": ("reinforce_pp", {}, lambda u: u.change(logprobs(-INF))),
    "proximal": (
        "reinforce_pp",
        {"options": {"importance": "truncated"}},
        lambda u: u.output(u.model().get_output_embeddings(), NAN),
    ),
    "logits, NaN": ("rebn", {}, lambda u: u.output(u.model().get_output_embeddings(), NAN)),
    "logits, infinite": ("rebn", {}, lambda u: u.output(u.model().get_output_embeddings(), INF)),
    "hidden states": ("rebn", {"packing": True}, lambda u: u.output(u.model().base_model.h[0], NAN)),
    "hidden states, bfloat16": (
        "rebn",
        {"precision": "bfloat16", "activation_checkpointing": True},
        lambda u: u.output(u.model().base_model.h[0], -INF),
    ),
    "gradient, NaN": ("rebn", {}, lambda u: u.gradient(list(u.model().parameters()), NAN)),
    "gradient, infinite, the second policy": (
        "grpo",
        {},
        lambda u: u.gradient(list(u.model("b").parameters()), INF),
    ),
    "gradient of one adapter of two": ("rebn", {"adapters": True}, spoil_adapter),
    "the second step": (
        "grpo",
        {"options": {"epochs": 2}},
        lambda u: u.output(u.model().get_output_embeddings(), NAN, after=1),
    ),
    "loss": ("rebn", {}, lambda u: u.loss(lambda loss: loss + NAN)),
    "reference": ("rebn", {}, lambda u: u.reference()),
    "divergence paid as a reward": ("rebn", {"kl_in": "reward"}, lambda u: u.reference()),
    "critic, values": ("ppo", {}, spoil_critic),
    "critic, gradient": ("ppo", {}, lambda u: u.gradient(list(critic(u).parameters()), INF)),
}


def updates(name: str, settings: dict[str, Any]) -> Iterator[Update]:
    """Updates of two tiny policies with this algorithm, each with another batch."""
    settings = dict(settings)
    options, adapters = settings.pop("options", {}), settings.pop("adapters", False)
    memory = Memory(**{key: value for key, value in settings.items() if key in Memory._fields})
    shared, texts = SharedBase(tiny(), rank=2, alpha=4) if adapters else None, tokenizer()
    learners = {}
    for seed, policy in enumerate("ab"):
        model = shared.adapter(policy, seed=seed) if shared else tiny(seed)
        value = TurnCritic(tiny(seed)) if name == "ppo" else None
        backend = LocalBackend(model, texts, memory=memory)
        learners[policy] = Learner(backend, Silent(), OpponentPool(1, 1), value)  # type: ignore[arg-type]
    for seed in range(TRIALS):
        rng = random.Random(seed)
        parts = [
            [msgspec.structs.replace(t, episode=str(index), reward=pay, return_=pay) for t in conversation(rng, 1)]
            for index, pay in enumerate(rng.uniform(-1, 1) for _ in range(4))
        ]
        yield Update(rng, learners, Batch(parts), make_algorithm(name, options), TrainingConfig(**settings))


def broken(update: Update, *, but_critic: bool) -> list[str]:
    """The names of weights that are not finite."""
    found = []
    for name, learner in update.learners.items():
        found.append(not_finite(learner.backend.weights() | learner.backend.optimizer_state()))
        if learner.critic and not but_critic:
            found.append(not_finite(learner.critic.state()))
        assert all(p.grad is None for p in update.model(name).parameters())
    return [name for name in found if name]


@pytest.mark.parametrize("case", CASES)
def test_the_weights_stay_finite(case: str) -> None:
    name, settings, inject = CASES[case]
    for update in updates(name, settings):
        inject(update)
        with pytest.raises(TrainingError):
            update.run()
        assert not broken(update, but_critic=case == "critic, values")


def test_without_any_of_that_the_update_takes_its_steps() -> None:
    for name in ("rebn", "grpo", "ppo", "reinforce_pp"):
        update = next(updates(name, {}))
        before = copy_weights(update.model())
        update.run()
        assert name and any(not torch.equal(value, before[key]) for key, value in copy_weights(update.model()).items())


class TestRuns:
    @pytest.fixture(scope="class")
    def begun(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """A run that was stopped after its third update."""
        folder = tmp_path_factory.mktemp("runs") / "run"
        config = kuhn("imitation.steps=3", "imitation.episodes=10", "evaluation.final_episodes=4")
        work(TrainingRun.start(folder, config), until=3)
        return folder

    @pytest.mark.parametrize("spoiled", ["optimizer", "weights"])
    def test_the_run_stops_and_its_last_checkpoint_is_finite(self, spoiled: str, begun: Path, tmp_path: Path) -> None:
        shutil.copytree(begun, tmp_path / "run")
        run = TrainingRun.resume(tmp_path / "run")
        assert run.loop is not None
        backend = run.loop.learners["policy"].backend
        assert isinstance(backend, LocalBackend)
        with torch.no_grad():
            if spoiled == "optimizer":
                next(iter(backend.optimizer.state.values()))["exp_avg"].view(-1)[0] = NAN
            else:
                next(backend.model.parameters()).view(-1)[0] = INF
        with pytest.raises(Exception, match="not finite"):
            work(run)
        files = list(checkpoint.newest(tmp_path / "run").rglob("*.safetensors"))
        assert len(files) == 3 and not any(not_finite(load_file(file)) for file in files)
        assert checkpoint.load(tmp_path / "run").updates == 2
