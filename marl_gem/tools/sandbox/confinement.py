"""The command that starts a sandbox under bubblewrap, and whether this machine can.

A root user starts bubblewrap without a user namespace. Its first process keeps four capabilities, and programs run as a
user id that nobody else has, so that the kernel counts their processes: it does not count a root user's. Any other user
starts it with a user namespace, in which processes are counted anew.
"""

from __future__ import annotations

import functools
import os
import platform
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from marl_gem.errors import SandboxUnavailable
from marl_gem.tools.sandbox.limits import Limits
from marl_gem.tools.sandbox.seccomp import filter_program

UNSAFE = 'Sandbox(backend="unsafe") runs programs with your rights, without a sandbox'
DEVICES = ("null", "zero", "full", "random", "urandom")
SYSTEM = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")
CAPABILITIES = ("SETUID", "SETGID", "KILL", "SYS_PTRACE")
"""What the first process of a root user's sandbox may: become another user, end processes, read their memory maps."""

SETTINGS = ("alternatives", "ld.so.cache", "localtime", "ssl/certs")
"""What programs see of /etc."""

ENVIRONMENT = {"HOME": "/tmp", "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""The environment of programs, with PATH. Libraries reserve address space for each thread, which counts as memory."""


class View(NamedTuple):
    """What programs see of files besides the system and /tmp."""

    packages: tuple[Path, ...] = ()
    """Folders with Python packages, read-only."""

    folders: tuple[str, ...] = ()
    """Paths of writable folders, empty at first."""

    mounts: tuple[tuple[str, Path], ...] = ()
    """Paths inside, and the files or folders that stand there, read-only."""


def environment() -> dict[str, str]:
    """The environment of programs: nothing of this process's."""
    return {"PATH": f"{sys.base_exec_prefix}/bin:/usr/local/bin:/usr/bin:/bin", **ENVIRONMENT}


def interpreter() -> str:
    """The Python that programs run in: this one, outside any virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)


def choose_user(uid: int, id_map: str) -> int | None:
    """A user id for the programs of one sandbox, drawn among those that nobody has; None where `uid` is no root.

    Args:
        uid: the effective user id of this process.
        id_map: the text of /proc/self/uid_map.

    Raises:
        SandboxUnavailable: this process is root's and has no other user ids to give.
    """
    if uid != 0:
        return None
    ranges = [(int(start), int(length)) for start, _, length in map(str.split, id_map.strip().splitlines())]
    start, length = max(ranges, key=lambda span: span[1], default=(0, 0))
    if length < 65_536:
        raise SandboxUnavailable(
            f"the sandbox refuses to run as root here: programs need a user id of their own, since the kernel does not "
            f"count a root user's processes, and this container maps {length} only. Start as another user. {UNSAFE}"
        )
    free = (start + 0x4000_0000, 0x3000_0000) if length > 0x7000_0000 else (start + length // 2, length // 2 - 2)
    return free[0] + secrets.randbelow(free[1])


def processes_counted(user: int | None) -> int:
    """How many processes the kernel counts against a limit before the first of the sandbox.

    Before Linux 5.14 a user namespace does not count anew: all of the user's processes and threads count.
    """
    version = tuple(int("0" + "".join(filter(str.isdigit, part))) for part in platform.release().split(".")[:2])
    if user is not None or version >= (5, 14):
        return 1
    count = 1
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and folder.stat().st_uid == os.getuid():
                count += sum(1 for _ in (folder / "task").iterdir())
        except OSError:
            continue
    return count


def parents_first(path: Path) -> list[str]:
    """The folders above a path, from the top, without the root."""
    return [str(parent) for parent in reversed(path.parents)][1:]


def system_mounts() -> list[str]:
    """Options that mount the system and this Python read-only, and nothing else of the disk."""
    options = ["--ro-bind", "/usr", "/usr"]
    for name in SYSTEM:
        path = Path("/", name)
        if path.is_symlink():
            options += ["--symlink", str(path.readlink()), str(path)]
        elif path.exists():
            options += ["--ro-bind", str(path), str(path)]
    for name in SETTINGS:
        path = Path("/etc", name)
        if path.exists():
            options += [option for folder in parents_first(path) for option in ("--dir", folder)]
            options += ["--ro-bind", os.path.realpath(path), str(path)]
    for prefix in {Path(sys.base_prefix), Path(sys.base_exec_prefix)}:
        options += read_only(prefix)
    return options


def read_only(path: Path) -> list[str]:
    """Options that mount a folder or file read-only, at the path it has outside."""
    if path.is_relative_to("/usr"):
        return []
    folders = [option for folder in parents_first(path) for option in ("--dir", folder)]
    return [*folders, "--ro-bind", str(path), str(path)]


def command(limits: Limits, user: int | None, view: View, files: Mapping[str, int]) -> list[str]:
    """The command line of bubblewrap, up to the program.

    Args:
        limits: the sandbox's limits.
        user: the user id of its programs where this process is root's, else None.
        view: what programs see of files.
        files: the file descriptors that `contents` are read from, by their names.
    """
    options = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    if user is None:
        options += ["--unshare-user", "--disable-userns", "--uid", "1000", "--gid", "1000"]
    else:
        options += ["--cap-drop", "ALL", *(word for name in CAPABILITIES for word in ("--cap-add", f"CAP_{name}"))]
    options += ["--as-pid-1", "--die-with-parent", "--new-session", "--hostname", "sandbox", "--clearenv"]
    for name, value in environment().items():
        options += ["--setenv", name, value]
    mode = "0755" if user is None else "1777"
    for folder in view.folders:  # before the system: Python may lie within one
        options += ["--perms", mode, "--size", str(limits.disk), "--tmpfs", folder]
    options += system_mounts()
    options += ["--proc", "/proc", "--dir", "/dev"]
    for name in DEVICES:
        options += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    for name, number in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        options += ["--symlink", f"/proc/self/fd{number}", f"/dev/{name}"]
    options += ["--perms", "1777", "--size", str(limits.disk), "--tmpfs", "/tmp", "--symlink", "/tmp", "/dev/shm"]
    for path in view.packages:
        options += read_only(path)
    for inside, path in view.mounts:
        options += ["--ro-bind", str(path), inside]
    for name in ("passwd", "group"):
        options += ["--perms", "0444", "--ro-bind-data", str(files[name]), f"/etc/{name}"]
    options += ["--remount-ro", "/", "--chdir", "/tmp", "--seccomp", str(files["filter"])]
    return [bubblewrap(), *options, "--"]


def contents(user: int | None) -> dict[str, bytes]:
    """What bubblewrap reads: the filter of system calls, and files by which programs find a name for their user."""
    number = 1000 if user is None else user
    passwd = f"root:x:0:0:root:/:/bin/sh\nuser:x:{number}:{number}:user:/tmp:/bin/bash\n"
    return {
        "filter": filter_program(),
        "passwd": passwd.encode(),
        "group": f"root:x:0:\nuser:x:{number}:\n".encode(),
    }


def bubblewrap() -> str:
    """The path of bubblewrap.

    Raises:
        SandboxUnavailable: it is not installed.
    """
    path = shutil.which("bwrap")
    if path is None:
        raise SandboxUnavailable(
            "the sandbox needs bubblewrap, which is not installed, and refuses to run without. Install it: "
            f"apt-get install bubblewrap (or dnf install bubblewrap). {UNSAFE}"
        )
    return path


def check_machine(search_path: Mapping[str, str] = os.environ) -> None:
    """Try bubblewrap once on this machine.

    Raises:
        SandboxUnavailable: programs cannot be confined here; the message says what is missing and what would help.
    """
    _try_once(bubblewrap(), search_path.get("PATH", ""), os.geteuid())


@functools.lru_cache(maxsize=8)
def _try_once(path: str, search_path: str, uid: int) -> None:
    """Start the smallest sandbox. What the answer depends on is in the arguments, so that it is asked for once."""
    del search_path
    filter_program()
    user = choose_user(uid, Path("/proc/self/uid_map").read_text())
    namespaces = ["--unshare-user", "--disable-userns"] if user is None else []
    tried = [path, *namespaces, "--unshare-pid", "--unshare-net", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    finished = subprocess.run(tried, capture_output=True, text=True, errors="replace", check=False, timeout=60)
    if finished.returncode == 0:
        return
    reason = finished.stderr.strip().splitlines()[-1:] or [f"exit code {finished.returncode}"]
    advice = "bubblewrap 0.8 or newer" if "unknown option" in reason[0].lower() else _advice(user)
    raise SandboxUnavailable(
        f"the sandbox refuses to run, since bubblewrap fails here: {reason[0]}. Needed: {advice}. {UNSAFE}"
    )


def _advice(user: int | None) -> str:
    if user is not None:
        return (
            "rights to make namespaces; start a container with --cap-add SYS_ADMIN, or become a user that is not root"
        )
    return (
        "user namespaces: sysctl kernel.unprivileged_userns_clone=1 on Debian, "
        "sysctl kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu; a container needs a profile that allows them"
    )
