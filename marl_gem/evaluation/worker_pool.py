"""Several processes that play the slots of one run. This process keeps the folder, the journal and the budget.

A worker gets a few slots at a time and sends back finished episodes as lines of the journal, so that little is left to
do here. When a worker dies, another one takes its place, and the slots that it had not finished are played again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections import Counter, deque
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

from marl_gem.errors import AgentError, ConfigError, WorkerError
from marl_gem.evaluation import worker_process
from marl_gem.evaluation.plan import Plan, Player, Slot
from marl_gem.evaluation.playing import Slots
from marl_gem.evaluation.result_store import Recorded, record
from marl_gem.evaluation.worker_process import (
    BEAT,
    Alive,
    Answer,
    Command,
    End,
    Failed,
    Finished,
    NamedPolicy,
    Play,
    Ready,
    Returned,
    Revoke,
    Setup,
    decode_answer,
    frame,
)
from marl_gem.policies import Policy
from marl_gem.specs import PolicySpec
from marl_gem.types import Episode, EpisodeError

TRIES = 3
"""When so many workers have died while they played a slot, its episode has failed."""

PATIENCE = 30.0
"""Seconds after an episode's limit in which a worker must show that its event loop works."""

FAREWELL = 5.0
"""Seconds for workers to close their envs at the end."""


class WorkerPool:
    """Plays slots in worker processes, see `marl_gem.evaluation.playing.Players`. Use it as a context.

    Args:
        plan: what is played.
        setup: the same, from `pack`.
        processes: how many workers.
    """

    def __init__(self, plan: Plan, setup: bytes, processes: int) -> None:
        self._plan, self._setup = plan, setup
        self._workers = [_Worker() for _ in range(processes)]
        self._answers: asyncio.Queue[tuple[_Worker, Answer | None]] = asyncio.Queue()  # None: the worker has died
        self._slots: Slots | None = None
        self._again: deque[Slot] = deque()
        self._deaths: Counter[str] = Counter()
        self._unready = 0  # how many workers in a row have died before they could play
        self._revoked = False
        self._watching: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        try:
            for worker in self._workers:
                await self._start(worker)
        except BaseException:
            self._close()
            raise
        if self._plan.numbers.limits.seconds is not None:
            self._watching = asyncio.create_task(self._watch(self._plan.numbers.limits.seconds + PATIENCE))
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._watching:
            self._watching.cancel()
        try:
            if error is None:
                await self._end_in_order()
        finally:
            self._close()

    async def play(self, slots: Slots, concurrency: int) -> AsyncGenerator[Recorded, None]:
        """Play slots, at most `concurrency` at once, and yield each as it finishes.

        Raises:
            WorkerError: a worker cannot play at all; the message says why.
        """
        self._slots = slots
        for number, worker in enumerate(self._workers):
            worker.share = concurrency // len(self._workers) + (number < concurrency % len(self._workers))
        self._hand_out()
        while not slots.ended or self._again or any(worker.slots for worker in self._workers):
            worker, answer = await self._answers.get()
            if isinstance(answer, Finished):
                worker.ahead = len(answer.batch)
                for recorded in answer.batch:
                    del worker.slots[recorded.summary.id]
                    yield recorded
            elif isinstance(answer, Ready):
                worker.ready = True
            elif isinstance(answer, Returned):
                for id in answer.ids:
                    del worker.slots[id]
            elif isinstance(answer, Failed):
                raise WorkerError(f"a worker process cannot play: {answer.reason}")
            elif answer is None:
                for recorded in await self._replace(worker):
                    yield recorded
            self._hand_out()

    def revoke(self) -> None:
        """Begin no slot any more, also none that was taken from `slots`."""
        self._revoked = True
        self._again.clear()
        for worker in self._workers:
            worker.send(Revoke())

    def _hand_out(self) -> None:
        """Send slots to all workers that have room."""
        for worker in self._workers:
            given = []
            while worker.has_room and (slot := self._next()):
                worker.slots[slot.id] = slot
                given.append(slot)
            if given:
                worker.send(Play(given))

    def _next(self) -> Slot | None:
        if self._again:
            return self._again.popleft()
        return self._slots.take() if self._slots else None

    # Processes

    async def _start(self, worker: _Worker) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            code = (
                f"import sys; sys.path[:] = {sys.path!r}; "
                f"from marl_gem.evaluation.worker_process import main; main({theirs.fileno()})"
            )
            # A process group of its own: Ctrl-C is for this process, and what a worker starts ends with it.
            worker.process = subprocess.Popen(
                [sys.executable, "-c", code], stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], process_group=0
            )
        reader, worker.writer = await asyncio.open_unix_connection(sock=ours, limit=1 << 20)
        worker.ready, worker.silence = False, 0.0
        worker.writer.write(frame(self._setup))
        worker.listening = asyncio.create_task(self._listen(worker, reader))

    async def _listen(self, worker: _Worker, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                answer = decode_answer(await reader.readexactly(size))
                worker.silence = 0.0
                if not isinstance(answer, Alive):
                    self._answers.put_nowait((worker, answer))
        self._answers.put_nowait((worker, None))

    async def _replace(self, worker: _Worker) -> list[Recorded]:
        """Start another process instead of one that died.

        Returns:
            the episodes that have failed, because too many workers died while they played them.

        Raises:
            WorkerError: it ended before it could play; or so many were killed then, one after the other.
        """
        ending = await worker.ending()
        self._unready = 0 if worker.ready else self._unready + 1
        if worker.process.returncode >= 0 < self._unready or self._unready >= TRIES:
            raise WorkerError(f"a worker process could not start: it {ending}; what it printed may say why")
        lost, worker.slots, worker.ahead = list(worker.slots.values()), {}, 0
        failed = []
        for slot in lost:
            self._deaths[slot.id] += 1
            if self._deaths[slot.id] >= TRIES:
                failed.append(
                    self._failure(slot, f"{TRIES} worker processes ended while they played it; the last {ending}")
                )
            elif not self._revoked:
                self._again.append(slot)
        worker.close()
        await self._start(worker)
        return failed

    def _failure(self, slot: Slot, message: str) -> Recorded:
        error = EpisodeError("env", WorkerError.__name__, message)
        episode = Episode(slot.id, self._plan.info.scenario, slot.seed, (), {}, "error", error, repeat=slot.repeat)
        return record(episode, self._plan.info.zero_sum)

    async def _watch(self, longest: float) -> None:
        """Kill workers whose event loop has stood still for so many seconds. Time in which this process does not run
        either does not count."""
        while True:
            await asyncio.sleep(BEAT)
            for worker in self._workers:
                worker.silence += BEAT
                if worker.ready and worker.silence > longest:
                    worker.kill()

    def _close(self) -> None:
        for worker in self._workers:
            if hasattr(worker, "process"):
                worker.close()

    async def _end_in_order(self) -> None:
        """Let the workers close their envs."""
        for worker in self._workers:
            worker.send(End())
        endings = [asyncio.create_task(worker.ending()) for worker in self._workers if worker.ready]
        if endings:
            await asyncio.wait(endings)


class _Worker:
    """What is known of a worker: its process, and the slots that it was sent and has not finished."""

    process: subprocess.Popen[bytes]
    writer: asyncio.StreamWriter
    listening: asyncio.Task[None]

    def __init__(self) -> None:
        self.slots: dict[str, Slot] = {}
        self.share = 0  # how many of its episodes may be live
        self.ahead = 0  # how many slots it gets beyond these: as many as it finished at once the last time
        self.ready = False
        self.silence = 0.0  # seconds since it was heard of

    @property
    def has_room(self) -> bool:
        return self.ready and self.share > 0 and len(self.slots) < self.share + self.ahead

    def send(self, command: Command) -> None:
        self.writer.write(frame(command))

    async def ending(self) -> str:
        """Wait a little for the end of the process, or kill it; how it ended, in words."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self.process.wait, FAREWELL)
        self.kill()
        code = self.process.wait()
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def kill(self) -> None:
        """End the process and those that it started."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the process, and forget the connection."""
        self.kill()
        self.process.wait()
        self.listening.cancel()
        self.writer.close()


# What is sent


def pack(plan: Plan, concurrency: int) -> bytes:
    """What a worker needs to play a plan, `concurrency` episodes at once, as the content of the first frame.

    Raises:
        ConfigError: the plan cannot be sent to another process; the message says what to do.
    """
    if worker_process.is_worker:
        raise ConfigError(
            "this script starts worker processes when it is imported, and each of them imports it; put what it does "
            'under `if __name__ == "__main__":`'
        )
    numbers = {id(player.policy): number for number, player in enumerate(plan.players)}
    setup = Setup(
        scenario=_portable(plan.scenario, f"the scenario {plan.info.scenario}"),
        info=msgspec.structs.replace(plan.info, trivial_baselines={}, grades=()),
        limits=plan.numbers.limits,
        reset=plan.numbers.reset,
        policies=[_sent(player, plan) for player in plan.players],
        seats=[
            {agent: numbers[id(player.policy)] for agent, player in match.players.items()} for match in plan.matches
        ],
        concurrency=concurrency,
    )
    return pickle.dumps((_main_module(), pickle.dumps(setup)))


def _sent(player: Player, plan: Plan) -> NamedPolicy | Policy:
    try:
        spec = PolicySpec.parse(player.who) if player.typed else None
    except (AgentError, ConfigError):
        spec = None
    if spec is None:
        return _portable(player.policy, f"the policy {player.who}")
    if spec.kind == "human":
        raise ConfigError("a person can play in one process only")
    if spec.kind in ("hf", "run") or (spec.judge and spec.judge.kind == "hf"):
        raise ConfigError(
            f"{player.who} computes in the process that plays, so that each process would hold a model, and all would "
            "share the same cores; use one process, or a server for the model"
        )
    seats = {
        agent: None
        for match in plan.matches
        for agent, seated in match.players.items()
        if seated.policy is player.policy
    }
    return NamedPolicy(player.who, tuple(seats), player.models)


Sent = TypeVar("Sent")


def _portable(value: Sent, what: str) -> Sent:
    """The value, if pickle can send it.

    Raises:
        ConfigError: it cannot.
    """
    try:
        pickle.dumps(value)
    except Exception as error:
        raise ConfigError(
            f"{what} cannot be sent to another process ({error}). Name it by a text, or make it of functions and "
            "classes at the top level of a module; or use one process"
        ) from error
    return value


def _main_module() -> dict[str, Any]:
    """What `multiprocessing.spawn.prepare` needs to import the module that this process runs."""
    module = sys.modules["__main__"]
    data: dict[str, Any] = {"sys_argv": sys.argv}
    if spec := getattr(module, "__spec__", None):
        data["init_main_from_name"] = spec.name
    elif file := getattr(module, "__file__", None):
        data["init_main_from_path"] = str(Path(file).absolute())
    return data
