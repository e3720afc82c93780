"""A policy that learns."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from marl_gem.errors import ConfigError
from marl_gem.llm import Sampling
from marl_gem.llm.transformers import TransformersLLM
from marl_gem.policies import LLMPolicy
from marl_gem.trainers.config import PolicyConfig, TrainConfig
from marl_gem.trainers.learner import Learner
from marl_gem.trainers.transitions import Trajectory, merge
from marl_gem.views import view

Weights = dict[str, torch.Tensor]


class Trainee:
    """A policy, its learner, its older versions, and what it is held near.

    Args:
        name: goes into records.
        config: the run's.
        model, tokenizer: the policy's.
        updates: how many updates the model has had.
        pool: older versions, as (number of updates, weights), oldest first.
        reference: what the policy is held near.
    """

    def __init__(
        self,
        name: str,
        config: TrainConfig,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        updates: int = 0,
        pool: Sequence[tuple[int, Weights]] = (),
        reference: PreTrainedModel | None = None,
    ) -> None:
        self.name = name
        self.config = config
        self.llm = TransformersLLM(model, tokenizer, name=name)
        self.llm.version = updates
        self.learner = Learner(
            model,
            pad_token=tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id,
            temperature=config.policy.temperature,
            clip=config.self_play.clip,
        )
        self.policy = llm_policy(config.policy, self.llm)
        self.pool = list(pool)
        self.reference = reference
        self._older: TransformersLLM | None = None

    @property
    def updates(self) -> int:
        """How many updates the model has had."""
        return self.llm.version

    def hold(self) -> None:
        """From now on the policy is held near what it is now."""
        self.reference = copy.deepcopy(self.llm.model)

    def remember(self) -> None:
        """Keep the present version in the pool, if it is time.

        The pool always spans the whole run, the first version included: when it is full, every second
        version goes and versions are kept half as often from then on.
        """
        plan = self.config.self_play
        interval = plan.pool_every
        while self.updates // interval >= plan.pool_size:
            interval *= 2
        if plan.older_selves and self.updates % interval == 0:
            weights = {name: value.detach().clone() for name, value in self.llm.model.state_dict().items()}
            kept = [one for one in self.pool if one[0] % interval == 0 and one[0] != self.updates]
            self.pool = [*kept, (self.updates, weights)]

    def older(self, version: int, weights: Weights) -> LLMPolicy:
        """One of the pool's versions as a policy. There is one at a time: the next call changes the same model."""
        if self._older is None:
            self._older = TransformersLLM(copy.deepcopy(self.llm.model), self.llm.tokenizer, name=self.name)
        self._older.model.load_state_dict(weights)
        self._older.version = version
        return llm_policy(self.config.policy, self._older)

    def learn(self, batch: Sequence[Trajectory], *, learning_rate: float, kl: float) -> dict[str, float]:
        """Take one step on these trajectories, whose transitions have their advantages; without any, none.

        Returns:
            `turns`, how many transitions; `rows`, what they were merged into; and what `Learner.update` tells, if
            there was a step.
        """
        turns, rows = sum(map(len, batch)), merge(batch)
        if not rows:
            return {"turns": 0, "rows": 0}
        learned = self.learner.update(
            rows, learning_rate=learning_rate, denominator=turns, reference=self.reference, kl=kl
        )
        self.llm.version += 1
        return {"turns": turns, "rows": len(rows), **learned}


def llm_policy(config: PolicyConfig, llm: TransformersLLM) -> LLMPolicy:
    """A model seen through the configuration's view, answering as it says."""
    return LLMPolicy(llm, view(config.view), Sampling(config.max_tokens, config.temperature))


def load_pretrained(folder: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model and its tokenizer from a folder, in the layout of transformers; nothing is downloaded.

    The weights are float32 whatever the folder holds: in bfloat16 most steps of a small learning rate round to nothing.

    Raises:
        ConfigError: the folder holds none.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model = AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True, use_safetensors=True, dtype=torch.float32
        )
        return model, tokenizer
    except (OSError, ValueError) as error:
        raise ConfigError(f"{folder!r} holds no transformers model with a tokenizer: {error}") from error


def check_pretrained(folder: str) -> None:
    """Read of a model in a folder what is read quickly: its configuration and its tokenizer.

    Raises:
        ConfigError: the folder holds none, or a tokenizer without what a conversation needs.
    """
    try:
        AutoConfig.from_pretrained(folder, local_files_only=True)
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{folder!r} holds no transformers model with a tokenizer: {error}") from error
    if tokenizer.chat_template is None or tokenizer.eos_token_id is None:
        raise ConfigError(f"the tokenizer in {folder!r} needs a chat template and an end-of-sequence token")
