"""How an agent's history becomes its next prompt.

A view is a function from a role and a history to chat messages. The history alternates: what the agent
observed, what it answered, ..., and ends with what it observes now. The same role and history give the same
messages.

    chat            the whole conversation
    window(n)       its newest n exchanges
    summary(f)      what f says of the older exchanges, and the newer ones as they are
    transcript      the whole conversation, in one message
    observations    all that the agent observed, in one message
    latest          the newest observation
    bare            the newest observation, without the role

A language model is shown the messages (`agents.LLMPolicy`); a loop that takes one text is given them as one
(`wrappers.ShowHistory`), by `plain` or `as_json`.
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
    """An observation and the answer to it; the answer to the current observation is still None."""

    observation: Observation
    response: Response | None


class History(list[Exchange]):
    """A history that grows at its end alone.

    In `memo` a view keeps what it found out about the exchanges that are answered, by a key of its own. The
    values are never changed, only replaced: copies share them.
    """

    def __init__(self, exchanges: Iterable[Exchange] = ()) -> None:
        super().__init__(exchanges)
        self.memo: dict[object, Any] = {}

    def __deepcopy__(self, memo: object) -> Self:
        twin = type(self)(self)  # exchanges never change
        twin.memo = dict(self.memo)
        return twin


View: TypeAlias = Callable[[Role, Sequence[Exchange]], list[Message]]
AwaitedView: TypeAlias = Callable[[Role, Sequence[Exchange]], Awaitable[list[Message]]]
AnyView: TypeAlias = View | AwaitedView


# Views


def chat(role: Role, history: Sequence[Exchange]) -> list[Message]:
    """The whole conversation: the role as system message, then all observations and answers.

    What a tool answered is a message of the role "tool". An answer comes with its tokens, and with its
    reasoning where it has some.
    """
    messages = _system(role)
    for observation, response in history:
        messages += _observed(observation)
        if response is not None:
            answer: Message = {"role": "assistant", "content": response.text, "token_ids": response.token_ids}
            messages.append({**answer, "reasoning": response.reasoning} if response.reasoning else answer)
    return messages


def latest(role: Role, history: Sequence[Exchange]) -> list[Message]:
    """The role and the newest observation: for scenarios whose observation tells the whole state."""
    return [*_system(role), *bare(role, history)]


def bare(role: Role, history: Sequence[Exchange]) -> list[Message]:
    """The newest observation and nothing else: the shortest prompt, for the smallest models."""
    return _observed(history[-1].observation)


def observations(role: Role, history: Sequence[Exchange]) -> list[Message]:
    """The role and, in one message, all observations: for models whose own answers would mislead them."""
    return [*_system(role), {"role": "user", "content": _join(exchange.observation for exchange in history)}]


def transcript(role: Role, history: Sequence[Exchange]) -> list[Message]:
    """The role and, in one message, all observations and answers: for models that were not taught to chat."""
    return [*_system(role), {"role": "user", "content": plain(chat(Role(), history))}]


def window(exchanges: int, of: View = chat) -> View:
    """Another view of the newest exchanges alone; the current observation counts as one.

    Raises:
        ConfigError: there is less than one.
    """
    _check_count("window", "exchanges", exchanges)
    return lambda role, history: of(role, history[-exchanges:])


def summary(
    summarize: Callable[[str], str] | Callable[[str], Awaitable[str]], keep: int = 4, every: int = 4, of: View = chat
) -> AnyView:
    """Another view, of a history whose older exchanges are put in a few words.

    The summary stands above the first observation that is shown whole. It goes on from itself: `summarize` is
    given the summary so far with the next `every` exchanges, as `transcript` shows them. What it once said of
    a text is remembered.

    Args:
        summarize: from a text to a shorter one: a function or, for instance `agents.summarizer(llm)`, a
            coroutine function; the view then has to be awaited, too.
        keep: so many of the newest exchanges are shown whole, at least; the current observation counts as one.
        every: so many exchanges are summarized at once.
        of: the view that is given the shortened history.

    Raises:
        ConfigError: a number is less than one, or `summarize` is no function. Later also, when the view is
            called: a summary is no text.
    """
    if not callable(summarize):
        raise ConfigError(
            f"summary takes a function from text to text, such as agents.summarizer(llm), not {summarize!r}"
        )
    _check_count("summary", "keep", keep)
    _check_count("summary", "every", every)
    answers = _Answers()

    def begin(history: Sequence[Exchange]) -> tuple[int, str]:
        """How many exchanges are summarized already, and the summary."""
        done, told = history.memo.get(answers, (0, "")) if isinstance(history, History) else (0, "")
        return (done, told) if len(history) - done >= keep else (0, "")  # the history may have been cut

    def due(history: Sequence[Exchange], done: int, told: str) -> str | None:
        """What is to be summarized next."""
        if len(history) - done < keep + every:
            return None
        return as_text(plain(chat(Role(), _after(told, history[done : done + every]))))

    def go_on(history: Sequence[Exchange], done: int, text: str, answer: str) -> tuple[int, str]:
        told = answers.keep(text, answer)
        if isinstance(history, History):
            history.memo[answers] = done + every, told
        return done + every, told

    def view(role: Role, history: Sequence[Exchange]) -> list[Message]:
        done, told = begin(history)
        while (text := due(history, done, told)) is not None:
            answer = answers.get(text)
            done, told = go_on(history, done, text, summarize(text) if answer is None else answer)  # type: ignore[arg-type]
        return of(role, _after(told, history[done:]))

    async def awaited_view(role: Role, history: Sequence[Exchange]) -> list[Message]:
        done, told = begin(history)
        while (text := due(history, done, told)) is not None:
            answer = answers.get(text)
            done, told = go_on(history, done, text, await summarize(text) if answer is None else answer)  # type: ignore[misc]
        return of(role, _after(told, history[done:]))

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
    """Whether what a view, or another function, answers has to be awaited."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


# Messages as one observation


def plain(messages: Sequence[Message]) -> Observation:
    """A chat as one text, with blank lines between messages. The agent's own answers, and those of tools, are marked.

    Where a message is a list of content parts, all become one list.
    """
    return _join(map(_marked, messages))


def as_json(messages: Sequence[Message]) -> str:
    """A chat as JSON: a list of objects with `role` and `content`. No text in it can pass for another's message."""
    return json.dumps([{"role": m["role"], "content": m["content"]} for m in messages], ensure_ascii=False)


def as_text(observation: Observation) -> str:
    """An observation as text; a part that has none is named in brackets."""
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
    """The same chat as if nobody had thought before speaking.

    An answer that was thought over goes without its tokens, too, which hold the thoughts.
    """
    return [
        {"role": message["role"], "content": message["content"]} if message.get("reasoning") else message
        for message in messages
    ]


def cut(history: Sequence[Exchange], exchanges: int) -> list[Exchange]:
    """A history without its oldest exchanges after the first, which tells the task; the current one always stays.

    The answers of tools stay with their calls: where the gap would come between them, they are told as text.
    """
    first, *rest = history
    kept = rest[exchanges:]
    if not kept:
        return [history[-1]]
    observation, response = kept[0]
    if exchanges and not isinstance(observation, str):
        told = [{"type": "text", "text": p["text"]} if p.get("type") == "tool_result" else p for p in observation]
        kept[0] = Exchange(told, response)
    return [first, *kept]


def _observed(observation: Observation) -> list[Message]:
    """An observation as messages: what tools answered, and what was said or shown, in order."""
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


def _after(told: str, history: Sequence[Exchange]) -> Sequence[Exchange]:
    """A history with the summary of what came before it at its head."""
    if not told:
        return history
    observation = _join([f"What came before, in short:\n{told}", history[0].observation])
    return [Exchange(observation, history[0].response), *history[1:]]


class _Answers:
    """What was answered to the newest questions, so that the same question has one answer."""

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
