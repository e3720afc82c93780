"""ParseAction and its parsers."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import pytest

from marl_gem import MultiAgentEnv, SequentialSelector
from marl_gem.errors import ConfigError, EpisodeOver, InvalidAction, ScenarioFault
from marl_gem.policies import RandomPolicy
from marl_gem.rollout import Job, collect
from marl_gem.wrappers import (
    ParseAction,
    Parser,
    boxed,
    matching,
    tagged,
)
from tests.wrappers.wrapped import (
    Inn,
    every_env,
    say,
)


class Echo(MultiAgentEnv):
    """One agent; each step reports the action that the env got."""

    possible_agents = ("a",)
    selector = SequentialSelector()

    def observe(self, agent: str) -> str:
        return "Well?"

    def _process_action(self, agent: str, action: str) -> None:
        self.infos[agent]["given"] = action


class ListsLegal(Echo):
    def legal_actions(self, agent: str) -> list[str]:
        return LEGAL


def taken(text: str, *how: Any) -> tuple[str, str | None]:
    """What the env is given of a text, and what infos tell was found."""
    env = ParseAction(Echo(), *how)
    env.reset()
    *_, infos = env.step({"a": text})
    return infos["a"]["given"], infos["a"]["parsed"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (r"\boxed{4}", "4"),
        (r"The middle: \boxed{ [4] }.", "[4]"),
        (r"\boxed{1} no, \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\text{bet {all}}} }", r"\text{bet {all}}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\}}", r"\}"),
        (r"{ \boxed {4} ", "4"),
        (r"}} \boxed{4}", "4"),
        (r"\boxed{1} and then \boxed{2", "1"),
        (r"\boxed{I think \boxed{4}", "4"),
        (r"\boxed{a \boxed{4} b}", "4"),
        (r"\\boxed{4}", "4"),
        ("\\boxed{two\nlines}", "two\nlines"),
        ("\\boxed{\ud800}", "\ud800"),
        (r"\boxed{}", ""),
        ("", None),
        ("boxed{4}", None),
        (r"\boxed 4", None),
        (r"\boxed{", None),
        (r"\boxed}", None),
        (r"\fbox{4}", None),
    ],
)
def test_what_stands_in_a_box(text: str, found: str | None) -> None:
    assert taken(text, boxed()) == (text if found is None else found, found)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("<answer>4</answer>", "4"),
        ("<think><answer>1</answer></think><answer>\n[4]\n</answer> done", "[4]"),
        ("<answer>1</answer> <answer>2", "1"),
        ("<answer> hm <answer>2</answer>", "2"),
        ("<answer>1</answer></answer>", "1"),
        ("<Answer>4</ANSWER >", "4"),
        ("<answer></answer>", ""),
        ("</answer>4<answer>", None),
        ("<answers>4</answers>", None),
        ("<answer>4", None),
        ("", None),
    ],
)
def test_what_stands_between_tags(text: str, found: str | None) -> None:
    assert taken(text, tagged()) == (text if found is None else found, found)


def test_tags_of_any_name() -> None:
    assert taken("<a.b>4</a.b><axb>5</axb>", tagged("a.b")) == ("4", "4")


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (r"move: (\w+)", "move: up, no, move: down", "down"),
        (r"\[\d\]", "[1] [2]", "[2]"),
        (r"(x)|y", "x y", "x"),
        (r"(x)|y", "y", None),
        (r"(\d)(\d)", "12", "1"),
        (r"(x*)$", "no", ""),
        (r"z", "no", None),
    ],
)
def test_what_an_expression_matches(pattern: str, text: str, found: str | None) -> None:
    assert taken(text, matching(pattern)) == (text if found is None else found, found)


def test_where_nothing_is_found_the_rule_is_declared() -> None:
    assert taken("I bet.", boxed()) == taken("I bet.", boxed(), "unchanged") == ("I bet.", None)
    assert taken("I bet.", boxed(), "empty") == ("", None)
    assert taken("I bet.", lambda text: text[-4:-1]) == ("bet", "bet")
    with pytest.raises(ConfigError, match=r"otherwise is one of .*'unchanged', 'empty'.*, not 'drop'"):
        ParseAction(Inn(), boxed(), "drop")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="a parser is a function"):
        ParseAction(Inn(), 7)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="is no regular expression: "):
        matching("(")


@pytest.mark.parametrize(
    ("name", "text"),
    [("boxed", r"\boxed{bet}"), ("tagged:move", "<move>bet</move>"), ("matching:say (\\w+)", "I say bet")],
)
def test_a_parser_may_be_given_by_name(name: str, text: str) -> None:
    assert taken(f"Well. {text}", name) == ("bet", "bet")


@pytest.mark.parametrize("name", ["boxes", "boxed:2", "tagged", "matching:", ""])
def test_an_unknown_name_of_a_parser(name: str) -> None:
    with pytest.raises(ConfigError, match=f"no parser '{name}'; write boxed, tagged:TAG or matching:REGEX"):
        ParseAction(Inn(), name)


@pytest.mark.parametrize("parser", [boxed(), tagged()], ids=["boxed", "tagged"])
@pytest.mark.parametrize(
    "text",
    [
        "\\boxed{" * 150_000,
        "<answer>" * 150_000,
        "{" * 1_000_000,
        "\\boxed" + " " * 1_000_000,
        "\\boxed{" + "{}" * 500_000,
        "<answer" + " " * 1_000_000,
        "<answer>" + "</answer" * 100_000,
        "\x00\ud800\\boxed{\ud800}<answer>\ud800</answer>",
    ],
    ids=lambda text: text[:9].encode("unicode_escape").decode(),
)
def test_no_text_takes_long(parser: Parser, text: str) -> None:
    begun = time.process_time()
    parser.find(text)
    assert time.process_time() - begun < 3


LEGAL = ["[bet]", "{", " wait ", "", "two words"]
LISTED: list[tuple[Any, Any, list[str] | None]] = [
    (boxed(), "unchanged", [r"\boxed{[bet]}", "{", " wait ", r"\boxed{}", r"\boxed{two words}"]),
    (boxed(), "empty", [r"\boxed{[bet]}", r"\boxed{}", r"\boxed{two words}"]),
    (tagged("a"), "empty", ["<a>[bet]</a>", "<a>{</a>", "<a></a>", "<a>two words</a>"]),
    (matching(r"\w+ \w+"), "unchanged", LEGAL),
    (matching(r"\w+ \w+"), "empty", ["", "two words"]),
    (lambda text: text.removesuffix("!"), "empty", LEGAL),
    (lambda text: "always", "unchanged", None),
]


@pytest.mark.parametrize(("parser", "otherwise", "listed"), LISTED)
def test_legal_actions_are_listed_as_they_must_be_written(
    parser: Any, otherwise: Any, listed: list[str] | None
) -> None:
    env = ParseAction(ListsLegal(), parser, otherwise)
    _, infos = env.reset()
    assert env.legal_actions("a") == infos["a"].get("legal_actions") == listed
    arrived = []
    for text in listed or []:
        *_, infos = env.step({"a": text})
        assert infos["a"]["legal_actions"] == listed
        arrived.append(infos["a"]["given"])
    assert arrived == [action for action in LEGAL if action in arrived]
    assert len(arrived) == len(listed or [])
    assert env.unwrapped.legal_actions("a") == LEGAL == ["[bet]", "{", " wait ", "", "two words"]


@every_env
def test_random_play_writes_as_the_parser_reads(make: Callable[[], MultiAgentEnv]) -> None:
    if make().legal_actions.__func__ is MultiAgentEnv.legal_actions or make is Inn:  # type: ignore[attr-defined]
        pytest.skip("the scenario lists no legal actions")
    for wrap in (lambda env: env, lambda env: ParseAction(env, boxed(), "empty")):
        episodes = collect(
            functools.partial(lambda wrap: wrap(make()), wrap), [Job(seed, RandomPolicy()) for seed in range(5)]
        )
        assert not any(episode.error for episode in episodes)
        assert not any("illegal" in turn.info for episode in episodes for turn in episode.turns)
    assert all(r"\boxed{" in turn.response.text for episode in episodes for turn in episode.turns)


@pytest.mark.parametrize("parser", [int, lambda text: 7, lambda text: [text]], ids=["raises", "number", "list"])
def test_a_parser_that_fails_is_a_fault_and_not_an_action(parser: Any) -> None:
    env = ParseAction(Inn(), parser)
    env.reset(seed=4)
    with pytest.raises(
        ScenarioFault, match=r"Inn: ParseAction\.parser raised \w+ at step 0 of the episode with seed 4"
    ):
        say(env, "hello")
    assert env.unwrapped.steps == 0
    with pytest.raises(EpisodeOver, match="not reset after a failure"):
        say(env, "hello")
    env.reset()
    with pytest.raises(InvalidAction):
        env.step({"bob": "hello"})
