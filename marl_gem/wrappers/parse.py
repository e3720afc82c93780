"""Find the action in a longer response: a model may think aloud, and the env gets the action alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from marl_gem.env import Infos, MultiAgentEnv, Observations
from marl_gem.errors import ConfigError
from marl_gem.faults import FAULTS
from marl_gem.wrappers.base import AroundStep, Wrapper


class Parser(NamedTuple):
    """How an action is written in a text."""

    find: Callable[[str], str | None]
    """Gives the action in a text, or None if there is none; must take any text."""

    write: Callable[[str], str] = str
    """Writes an action so that `find` finds it."""


def boxed() -> Parser:
    r"""The action is in `\boxed{...}`, as mathematical models write their answers.

    The last box that is closed counts. Braces in it may nest; `\{` and `\}` are text.
    """
    return Parser(_find_boxed, lambda action: f"\\boxed{{{action}}}")


def tagged(name: str = "answer") -> Parser:
    """The action is between `<answer>` and `</answer>`, or tags of another name; the last pair counts."""
    tags = re.compile(rf"<(/?){re.escape(name)}\s*>", re.IGNORECASE)

    def find(text: str) -> str | None:
        found, start = None, -1
        for tag in tags.finditer(text):
            if not tag[1]:
                start = tag.end()
            elif start >= 0:
                found, start = text[start : tag.start()].strip(), -1
        return found

    return Parser(find, lambda action: f"<{name}>{action}</{name}>")


def matching(pattern: str) -> Parser:
    """The action is what the first group of a regular expression matches, or the match if it has no group.

    The last match counts.

    Raises:
        ConfigError: it is no regular expression.
    """
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"matching({pattern!r}) is no regular expression: {error}") from error
    group = min(expression.groups, 1)

    def find(text: str) -> str | None:
        found = None
        for match in expression.finditer(text):
            found = match[group] if match[group] is not None else found
        return found

    return Parser(find)


def parser(text: str) -> Parser:
    """A parser by name: `boxed`, `tagged:TAG` or `matching:REGEX`.

    Raises:
        ConfigError: there is no such parser.
    """
    name, _, argument = str(text).partition(":")
    if name == "boxed" and not argument:
        return boxed()
    if name == "tagged" and argument:
        return tagged(argument)
    if name == "matching" and argument:
        return matching(argument)
    raise ConfigError(f"there is no parser {text!r}; write boxed, tagged:TAG or matching:REGEX")


Otherwise: TypeAlias = Literal["unchanged", "empty"]


class ParseAction(Wrapper):
    r"""Gives the env the action that a parser finds in a response.

        env = ParseAction(env, boxed())
        env.step({"player_0": r"Let me think. The middle is free: \boxed{[4]}"})  # the env gets "[4]"

    `infos[agent]["parsed"]` is the action that was found, None if there was none. Legal actions are listed as they
    have to be written in a response; those that no text can give are left out.

    Args:
        env: the env to wrap.
        parser: `boxed()`, `tagged("answer")`, `matching(r"...")` or their names `boxed`, `tagged:answer`,
            `matching:REGEX`; a `Parser`; or any function that gives the action in a text, or None if there is none.
        otherwise: what the env gets if no action is found: "unchanged" for the response, "empty" for an empty text.

    Raises:
        ConfigError: there is no such parser, or `otherwise` is another word.
    """

    changes = frozenset({"actions"})

    def __init__(
        self,
        env: MultiAgentEnv,
        parser: str | Parser | Callable[[str], str | None] = "boxed",
        otherwise: Otherwise = "unchanged",
    ) -> None:
        super().__init__(env)
        if otherwise not in get_args(Otherwise):
            raise ConfigError(f"ParseAction: otherwise is one of {get_args(Otherwise)}, not {otherwise!r}")
        self._find, self._write = _as_parser(parser)
        self._otherwise = otherwise

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Observations, Infos]:
        observations, infos = super().reset(seed=seed, options=options)
        self._rewrite_legal_actions(infos)
        return observations, infos

    def around_step(self, actions: Mapping[str, str]) -> AroundStep:
        if not self.acting:
            return (yield actions)  # which raises and says why nobody acts
        self.check_actions(actions)
        found = {agent: self._parse(text) for agent, text in actions.items()}
        step = yield {agent: self._given(text, found[agent]) for agent, text in actions.items()}
        infos = step[-1]
        for agent in actions:
            infos[agent]["parsed"] = found[agent]
        self._rewrite_legal_actions(infos)
        return step

    def legal_actions(self, agent: str) -> Sequence[str] | None:
        legal = self.env.legal_actions(agent)
        return None if legal is None else self._written(legal)

    def _parse(self, text: str) -> str | None:
        try:
            found = self._find(text)
            if found is not None and not isinstance(found, str):
                raise TypeError(f"a parser gives text or None, not {found!r}")
        except FAULTS as error:
            self._fault("parser", error)
        return found

    def _given(self, text: str, found: str | None) -> str:
        """The action that the env gets."""
        if found is not None:
            return found
        return text if self._otherwise == "unchanged" else ""

    def _written(self, legal: Sequence[str]) -> list[str] | None:
        """For each legal action a response from which the env gets it."""
        texts = []
        for action in legal:
            candidates = (self._write(action), action)
            texts += [text for text in candidates if self._given(text, self._parse(text)) == action][:1]
        return texts or None

    def _rewrite_legal_actions(self, infos: Infos) -> None:
        for info in infos.values():
            if "legal_actions" in info and (texts := self._written(info.pop("legal_actions"))):
                info["legal_actions"] = texts


def _as_parser(given: object) -> Parser:
    if isinstance(given, Parser):
        return given
    if isinstance(given, str):
        return parser(given)
    if not callable(given):
        raise ConfigError(f"ParseAction: a parser is a function from text to text or None, not {given!r}")
    return Parser(given)


_BRACES = re.compile(r"\\boxed\s*\{|\\?[{}]")


def _find_boxed(text: str) -> str | None:
    if "\\boxed" not in text:
        return None
    open_braces: list[int] = []  # where the content of each begins, -1 if it is no box
    start = end = -1
    for brace in _BRACES.finditer(text):
        if brace[0] == "}":
            begun = open_braces.pop() if open_braces else -1
            if begun > start:
                start, end = begun, brace.start()
        elif brace[0] == "{":
            open_braces.append(-1)
        elif len(brace[0]) > 2:  # neither \{ nor \}
            open_braces.append(brace.end())
    return text[start:end].strip() if start >= 0 else None
