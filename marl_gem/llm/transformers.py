"""A transformers model in this process, which answers many requests in one batch.

Tokens in, tokens out: a response holds the token ids of the prompt, the sampled token ids and the log-probability that
each was drawn with. An earlier answer goes into the next prompt as the token ids that were sampled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

from marl_gem.errors import ConfigError, ContextTooLong, LLMError, MissingPackage
from marl_gem.llm import Sampling
from marl_gem.llm.wire import split_reasoning
from marl_gem.types import Message, Response, ToolSpec

try:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from marl_gem.llm.chat_template import ChatTemplate
    from marl_gem.llm.continuous import ContinuousBatch, Draft, Request, can_batch_continuously, extend, read_prompts
    from marl_gem.llm.pretrained import load_pretrained
except ImportError as error:
    raise MissingPackage(error.name or "torch", "train", "a model in this process") from error


Batching: TypeAlias = Literal["static", "continuous", "auto"]
"""How requests are answered together, see `TransformersLLM`."""


class TransformersLLM:
    """Generates with a causal language model and its tokenizer.

    Forward passes run in the event loop's thread: so the composition of every batch, and with it a complete run,
    depends on the seed alone where all episodes wait for models in this process. There are two ways to batch:

    - "static": requests that arrive before the event loop becomes idle are answered together, and the next ones wait
      until all of these are. Nothing else runs meanwhile.
    - "continuous": requests join between two tokens and leave when they end, and other tasks run between two tokens.
      An answer has the same tokens either way but for rounding, since its draws depend on its own seed.

    "auto" is static on a CPU, where it gives the numbers of earlier releases, and continuous elsewhere, if the model's
    cache allows it (sliding windows do not).

    Args:
        model: any causal language model of transformers; a trainer may share it.
        tokenizer: its tokenizer, with a chat template and an end-of-sequence token.
        name: goes into records, followed by the version.
        max_batch: the greatest number of requests in one forward pass.
        template_options: variables of the chat template, such as {"enable_thinking": False}.
        batching: "static", "continuous" or "auto".

    Raises:
        ConfigError: continuous batching is asked for, and the model's cache does not allow it.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        name: str = "model",
        max_batch: int = 1024,
        template_options: Mapping[str, Any] | None = None,
        batching: Batching = "auto",
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.template = ChatTemplate(tokenizer, name, options=template_options, ends=_ends(model))
        self.base_name = name
        self.version = 0
        self.max_batch = max_batch
        self.autocast = False
        """Whether the model computes in bfloat16 where that loses little, as a trainer with this precision does."""
        self._rows = model.get_input_embeddings().weight.shape[0]
        self._waiting: list[Request] = []
        self._filler = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        self._batch: ContinuousBatch | None = None
        if _is_continuous(model, batching):
            self._batch = ContinuousBatch(model, self._filler, self._ended)
        self._active = False  # whether the next step of the continuous batch is scheduled
        self._loop: asyncio.AbstractEventLoop | None = None
        self._decode = lru_cache(10_000)(self._decode_tokens)

    @property
    def name(self) -> str:
        return f"{self.base_name}@{self.version}"

    @property
    def context(self) -> int:
        """The greatest number of tokens of prompt and answer together; 2**30 if the model does not declare it."""
        return int(getattr(self.model.config, "max_position_embeddings", 1 << 30))

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, seed: int, tools: Sequence[ToolSpec] = ()
    ) -> Response:
        prompt = self.encode(messages, tools)
        available = self.context - len(prompt)
        if available < 1:
            raise ContextTooLong(
                f"a prompt of {len(prompt)} tokens does not fit {self.name}, which reads {self.context}; "
                "use a view that shows less history, or a model with a longer context"
            )
        loop = asyncio.get_running_loop()
        limit = available if sampling.max_tokens is None else min(sampling.max_tokens, available)
        if loop is not self._loop:
            self._forget(loop)
        request = Request(prompt, sampling, limit, seed, loop.create_future())
        self._waiting.append(request)
        if self._batch is not None and not self._active:
            self._active = True
            loop.call_soon(self._step_when_idle, self._batch, 0)
        elif self._batch is None and len(self._waiting) == 1:
            loop.call_soon(self._answer_when_idle, 0)
        return await request.answer

    def encode(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> tuple[int, ...]:
        """The token ids of a prompt, see `ChatTemplate.encode`.

        Raises:
            LLMError: the chat template does not show every message once, in order, or the tokenizer is another model's.
        """
        ids = self.template.encode(messages, tools)
        if max(ids, default=0) >= self._rows:
            raise LLMError(f"{self.name} has no embedding for token {max(ids)}; its tokenizer is another model's")
        return ids

    def encode_answer(self, text: str) -> tuple[int, ...]:
        """The token ids of a complete answer with this text, with the token that ends it."""
        return self.template.encode_answer(text)

    @torch.inference_mode()
    def logprob(self, prompt: tuple[int, ...], answer: tuple[int, ...]) -> float:
        """The log-probability, in nats, of these answer tokens after this prompt, at temperature 1."""
        ids = torch.tensor([prompt + answer], device=self.model.device)
        logits = self.model.eval()(input_ids=ids).logits[0, len(prompt) - 1 : -1].double()
        return float(torch.log_softmax(logits, -1).gather(1, ids[0, len(prompt) :, None]).sum())

    def _forget(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin in another event loop; what an earlier one left when it was interrupted, nobody waits for."""
        self._loop, self._waiting, self._active = loop, [], False
        if self._batch is not None:
            self._batch.clear()

    def _answer_when_idle(self, seen: int) -> None:
        """Wait until one iteration of the event loop has brought no further request, then answer all."""
        if len(self._waiting) > seen:
            asyncio.get_running_loop().call_soon(self._answer_when_idle, len(self._waiting))
            return
        requests, self._waiting = self._waiting, []
        requests = [request for request in requests if not request.answer.done()]
        for start in range(0, len(requests), self.max_batch):
            batch = requests[start : start + self.max_batch]
            try:
                drafts = self._generate(batch)
            except Exception as error:  # whatever it is, no request may be left waiting
                self._fail(batch, error)
            else:
                for draft in drafts:
                    draft.request.answer.set_result(self._response(draft))

    def _step_when_idle(self, batch: ContinuousBatch, seen: int) -> None:
        """Begin once one iteration of the event loop has brought no further request."""
        if len(self._waiting) > seen:
            asyncio.get_running_loop().call_soon(self._step_when_idle, batch, len(self._waiting))
        else:
            self._step(batch)

    def _step(self, batch: ContinuousBatch) -> None:
        """Sample one token of every answer, let those join that wait, and give control back to the event loop."""
        with torch.inference_mode():
            batch.drop()
        waiting = [request for request in self._waiting if not request.answer.done()]
        room = self.max_batch - len(batch.drafts)
        arrived, self._waiting = waiting[:room], waiting[room:]
        try:
            with torch.inference_mode(), self._autocast():
                self.model.eval()
                ended = batch.step(arrived, self.version)
        except Exception as error:
            failed = {id(r): r for r in (*(draft.request for draft in batch.clear()), *arrived)}
            self._fail(list(failed.values()), error)
        else:
            for draft in ended:
                draft.request.answer.set_result(self._response(draft))
        self._active = bool(batch.drafts or self._waiting)
        if self._active:
            asyncio.get_running_loop().call_soon(self._step, batch)

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.model.device.type, torch.bfloat16, enabled=self.autocast)

    def _fail(self, requests: Sequence[Request], error: Exception) -> None:
        failure = LLMError(f"{self.name} failed on a batch of {len(requests)}: {error}")
        for request in requests:
            if not request.answer.done():
                request.answer.set_exception(failure)

    @torch.inference_mode()
    def _generate(self, batch: Sequence[Request]) -> list[Draft]:
        """Sample an answer to every request, in one batch that shrinks as answers end."""
        self.model.eval()
        drafts = [Draft(request, self.version) for request in batch]
        with self._autocast():
            several = any(request.limit > 1 for request in batch)
            logits, mask, cache = read_prompts(self.model, batch, self._filler, use_cache=several)
            live = drafts
            while True:
                extend(live, logits)
                unfinished = [row for row, draft in enumerate(live) if not self._ended(draft)]
                if not unfinished:
                    return drafts
                if len(unfinished) < len(live):
                    keep = torch.tensor(unfinished, device=mask.device)
                    cache.batch_select_indices(keep)
                    mask, live = mask[keep], [live[row] for row in unfinished]
                mask = torch.cat([mask, mask.new_ones(len(live), 1)], 1)
                output = self.model(
                    input_ids=torch.tensor([[draft.tokens[-1]] for draft in live], device=mask.device),
                    attention_mask=mask,
                    position_ids=mask.sum(1, keepdim=True) - 1,
                    past_key_values=cache,
                    use_cache=True,
                )
                logits, cache = output.logits[:, -1], output.past_key_values

    def _ended(self, draft: Draft) -> bool:
        """Whether an answer needs no further token."""
        stop = draft.request.sampling.stop
        return (
            draft.tokens[-1] in self.template.ends
            or len(draft.tokens) >= draft.request.limit
            or bool(stop and self._stopped(draft, stop))
        )

    def _response(self, draft: Draft) -> Response:
        request, tokens = draft.request, tuple(draft.tokens)
        reasoning, text = split_reasoning(self._decode(tokens))
        stopped = self._stopped(draft, request.sampling.stop)
        if stopped:
            text = text[: min(start for stop in request.sampling.stop if (start := text.find(stop)) >= 0)]
        return Response(
            text=text,
            reasoning=reasoning,
            prompt_ids=request.prompt,
            token_ids=tokens,
            logprobs=tuple(draft.logprobs),
            finish_reason="stop" if stopped or tokens[-1] in self.template.ends else "length",
            version=draft.version,
            usage={"prompt_tokens": len(request.prompt), "completion_tokens": len(tokens)},
        )

    def _stopped(self, draft: Draft, stop: Sequence[str]) -> bool:
        """Whether the text so far, without reasoning, holds one of these texts."""
        if not stop:
            return False
        _, text = split_reasoning(str(self.tokenizer.decode(draft.tokens, skip_special_tokens=True)))
        return any(end in text for end in stop)

    def _decode_tokens(self, tokens: tuple[int, ...]) -> str:
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True))


def _is_continuous(model: PreTrainedModel, batching: Batching) -> bool:
    if batching == "static" or (batching == "auto" and model.device.type == "cpu"):
        return False
    possible = can_batch_continuously(model)
    if batching == "continuous" and not possible:
        raise ConfigError(
            f"policy.batching: the cache of {type(model).__name__} keeps no keys and values of all tokens in all its "
            "layers, so that answers cannot join it; choose static"
        )
    return possible


def _ends(model: PreTrainedModel) -> list[int]:
    """The tokens that end an answer, as the model's generation configuration says."""
    given = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    return [given] if isinstance(given, int) else list(given or ())


def load(
    folder: str | Path, *, name: str | None = None, device: str | None = None, max_batch: int = 1024
) -> TransformersLLM:
    """Load a model from a folder in the layout of transformers; nothing is downloaded.

    Weights are bfloat16 on a GPU that supports it, and float32 elsewhere.

    Args:
        folder: holds the weights, the configuration and the tokenizer with its chat template.
        name: goes into records; by default the name of the folder.
        device: by default "cuda" or "mps" where there is one, else "cpu".
        max_batch: the greatest number of requests in one forward pass.

    Raises:
        CheckpointError: the folder holds no such model, or an incomplete or damaged one; see `pretrained`.
    """
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    bfloat16 = device.startswith("cuda") and torch.cuda.is_bf16_supported()
    model, tokenizer = load_pretrained(folder, torch.bfloat16 if bfloat16 else torch.float32)
    return TransformersLLM(model.to(device), tokenizer, name=name or Path(folder).name, max_batch=max_batch)
