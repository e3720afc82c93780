"""A short round of command lines; the long one is `make chaos NAMES=commands`."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.command_grammar import CommandLine
from tests.chaos.command_process import Ended
from tests.chaos.commands import ENDS, EXIT_CODE, NO_HARM, NO_TRACEBACK, PLAIN_OUTPUT, Restored, attack, violations

COMMANDS = 25


def test_command_lines_from_a_grammar() -> None:
    rows = attack(seed=4, count=COMMANDS, fresh_runs=False, training=False)
    assert [row.cases for row in rows] == [COMMANDS] * 5
    assert [f"{row.promise}: {violation}" for row in rows for violation in row.violations] == []


def test_broken_promises_are_noticed() -> None:
    line = CommandLine(["eval", "game:KuhnPoker-v0", "--out", "new"])

    def broken(*changed: str, **ended: object) -> set[str]:
        usual = {"code": 0, "out": "", "err": "", "interrupts": 0, "orphans": False, "seconds": 1.0}
        return {promise for promise, _ in violations(line, Ended(**{**usual, **ended}), changed)}  # type: ignore[arg-type]

    assert broken() == set() and broken(code=2, err="error: no") == set()
    assert broken(code=1, err="Traceback (most recent call last):\nKeyError: 1") == {NO_TRACEBACK}
    assert broken(code=130, err="stopped") == broken(code=120, err="x") == broken(code=2) == {EXIT_CODE}
    assert broken("good/eval/report.json") == {NO_HARM} and broken(orphans=True) == {ENDS}
    assert broken(out="\x1b[2J") == broken(err="error: sk-canary-4711") == {PLAIN_OUTPUT}
    resumed = line._replace(words=[*line.words, "--resume"])
    ended = Ended(0, "", "", 0, False, 1.0)
    assert list(violations(resumed, ended, ["new/report.json"])) == []
    assert [promise for promise, _ in violations(resumed, ended, ["good/report.json"])] == [NO_HARM]


def test_a_changed_folder_is_put_back(tmp_path: Path) -> None:
    folder = tmp_path / "world"
    (folder / "run").mkdir(parents=True)
    for name in ("run/kept", "run/changed", "run/removed", "run/.lock"):
        (folder / name).write_text(name, "utf-8")
    files = Restored(folder)
    for name in ("run/changed", "run/.lock", "new"):
        (folder / name).write_text("other", "utf-8")
    (folder / "run/removed").unlink()
    assert sorted(files.changes()) == ["run/changed", "run/removed"]
    files.restore()
    assert {path.name: path.read_text("utf-8") for path in (folder / "run").iterdir()} == {
        name: f"run/{name}" for name in ("kept", "changed", "removed", ".lock")
    }
    assert files.changes() == [] and not (folder / "new").exists()
