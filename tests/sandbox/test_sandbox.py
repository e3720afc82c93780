"""`Sandbox.run`: what comes back, what a program sees, and that machines that cannot confine are refused."""

from __future__ import annotations

import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from marl_gem.errors import SandboxError, SandboxUnavailable
from marl_gem.tools.sandbox import Completed, Limits, Sandbox, confinement, connection, seccomp
from tests.sandbox.machine import confined

MACHINES = {"x86_64": (0xC000003E, 1, 41, 272, 56, 435), "aarch64": (0xC00000B7, 64, 198, 97, 220, 435)}
"""The number of the architecture, and those of write, socket, unshare, clone and clone3."""


@confined
def test_code_and_commands_run() -> None:
    sandbox = Sandbox()
    assert sandbox.run("print(int(input()) + 1)", "41\n") == Completed("42\n", "", 0, "exit")
    assert sandbox.run(["bash", "-c", "cat; echo oh >&2; exit 3"], b"in\n") == Completed("in\n", "oh\n", 3, "exit")
    assert sandbox.run(["no-such-program"]).exit_code == 127


@confined
def test_errors_of_a_program_read_as_pythons() -> None:
    sandbox = Sandbox()
    raised = sandbox.run("def f():\n    return 1 / 0\nf()")
    assert (raised.exit_code, raised.ended) == (1, "exit")
    assert raised.stderr.splitlines() == [
        "Traceback (most recent call last):",
        '  File "<program>", line 3, in <module>',
        '  File "<program>", line 2, in f',
        "ZeroDivisionError: division by zero",
    ]
    assert "SyntaxError" in sandbox.run("print(").stderr
    assert sandbox.run("import sys; sys.exit('no')") == Completed("", "no\n", 1, "exit")
    assert sandbox.run("raise SystemExit(7)").exit_code == 7
    assert sandbox.run("x = bytearray(1 << 40)").ended == "memory"


@confined
def test_a_program_ends_as_python_ends() -> None:
    code = """
import atexit, threading, time
atexit.register(lambda: print("last"))
threading.Thread(target=lambda: (time.sleep(0.05), print("thread"))).start()
print("first")
"""
    assert Sandbox().run(code).stdout == "first\nthread\nlast\n"


@confined
def test_a_run_starts_from_nothing() -> None:
    sandbox = Sandbox()
    code = "import os; print(os.listdir('/tmp'), os.getcwd()); open('x', 'w').write('x'); print(os.listdir('/tmp'))"
    assert sandbox.run(code).stdout == "[] /tmp\n['x']\n"
    assert sandbox.run(code).stdout == "[] /tmp\n['x']\n"


@confined
def test_packages_are_readable(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("ANSWER = 42\n")
    tmp_path.chmod(0o755)
    sandbox = Sandbox(packages=[tmp_path])
    assert sandbox.run("import helper; print(helper.ANSWER)").stdout == "42\n"
    assert "Error" in sandbox.run(f"open({str(tmp_path / 'new')!r}, 'w')").stderr
    assert not (tmp_path / "new").exists()
    with pytest.raises(ValueError, match="there is no folder"):
        Sandbox(packages=[tmp_path / "missing"])


@confined
def test_the_parent_may_be_in_many_threads() -> None:
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda number: Sandbox().run(f"print({number})").stdout, range(8)))
    assert results == [f"{number}\n" for number in range(8)]


def test_without_bubblewrap_it_refuses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxUnavailable, match=r"apt-get install bubblewrap.*backend=\"unsafe\""):
        Sandbox()


def test_without_namespaces_it_refuses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(SandboxUnavailable, match=r"No permissions to create new namespace\. Needed: "):
        Sandbox()


def test_an_old_bubblewrap_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: Unknown option --disable-userns' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(SandboxUnavailable, match=r"Needed: bubblewrap 0\.8 or newer"):
        Sandbox()


def test_root_without_other_users_is_refused() -> None:
    with pytest.raises(SandboxUnavailable, match=r"refuses to run as root"):
        confinement.choose_user(0, "         0          0          1\n")
    assert confinement.choose_user(1000, "0 1000 1\n") is None
    small = [confinement.choose_user(0, "0 100000 65536\n") for _ in range(50)]
    assert all(user is not None and 32_768 <= user < 65_535 for user in small)
    users = {confinement.choose_user(0, "0 0 4294967295\n") for _ in range(50)}
    assert len(users) == 50 and None not in users and min(user or 0 for user in users) > 1_000_000


def test_a_machine_without_a_filter_is_refused() -> None:
    with pytest.raises(SandboxUnavailable, match=r"no filter of system calls for 'riscv64'"):
        seccomp.filter_program("riscv64")


@pytest.mark.parametrize("machine", MACHINES)
def test_the_filter_denies_and_allows(machine: str) -> None:
    """The program is run by an interpreter of the few instructions that it uses."""
    architecture, write, socket_call, unshare, clone, clone3 = MACHINES[machine]
    program = list(struct.iter_unpack("=HBBI", seccomp.filter_program(machine)))

    def decide(number: int, argument: int = 0, by: int = architecture) -> int:
        data, value, position = {0: number, 4: by, 16: argument}, 0, 0
        while True:
            code, yes, no, operand = program[position]
            if code == 0x20:
                value = data[operand]
            elif code == 0x06:
                return int(operand)
            else:
                holds = {0x15: value == operand, 0x35: value >= operand, 0x45: bool(value & operand)}[code]
                position += yes if holds else no
            position += 1

    allow, denied = 0x7FFF0000, 0x00050000
    assert decide(write) == allow
    assert decide(unshare) == denied | 1
    assert [decide(socket_call, family) for family in (1, 2, 10)] == [allow] * 3
    assert [decide(socket_call, family) for family in (16, 17, 38, 40)] == [denied | 97] * 4
    assert decide(clone, 0x11) == decide(clone, 0x003D0F00) == allow
    assert decide(clone, 0x10000011) == decide(clone, 0x40000011) == denied | 1
    assert decide(clone3) == denied | 38
    assert decide(0x40000000 + 41) == denied | 1
    assert decide(write, by=0x40000003) == 0x80000000


def test_unsafe_runs_and_must_be_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    sandbox = Sandbox(backend="unsafe")
    assert sandbox.run("print(input())", "hello") == Completed("hello\n", "", 0, "exit")
    assert Sandbox(Limits(wall=0.3), backend="unsafe").run("while True: pass").ended == "timeout"
    assert sandbox.run("while True: print('x' * 1000)").ended == "output"
    assert "SECRET" not in sandbox.run("import os; print(os.environ)").stdout
    folder = sandbox.run("import os; print(os.getcwd())").stdout.strip()
    assert folder.startswith("/") and not Path(folder).exists()
    with pytest.raises(ValueError, match="no back end 'docker'"):
        Sandbox(backend="docker")  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "5", True, None])
def test_limits_are_positive_numbers(value: object) -> None:
    with pytest.raises(ValueError, match="limit wall must be a positive number"):
        Limits(wall=value)  # type: ignore[arg-type]


def test_a_reply_is_bounded() -> None:
    reply = connection.Reply(10)
    with pytest.raises(SandboxError, match="no reply"):
        reply.feed(struct.pack("<IIiBB", 11, 0, 0, 0, 0))
    with pytest.raises(SandboxError, match="no reply"):
        connection.Reply(10).feed(struct.pack("<IIiBB", 1, 0, 0, 5, 0))
    reply = connection.Reply(10)
    for byte in struct.pack("<IIiBB", 2, 1, -9, 1, 1) + b"okn":
        assert not reply.complete
        reply.feed(bytes([byte]))
    assert reply.completed() == Completed("ok", "n", -9, "timeout", True)
