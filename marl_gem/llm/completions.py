"""A vLLM server that is asked with token ids for token ids (`/v1/completions`): nothing is tokenized again.

    model = TokenModel("http://127.0.0.1:8000/v1", "base")
    answer = await model.generate("base", prompt_ids, Sampling(max_tokens=64), seed=1, ends=[tokenizer.eos_token_id])

It reads what vLLM adds to OpenAI's API: `return_token_ids`, and the log-probabilities that tokens were drawn with, for
which the server is started with `--logprobs-mode processed_logprobs`.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import msgspec

from marl_gem.errors import LLMError, TransientLLMError
from marl_gem.llm import Sampling, wire
from marl_gem.llm.http import Adapter, HTTPModel


class Answer(NamedTuple):
    """What a server sampled: token ids, the log-probability in nats that each was drawn with, and why it ended."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: str


class _Logprobs(msgspec.Struct):
    token_logprobs: list[float]


class _Choice(msgspec.Struct):
    prompt_token_ids: list[wire.TokenId]
    token_ids: list[wire.TokenId]
    logprobs: _Logprobs
    finish_reason: str


class _Reply(msgspec.Struct):
    model: str
    choices: list[_Choice]


_read = msgspec.json.Decoder(_Reply).decode


class TokenModel(HTTPModel):
    """A model behind vLLM's API, and adapters that are loaded into it; see `HTTPModel` for what is raised."""

    async def generate(
        self, model: str, prompt: Sequence[int], sampling: Sampling, seed: int, ends: Collection[int]
    ) -> Answer:
        """Sample an answer to a prompt.

        Args:
            model: the name of the model, or of an adapter.
            prompt: its token ids.
            sampling: `max_tokens` must fit the model's context after the prompt; `stop` is not taken.
            seed: of the server's draws.
            ends: the tokens that end an answer; the last token is one of them unless the answer was cut.

        Raises:
            TransientLLMError, ContextTooLong, LLMError: as the call of a chat model.
            LLMError: another model answered, another prompt was read, or the reply says nothing of tokens.
        """
        body: dict[str, Any] = {
            "model": model,
            "prompt": list(prompt),
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": seed & 0x7FFF_FFFF,
            "top_k": -1,  # these would come from the model's generation configuration
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "logprobs": 0,  # of the token that was drawn, and of no other
            "return_token_ids": True,
            "stop_token_ids": sorted(ends),
        }
        reply = await self._post("completions", model, body | self.extra_body)
        if reply.status != 200:
            raise await self._error(reply, model)
        try:
            found = _read(reply.body)
            choice = found.choices[0]
        except (msgspec.ValidationError, IndexError) as error:
            advice = "Is it vLLM, of version 0.20 or newer? It must give token ids and log-probabilities"
            raise LLMError(self._client.describe(reply, f"with what is no completion ({error})", advice)) from None
        except msgspec.DecodeError as error:
            raise TransientLLMError(self._client.describe(reply, f"with a damaged reply ({error})")) from None
        if found.model != model or choice.prompt_token_ids != list(prompt):
            what = f"the model {found.model!r} answered" if found.model != model else "it read another prompt"
            raise LLMError(f"{self.url}: we asked {model!r}, but {what}")
        greedy = sampling.temperature == 0  # then the token is certain, and the server tells those of temperature 1
        logprobs = [0.0] * len(choice.token_ids) if greedy else choice.logprobs.token_logprobs
        if not choice.token_ids or len(logprobs) != len(choice.token_ids):
            raise TransientLLMError(
                f"{self.url} gave {len(logprobs)} log-probabilities for {len(choice.token_ids)} tokens"
            )
        if not all(math.isfinite(value) and value <= wire.LOGPROB_TOLERANCE for value in logprobs):
            raise LLMError(f"{self.url} gave log-probabilities that are none; have the model's weights diverged?")
        return Answer(tuple(choice.token_ids), tuple(min(value, 0.0) for value in logprobs), choice.finish_reason)

    async def exclusive(self) -> asyncio.Lock:
        """A lock of the running event loop for what must not overlap."""
        return await self._client.lock()

    async def publish_adapter(self, name: str, path: str) -> None:
        """Load a LoRA adapter under a name that is never given to another; nothing if that was done before.

        Raises:
            LLMError: see `load_adapter`.
        """
        if name not in self._loaded:
            await self._reload_adapter(name, path)
            self._loaded[name] = Adapter(path, salt=os.urandom(8).hex())

    async def reload_weights(self, path: str) -> None:
        """Replace the model's weights by those in a folder, which the server must be able to read. No request may be
        under way; the next ones should have another `cache_salt` in `extra_body`.

        Raises:
            LLMError: it cannot. The server must be started with the environment variable VLLM_SERVER_DEV_MODE=1.
        """
        base = self._client.base
        url = base.with_path(base.path.rstrip("/").removesuffix("/v1") + "/collective_rpc", keep_query=True)
        body = {"method": "reload_weights", "kwargs": {"weights_path": path}}
        reply = await self._client.send("POST", url, wire.write_json(body))
        if reply.status == 404:
            advice = "Its weights cannot be replaced; start vLLM with VLLM_SERVER_DEV_MODE=1"
            raise LLMError(self._client.describe(reply, advice=advice))
        if reply.status != 200:
            raise LLMError(self._client.describe(reply, advice=f"It could not load the weights in {path}"))
