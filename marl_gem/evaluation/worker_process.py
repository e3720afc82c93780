"""A worker process: it gets slots from the process that owns the run, plays them, and sends the episodes back.

The two talk over a socket that nobody else has, in frames: four bytes with the length, then the message. The first
frame holds a pickled `Setup`; all others are msgpack. A worker writes no file of the run. When the socket is closed
because the other process has ended, the worker ends at once, whatever it is doing.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import pickle
import signal
import socket
import threading
from collections.abc import AsyncIterator
from multiprocessing import spawn
from typing import Any, NamedTuple, TypeAlias

import msgspec

from marl_gem.evaluation.plan import Match, Numbers, Plan, Player, Slot
from marl_gem.evaluation.result_store import Recorded, record
from marl_gem.llm.models import Models
from marl_gem.policies import Policy
from marl_gem.rollout import Job, stream
from marl_gem.specs import PolicySpec, ScenarioInfo, ScenarioSpec, load_policy
from marl_gem.types import Limits

GATHER = 0.01
"""Seconds for which finished episodes are collected before they are sent."""

BEAT = 0.5
"""Seconds between two signs that the event loop works."""

is_worker = False
"""Whether this process is a worker."""


class NamedPolicy(NamedTuple):
    """What is sent instead of a policy that was asked for by text. `agents` are those that it plays."""

    text: str
    agents: tuple[str, ...]
    models: Models | None


class Setup(NamedTuple):
    """What a worker is told before it begins; `seats` has the number of a policy for each agent of each match."""

    scenario: ScenarioSpec
    info: ScenarioInfo
    limits: Limits
    reset: dict[str, Any]
    policies: list[NamedPolicy | Policy]
    seats: list[dict[str, int]]
    concurrency: int


# Messages to a worker


class Play(msgspec.Struct, tag=True):
    """Play these slots, after those that were sent before."""

    slots: list[Slot]


class Revoke(msgspec.Struct, tag=True):
    """Give back the slots that have not begun."""


class End(msgspec.Struct, tag=True):
    """Close the envs and end."""


Command: TypeAlias = Play | Revoke | End


# Messages from a worker


class Ready(msgspec.Struct, tag=True):
    """The worker can play."""


class Finished(msgspec.Struct, tag=True):
    """Episodes that were played."""

    batch: list[Recorded]


class Returned(msgspec.Struct, tag=True):
    """The ids of the slots that were given back."""

    ids: list[str]


class Alive(msgspec.Struct, tag=True):
    """The worker's event loop works."""


class Failed(msgspec.Struct, tag=True):
    """The worker cannot play at all."""

    reason: str


Answer: TypeAlias = Ready | Finished | Returned | Alive | Failed

_encode = msgspec.msgpack.Encoder().encode
_decode_command = msgspec.msgpack.Decoder(Command).decode
decode_answer = msgspec.msgpack.Decoder(Answer).decode


def frame(message: bytes | Command | Answer) -> bytes:
    """A message as it is sent."""
    content = message if isinstance(message, bytes) else _encode(message)
    return len(content).to_bytes(4, "big") + content


# The process


def main(descriptor: int) -> None:
    """Work until there is nothing left. `descriptor` is that of the socket."""
    global is_worker
    is_worker = True
    gc.set_threshold(50_000)  # as on the command line
    channel = socket.socket(fileno=descriptor)
    incoming = channel.makefile("rb")
    with asyncio.Runner() as runner:
        worker = _Worker(channel)
        try:
            main_module, setup = pickle.loads(_read(incoming))
            listening = threading.Thread(target=worker.listen, args=(incoming, runner.get_loop()), daemon=True)
            listening.start()
            spawn.prepare(main_module)
            runner.run(worker.play(pickle.loads(setup)))
        except BaseException as error:
            worker.send(Failed(f"{type(error).__name__}: {error}"))


class _Worker:
    """Plays what it is sent. Everything but `listen` runs in the event loop."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._slots: asyncio.Queue[Slot | None] = asyncio.Queue()  # None: nothing more will come
        self._batch: list[Recorded] = []

    def listen(self, incoming: Any, loop: asyncio.AbstractEventLoop) -> None:
        """Read commands, in a thread, so that the end of the other process is noticed while a step does not return."""
        try:
            while True:
                loop.call_soon_threadsafe(self._obey, _decode_command(_read(incoming)))
        except (EOFError, OSError):
            _end_at_once()

    def _obey(self, command: Command) -> None:
        if isinstance(command, Play):
            for slot in command.slots:
                self._slots.put_nowait(slot)
        elif isinstance(command, Revoke):
            returned = []
            while not self._slots.empty():
                if (unplayed := self._slots.get_nowait()) is not None:
                    returned.append(unplayed.id)
            self.send(Returned(returned))
        else:
            self._slots.put_nowait(None)

    async def play(self, setup: Setup) -> None:
        """Play slots until the end is commanded."""
        plan = _plan(setup)
        beating = asyncio.create_task(self._beat())
        self.send(Ready())
        try:
            async for episode in stream(plan.scenario.make, _Jobs(plan, self._slots), concurrency=setup.concurrency):
                if not self._batch:
                    asyncio.get_running_loop().call_later(GATHER, self._flush)
                self._batch.append(record(episode, plan.info.zero_sum))
        finally:
            beating.cancel()
        self._flush()

    def _flush(self) -> None:
        if self._batch:
            self.send(Finished(self._batch))
            self._batch = []

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT)
            self.send(Alive())

    def send(self, answer: Answer) -> None:
        """Send to the process that owns the run, and wait while it takes nothing."""
        try:
            self._channel.sendall(frame(answer))
        except OSError:
            _end_at_once()


class _Jobs(AsyncIterator[Job]):
    """The jobs of the slots in a queue."""

    def __init__(self, plan: Plan, slots: asyncio.Queue[Slot | None]) -> None:
        self._plan, self._slots = plan, slots

    async def __anext__(self) -> Job:
        slot = await self._slots.get()
        if slot is None:
            self._slots.put_nowait(None)  # for the others who wait
            raise StopAsyncIteration
        return self._plan.job(slot)


def _plan(setup: Setup) -> Plan:
    """A plan with the same matches, for `Plan.job`."""
    models = Models()
    policies = [
        load_policy(PolicySpec.parse(sent.text), setup.scenario, agents=sent.agents, models=sent.models or models)
        if isinstance(sent, NamedPolicy)
        else sent
        for sent in setup.policies
    ]
    matches = [
        Match("", {agent: Player("", policies[number]) for agent, number in seats.items()}, {}) for seats in setup.seats
    ]
    return Plan(
        "eval", setup.scenario, setup.info, Numbers(n=1, limits=setup.limits, reset=setup.reset), {}, tuple(matches)
    )


def _read(incoming: Any) -> bytes:
    """The content of the next frame.

    Raises:
        EOFError: the other side has closed the socket.
    """
    header = incoming.read(4)
    content: bytes = incoming.read(int.from_bytes(header, "big"))
    if len(header) < 4 or len(content) < int.from_bytes(header, "big"):
        raise EOFError
    return content


def _end_at_once() -> None:
    """End this process, and whatever the scenario has started in its process group."""
    if os.getpgrp() == os.getpid():
        with contextlib.suppress(OSError):
            os.killpg(0, signal.SIGKILL)
    os._exit(1)
