"""Numbers out of range, empty values and options given twice: refused before anything begins, with name and range."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from marl_gem import bounds
from marl_gem.cli import app, exit_codes
from marl_gem.errors import ConfigError
from marl_gem.evaluation import Budget, Numbers, evaluate, plan_tournament
from marl_gem.llm import Sampling
from marl_gem.policies import RandomPolicy
from marl_gem.specs import PolicySpec
from marl_gem.types import Limits
from tests.chaos.command_grammar import Parameter, commands

KUHN = "game:KuhnPoker-v0"
NUMBERS = [
    (" ".join(words), parameter)
    for words, parameters in commands().items()
    for parameter in parameters
    if parameter.kind in ("int", "float")
]


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command line that must be refused; gives what it prints, in one line and without borders."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["marl-gem", *words])
        code = exit_codes.run(app)
        shown = " ".join(capsys.readouterr().err.replace("│", "").split())
        assert code == 2 and list(tmp_path.iterdir()) == [], shown
        return shown

    return run


@pytest.mark.parametrize(("command", "parameter"), NUMBERS, ids=lambda value: getattr(value, "name", value))
def test_every_numeric_option_has_a_range(command: str, parameter: Parameter, refused: Callable[..., str]) -> None:
    for value in ("nan", "inf", "-1", "1e400", "9" * 30, "9" * 5000, "many"):
        shown = refused(*command.split(), "what", f"{parameter.flag}={value}")
        assert "Invalid value for" in shown and parameter.flag in shown


def test_an_option_is_given_once(refused: Callable[..., str]) -> None:
    assert "Invalid value for --seed: it is given 2 times" in refused("play", KUHN, "--seed", "1", "--seed", "2")
    assert "--out: it is given 2 times" in refused("eval", KUHN, "--out", "a", "--out=b")


@pytest.mark.parametrize(
    "words",
    [["eval", KUHN, "--out", ""], ["eval", ""], ["train", ""], ["play", KUHN, "--seat="], ["view", "", "--text"]],
    ids=" ".join,
)
def test_a_value_is_not_empty(words: list[str], refused: Callable[..., str]) -> None:
    assert "it is empty; write a value" in refused(*words)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, 10**400, True, "7"])
def test_python_has_the_same_ranges(value: object) -> None:
    makers: list[Callable[..., object]] = [
        *(lambda v, name=name: Limits(**{name: v}) for name in ("turns", "tokens", "seconds", "cost")),
        *(lambda v, name=name: Budget(**{name: v}) for name in ("episodes", "tokens", "seconds", "cost")),
        *(lambda v, name=name: Numbers(**{name: v}) for name in ("n", "repeats", "seed")),
        *(lambda v, name=name: Sampling(**{name: v}) for name in ("temperature", "max_tokens")),
        lambda v: evaluate(KUHN, RandomPolicy(), n=1, concurrency=v),
        lambda v: evaluate(KUHN, RandomPolicy(), n=1, processes=v),
    ]
    for make in makers:
        with pytest.raises(ConfigError, match=r"number (from|above)"):
            make(value)


def test_a_message_names_the_number_and_its_range() -> None:
    with pytest.raises(ConfigError, match=r"limits.seconds is a number from 0 to 1,000,000,000, not nan"):
        Limits(seconds=float("nan"))
    with pytest.raises(ConfigError, match="top_p is a number above 0 up to 1, not 0"):
        Sampling(top_p=0)
    with pytest.raises(ConfigError, match="10,000,000 tasks with 2 repeats in 1 matches are 20,000,000 episodes"):
        evaluate(KUHN, RandomPolicy(), n=10**7, repeats=2)
    with pytest.raises(ConfigError, match="can sit in 39,800 ways; a run holds 10,000 matches"):
        plan_tournament(KUHN, {f"p{index}": RandomPolicy() for index in range(200)}, Numbers())


@pytest.mark.parametrize("value", ["nan", "inf", "1e400", "-1", "101", "x", ""])
def test_a_policy_s_numbers(value: str) -> None:
    with pytest.raises(ConfigError, match="temperature is a number from 0 to 100, not"):
        PolicySpec.parse(f"x@http://127.0.0.1:9/v1,temperature={value}")


def test_other_integers_count() -> None:
    numpy = pytest.importorskip("numpy")
    assert numpy.int64(3) in bounds.TASKS and numpy.float32(0.5) in bounds.PROBABILITY
