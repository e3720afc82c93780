"""Which parts of an observation repeat what is on the page already: others' messages, and texts that all were shown.

A record has the messages that its scenario sent, with those who heard them. Of other scenarios it has what each agent
observed, not who sent what to whom. There an observation is compared with the responses before it: a line, or all of
the text, that is an earlier response word for word is that message, also behind a label such as "[Player 1] " or
"ann: ". Whoever observes it has heard it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence

from marl_gem.runs.parts import Part, response_parts
from marl_gem.types import Response, SentMessage

MOST_WORK = 300_000
"""So many lines are looked up for an episode; in what comes after them nothing is recognized."""

SURE = 12
"""The fewest characters of a message that is recognized where no label names its sender."""

LONG = 80
"""The fewest characters of a text in one line that is folded where it is shown again."""

_LABEL = re.compile(r"\[[^\[\]\n]{1,60}\][ :]{0,2}|(?:[-*>] )?[^\s:][^:\n]{0,40}: ?")
_BLOCK = re.compile(r"^(?=\[[^\[\]\n]{1,60}\] )", re.MULTILINE)


class ShownPart(Part, frozen=True, omit_defaults=True):
    """A part of an observation, and what it repeats.

    `turn` is the number of a turn, 0 if nothing is repeated. Of a `text` with a `name`, it is the turn of the agent
    `name` in which this was written; `label` is what the observation has before it. Of a `text` without, the turn
    whose observation showed the same. Of a `result` the turn whose call it answers.
    """

    turn: int = 0
    label: str = ""


class Messages:
    """The messages and texts of an episode so far, and who heard them.

    Args:
        sent: the messages that were recorded; if there are any, no others are looked for.
    """

    def __init__(self, sent: Sequence[SentMessage] = ()) -> None:
        self.heard: dict[int, list[str]] = {}
        """The agents that heard the message of a turn, apart from its author, in their order."""
        self._sent: dict[tuple[int, str], list[SentMessage]] = {}
        for message in sent:
            self._sent.setdefault((message.step, message.sender), []).append(message)
        self._author: dict[int, str] = {}
        self._by_line: dict[str, list[tuple[int, str]]] = {}  # a message's first line: turns, with the message
        self._seen: dict[str, int] = {}  # a text that was observed: the first turn
        self._work = 0

    def add(self, number: int, agent: str, response: Response, step: int) -> None:
        """Add a turn's response, which agents may observe from now on. `step` is the number of its step."""
        self._author[number] = agent
        if self._sent:
            for message in self._sent.get((step, agent), ()):
                text = str(message)[len(agent) + 2 :]
                self._by_line.setdefault(text.partition("\n")[0].rstrip(), []).append((number, text))
                heard = self.heard.setdefault(number, [])
                heard += [hearer for hearer in message.hearers if hearer not in heard]
            return
        words = "\n".join(part.text for part in response_parts(response) if part.kind == "text")
        for text in dict.fromkeys((response.text.strip(), words.strip())):
            if text:
                self._by_line.setdefault(text.partition("\n")[0].rstrip(), []).append((number, text))

    def split(self, number: int, listener: str, parts: list[Part]) -> list[ShownPart]:
        """An observation's parts with what they repeat. `number` is the turn whose observation it is."""
        found = []
        for part in parts:
            if part.kind != "text":
                found.append(ShownPart(part.kind, part.text, part.name))
            elif part.text:
                found += self._split(number, listener, part.text)
        return found or [ShownPart(part.kind, part.text, part.name) for part in parts]

    def _split(self, number: int, listener: str, text: str) -> Iterator[ShownPart]:
        start = position = 0
        used: set[int] = set()
        while position < len(text) and self._work < MOST_WORK:
            if match := self._message_at(text, position, listener, used):
                turn, label, end = match
                yield from self._rest(number, text[start:position])
                author = self._author[turn]
                hearers = self.heard.setdefault(turn, [])
                if not self._sent and listener != author and listener not in hearers:
                    hearers.append(listener)
                used.add(turn)
                yield ShownPart("text", text[position + len(label) : end], author, turn, label)
                start = position = end + 1
            else:
                position = _next_line(text, position)
        yield from self._rest(number, text[start:])

    def _message_at(self, text: str, start: int, listener: str, used: set[int]) -> tuple[int, str, int] | None:
        """The turn of the message that begins at the start of a line, its label, and where it ends."""
        self._work += 1
        line_end = _next_line(text, start) - 1
        line = text[start:line_end].rstrip()
        label = match[0] if (match := _LABEL.match(line)) else ""
        for prefix in dict.fromkeys((label, "")):
            best = 0
            for turn, message in self._by_line.get(line[len(prefix) :], ()):
                self._work += 1
                end = start + len(prefix) + len(message)
                if turn in used or not text.startswith(message, start + len(prefix)):
                    continue
                if text[end : _next_line(text, end) - 1].strip():
                    continue  # the line goes on
                if not self._is_sure(prefix, turn, message, entire=start == 0 and not text[end:].strip()):
                    continue
                fresh = (listener in self.heard.get(turn, ())) == bool(self._sent) and listener != self._author[turn]
                if fresh or not best:
                    best, best_end = turn, _next_line(text, end) - 1
                if fresh:
                    break
            if best:
                return best, prefix, best_end
        return None

    def _is_sure(self, label: str, turn: int, message: str, *, entire: bool) -> bool:
        if label and _names(label, self._author[turn]):
            return True
        if self._sent:
            return False
        return len(message) >= SURE or (entire and not label and turn == max(self._author))

    def _rest(self, number: int, text: str) -> Iterator[ShownPart]:
        """What is no message; blocks that an earlier observation had are marked, others that follow are joined."""
        new = ""
        for block in _BLOCK.split(text) if text.strip() else ():
            known = block.strip()
            is_long = len(known) >= LONG or "\n" in known
            first = self._seen.setdefault(known, number) if is_long else number
            if first == number:
                new += block
                continue
            if new.strip():
                yield ShownPart("text", new.rstrip("\n"))
            yield ShownPart("text", block.rstrip("\n"), turn=first)
            new = ""
        if new.strip():
            yield ShownPart("text", new)


def _next_line(text: str, position: int) -> int:
    """Where the next line begins; one more than the length of the text if there is none."""
    end = text.find("\n", position)
    return len(text) + 1 if end < 0 else end + 1


@functools.lru_cache(4096)
def _names(label: str, agent: str) -> bool:
    """Whether a label names an agent: "[Player 1]" names player_1, and not player_10."""
    words, wanted = (re.findall(r"[^\W\d_]+|\d+", text.lower()) for text in (label, agent))
    return any(words[start : start + len(wanted)] == wanted for start in range(len(words) if wanted else 0))
