"""A transformers model in this process, which answers all waiting requests in one batch.

Tokens in, tokens out: a response holds the token ids of the prompt, the sampled token ids and the log-probability that
each was drawn with. An earlier answer goes into the next prompt as the token ids that were sampled.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from marl_gem.errors import ContextTooLong, LLMError, MissingPackage
from marl_gem.llm import Sampling
from marl_gem.llm.wire import split_reasoning
from marl_gem.types import Message, Response, ToolSpec, to_json

try:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from marl_gem.llm.pretrained import load_pretrained
except ImportError as error:
    raise MissingPackage(error.name or "torch", "train", "a model in this process") from error

_MARK = "\x00message\x00"


class TransformersLLM:
    """Generates with a causal language model and its tokenizer.

    Requests that arrive before the event loop becomes idle are answered together. The forward passes run in the
    event loop's thread: so the composition of every batch, and with it a complete run, depends on the seed alone.
    That costs nothing where all episodes wait for this model anyway.

    Args:
        model: any causal language model of transformers; a trainer may share it.
        tokenizer: its tokenizer, with a chat template and an end-of-sequence token.
        name: goes into records, followed by the version.
        max_batch: the greatest number of requests in one forward pass.
    """

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, *, name: str = "model", max_batch: int = 1024
    ) -> None:
        if tokenizer.chat_template is None or tokenizer.eos_token_id is None:
            raise LLMError(f"the tokenizer of {name!r} needs a chat template and an end-of-sequence token")
        self.model = model
        self.tokenizer = tokenizer
        self.base_name = name
        self.version = 0
        self._end, self._end_text = tokenizer.eos_token_id, tokenizer.eos_token  # stored: the look-up is slow
        self.max_batch = max_batch
        self._rows = model.get_input_embeddings().weight.shape[0]
        self._waiting: list[_Request] = []
        self._encode_piece = lru_cache(100_000)(self._encode_text)
        self._render = lru_cache(100_000)(self._render_messages)
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
        request = _Request(prompt, sampling, limit, seed, loop.create_future())
        self._waiting.append(request)
        if len(self._waiting) == 1:
            loop.call_soon(self._answer_when_idle, 0)
        return await request.answer

    def encode(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> tuple[int, ...]:
        """The token ids of a prompt; the chat template shows the tools.

        Answers that carry their token ids keep them, reasoning included. The name of a control token inside of a
        message is encoded as plain text, so that no message can imitate another role.

        Raises:
            LLMError: the chat template does not show every message once, in order.
        """
        pieces = self._render(tuple(message["role"] for message in messages), tuple(map(to_json, tools))).split(_MARK)
        if len(pieces) != len(messages) + 1:
            raise LLMError(f"the chat template of {self.name} leaves out or repeats messages; use another tokenizer")
        ids = list(self._encode_piece(pieces[0], False))
        for message, piece in zip(messages, pieces[1:], strict=True):
            content = message.get("token_ids") or self._encode_piece(_message_text(message), True)
            ids += content
            if content and content[-1] == self._end:
                piece = piece.removeprefix(self._end_text)
            ids += self._encode_piece(piece, False)
        return tuple(ids)

    def encode_answer(self, text: str) -> tuple[int, ...]:
        """The token ids of a complete answer with this text, the end-of-sequence token included."""
        return (*self._encode_piece(text, True), self._end)

    @torch.inference_mode()
    def logprob(self, prompt: tuple[int, ...], answer: tuple[int, ...]) -> float:
        """The log-probability, in nats, of these answer tokens after this prompt, at temperature 1."""
        ids = torch.tensor([prompt + answer], device=self.model.device)
        logits = self.model.eval()(input_ids=ids).logits[0, len(prompt) - 1 : -1].double()
        return float(torch.log_softmax(logits, -1).gather(1, ids[0, len(prompt) :, None]).sum())

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
                answers = self._generate(batch)
            except Exception as error:  # whatever it is, no request may be left waiting
                failure = LLMError(f"{self.name} failed on a batch of {len(batch)}: {error}")
                for request in batch:
                    request.answer.set_exception(failure)
            else:
                for request, answer in zip(batch, answers, strict=True):
                    request.answer.set_result(answer)

    @torch.inference_mode()
    def _generate(self, batch: Sequence[_Request]) -> list[Response]:
        """Sample an answer to every request; equal prompts are prefilled once."""
        self.model.eval()
        prompts = {request.prompt: None for request in batch}
        row_of = {prompt: row for row, prompt in enumerate(prompts)}
        ids, mask = self._pad_left(list(prompts))
        output = self.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=(mask.cumsum(1) - 1).clamp(min=0),
            logits_to_keep=1,
            use_cache=any(request.limit > 1 for request in batch),
        )
        rows = torch.tensor([row_of[request.prompt] for request in batch], device=ids.device)
        logits, mask = output.logits[rows, -1], mask[rows]
        live, drafts = list(range(len(batch))), [_Draft(random.Random(request.seed)) for request in batch]
        cache = output.past_key_values
        if cache is not None and (len(prompts) != len(batch) or rows.tolist() != live):
            cache.batch_select_indices(rows)
        while True:
            tokens, logprobs = _sample(
                logits, [batch[i].sampling for i in live], [drafts[i].rng.random() for i in live]
            )
            if not all(map(math.isfinite, logprobs)):
                raise LLMError(
                    "its logits are not finite numbers: the model's weights have diverged or are damaged. Take an "
                    "earlier checkpoint, or train with a lower training.learning_rate"
                )
            for i, token, logprob in zip(live, tokens, logprobs, strict=True):
                drafts[i].tokens.append(token)
                drafts[i].logprobs.append(logprob)
            unfinished = [
                row
                for row, i in enumerate(live)
                if drafts[i].tokens[-1] != self._end
                and len(drafts[i].tokens) < batch[i].limit
                and not (batch[i].sampling.stop and self._stopped(drafts[i], batch[i].sampling.stop))
            ]
            if not unfinished:
                break
            if len(unfinished) < len(live):
                keep = torch.tensor(unfinished, device=ids.device)
                cache.batch_select_indices(keep)
                mask, live = mask[keep], [live[row] for row in unfinished]
            mask = torch.cat([mask, mask.new_ones(len(live), 1)], 1)
            output = self.model(
                input_ids=torch.tensor([[drafts[i].tokens[-1]] for i in live], device=ids.device),
                attention_mask=mask,
                position_ids=mask.sum(1, keepdim=True) - 1,
                past_key_values=cache,
                use_cache=True,
            )
            logits, cache = output.logits[:, -1], output.past_key_values
        return [self._response(request, draft) for request, draft in zip(batch, drafts, strict=True)]

    def _response(self, request: _Request, draft: _Draft) -> Response:
        tokens = tuple(draft.tokens)
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
            finish_reason="stop" if stopped or tokens[-1] == self._end else "length",
            version=self.version,
            usage={"prompt_tokens": len(request.prompt), "completion_tokens": len(tokens)},
        )

    def _stopped(self, draft: _Draft, stop: Sequence[str]) -> bool:
        """Whether the text so far, without reasoning, holds one of these texts."""
        if not stop:
            return False
        _, text = split_reasoning(str(self.tokenizer.decode(draft.tokens, skip_special_tokens=True)))
        return any(end in text for end in stop)

    def _pad_left(self, prompts: Sequence[tuple[int, ...]]) -> tuple[torch.Tensor, torch.Tensor]:
        width = max(map(len, prompts))
        pad = self.tokenizer.pad_token_id if self.tokenizer.pad_token_id is not None else self._end
        ids = torch.tensor([(pad,) * (width - len(prompt)) + prompt for prompt in prompts], device=self.model.device)
        mask = torch.tensor([(0,) * (width - len(prompt)) + (1,) * len(prompt) for prompt in prompts])
        return ids, mask.to(self.model.device)

    def _render_messages(self, roles: tuple[str, ...], tools: tuple[str, ...]) -> str:
        """The chat template for messages of these roles, with a mark in place of each message's content."""
        chat = [{"role": role, "content": _MARK} for role in roles]
        functions = [{"type": "function", "function": json.loads(tool)} for tool in tools] or None
        try:
            return str(
                self.tokenizer.apply_chat_template(chat, tools=functions, tokenize=False, add_generation_prompt=True)
            )
        except Exception as error:  # the template is a small program, and may be somebody else's
            reason = str(error) or type(error).__name__
            raise LLMError(
                f"the chat template of {self.name} refuses messages of the roles {roles}: {reason}"
            ) from error

    def _encode_text(self, text: str, plain: bool) -> tuple[int, ...]:
        """The token ids of a text; if `plain`, the names of control tokens in it are encoded as text."""
        safe = text.encode("utf-8", "replace").decode("utf-8")  # tokenizers do not take lone surrogates
        ids = tuple(self.tokenizer.encode(safe, add_special_tokens=False, split_special_tokens=plain))
        if max(ids, default=0) >= self._rows:
            raise LLMError(f"{self.name} has no embedding for token {max(ids)}; its tokenizer is another model's")
        return ids

    def _decode_tokens(self, tokens: tuple[int, ...]) -> str:
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True))


class _Request(NamedTuple):
    prompt: tuple[int, ...]
    sampling: Sampling
    limit: int  # the greatest number of tokens of the answer
    seed: int
    answer: asyncio.Future[Response]


class _Draft:
    """An answer while it is being sampled."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.tokens: list[int] = []
        self.logprobs: list[float] = []


def _sample(
    logits: torch.Tensor, samplings: Sequence[Sampling], draws: Sequence[float]
) -> tuple[list[int], list[float]]:
    """Sample one token per row by inverse transform sampling, so that a row's token depends on its draw alone.

    Args:
        logits: a tensor of the shape (rows, vocabulary).
        samplings: one per row.
        draws: one per row, uniform in [0, 1).

    Returns:
        The tokens and the log-probabilities, in nats, that they were drawn with. At temperature 0 the most likely
        token is certain and its log-probability is 0. With `top_p` below 1 the distribution is renormalized over the
        remaining tokens.
    """
    scale = torch.tensor([s.temperature for s in samplings], dtype=torch.float64, device=logits.device).unsqueeze(1)
    greedy = scale == 0
    logprobs = torch.log_softmax(logits.double() / scale.masked_fill(greedy, 1.0), dim=-1)
    if any(sampling.top_p < 1 for sampling in samplings):
        logprobs = _nucleus(logprobs, [sampling.top_p for sampling in samplings])
    cumulative = logprobs.exp().cumsum(-1)
    draw = torch.tensor(draws, dtype=torch.float64, device=logits.device).unsqueeze(1)
    tokens = torch.searchsorted(cumulative, draw * cumulative[:, -1:], right=True).clamp(max=logits.shape[-1] - 1)
    tokens = torch.where(greedy, logits.argmax(-1, keepdim=True), tokens)
    chosen = logprobs.gather(1, tokens).masked_fill(greedy, 0.0)
    return tokens.squeeze(1).tolist(), chosen.squeeze(1).tolist()


def _nucleus(logprobs: torch.Tensor, top_p: Sequence[float]) -> torch.Tensor:
    """Keep the most likely tokens that together have the probability `top_p`, including the one that reaches it.

    Source: Holtzman et al. (arXiv 1904.09751).
    """
    threshold = torch.tensor(top_p, dtype=torch.float64, device=logprobs.device).unsqueeze(1)
    ordered, tokens = logprobs.sort(dim=-1, descending=True, stable=True)
    before = ordered.exp().cumsum(-1) - ordered.exp()
    out = (before >= threshold) & (threshold < 1)
    out[:, 0] = False
    remaining = logprobs.masked_fill(torch.zeros_like(out).scatter(1, tokens, out), -torch.inf)
    return torch.log_softmax(remaining, dim=-1)


def _message_text(message: Message) -> str:
    """A message as text; its reasoning, if it has any, comes first."""
    text = _text(message["content"])
    return f"<think>\n{message['reasoning']}\n</think>\n\n{text}" if message.get("reasoning") else text


def _text(content: str | list[dict[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    kinds = sorted({str(part.get("type")) for part in content} - {"text", "tool_result"})
    if kinds:
        raise LLMError(
            f"a model in this process reads text only, but an observation holds {', '.join(kinds)}; use a server's "
            "model, or a wrapper that describes it as text (marl_gem.wrappers.MapObservation)"
        )
    return "\n".join(part["text"] for part in content)


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
