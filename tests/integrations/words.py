"""A tokenizer of words for tests, with the parts of transformers' interface that a `ChatTemplate` uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class _Added(NamedTuple):
    content: str


class WordTokenizer:
    """Each word is a token; words get their numbers as they come."""

    chat_template = "words"
    CONTROL = ("<end>", "<system>", "<user>", "<assistant>", "<tool>")

    def __init__(self) -> None:
        self._words = list(self.CONTROL)
        self.eos_token_id = 0
        self.added_tokens_decoder = {index: _Added(word) for index, word in enumerate(self.CONTROL)}

    def encode(self, text: str, **options: Any) -> list[int]:
        words = text.split()
        self._words += dict.fromkeys(word for word in words if word not in self._words)
        return [self._words.index(word) for word in words]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        return " ".join(self._words[i] for i in ids if not (skip_special_tokens and i < len(self.CONTROL)))

    def text(self, ids: Sequence[int]) -> str:
        return self.decode(ids)

    def convert_ids_to_tokens(self, index: int) -> str:
        return self._words[index]

    def apply_chat_template(
        self, chat: Sequence[dict[str, Any]], tokenize: bool = True, add_generation_prompt: bool = False, **_: Any
    ) -> str:
        ends = {"assistant": "<end>"}
        parts = [f"<{m['role']}> {m['content']}{ends.get(m['role'], '')} " for m in chat]
        return "".join(parts) + "<assistant>" * add_generation_prompt
