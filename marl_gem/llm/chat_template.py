"""From messages to token ids, by a tokenizer's own chat template.

    template = ChatTemplate(tokenizer)
    prompt = template.encode([{"role": "user", "content": "Hello"}])

What stands in a message never becomes a control token: the name of any token that the tokenizer treats as one is
encoded as plain text. An answer that carries its token ids keeps them, and what comes before it is what the model was
shown then: as long as a history only grows, every prompt begins with the prompt and the answer before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from marl_gem.errors import LLMError
from marl_gem.types import Message, ToolSpec, to_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_MARK = "\x00message\x00"


class ChatTemplate:
    """A tokenizer's chat template.

    Not every template takes every role. Where messages are refused or left out, results of tools become messages of
    the user, and if that does not help the system message becomes a part of the first one; messages of the same role
    that follow one another are joined.

    Args:
        tokenizer: has a chat template and an end-of-sequence token.
        name: of the model, for messages.
        options: variables of the template, such as {"enable_thinking": False}.
        ends: further tokens that end an answer, such as those of the model's generation configuration.

    Raises:
        LLMError: the tokenizer has no chat template, or no end-of-sequence token.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        name: str = "the model",
        *,
        options: Mapping[str, Any] | None = None,
        ends: Sequence[int] = (),
    ) -> None:
        if tokenizer.chat_template is None or tokenizer.eos_token_id is None:
            raise LLMError(f"the tokenizer of {name!r} needs a chat template and an end-of-sequence token")
        self._tokenizer = tokenizer
        self._name = name
        self._options = dict(options or {})
        added = tokenizer.added_tokens_decoder
        self._added = frozenset(added)
        contents = sorted((token.content for token in added.values() if token.content), key=len, reverse=True)
        self._names = re.compile("|".join(map(re.escape, contents))) if contents else None
        self._render = lru_cache(10_000)(self._rendered)
        self._encode_control = lru_cache(100_000)(self._encoded)
        self._encode_plain = lru_cache(100_000)(self._encoded_plainly)
        self._end, self._end_text = self._own_end()
        self.ends = frozenset({self._end, tokenizer.eos_token_id, *ends})
        """The tokens that end an answer: the template's own, the tokenizer's, and those of the model."""

    def encode(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> tuple[int, ...]:
        """The token ids of a prompt; the template shows the tools, and asks for an answer.

        Raises:
            LLMError: the template does not show every message once, in order.
        """
        roles = tuple(message["role"] for message in messages)
        slots, pieces = self._layout(roles, tuple(map(to_json, tools)))
        ids: list[int] = []
        for slot, piece in zip((None, *slots), pieces, strict=True):
            if slot is not None:
                content = self._content([messages[index] for index in slot.messages])
                ids += content
                if content and content[-1] == self._end:
                    piece = piece.removeprefix(self._end_text)
            ids += self._encode_control(piece)
        return tuple(ids)

    def encode_answer(self, text: str) -> tuple[int, ...]:
        """The token ids of a complete answer with this text, with the token that ends it."""
        return (*self._encode_plain(text), self._end)

    def _content(self, messages: Sequence[Message]) -> tuple[int, ...]:
        if len(messages) == 1 and messages[0].get("token_ids"):
            return tuple(messages[0]["token_ids"])
        return self._encode_plain("\n\n".join(map(message_text, messages)))

    # The template

    def _layout(self, roles: tuple[str, ...], tools: tuple[str, ...]) -> tuple[list[Slot], list[str]]:
        """Which messages share a place in the template, and the texts before, between and after these.

        The text before an answer, and those since the answer before, are what the template gave when the answer was
        asked for.
        """
        reason = ""
        for slots in _slots(roles):
            shown = [slot.role for slot in slots]
            asked = [index for index, role in enumerate(shown) if role == "assistant"]
            pieces: list[str] = []
            for end in (*asked, len(slots)):
                rendered = self._render(tuple(shown[:end]), tools)
                if isinstance(rendered, str):
                    reason = rendered
                    break
                pieces += rendered[len(pieces) :]
            else:
                return slots, pieces
        raise LLMError(
            f"the chat template of {self._name} refuses messages of the roles {', '.join(roles) or 'none'}: {reason}"
        )

    def _rendered(self, roles: tuple[str, ...], tools: tuple[str, ...]) -> tuple[str, ...] | str:
        """The template's texts before, between and after messages of these roles; or why it refuses them."""
        chat = [{"role": role, "content": _MARK} for role in roles]
        functions = [{"type": "function", "function": json.loads(tool)} for tool in tools] or None
        try:
            text = self._tokenizer.apply_chat_template(
                chat, tools=functions, tokenize=False, add_generation_prompt=True, **self._options
            )
        except Exception as error:  # the template is a small program, and may be somebody else's
            return str(error) or type(error).__name__
        pieces = tuple(str(text).split(_MARK))
        return pieces if len(pieces) == len(roles) + 1 else "it leaves messages out, repeats or changes them"

    def _own_end(self) -> tuple[int, str]:
        """The token that the template writes after an answer, and its text; the tokenizer's if it writes none."""
        eos: int = self._tokenizer.eos_token_id
        for roles in (("user", "assistant", "user"), ("user", "assistant")):
            pieces = self._render(roles, ())
            if not isinstance(pieces, str):
                following = self._encode_control(pieces[2])
                if following and following[0] in self._added:
                    content: str = self._tokenizer.added_tokens_decoder[following[0]].content
                    return (following[0], content) if pieces[2].startswith(content) else (eos, self._text_of(eos))
        return eos, self._text_of(eos)

    def _text_of(self, token: int) -> str:
        return str(self._tokenizer.convert_ids_to_tokens(token))

    # Tokens

    def _encoded(self, text: str) -> tuple[int, ...]:
        """The token ids of a part of the template, control tokens included."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))

    def _encoded_plainly(self, text: str) -> tuple[int, ...]:
        """The token ids of a text in which the names of control tokens are no more than text."""
        safe = text.encode("utf-8", "replace").decode("utf-8")  # tokenizers do not take lone surrogates
        ids = tuple(self._tokenizer.encode(safe, add_special_tokens=False, split_special_tokens=True))
        if self._added.isdisjoint(ids):
            return ids
        ids = tuple(token for part in self._cut(safe) for token in self._encode_part(part))
        if self._added.isdisjoint(ids):
            return ids
        ids = tuple(token for letter in safe for token in self._encode_part(letter))
        return tuple(token for token in ids if token not in self._added)  # a token of one letter, which nothing spells

    def _encode_part(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
        return ids

    def _cut(self, text: str) -> Iterator[str]:
        """The text in parts, cut within each name of a control token."""
        start = 0
        while self._names and (found := self._names.search(text, start)):
            end = found.start() + 1
            yield text[start:end]
            start = end
        yield text[start:]


class Slot(NamedTuple):
    """A place in the template: a role, and the indices of the messages that are shown there."""

    role: str
    messages: tuple[int, ...]


def _slots(roles: Sequence[str]) -> Iterator[list[Slot]]:
    """Ways to fit messages into a template, from the plainest to the one that asks least of it."""
    yield [Slot(role, (index,)) for index, role in enumerate(roles)]
    yield _joined(["user" if role == "tool" else role for role in roles])
    yield _joined(["user" if role in ("tool", "system") else role for role in roles])


def _joined(roles: Sequence[str]) -> list[Slot]:
    """One slot for messages of the same role that follow one another; answers stay apart."""
    slots: list[Slot] = []
    for index, role in enumerate(roles):
        if slots and slots[-1].role == role != "assistant":
            slots[-1] = Slot(role, (*slots[-1].messages, index))
        else:
            slots.append(Slot(role, (index,)))
    return slots


def message_text(message: Message) -> str:
    """A message as text; its reasoning, if it has any, comes first."""
    content = message["content"]
    if not isinstance(content, str):
        kinds = sorted({str(part.get("type")) for part in content} - {"text", "tool_result"})
        if kinds:
            raise LLMError(
                f"a model in this process reads text only, but an observation holds {', '.join(kinds)}; use a server's "
                "model, or a wrapper that describes it as text (marl_gem.wrappers.MapObservation)"
            )
        content = "\n".join(part["text"] for part in content)
    return f"<think>\n{message['reasoning']}\n</think>\n\n{content}" if message.get("reasoning") else content
