"""The threads in which envs take their steps."""

from __future__ import annotations

import threading
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TypeAlias

from marl_gem.vector.result import Result
from marl_gem.vector.slot import Slot

Job: TypeAlias = tuple[Slot, dict[str, str]]
"""A slot and the actions of its next step."""


class Workers:
    """Threads that take jobs in the order in which they come.

    Threads are made as they are needed, up to `most`. They are daemons, so that a step that never ends
    cannot keep the interpreter from its exit, and have no reference to the vector, so that it can be collected.
    A thread puts its result into `ready` itself, so that none is lost if Ctrl-C interrupts a wait. What a
    job raises (KeyboardInterrupt, or that its slot is closed) is put there, too.
    """

    def __init__(self, most: int, ready: dict[int, Result | BaseException]) -> None:
        self._most, self._ready = most, ready
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()  # None: let a thread end
        self._wake: SimpleQueue[None] = SimpleQueue()  # something has ended since the last wait
        self._threads: list[threading.Thread] = []
        self._stopped = False

    def grow(self, running: int) -> None:
        """Have threads for so many steps at once."""
        for number in range(len(self._threads), min(running, self._most)):
            thread = threading.Thread(target=self._work, name=f"marl_gem-vector-{number}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def start(self, job: Job) -> None:
        """Queue a job."""
        self._jobs.put(job)

    def wait(self, timeout: float | None) -> None:
        """Return when a job may have ended since the last wait, or after `timeout` seconds."""
        with suppress(Empty):
            self._wake.get(timeout=None if timeout is None else min(timeout, threading.TIMEOUT_MAX))

    def stop(self) -> None:
        """Begin no further job, and let the threads end."""
        self._stopped = True
        for _ in self._threads:
            self._jobs.put(None)

    def join(self) -> None:
        """Wait until the threads have ended."""
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while job := self._jobs.get():
            slot, actions = job
            if not self._stopped:
                self._play(slot, actions)
            if self._stopped:
                slot.close(wait=False)  # stop() may have come from a collected vector, which waits for no step
            if self._wake.empty():  # one entry stands for all jobs that end until the next wait
                self._wake.put(None)

    def _play(self, slot: Slot, actions: dict[str, str]) -> None:
        try:
            self._ready[slot.index] = slot.play(actions)
        except BaseException as error:
            self._ready[slot.index] = error
