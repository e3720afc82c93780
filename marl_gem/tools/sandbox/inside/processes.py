"""The processes of a sandbox: what they use, and signals to all of them.

See guard.py for where this runs.
"""

# ruff: noqa: PTH123, PTH208

from __future__ import annotations

import os
import resource
import time

LIBRARY = 32 << 20
"""Bytes of shared pages a process may have before they count: those of the interpreter and its libraries."""


class Processes:
    """All processes of the sandbox but the first one, which runs this.

    Args:
        namespace: whether the sandbox is a namespace of processes; without one, only the worker is known.
        folders: those that programs may write to.
    """

    def __init__(self, namespace: bool, folders: list[str]) -> None:
        self.namespace = namespace
        self.folders = folders
        self.worker: int | None = None

    def signal_all(self, number: int) -> None:
        """Send a signal to every process but this one; without a namespace, to those of the worker's group."""
        try:
            if self.namespace and os.getpid() == 1:
                os.kill(-1, number)
            elif self.worker is not None:
                os.killpg(self.worker, number)
        except OSError:
            return

    def ids(self) -> list[int]:
        """The ids of all processes."""
        if self.namespace:
            return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]
        return [self.worker] if self.worker is not None else []

    def memory(self, exact: bool = False) -> int:
        """Bytes of memory that the processes have in use.

        Pages that several share count for each, unless `exact`, which takes the kernel far longer to say.
        """
        total, page = 0, resource.getpagesize()
        for pid in self.ids():
            try:
                with open(f"/proc/{pid}/smaps_rollup" if exact else f"/proc/{pid}/statm", "rb") as file:
                    text = file.read()
            except OSError:
                continue  # it has ended
            if exact:
                total += sum(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith(b"Pss:"))
            else:
                resident, shared = map(int, text.split()[1:3])
                total += (resident - shared) * page + max(0, shared * page - LIBRARY)
        return total

    def cpu(self) -> float:
        """Seconds of CPU time of all processes that there are or were."""
        ticks = 0
        for pid in self.ids():
            try:
                with open(f"/proc/{pid}/stat", "rb") as file:
                    ticks += sum(map(int, file.read().rpartition(b")")[2].split()[11:15]))
            except OSError:
                continue
        reaped = os.times()
        return ticks / os.sysconf("SC_CLK_TCK") + reaped.children_user + reaped.children_system

    def files(self) -> int:
        """How many files lie in the sandbox's folders."""
        if not self.namespace:
            return 0
        disks = [os.statvfs(folder) for folder in self.folders]
        return sum(disk.f_files - disk.f_ffree for disk in disks)

    def reap_orphans(self) -> None:
        """Reap what has ended and whose parent is gone: the first process of a namespace inherits it."""
        for pid in self.ids():
            if pid != self.worker:
                try:
                    os.waitpid(pid, os.WNOHANG)
                except OSError:
                    continue

    def wait_for_end(self) -> None:
        """Wait until all processes are gone that were killed, so that those of the next run are not counted with them.

        Without a namespace they are nobody's children here.
        """
        for _ in range(1000):
            if not self.namespace or not self.ids():
                return
            self.reap_orphans()
            time.sleep(0.001)
