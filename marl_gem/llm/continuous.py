"""Continuous batching: requests join the answers that are being sampled between two tokens, and leave when they end.

A static batch waits for its longest answer. Here every answer goes at its own pace: each step decodes one token of all
answers, and then reads the prompts of those that have arrived.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from marl_gem.errors import LLMError
from marl_gem.llm import Sampling
from marl_gem.llm.slot_cache import SlotCache
from marl_gem.llm.token_sampling import sample_tokens
from marl_gem.types import Response


class Request(NamedTuple):
    """A prompt that waits for its answer, of at most `limit` tokens."""

    prompt: tuple[int, ...]
    sampling: Sampling
    limit: int
    seed: int
    answer: asyncio.Future[Response]


class Draft:
    """An answer while it is being sampled, by the weights of a version."""

    def __init__(self, request: Request, version: int) -> None:
        self.request = request
        self.version = version
        self.tokens: list[int] = []
        self.logprobs: list[float] = []
        self._rng = random.Random(request.seed)

    def draw(self) -> float:
        """The number that decides the next token; it depends on the request's seed alone."""
        return self._rng.random()

    def add(self, token: int, logprob: float) -> None:
        """Raises LLMError if the log-probability is no finite number."""
        if not math.isfinite(logprob):
            raise LLMError(
                "its logits are not finite numbers: the model's weights have diverged or are damaged. Take an "
                "earlier checkpoint, or train with a lower training.learning_rate"
            )
        self.tokens.append(token)
        self.logprobs.append(logprob)


def extend(drafts: Sequence[Draft], logits: torch.Tensor) -> None:
    """Sample one more token of each answer.

    Args:
        drafts: the answers.
        logits: of the shape (answers, vocabulary).
    """
    tokens, logprobs = sample_tokens(logits, [d.request.sampling for d in drafts], [d.draw() for d in drafts])
    for draft, token, logprob in zip(drafts, tokens, logprobs, strict=True):
        draft.add(token, logprob)


def pad_left(
    prompts: Sequence[tuple[int, ...]], filler: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and attention mask of prompts side by side, short ones filled on the left."""
    width = max(map(len, prompts))
    ids = torch.tensor([(filler,) * (width - len(prompt)) + prompt for prompt in prompts], device=device)
    mask = torch.tensor([(0,) * (width - len(prompt)) + (1,) * len(prompt) for prompt in prompts])
    return ids, mask.to(device)


def read_prompts(
    model: Any, requests: Sequence[Request], filler: int, *, use_cache: bool
) -> tuple[torch.Tensor, torch.Tensor, Any]:
    """Read the prompts of requests, equal ones once.

    Returns:
        for each request the logits of its first token, shape (requests, vocabulary), its row of the attention mask, and
        the cache, with a row for each request.
    """
    prompts = list(dict.fromkeys(request.prompt for request in requests))
    row_of = {prompt: row for row, prompt in enumerate(prompts)}
    ids, mask = pad_left(prompts, filler, model.device)
    output = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=(mask.cumsum(1) - 1).clamp(min=0),
        logits_to_keep=1,
        use_cache=use_cache,
    )
    rows = torch.tensor([row_of[request.prompt] for request in requests], device=ids.device)
    cache = output.past_key_values
    if cache is not None and rows.tolist() != list(range(len(prompts))):
        cache.batch_select_indices(rows)
    return output.logits[rows, -1], mask[rows], cache


def can_batch_continuously(model: Any) -> bool:
    """Whether rows can join the model's cache: all its layers keep keys and values of all tokens."""
    return all(type(layer) is DynamicLayer for layer in DynamicCache(config=model.config.get_text_config()).layers)


class ContinuousBatch:
    """The answers that are being sampled, one row of the cache each.

    Args:
        model: a causal language model for which `can_batch_continuously`.
        filler: the token that fills short prompts.
        ended: whether an answer needs no further token.
    """

    def __init__(self, model: Any, filler: int, ended: Callable[[Draft], bool]) -> None:
        self._model = model
        self._filler = filler
        self._ended = ended
        self.drafts: list[Draft] = []
        self._cache: SlotCache | None = None

    def step(self, arrived: Sequence[Request], version: int) -> list[Draft]:
        """Sample one token of every answer, and the first one of those that have arrived.

        Args:
            arrived: requests that join.
            version: of the weights.

        Returns:
            the answers that ended, which have left.
        """
        ended: list[Draft] = []
        if self._cache is not None:
            self._decode(self._cache)
            ended += self._remove(self._ended)
        if arrived:
            ended += self._join(arrived, version)
        return ended

    def drop(self) -> None:
        """Let those leave whose callers have gone."""
        self._remove(lambda draft: draft.request.answer.done())

    def clear(self) -> list[Draft]:
        """Let all leave, and return them."""
        return self._remove(lambda _: True)

    def _decode(self, cache: SlotCache) -> None:
        cache.add_column()
        output = self._model(
            input_ids=torch.tensor([[draft.tokens[-1]] for draft in self.drafts], device=cache.mask.device),
            attention_mask=cache.mask,
            position_ids=cache.mask.sum(1, keepdim=True) - 1,
            past_key_values=cache,
            use_cache=True,
        )
        extend(self.drafts, output.logits[:, -1])

    def _join(self, arrived: Sequence[Request], version: int) -> list[Draft]:
        """Read prompts and add their rows; those whose answer ends with its first token are returned instead."""
        drafts = [Draft(request, version) for request in arrived]
        logits, mask, cache = read_prompts(self._model, arrived, self._filler, use_cache=True)
        extend(drafts, logits)
        if self._cache is None:
            self._cache = SlotCache(cache, mask)
        else:
            self._cache.add_rows(cache, mask)
        self.drafts += drafts
        return self._remove(self._ended)

    def _remove(self, leaves: Callable[[Draft], bool]) -> list[Draft]:
        """Take out some answers, and the columns that no other needs."""
        gone = [row for row, draft in enumerate(self.drafts) if leaves(draft)]
        drafts = [self.drafts[row] for row in gone]
        for row in reversed(gone):  # the last row takes its place
            self.drafts[row] = self.drafts[-1]
            self.drafts.pop()
            if self._cache is not None:
                self._cache.remove_row(row)
        if not self.drafts:
            self._cache = None
        elif gone and self._cache is not None:
            self._cache.narrow(max(len(d.request.prompt) + len(d.tokens) - 1 for d in self.drafts))
        return drafts
