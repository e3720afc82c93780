"""Views: how an agent's history becomes its next prompt.

A view is a function from a role and a history to chat messages. The history is a list of exchanges, an observation
and the response to it; in the last one there is no response yet. The same role and history give the same messages.

    chat            the full conversation
    window(n)       its newest n exchanges
    summary(f)      a summary by f of the older exchanges, and the newer ones as they are
    transcript      the full conversation, in one message
    observations    all observations of the agent, in one message
    latest          the newest observation
    bare            the newest observation, without the role

A language model gets the messages (`policies.LLMPolicy`); a loop that takes one text gets them as one observation
(`wrappers.ShowHistory`), made by a template: `plain` or `as_json`.
"""

from __future__ import annotations

import difflib
import inspect
import json
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, Self, TypeAlias

from marl_gem.errors import ConfigError
from marl_gem.types import ContentPart, Message, Observation, Response, Role


class Exchange(NamedTuple):
    """An observation and the response to it; the response to the current observation is None."""

    observation: Observation
    response: Response | None


class History(list[Exchange]):
    """A history that grows only at its end.

    In `memo` a view keeps what it computed of exchanges that have a response, under a key that no other view uses.
    Values are never changed, only replaced: copies of a history share them.
    """

    def __init__(self, exchanges: Iterable[Exchange] = ()) -> None:
        super().__init__(exchanges)
        self.memo: dict[object, Any] = {}

    def __deepcopy__(self, memo: object) -> Self:
        copy = type(self)(self)  # exchanges never change
        copy.memo = dict(self.memo)
        return copy


View: TypeAlias = Callable[[Role, Sequence[Exchange]], list[Message]]
AwaitedView: TypeAlias = Callable[[Role, Sequence[Exchange]], Awaitable[list[Message]]]
AnyView: TypeAlias = View | AwaitedView


# Views


def chat(role: Role, history: Sequence[Exchange]) -> list[Message]:
    """The full conversation: the role as system message, then all observations and responses.

    The result of a tool is a message with the role "tool". A response comes with its tokens, and with its reasoning
    and the ids of its calls if it has some.
    """
    messages = _system(role)
    for observation, response in history:
        messages += _observed(observation)
        if response is not None:
            answer: Message = {"role": "assistant", "content": response.text, "token_ids": response.token_ids}
            if response.reasoning:
                answer["reasoning"] = response.reasoning
            if response.call_ids:
                answer["call_ids"] = response.call_ids
            messages.append(answer)
    return messages


def latest(role: Role, history: Sequence[Exchange]) -> list[Message]:
    """The role and the newest observation: for scenarios whose observation shows the full state."""
    return [*_system(role), *bare(role, history)]


def bare(role: Role, history: Sequence[Exchange]) -> list[Message]:
    """The newest observation only: the shortest prompt, for the smallest models."""
    return _observed(history[-1].observation)


def observations(role: Role, history: Sequence[Exchange]) -> list[Message]:
    """The role and, in one message, all observations: for models that their earlier responses would mislead."""
    return [*_system(role), {"role": "user", "content": _join(exchange.observation for exchange in history)}]


def transcript(role: Role, history: Sequence[Exchange]) -> list[Message]:
    """The role and, in one message, all observations and responses: for models that were not trained to chat."""
    return [*_system(role), {"role": "user", "content": plain(chat(Role(), history))}]


def window(exchanges: int, of: View = chat) -> View:
    """A view of the newest exchanges only.

    Args:
        exchanges: how many; from 1 up. The current observation counts as one.
        of: the view that gets the shortened history.

    Raises:
        ConfigError: `exchanges` is no such number.
    """
    _check_count("window", "exchanges", exchanges)
    return lambda role, history: of(role, history[-exchanges:])


def summary(
    summarize: Callable[[str], str] | Callable[[str], Awaitable[str]], keep: int = 4, every: int = 4, of: View = chat
) -> AnyView:
    """A view of a history whose older exchanges are replaced by a summary.

    The summary is put above the first observation that is shown unchanged. It is incremental: `summarize` gets the
    summary so far and the next `every` exchanges, as `transcript` shows them. Its answer to a text is kept, so that
    the same history has the same summary.

    Args:
        summarize: from a text to a shorter one: a function, or a coroutine function such as
            `policies.summarizer(llm)`; the view then has to be awaited too.
        keep: at least this many of the newest exchanges are shown unchanged; from 1 up. The current observation
            counts as one.
        every: this many exchanges are summarized at once; from 1 up.
        of: the view that gets the shortened history.

    Raises:
        ConfigError: a number is less than 1, or `summarize` is no function. Later also, when the view is called: a
            summary is no text.
    """
    if not callable(summarize):
        raise ConfigError(
            f"summary takes a function from text to text, such as policies.summarizer(llm), not {summarize!r}"
        )
    _check_count("summary", "keep", keep)
    _check_count("summary", "every", every)
    answers = _Answers()

    def begin(history: Sequence[Exchange]) -> tuple[int, str]:
        """How many exchanges are summarized already, and the summary."""
        done, text = history.memo.get(answers, (0, "")) if isinstance(history, History) else (0, "")
        return (done, text) if len(history) - done >= keep else (0, "")  # the history may have been cut

    def next_text(history: Sequence[Exchange], done: int, so_far: str) -> str | None:
        """The text that is to be summarized next; None if none is."""
        if len(history) - done < keep + every:
            return None
        return as_text(plain(chat(Role(), _after(so_far, history[done : done + every]))))

    def store(history: Sequence[Exchange], done: int, text: str, answer: str) -> tuple[int, str]:
        answer = answers.keep(text, answer)
        if isinstance(history, History):
            history.memo[answers] = done + every, answer
        return done + every, answer

    def view(role: Role, history: Sequence[Exchange]) -> list[Message]:
        done, so_far = begin(history)
        while (text := next_text(history, done, so_far)) is not None:
            answer = answers.get(text)
            done, so_far = store(history, done, text, summarize(text) if answer is None else answer)  # type: ignore[arg-type]
        return of(role, _after(so_far, history[done:]))

    async def awaited_view(role: Role, history: Sequence[Exchange]) -> list[Message]:
        done, so_far = begin(history)
        while (text := next_text(history, done, so_far)) is not None:
            answer = answers.get(text)
            done, so_far = store(history, done, text, await summarize(text) if answer is None else answer)  # type: ignore[misc]
        return of(role, _after(so_far, history[done:]))

    return awaited_view if must_be_awaited(summarize) else view


# Views by name

VIEWS: dict[str, View] = {
    "chat": chat,
    "latest": latest,
    "bare": bare,
    "observations": observations,
    "transcript": transcript,
}


def view(name: str) -> View:
    """The view with this name: one of `VIEWS`, `window:8` (of the chat), or `window:8:transcript` (of another view).

    Raises:
        ConfigError: there is none.
    """
    if name in VIEWS:
        return VIEWS[name]
    kind, _, rest = str(name).partition(":")
    if kind == "window":
        count, _, of = rest.partition(":")
        if not (count.isascii() and count.isdigit() and len(count) < 10):
            raise ConfigError(f"the view {name!r} needs a number of exchanges, as in 'window:8'")
        return window(int(count), view(of) if of else chat)
    near = difflib.get_close_matches(kind, [*VIEWS, "window"], n=1)
    hint = f". Did you mean {near[0]!r}?" if near else ""
    raise ConfigError(f"there is no view {name!r}; choose one of {', '.join(VIEWS)}, window:8{hint}")


def must_be_awaited(function: Callable[..., Any]) -> bool:
    """Whether the result of a view, or of another function, has to be awaited."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


# Messages as one observation


def plain(messages: Sequence[Message]) -> Observation:
    """A chat as one text, with blank lines between messages. The agent's responses and the results of tools are marked.

    If a message is a list of content parts, the result is one list of parts.
    """
    return _join(map(_marked, messages))


def as_json(messages: Sequence[Message]) -> str:
    """A chat as JSON: a list of objects with `role` and `content`. No text in it can pass for another's message."""
    return json.dumps([{"role": m["role"], "content": m["content"]} for m in messages], ensure_ascii=False)


TEMPLATES: dict[str, Callable[[Sequence[Message]], Observation]] = {"plain": plain, "json": as_json}


def template(name: str) -> Callable[[Sequence[Message]], Observation]:
    """The template with this name: one of `TEMPLATES`.

    Raises:
        ConfigError: there is none.
    """
    if name not in TEMPLATES:
        raise ConfigError(f"there is no template {name!r}; choose one of {', '.join(TEMPLATES)}")
    return TEMPLATES[name]


def as_text(observation: Observation) -> str:
    """An observation as text; for a part without text its type in brackets."""
    if isinstance(observation, str):
        return observation
    return "\n".join(part["text"] if "text" in part else f"[{part.get('type')}]" for part in observation)


def _marked(message: Message) -> Observation:
    if message["role"] == "assistant":
        return f"Your answer: {message['content']}"
    if message["role"] == "tool":
        return f"Answer of {message.get('name') or 'your call'}: {message['content']}"
    return message["content"]


def _join(contents: Iterable[Observation]) -> Observation:
    contents = list(contents)
    texts = [content for content in contents if isinstance(content, str)]
    if len(texts) == len(contents):
        return "\n\n".join(texts)
    parts: list[ContentPart] = []
    for content in contents:
        parts += [{"type": "text", "text": content}] if isinstance(content, str) else content
    return parts


def without_reasoning(messages: Sequence[Message]) -> list[Message]:
    """The same chat without reasoning. A response that had some loses its tokens too, which hold the reasoning."""
    kept: list[Message] = []
    for message in messages:
        if message.get("reasoning"):
            spoken: Message = {"role": message["role"], "content": message["content"]}
            message = {**spoken, "call_ids": message["call_ids"]} if "call_ids" in message else spoken
        kept.append(message)
    return kept


def cut(history: Sequence[Exchange], exchanges: int) -> list[Exchange]:
    """A history without its oldest exchanges after the first, which states the task; the current one always stays.

    Results of tools stay with their calls; where the gap would come between them, results become text parts.

    Args:
        history: at least one exchange.
        exchanges: how many to leave out.
    """
    first, *rest = history
    kept = rest[exchanges:]
    if not kept:
        return [history[-1]]
    observation, response = kept[0]
    if exchanges and not isinstance(observation, str):
        parts = [{"type": "text", "text": p["text"]} if p.get("type") == "tool_result" else p for p in observation]
        kept[0] = Exchange(parts, response)
    return [first, *kept]


def _observed(observation: Observation) -> list[Message]:
    """An observation as messages: results of tools, and all else, in order."""
    if isinstance(observation, str) or all(part.get("type") != "tool_result" for part in observation):
        return [{"role": "user", "content": observation}]
    messages: list[Message] = []
    for part in observation:
        if part.get("type") == "tool_result":
            messages.append({"role": "tool", "name": part.get("name", ""), "content": part["text"]})
        elif messages and messages[-1]["role"] == "user":
            messages[-1]["content"].append(part)  # type: ignore[union-attr, arg-type]
        else:
            messages.append({"role": "user", "content": [part]})
    return messages


def _system(role: Role) -> list[Message]:
    return [{"role": "system", "content": role.instructions}] if role.instructions else []


# Summaries


def _after(summary: str, history: Sequence[Exchange]) -> Sequence[Exchange]:
    """A history that begins with the summary of what came before it."""
    if not summary:
        return history
    observation = _join([f"What came before, in short:\n{summary}", history[0].observation])
    return [Exchange(observation, history[0].response), *history[1:]]


class _Answers:
    """The answers to the newest questions, so that the same question always has the same answer."""

    MOST = 10_000

    def __init__(self) -> None:
        self._answers: dict[bytes, str] = {}
        self._lock = threading.Lock()

    def get(self, question: str) -> str | None:
        return self._answers.get(_digest(question))

    def keep(self, question: str, answer: str) -> str:
        """The answer, or an earlier one to the same question."""
        if not isinstance(answer, str):
            raise ConfigError(f"summary: the function must give text, not {answer!r}")
        with self._lock:
            answer = self._answers.setdefault(_digest(question), answer)
            if len(self._answers) > self.MOST:
                del self._answers[next(iter(self._answers))]
        return answer


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _check_count(view: str, name: str, count: int) -> None:
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise ConfigError(f"{view}: {name} is a number of exchanges from 1 up, not {count!r}")
