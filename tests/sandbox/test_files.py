"""Files go into a sandbox and come out of it, bounded and with their modes, links and times."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from marl_gem.errors import SandboxError
from marl_gem.tools.sandbox import File, Limits, Sandbox, ShellSession, read_folder
from tests.sandbox.machine import confined

pytestmark = confined

MIB = 1 << 20


def test_a_session_keeps_files_that_are_written_and_gives_those_it_made(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "check.sh").write_text("cat /app/notes.txt")

    async def play() -> None:
        async with ShellSession(folders=["/app"], mounts={"/tests": tmp_path}) as session:
            data = bytes(range(256)) * 1000
            await session.write_files({"/app/notes.txt": "text\n", "/app/a/b": File(data, 0o700), "/tmp/x": b"x"})
            command = "cd /app && stat -c %a a/b && touch it && mkdir -p deep/er && ln -s notes.txt link && mkfifo pipe"
            assert (await session.run(command)).stdout == "700\n"
            assert (await session.run("echo more >> notes.txt; chmod 0 notes.txt; chmod 0 deep; pwd")).exit_code == 0
            files = await session.read_files(["/app", "/nowhere"])
            paths = ("", "/a", "/a/b", "/deep", "/deep/er", "/it", "/link", "/notes.txt")
            assert list(files) == [f"/app{path}" for path in paths]
            assert files["/app/notes.txt"][:3] == (b"text\nmore\n", 0, "file")
            assert files["/app/a/b"] == File(data, 0o700)
            assert files["/app/link"][::2] == (b"notes.txt", "link")
            assert (await session.run("bash /tests/check.sh; cat; pwd")).stdout.endswith("/app\n")
            assert "Read-only" in (await session.run("echo > /tests/check.sh; echo > /tests/new")).stderr

    asyncio.run(play())


def test_a_started_sandbox_keeps_files_from_run_to_run_and_no_processes() -> None:
    with Sandbox(Limits(wall=5), folders=["/app"]).start() as started:
        started.write_files({"/app/x": "1"})
        assert started.run("import os; os.system('sleep 100 &'); open('/app/y', 'w').write('2')").exit_code == 0
        assert started.run(["bash", "-c", "cat /app/*; ls /proc | grep -c '^[0-9]'"]).stdout == "124\n"
        started.wipe()
        assert started.run(["ls", "-A", "/app", "/tmp"]).stdout == "/app:\n\n/tmp:\n"
        assert list(started.read_files(["/app", "/tmp"])) == ["/app", "/tmp"]


def test_files_that_do_not_fit_are_an_error_and_the_sandbox_goes_on() -> None:
    with Sandbox(Limits(disk=MIB)).start() as started:
        with pytest.raises(SandboxError, match=r"No space left|File too large"):
            started.write_files({f"/tmp/{number}": bytes(MIB // 2) for number in range(3)})
        with pytest.raises(SandboxError, match=r"Permission denied|Read-only"):
            started.write_files({"/usr/x": b""})
        with pytest.raises(ValueError, match="begins with /"):
            started.write_files({"x": b""})
        started.wipe()
        code = "for i in range(40): open(f'/tmp/{i}', 'w').truncate(1 << 20)"
        assert started.run(code).exit_code == 0
        with pytest.raises(SandboxError, match="output"):
            started.read_files(["/tmp"])  # files with holes: more bytes than the disk has
        assert started.run("print(1)").stdout == "1\n"


def test_a_folder_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "run.sh").write_text("echo hello")
    (tmp_path / "sub" / "run.sh").chmod(0o775)
    (tmp_path / "link").symlink_to("/etc/passwd")
    files = read_folder(tmp_path, "/app")
    assert list(files) == ["/app", "/app/link", "/app/sub", "/app/sub/run.sh"]
    assert files["/app/link"] == File(b"/etc/passwd", kind="link")
    with Sandbox(folders=["/app"]).start() as started:
        started.write_files(files)
        assert started.run(["/bin/bash", "-c", "/bin/bash /app/sub/run.sh; ls -l /app/sub; id -un"]).stdout.split() == [
            *("hello", "total", "4", "-rwxr-xr-x", "1", "user", "user", "10", "Jan", "1", "2025", "run.sh", "user")
        ]


@pytest.mark.parametrize("folder", ["app", "/", "/tmp", "/app/../etc"])
def test_a_folder_must_be_a_path_of_its_own(folder: str) -> None:
    with pytest.raises(ValueError, match="such as /app"):
        Sandbox(folders=[folder])
    with pytest.raises(ValueError, match="there is no file or folder"):
        Sandbox(mounts={"/tests": "/nowhere"})
    with pytest.raises(ValueError, match="unsafe"):
        Sandbox(backend="unsafe", folders=["/app"])
