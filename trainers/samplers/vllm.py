"""A vLLM server answers: token ids in, token ids out, with weights that are published under versions.

Prompts are made in this process by the model's chat template, as for a model that answers in process.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from marl_gem.errors import ConfigError, ContextTooLong, LLMError, ServerUnreachable
from marl_gem.llm import Sampling
from marl_gem.llm.completions import TokenModel
from marl_gem.llm.retry import CircuitBreaker, Retrying
from marl_gem.llm.transformers import TransformersLLM
from marl_gem.llm.wire import split_reasoning
from marl_gem.policies import LLMPolicy
from marl_gem.trainers.backends.base import Backend
from marl_gem.trainers.opponent_pool import Snapshot
from marl_gem.trainers.samplers.in_process import InProcessSampler, llm_policy
from marl_gem.trainers.samplers.vllm_versions import AdapterVersions, Versions, WeightVersions
from marl_gem.trainers.sections import PolicyConfig, VLLMConfig
from marl_gem.types import Episode, Message, Response, ToolSpec


class Server(Protocol):
    """A server as the samplers see it: one that the run has started, or one that runs elsewhere."""

    @property
    def url(self) -> str: ...

    async def ready(self) -> None:
        """Wait until it can be asked. Raises LLMError if it never can."""
        ...

    def answered(self) -> None:
        """Note that it works."""
        ...

    def unreachable(self) -> None:
        """Note that a call found nobody."""
        ...

    def check(self) -> None:
        """Raises LLMError if it will not answer any more."""
        ...


class RemoteServer:
    """A server at a URL, which somebody else starts and stops.

    Args:
        url: of its API.
        patience: how many seconds calls wait for it, for messages.
    """

    def __init__(self, url: str, patience: float) -> None:
        self.url = url
        self._patience = patience
        self._is_away = False

    async def ready(self) -> None:
        return

    def answered(self) -> None:
        self._is_away = False

    def unreachable(self) -> None:
        self._is_away = True

    def check(self) -> None:
        if self._is_away:
            raise LLMError(
                f"{self.url} has been away for {self._patience:g} s (vllm.patience), so the run ends here. Go on from "
                "its last checkpoint with --resume when the server is back"
            )


class ServedModel:
    """Makes prompts as a model in this process does, and has a server sample the answers.

    Args:
        local: the model in this process: gives the chat template, the tokenizer and the name.
        client: asks the server.
        server: is waited for.
        versions: what was published.
        version: answers; None for the newest one.
        context: the greatest number of tokens of prompt and answer together that the server takes.
    """

    def __init__(
        self,
        local: TransformersLLM,
        client: TokenModel,
        server: Server,
        versions: Versions,
        *,
        version: int | None = None,
        context: int = 0,
    ) -> None:
        self._local, self._client, self._server, self._versions = local, client, server, versions
        self._version = version
        self._context = min(local.context, context or local.context)

    @property
    def name(self) -> str:
        version = self._local.version if self._version is None else self._version
        return f"{self._local.base_name}@{version}"

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, seed: int, tools: Sequence[ToolSpec] = ()
    ) -> Response:
        prompt = self._local.encode(messages, tools)
        available = self._context - len(prompt)
        if available < 1:
            raise ContextTooLong(
                f"a prompt of {len(prompt)} tokens does not fit {self.name}, which reads {self._context}; "
                "use a view that shows less history, or a model with a longer context"
            )
        limit = available if sampling.max_tokens is None else min(sampling.max_tokens, available)
        ends = self._local.template.ends
        limited = msgspec.structs.replace(sampling, max_tokens=limit)
        await self._server.ready()
        try:
            async with self._versions.use(self._version) as (name, version):
                answer = await self._client.generate(name, prompt, limited, seed, ends)
        except ServerUnreachable:
            self._server.unreachable()
            raise
        self._server.answered()
        text = str(self._local.tokenizer.decode(answer.token_ids, skip_special_tokens=True))
        reasoning, text = split_reasoning(text)
        return Response(
            text=text,
            reasoning=reasoning,
            prompt_ids=prompt,
            token_ids=answer.token_ids,
            logprobs=answer.logprobs,
            finish_reason="stop" if answer.token_ids[-1] in ends else "length",
            version=version,
            usage={"prompt_tokens": len(prompt), "completion_tokens": len(answer.token_ids)},
        )


class VLLMSampler:
    """Answers with a vLLM server; exact analyses use the model in this process.

    Args:
        local: the sampler in this process.
        config: what the model is shown, and how its responses are sampled.
        options: of the server.
        client: asks the server.
        server: is waited for.
        versions: what is published.
        beside: makes another one like this, for another thread, with versions of its own.
    """

    def __init__(
        self,
        local: InProcessSampler,
        config: PolicyConfig,
        options: VLLMConfig,
        client: TokenModel,
        server: Server,
        versions: AdapterVersions | WeightVersions,
        beside: Callable[[InProcessSampler], VLLMSampler],
    ) -> None:
        self._local, self._config, self._options = local, config, options
        self._client, self._server, self._versions = client, server, versions
        self._beside = beside
        self._breaker = CircuitBreaker(patience=options.patience)
        self.policy = self._policy(None)

    @property
    def exact_policy(self) -> LLMPolicy:
        return self._local.exact_policy

    def sync(self, backend: Backend) -> None:
        self._local.sync(backend)
        self._versions.publish(backend)

    def load(self, snapshot: Snapshot) -> None:
        """Let these weights answer from now on, which may be older than the last ones; they must be an adapter's."""
        assert isinstance(self._versions, AdapterVersions)
        self._local.llm.version = snapshot.version
        self._versions.publish_weights(snapshot)

    def playing_copy(self) -> VLLMSampler:
        """Another one, which may be used in another thread at the same time, with weights that `load` gives it.

        Raises:
            ConfigError: the weights are no adapter's, of which the server has one version at a time.
        """
        if not isinstance(self._versions, AdapterVersions):
            raise ConfigError(
                "training.staleness: a vLLM server has one version of a model's weights at a time, so nothing can be "
                "played while an update is computed; train adapters (policy.lora_rank), or set training.staleness = 0"
            )
        llm = self._local.llm
        tokenizer = copy.deepcopy(llm.tokenizer)  # is not made for several threads
        return self._beside(InProcessSampler(llm.base_name, llm.model, tokenizer, self._config))

    def opponent(self, snapshot: Snapshot) -> LLMPolicy:
        """A version that is an adapter is served; one with weights of its own answers in this process."""
        if isinstance(self._versions, WeightVersions):
            return self._local.opponent(snapshot)
        self._versions.publish_opponent(snapshot)
        return self._policy(snapshot.version)

    def final_prompt(self, episode: Episode, agent: str) -> tuple[int, ...]:
        return self._local.final_prompt(episode, agent)

    def close(self) -> None:
        """Take back what was published."""
        self._versions.close()

    def check(self) -> None:
        self._server.check()

    def _policy(self, version: int | None) -> LLMPolicy:
        model = ServedModel(
            self._local.llm,
            self._client,
            self._server,
            self._versions,
            version=version,
            context=self._options.context,
        )
        retrying = Retrying(model, patience=self._options.patience, breaker=self._breaker)
        return llm_policy(self._config, retrying)
