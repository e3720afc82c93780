"""How commands end: the exit codes of docs/reliability.md, and output that cannot be written."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from marl_gem.cli import app, exit_codes
from tests.chaos.command_grammar import CommandLine
from tests.chaos.command_process import Ended, run

KUHN = "game:KuhnPoker-v0"
SCENARIOS = """
import sys
from tests.toys import NumberGame

class Typed(NumberGame):
    def __init__(self, size: int = 4):
        super().__init__()
        self.length = size + 0

class Lax(NumberGame):
    def __init__(self, size: int = 4):
        super().__init__()

class Raises(NumberGame):
    def __init__(self):
        raise KeyError("size")

class Exits(NumberGame):
    def __init__(self):
        sys.exit(0)

class Breaks(NumberGame):
    def _process_actions(self, actions):
        raise RuntimeError("broken on purpose")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "code.py").write_text(SCENARIOS, "utf-8")
    (tmp_path / "exits.py").write_text("import sys\nsys.exit(0)\n", "utf-8")
    tmp_path.chmod(0o777)  # under root the commands run as somebody else
    return tmp_path


def marl_gem(folder: Path, *words: str, **streams: str) -> Ended:
    ended = run(CommandLine([*words], **streams), folder, limit=120)  # type: ignore[arg-type]
    assert "Traceback" not in ended.err + ended.out and "Exception ignored" not in ended.err, ended.err
    return ended


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["list", "game"], 0, ""),
        (["check", KUHN, "--only", "reset"], 0, ""),
        (["play", "code.py:Breaks"], 1, "broken on purpose"),
        (["check", "code.py:Breaks", "--only", "plays"], 1, ""),
        (["eval", KUHN, "-n", "3", "--run-max-episodes", "1"], 1, "2 episodes are pending"),
        (["eval", "code.py:Raises"], 1, "code.py:Raises cannot be made: KeyError: 'size'"),
        (["eval", "code.py:Exits"], 1, "cannot be made: SystemExit: 0"),
        (["play", "exits.py:Any"], 2, "exits.py cannot be imported: SystemExit: 0"),
        (["list", "nothing"], 2, "there is no family 'nothing'"),
        (["play"], 2, "Missing argument"),
        (["dance"], 2, "No such command"),
        (["train", "kuhm"], 2, "Did you mean 'kuhn'? A scenario's id has a colon"),
        (["check", "code.py"], 2, "name the class, too: code.py:Class"),
        (["view", "code.py", "--text"], 2, "code.py is no record of episodes"),
        (["play", "game:Nothing-v0"], 2, "There is no scenario 'game:Nothing-v0'"),
        (["play", "code.py:Typed", "-o", "size=big"], 2, "the option size cannot be 'big': Expected `int`, got `str`"),
        (["play", "code.py:Lax", "-o", "size=big"], 2, "the option size cannot be 'big': Expected `int`, got `str`"),
        (["play", KUHN, "-o", "max_steps=true"], 2, "max_steps is a whole number"),
        (["play", "tau:desk-v0", "-o", "name=true"], 2, "there is no domain True"),
        (["play", "tau:desk-v0", "-o", "name=nowhere"], 2, "there is no domain 'nowhere'"),
        (["play", KUHN, "-o", "a=" + "[" * 5000 + "]" * 5000], 2, "may lie 32 deep in each other"),
        (["play", KUHN, "-o", "a=" + "{a=" * 5000], 2, "may lie 32 deep in each other"),
        (["play", KUHN, "-o", "a=" + "[" * 33 + "]" * 33], 2, "may lie 32 deep in each other"),
        (["play", KUHN, "-o", ".".join("a" * 5000) + "=1"], 2, "a name has at most 32 dots, not 4999"),
        (["play", KUHN, "-o", "a=" + "9" * 5000], 2, "is no number that can be used"),
        (["play", KUHN, "--wrap", "time_limit=" + "[" * 5000], 2, "may lie 32 deep in each other"),
    ],
    ids=lambda value: " ".join(value)[:50] if isinstance(value, list) else "",
)
def test_the_exit_code_and_a_message(
    folder: Path,
    words: list[str],
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["marl-gem", *words])
    ended = exit_codes.run(app)
    shown = " ".join(capsys.readouterr().err.split())
    assert (ended, message in shown) == (code, True), shown
    assert code != 2 or "error" in shown.lower()


@pytest.mark.parametrize(
    ("words", "stream"),
    [
        (["list"], "full"),
        (["list", "--json"], "broken pipe"),
        (["playthrough", KUHN], "full"),
        (["--help"], "full"),
        (["--help"], "broken pipe"),
    ],
)
def test_output_that_cannot_be_written_is_a_failure(folder: Path, words: list[str], stream: str) -> None:
    ended = marl_gem(folder, *words, out=stream)
    assert ended.code == 1
    assert stream == "broken pipe" or "cannot write the output: No space left on device" in ended.err


def test_an_evaluation_is_kept_when_its_output_cannot_be_written(folder: Path) -> None:
    assert marl_gem(folder, "eval", KUHN, "-n", "2", "--out", "run", out="full").code == 1
    assert json.loads((folder / "run/report.json").read_text("utf-8"))["episodes"]["counted"] == 2


@pytest.mark.parametrize("stream", ["full", "broken pipe", "closed"])
def test_an_error_that_nobody_can_read_keeps_its_exit_code(folder: Path, stream: str) -> None:
    assert marl_gem(folder, "list", "nothing", out=stream, err=stream).code == 2


def test_closed_streams(folder: Path) -> None:
    ended = marl_gem(folder, "eval", KUHN, "-n", "2", "--out", "run", out="closed", err="closed")
    assert ended.code == 0
    assert len((folder / "run/episodes.jsonl").read_text("utf-8").splitlines()) == 2


def test_an_ascii_terminal(folder: Path) -> None:
    ended = run(CommandLine(["play", "tests.toys:NumberGame", "--seat", "a=scripted:\udcff\u202e"], ascii=True), folder)
    assert ended.code == 2 and "Traceback" not in ended.err
