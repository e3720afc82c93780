"""Wrappers that take functions, with the functions by name: for texts and configurations."""

from __future__ import annotations

from marl_gem.env import MultiAgentEnv
from marl_gem.errors import ConfigError
from marl_gem.views import as_json, plain
from marl_gem.wrappers.history import ShowHistory
from marl_gem.wrappers.parse import Otherwise, ParseAction, Parser, boxed, matching, tagged

TEMPLATES = {"plain": plain, "json": as_json}


def parse_action(env: MultiAgentEnv, parser: str = "boxed", otherwise: Otherwise = "unchanged") -> ParseAction:
    """`ParseAction` with a parser by name: `boxed`, `tagged:TAG` or `matching:REGEX`.

    Raises:
        ConfigError: there is no such parser.
    """
    return ParseAction(env, _parser(parser), otherwise)


def show_history(env: MultiAgentEnv, view: str = "chat", template: str = "plain") -> ShowHistory:
    """`ShowHistory` with a view and a template by name; templates are `plain` and `json`.

    Raises:
        ConfigError: there is no such view or template.
    """
    if template not in TEMPLATES:
        raise ConfigError(f"there is no template {template!r}; choose one of {', '.join(TEMPLATES)}")
    return ShowHistory(env, view, TEMPLATES[template])


def _parser(text: str) -> Parser:
    kind, _, rest = str(text).partition(":")
    if kind == "boxed" and not rest:
        return boxed()
    if kind == "tagged" and rest:
        return tagged(rest)
    if kind == "matching" and rest:
        return matching(rest)
    raise ConfigError(f"there is no parser {text!r}; write boxed, tagged:TAG or matching:REGEX")
