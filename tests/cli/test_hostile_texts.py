"""What models, servers and scenarios say, on a terminal: nothing in it acts, and printing it never fails."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import pty
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from marl_gem import cli, registry
from tests.cli.hostile_scenario import EVIL
from tests.fake_server import FakeServer, status

pytestmark = pytest.mark.filterwarnings("ignore:a warning")
SCENARIO = "tests.cli.hostile_scenario:Hostile"
OWN = re.compile(r"\x1b\[(?:[0-9;]*m|\?25[lh]|1A|2K)|\r")
"""What rich writes: colours, the cursor hidden and shown, the line of a progress bar written again."""


@pytest.fixture(autouse=True)
def unchanged_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the command line sets for its process is undone after each test."""
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    monkeypatch.setattr(logging, "lastResort", logging.StreamHandler())
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)


def on_terminal(*arguments: str | Path, keys: str = "") -> str:
    """What a command shows on a terminal, where these keys are typed."""
    master, slave = pty.openpty()
    shown: list[bytes] = []

    def read() -> None:
        with contextlib.suppress(OSError):  # the other end is closed
            while data := os.read(master, 65536):
                shown.append(data)

    reader = threading.Thread(target=read)
    reader.start()
    os.write(master, keys.encode())
    with contextlib.ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["marl-gem", *map(str, arguments)])
        for name, mode in {"stdin": "r", "stdout": "w", "stderr": "w"}.items():
            patch.setattr(sys, name, stack.enter_context(os.fdopen(os.dup(slave), mode, encoding="utf-8")))
        stack.enter_context(contextlib.suppress(SystemExit))
        cli.main()
    os.close(slave)
    reader.join()
    os.close(master)
    return b"".join(shown).decode("utf-8")


def check(shown: str, *expected: str) -> None:
    """Check that these texts are shown, and that nothing but rich acts on the terminal."""
    left = OWN.sub("", shown)
    acting = re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]", left)
    assert not acting, (acting, left[max(0, acting.start() - 200) :][:400])
    joined = "".join(left.split())
    for text in expected:
        assert "".join(text.split()) in joined, left


@contextlib.contextmanager
def serving(server: FakeServer) -> Iterator[str]:
    """The URL of a fake server in another thread: Ctrl-C is handled in this one."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(server.start(), loop).result()
    yield server.url
    asyncio.run_coroutine_threadsafe(server.stop(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


VISIBLE = "[U+001B]]52;c;cm0gLXJm[U+0007]"
REST = "[U+202E][U+2066][U+200B][U+E0041][U+D800] [red]not red[/red] [/] :bomb: \\"


def test_play(tmp_path: Path) -> None:
    shown = on_terminal("play", SCENARIO)
    check(shown, f"seen {VISIBLE}", f"move {VISIBLE}", f"illegal {VISIBLE}", REST)


def test_play_with_a_person_at_the_terminal() -> None:
    check(on_terminal("play", SCENARIO, "--seat", "b=human", keys="go\n"), f"instructions {VISIBLE}")


def test_evaluation_and_its_report(tmp_path: Path) -> None:
    with serving(FakeServer(answer=lambda body: f"said {EVIL}")) as url:
        shown = on_terminal("eval", SCENARIO, "-n", "2", "--seat", f"b=tiny@{url}", "--out", tmp_path / "run")
    check(shown, "2 episodes", f"failed {VISIBLE}")
    for part in ([], ["--episode", "1"], ["--episode", "1", "--agent", f"a{EVIL}"]):
        check(on_terminal("view", "--text", tmp_path / "run", *part), VISIBLE)
    check(on_terminal("view", "--text", tmp_path / "run", "--episode", EVIL[:-12]), "no episode")


def test_errors_of_a_server(tmp_path: Path) -> None:
    error = json.dumps({"error": {"message": f"refused {EVIL}"}})
    with serving(FakeServer(*[status(400, error)] * 9, models=[f"other{EVIL}"])) as url:
        check(on_terminal("play", SCENARIO, "--seat", f"b=tiny@{url}"), "error:")
        check(on_terminal("play", SCENARIO, "--seat", f"b=@{url}"), "error:")


def test_errors_of_a_scenario(tmp_path: Path) -> None:
    check(on_terminal("play", SCENARIO.replace("Hostile", "Broken")), "error:", f"broken {VISIBLE}")
    check(on_terminal("play", f"{tmp_path}/x{EVIL[:60]}.py:X"), "error:", VISIBLE)


def test_checks_and_playthroughs() -> None:
    check(on_terminal("check", SCENARIO, "--only", "legal_actions", "--seed", "0"), f"illegal {VISIBLE}")
    registry.register("evil:Hostile-v0", SCENARIO, description=f"described {EVIL}", unavailable="")
    registry.register("evil:Away-v0", SCENARIO, unavailable=f"away {EVIL}")
    check(on_terminal("playthrough", "evil:Hostile-v0"), "seen")
    check(on_terminal("list", "evil"), f"described {VISIBLE}")
    check(on_terminal("list", "evil", "--all"), f"away {VISIBLE}")
    check(on_terminal("list", "evil:Hostile-v0"), f"described {VISIBLE}")
    check(on_terminal("list", "evil", "--json"))


def test_nothing_fails_to_print_where_only_ascii_can_be_printed() -> None:
    command = [sys.executable, "-m", "marl_gem.cli", "play", SCENARIO]
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "LC_ALL": "POSIX"}
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert done.returncode == 0 and b"Traceback" not in done.stderr, done.stderr
    assert "seen" + VISIBLE.replace(" ", "") in "".join(done.stdout.decode("ascii").split())
    assert b"a warning [U+001B]]52" in done.stderr and b"\x1b" not in done.stdout + done.stderr
