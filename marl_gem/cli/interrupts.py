"""Ctrl-C: the first one stops a command, in order where it can be continued; the second one ends the process at once.

SIGTERM, which systems send before they end a process, counts as Ctrl-C.

Python runs signal handlers in the main thread, between two of its instructions, and at its end waits for threads. So a
thread here reads the signals too, and ends the process even if the main thread is in C code that does not return.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from marl_gem.cli.exit_codes import ExitCode
from marl_gem.cli.terminal import err, out, plain

SIGNALS = (signal.SIGINT, signal.SIGTERM)

LAST_MOMENTS = 0.6
"""Seconds after the second Ctrl-C in which the process may still end in order."""


class _Interrupts:
    """Counts Ctrl-C and acts on the first and the second."""

    def __init__(self) -> None:
        self.asked: list[bool] | None = None  # where a stop in order is asked for, while a command can do that
        self.notice = ""  # shown when it is
        self.farewell = "stopped"
        self.first_seen = self.raised = False
        self._acted: dict[int, object] = {}
        self._handled = 0
        self._signals, self._wakeup = socket.socketpair()
        self._wakeup.setblocking(False)
        self._handlers_before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        self._wakeup_before = signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._read_signals, name="marl_gem-interrupts", daemon=True).start()

    def uninstall(self) -> None:
        """Leave Ctrl-C to what handled it before."""
        for number, handler in self._handlers_before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        self._wakeup.close()

    def say_farewell(self) -> None:
        """Print what there is to know at the end, once."""
        farewell, self.farewell = self.farewell, ""
        if farewell:
            with suppress(OSError):  # nobody can read it
                err.print(plain(farewell), soft_wrap=True)

    def _handle(self, *_: object) -> None:
        """In the main thread, whenever that gets to it."""
        self._handled += 1
        self._act_on(self._handled)
        if self._handled > 1 or self.asked is None:
            self.raised = True
            raise KeyboardInterrupt

    def _read_signals(self) -> None:
        """In a thread: the interpreter writes the number of each signal to the socket at once."""
        count = 0
        with self._signals:
            while number := self._signals.recv(1):
                if number[0] in SIGNALS:
                    count += 1
                    self._act_on(count)

    def _act_on(self, count: int) -> None:
        """Act on a Ctrl-C, once, although both the main thread and the other one report it."""
        this = object()
        if self._acted.setdefault(count, this) is not this:
            return
        self.first_seen = True
        if count == 2:
            threading.Thread(target=self._end_at_once, daemon=True).start()
        elif count == 1 and self.asked is not None:
            self.asked.append(True)
            notice = plain(self.notice, "yellow")
            threading.Thread(target=lambda: err.print(notice, soft_wrap=True), daemon=True).start()

    def _end_at_once(self) -> None:
        time.sleep(LAST_MOMENTS)
        last_words = threading.Thread(target=self._last_words, daemon=True)  # a full pipe would block them
        last_words.start()
        last_words.join(0.2)
        os._exit(ExitCode.INTERRUPTED)  # worker processes end when their sockets are closed

    def _last_words(self) -> None:
        for console in (err, out):
            console.show_cursor(True)
        self.say_farewell()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()


_active: _Interrupts | None = None


@contextmanager
def interrupts() -> Iterator[None]:
    """Handle Ctrl-C in here. Once there was one, it is handled until the process ends.

    Raises:
        SystemExit: with 130, if what runs in here was interrupted and did not handle that.
    """
    global _active
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _active = current = _Interrupts()
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as end:
        if isinstance(end, SystemExit) and not (current.raised and end.code in (1, ExitCode.INTERRUPTED)):
            raise
        current.say_farewell()  # typer makes a SystemExit of a KeyboardInterrupt
        sys.exit(ExitCode.INTERRUPTED)
    finally:
        if not current.first_seen:
            current.uninstall()
            _active = None


@contextmanager
def stop_on_interrupt(after: str, resume: str) -> Iterator[list[bool]]:
    """The first Ctrl-C in here asks to stop (the list is no longer empty), and says how to go on later.

    Args:
        after: what is finished before the stop.
        resume: the command that continues.
    """
    asked: list[bool] = []
    if _active is None:
        yield asked
        return
    _active.asked = asked
    _active.notice = (
        f"stopping after {after}; Ctrl-C again stops at once. What is on disk is safe. Continue with:\n  {resume}"
    )
    _active.farewell = f"stopped at once. What is on disk is safe. Continue with:\n  {resume}"
    try:
        yield asked
    finally:
        _active.asked = None
