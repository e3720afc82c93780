"""A model in this process answers: the one that learns, or a copy of it on another device."""

from __future__ import annotations

import copy

from transformers import PreTrainedTokenizerBase

from marl_gem.llm import LLM, Sampling
from marl_gem.llm.transformers import TransformersLLM
from marl_gem.policies import LLMPolicy
from marl_gem.trainers.backends.adapters import CausalModel
from marl_gem.trainers.backends.base import Backend
from marl_gem.trainers.backends.frozen import FrozenModel, beside, load_weights
from marl_gem.trainers.backends.local import LocalBackend
from marl_gem.trainers.opponent_pool import Snapshot
from marl_gem.trainers.sections import PolicyConfig
from marl_gem.types import Episode, Role
from marl_gem.views import Exchange, History, view, without_reasoning


class InProcessSampler:
    """Answers with a model of transformers in this process.

    Args:
        name: goes into records, followed by the version.
        model: answers. If it is the backend's own model nothing is ever copied; otherwise `sync` copies the weights.
        tokenizer: the model's.
        config: what the model is shown, and how its responses are sampled.
        frozen: holds the weights of an opponent while it plays.
    """

    def __init__(
        self,
        name: str,
        model: CausalModel,
        tokenizer: PreTrainedTokenizerBase,
        config: PolicyConfig,
        frozen: FrozenModel | None = None,
    ) -> None:
        self._config = config
        self.llm = self._llm(name, model, tokenizer)
        self.policy = llm_policy(config, self.llm)
        self._frozen = frozen or FrozenModel(model)
        self._opponent: TransformersLLM | None = None  # kept, since it caches what it has tokenized

    @property
    def exact_policy(self) -> LLMPolicy:
        return self.policy

    def sync(self, backend: Backend) -> None:
        if isinstance(backend, LocalBackend) and backend.model is self.llm.model:
            self.llm.version = backend.version
        else:
            self.load(Snapshot(backend.version, backend.weights()))

    def load(self, snapshot: Snapshot) -> None:
        """Put weights into the model, which must not be the backend's own."""
        load_weights(self.llm.model, snapshot.weights)
        self.llm.version = snapshot.version

    def playing_copy(self) -> InProcessSampler:
        model, tokenizer = beside(self.llm.model), copy.deepcopy(self.llm.tokenizer)  # neither may be shared by threads
        playing = InProcessSampler(self.llm.base_name, model, tokenizer, self._config)
        playing.llm.autocast = self.llm.autocast
        return playing

    def opponent(self, snapshot: Snapshot) -> LLMPolicy:
        model = self._frozen.load(snapshot.weights)
        if self._opponent is None:
            self._opponent = self._llm(self.llm.base_name, model, self.llm.tokenizer)
            self._opponent.autocast = self.llm.autocast
        self._opponent.version = snapshot.version
        return llm_policy(self._config, self._opponent)

    def check(self) -> None:
        return

    def _llm(self, name: str, model: CausalModel, tokenizer: PreTrainedTokenizerBase) -> TransformersLLM:
        config = self._config
        return TransformersLLM(
            model,
            tokenizer,
            name=name,
            max_batch=config.max_batch,
            template_options=config.chat_template_kwargs,
            batching=config.batching,
        )

    def final_prompt(self, episode: Episode, agent: str) -> tuple[int, ...]:
        last = episode.final_infos.get(agent, {}).get("final_observation")
        if last is None:
            return ()
        answered = [Exchange(turn.observation, turn.response) for turn in episode.turns_of(agent)]
        history = History([*answered, Exchange(last, None)])
        role = episode.roles.get(agent, Role())
        messages = view(self._config.view)(role, history)
        ids = self.llm.encode(messages if self._config.keep_reasoning else without_reasoning(messages), role.tools)
        return ids if len(ids) <= self.llm.context else ()


def llm_policy(config: PolicyConfig, llm: LLM) -> LLMPolicy:
    """A model seen through the configuration's view, whose responses are sampled as the configuration says."""
    sampling = Sampling(config.max_tokens, config.temperature)
    return LLMPolicy(llm, view(config.view), sampling, keep_reasoning=config.keep_reasoning)
