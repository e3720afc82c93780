"""A vector of envs: `step` for all at once, `send` and `recv` for each at its own pace."""

from __future__ import annotations

import random
import time
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias, get_args

from marl_gem.env import MultiAgentEnv
from marl_gem.errors import ConfigError, EnvError, EpisodeOver, InvalidAction, InvalidOption
from marl_gem.seeding import as_seed
from marl_gem.vector.result import Result
from marl_gem.vector.slot import Actions, Make, Slot, make_all
from marl_gem.vector.workers import Job, Workers

Autoreset: TypeAlias = Literal["next_step", "same_step", "off"]


class VectorEnv:
    """Envs with the same agents, side by side. `envs[3]` is the fourth one, for instance to read its roles.

    An env's episodes depend only on the seed, its index and its own actions: episode `k` of env `i` has the
    seed `derive_seed(seed, i, k)`, however many envs there are and in whatever order they finish. An episode
    that failed counts, too; an env that failed is made anew for the next one.

    An env fails when its code raises anything but KeyboardInterrupt: an exception or a SystemExit is the `error`
    of that env's result, and the other envs are not affected. A KeyboardInterrupt (Ctrl-C, or raised by an
    env's code) is raised to the caller. The env whose step it interrupted begins its next episode, with a fresh
    env, at its next step. Steps that had finished by then, and those that still run in threads, are
    `outstanding`: `recv` returns their results. An env whose step had not begun is as it was.

    `autoreset` selects what follows the end of an episode, which is when no agent is left:

    - "next_step": the env's next step begins its next episode instead, whatever the actions.
    - "same_step": the next episode begins at once; `Result.final` is the last result of the one that ended.
    - "off": the env may not be stepped further; `reset(only=[...])` begins its next episode.

    Source: the autoreset modes of Gymnasium 1.x, carried over to many agents.

    Only one thread at a time may use a vector; `close` may be called from any thread.
    """

    def __init__(
        self,
        makes: Make | Sequence[Make],
        copies: int = 1,
        *,
        seed: int | None = None,
        autoreset: Autoreset = "next_step",
        workers: int | None = None,
    ) -> None:
        """Make the envs, one after the other.

        Args:
            makes: a function that gives a fresh env at every call; or a list of such functions, one per env.
            copies: how often `makes` is repeated: `VectorEnv(make, 64)` has 64 envs.
            seed: what the seeds of all episodes derive from; without one it is drawn, see `envs.seed`.
            autoreset: "next_step", "same_step" or "off".
            workers: the greatest number of threads that take steps; with 0, `send` takes the steps itself. By
                default 0 or, if an env is `blocking` or `awaits`, as many as there are envs.

        Raises:
            ConfigError: there are no envs, or two differ in their agents, or an argument is not valid.
            InvalidOption: the seed is no integer from 0 up.
            Exception: what the first `make` raised, if all of them failed; where only some failed, they are
                called again at the first reset.
        """
        makes = [makes] if callable(makes) or not isinstance(makes, Sequence) or isinstance(makes, str) else list(makes)
        _check_arguments(makes, copies, autoreset, workers)
        makes *= copies
        self.seed = random.SystemRandom().getrandbits(32) if seed is None else _check_seed(seed)
        self.autoreset = autoreset
        self._slots = [Slot(index, make, self.seed, autoreset == "same_step") for index, make in enumerate(makes)]
        try:
            self.possible_agents = make_all(self._slots)
        except BaseException:
            for slot in self._slots:
                slot.close()
            raise
        self._started: set[int] = set()  # steps given to threads, and not received yet
        self._ready: dict[int, Result | BaseException] = {}  # finished, and not received yet
        if workers is None:
            waits = any(slot.env is not None and (slot.env.blocking or slot.env.awaits) for slot in self._slots)
            workers = len(makes) if waits else 0
        self._workers = Workers(workers, self._ready) if workers else None
        self._closed = False
        self._finalizer = weakref.finalize(self, _abandon, self._slots, self._workers)

    def __len__(self) -> int:
        return len(self._slots)

    def __getitem__(self, index: int) -> MultiAgentEnv:
        """The env at this index, to be looked at while no step of it is outstanding.

        Raises:
            EnvError: it could not be made, or the vector is closed.
        """
        env = self._slots[index].env
        if env is None:
            raise EnvError(f"VectorEnv: there is no env {index}: its make() failed, or the vector is closed")
        return env

    def __iter__(self) -> Iterator[MultiAgentEnv]:
        return (self[index] for index in range(len(self)))

    @property
    def outstanding(self) -> list[int]:
        """The indices of the envs whose step was sent and whose result was not received yet."""
        return sorted(self._started | self._ready.keys())

    def reset(
        self,
        seed: int | Mapping[int, int] | Sequence[int] | None = None,
        options: Mapping[str, Any] | None = None,
        only: Iterable[int] | None = None,
    ) -> list[Result]:
        """Begin a new episode in all envs or some. A step outstanding there ends first; its result is dropped.

        Args:
            seed: what seeds derive from now; episodes count from 0 again. None: the envs go on to their next
                episodes. A dict of index to seed: one episode with exactly this seed, in these envs only. A
                list of seeds: likewise one for each env.
            options: what the scenario takes. The episodes that autoreset begins get them, too.
            only: the indices of the envs to reset.

        Returns:
            A result for each, by index.

        Raises:
            InvalidOption: a seed is no integer from 0 up, or `only` is given with a dict of seeds; nothing has
                changed. Or a scenario does not take the options.
            EnvError: there is no such env, or the vector is closed.
        """
        self._check_open()
        seeds: dict[int, int] = {}
        if isinstance(seed, list | tuple):
            if len(seed) != len(self):
                raise InvalidOption(f"VectorEnv: {len(seed)} seeds for {len(self)} envs; give a dict of index to seed")
            seed = dict(enumerate(seed))
        if isinstance(seed, Mapping):
            if only is not None:
                raise InvalidOption("VectorEnv: a dict of seeds names the envs to reset; leave out `only`")
            only, seeds, seed = seed, {index: _check_seed(given) for index, given in seed.items()}, None
        indices = {self._slot(index).index for index in (range(len(self)) if only is None else only)}
        base_seed = None if seed is None else _check_seed(seed)
        if base_seed is not None and only is None:
            self.seed = base_seed
        self._drop(indices)
        slots = [self._slots[index] for index in sorted(indices)]
        for slot in slots:
            slot.prepare(base_seed, seeds.get(slot.index), options)
        results = self._run([(slot, {}) for slot in slots])
        for result in results:
            if result.error and result.error.type == InvalidOption.__name__:
                raise InvalidOption(f"VectorEnv: env {result.index}: {result.error.message}")
        return results

    def step(self, actions: Sequence[Actions] | Mapping[int, Actions]) -> list[Result]:
        """Take one step in all envs or some, and wait for all of these.

        Args:
            actions: for each env, in order, a dict with one text for every acting agent; or a dict of index
                to such dicts. For an env that begins its next episode with this step, any value will do.

        Returns:
            A result for each, by index.

        Raises:
            InvalidAction: they are not those of the acting agents; nothing has changed in any env.
            EpisodeOver: an env was never reset, or is over with autoreset off; nothing has changed.
            EnvError: there is no such env, or its last step is outstanding, or the vector is closed.
        """
        return self._run(self._jobs(actions))

    def send(self, actions: Sequence[Actions] | Mapping[int, Actions]) -> None:
        """Begin what `step` does, without waiting for the results. Raises what `step` raises."""
        self._start(self._jobs(actions))

    def recv(self, at_least: int = 1, timeout: float | None = None) -> list[Result]:
        """All results that are ready, by index.

        Args:
            at_least: how many to wait for.
            timeout: how many seconds to wait at most; there may be fewer results then, or none.

        Raises:
            EnvError: fewer steps than `at_least` are outstanding, or the vector is closed.
        """
        self._check_open()
        outstanding = len(self.outstanding)
        if at_least > outstanding:
            raise EnvError(
                f"VectorEnv: recv() cannot wait for {at_least} results while {outstanding} steps are "
                "outstanding; send() first"
            )
        deadline = None if timeout is None else time.monotonic() + timeout
        while len(self._ready) < at_least:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and not left > 0:
                break
            self._wait(left)
        return self._take(sorted(self._ready))

    def close(self) -> None:
        """Wait for the steps that are running, end the threads and close the envs. May be called twice."""
        self._closed = True
        if self._workers:
            self._workers.stop()
            self._workers.join()
        for slot in self._slots:
            slot.close()
        self._finalizer.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Before a step: everything is checked before anything begins

    def _check_open(self) -> None:
        if self._closed:
            raise EnvError("VectorEnv: this vector is closed; make a new one")

    def _slot(self, index: int) -> Slot:
        with suppress(TypeError, IndexError):
            if index >= 0:
                return self._slots[index]
        raise EnvError(f"VectorEnv: there is no env {index!r}; they are numbered from 0 to {len(self) - 1}")

    def _jobs(self, actions: Sequence[Actions] | Mapping[int, Actions]) -> list[Job]:
        self._check_open()
        if isinstance(actions, Mapping):
            return [self._job(self._slot(index), given) for index, given in actions.items()]
        actions = list(actions)
        if len(actions) != len(self):
            raise InvalidAction(
                f"VectorEnv: {len(actions)} dicts of actions for {len(self)} envs; to step some of them, give a dict "
                "of index to actions"
            )
        return list(map(self._job, self._slots, actions))

    def _job(self, slot: Slot, actions: Actions) -> Job:
        index = slot.index
        if index in self._started or index in self._ready:
            raise EnvError(f"VectorEnv: the last step of env {index} is outstanding; recv() its result first")
        if slot.live:
            try:
                slot.check(actions)
            except InvalidAction as error:
                raise InvalidAction(f"VectorEnv: env {index}: {error}") from error
            return slot, dict(actions)
        if slot.episode < 0:
            raise EpisodeOver(f"VectorEnv: env {index} was never reset; call reset() first")
        if self.autoreset == "off":
            raise EpisodeOver(
                f"VectorEnv: the episode of env {index} is over, and autoreset is off; reset(only=[{index}]) begins "
                "the next one. To step the others, give a dict of index to actions"
            )
        return slot, {}

    # A step

    def _run(self, jobs: list[Job]) -> list[Result]:
        self._start(jobs)
        indices = sorted(slot.index for slot, _ in jobs)
        self._wait_for(indices)
        return self._take(indices)

    def _start(self, jobs: list[Job]) -> None:
        if self._workers:
            self._workers.grow(len(self._started) - len(self._ready) + len(jobs))
            for job in jobs:
                self._workers.start(job)  # before it counts as started: an interrupt between the two loses nothing
                self._started.add(job[0].index)
        else:
            for slot, actions in jobs:
                self._ready[slot.index] = slot.play(actions)

    def _wait_for(self, indices: Iterable[int]) -> None:
        for index in indices:
            while index not in self._ready:
                self._wait()

    def _wait(self, timeout: float | None = None) -> None:
        assert self._workers  # without threads everything outstanding is ready
        self._workers.wait(timeout)
        self._check_open()  # another thread may have closed it meanwhile

    def _take(self, indices: list[int]) -> list[Result]:
        for index in indices:
            if isinstance(error := self._ready[index], BaseException):  # an interrupt in a thread
                self._drop({index})
                raise error
        self._started.difference_update(indices)
        return [self._ready.pop(index) for index in indices]  # type: ignore[misc]

    def _drop(self, indices: set[int]) -> None:
        dropped = indices & {*self._started, *self._ready}
        self._wait_for(dropped)
        self._started -= dropped
        for index in dropped:
            del self._ready[index]


def _abandon(slots: list[Slot], workers: Workers | None) -> None:
    """Release what can be released without waiting: the vector was collected, or the interpreter exits."""
    if workers:
        workers.stop()
    for slot in slots:
        slot.close(wait=False)
    warnings.warn(
        f"a VectorEnv of {len(slots)} envs was never closed; write `with VectorEnv(...) as envs:` or call close()",
        ResourceWarning,
        stacklevel=2,
    )


def _check_arguments(makes: Sequence[Any], copies: int, autoreset: str, workers: int | None) -> None:
    if not isinstance(copies, int):
        raise ConfigError(f"VectorEnv: copies is a whole number from 1 up, not {copies!r}")
    if not makes or copies < 1:
        raise ConfigError("VectorEnv: there are no envs to make; give one make() or more, and copies from 1 up")
    for index, make in enumerate(makes):
        if not callable(make):
            raise ConfigError(
                f"VectorEnv: env {index} is to be made by {make!r}, which cannot be called; give a function that "
                "returns a fresh env, for instance lambda: marl_gem.make('game:KuhnPoker-v0')"
            )
    if autoreset not in get_args(Autoreset):
        raise ConfigError(f"VectorEnv: there is no autoreset {autoreset!r}; choose one of {get_args(Autoreset)}")
    if workers is not None and (not isinstance(workers, int) or workers < 0):
        raise ConfigError(f"VectorEnv: workers is a number of threads from 0 up, not {workers!r}")


def _check_seed(seed: object) -> int:
    known = as_seed(seed)
    if known is None:
        raise InvalidOption(f"VectorEnv: a seed is a whole number from 0 up, not {seed!r}")
    return known
