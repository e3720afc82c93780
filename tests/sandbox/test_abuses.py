"""Every escape and abuse of the table is held, as root and as another user, and leaves no process behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.sandbox.abuses import ABUSES, ESCAPES, LIMITS
from tests.sandbox.guarded import NO_GUARD
from tests.sandbox.machine import confined

ROOT = Path(__file__).parents[2]
USER = 54_321
"""The user id that a root user's tests try as another user. Nobody has it."""

pytestmark = [confined, pytest.mark.slow]


def python_for_all() -> str | None:
    """A Python that every user may start, if there is one: root's may lie in root's home."""
    for path in (os.path.realpath(sys.executable), f"/usr/bin/python3.{sys.version_info.minor}"):
        try:
            program = [path, "-I", "-c", "import json"]
            found = subprocess.run(
                program, user=USER, group=USER, extra_groups=[], cwd="/", env={}, capture_output=True, check=False
            )
        except OSError:
            continue
        if found.returncode == 0:
            return path
    return None


@pytest.fixture(scope="module", params=["this user", "another user"])
def results(request: pytest.FixtureRequest) -> dict[str, dict[str, Any]]:
    """What became of each abuse."""
    command, environment = [sys.executable], {**os.environ, "PYTHONPATH": str(ROOT)}
    arguments: list[str] = []
    if request.param == "another user":
        if os.geteuid() != 0:
            pytest.skip("only root can become another user")
        python = python_for_all()
        if python is None:
            pytest.skip("no Python that another user may start")
        command, arguments = [python], ["--as-user", str(USER)]
        environment["PYTHONPATH"] += os.pathsep + str(Path(msgspec.__file__).parents[1])
    finished = subprocess.run(
        [*command, "-m", "tests.sandbox.guarded", *arguments],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    if finished.returncode == NO_GUARD:
        pytest.skip("no outer guard: neither cgroups nor an unprivileged user")
    assert finished.returncode == 0, finished.stderr
    lines = [json.loads(line) for line in finished.stdout.splitlines()]
    return {line["name"]: line for line in lines}


def test_the_table_is_long(results: dict[str, dict[str, Any]]) -> None:
    assert results.keys() == {*ESCAPES, *ABUSES}
    assert len(results) > 50


@pytest.mark.parametrize("name", [*ESCAPES, *ABUSES])
def test_it_is_held(name: str, results: dict[str, dict[str, Any]]) -> None:
    line = results[name]
    assert line["result"] is not None, "the outer guard had to end it"
    stdout, stderr, ended = line["result"]["stdout"], line["result"]["stderr"], line["result"]["ended"]
    assert "ESCAPED" not in stdout
    assert ended in (ABUSES[name].ended if name in ABUSES else ("exit",)), stderr
    if ended == "exit" and name != "forged replies":
        assert "held" in stdout and "Traceback" not in stderr, stderr
    assert line["left"] == 0, "processes are left"
    assert len(stdout) + len(stderr) <= LIMITS["output"]
    assert line["result"].get("grown", 0) < 32 << 20, "the parent's memory grew with what the program did"


def test_a_forged_reply_is_output(results: dict[str, dict[str, Any]]) -> None:
    result = results["forged replies"]["result"]
    assert (result["exit_code"], result["ended"]) == (9, "exit")
    assert result["stdout"].endswith("fine")
