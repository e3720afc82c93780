"""Many envs of one kind at once, for those who write the loop themselves.

    with VectorEnv(make, 64, seed=7) as envs:
        results = envs.reset()
        while training:
            results = envs.step([act(result.observations) for result in results])

`step` waits for the slowest env. With `send` and `recv` no env waits for another:

        envs.send({result.index: act(result.observations) for result in envs.reset()})
        while training:
            envs.send({result.index: act(result.observations) for result in envs.recv()})

What the caller does wrong is raised before anything has changed. What an env fails at is told in its
result, and the others go on.
"""

from __future__ import annotations

import random
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias, get_args

import msgspec

from marl_gem.env import Infos, MultiAgentEnv, Observations
from marl_gem.errors import ConfigError, EnvError, EpisodeOver, InvalidAction, InvalidOption
from marl_gem.seeding import as_seed, derive_seed
from marl_gem.types import EpisodeError

Make: TypeAlias = Callable[[], MultiAgentEnv]
Actions: TypeAlias = Mapping[str, str]
Autoreset: TypeAlias = Literal["next_step", "same_step", "off"]


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a step or a reset of one env came to.

    `index` is the env's place in the vector; its episodes count from 0. `observations`, `rewards`,
    `terminations`, `truncations` and `infos` are those of `MultiAgentEnv.step`; after a reset the rewards
    are 0. `returns` holds each agent's undiscounted sum of rewards so far. `done`: the episode is over,
    because nobody is left or, as `error` then tells, because something failed; a failure leaves the rest
    empty. Nobody acts where `observations` is empty.

    With autoreset in the same step a result that ends an episode speaks of two: `episode`, `seed`,
    `observations` and `infos` are the next one's already, the rest is the ended one's. `final` is the ended
    one's last result, whole: its infos hold the final observations.
    """

    index: int
    episode: int
    seed: int
    observations: Observations = {}
    rewards: dict[str, float] = {}
    terminations: dict[str, bool] = {}
    truncations: dict[str, bool] = {}
    infos: Infos = {}
    returns: dict[str, float] = {}
    done: bool = False
    error: EpisodeError | None = None
    final: Result | None = None


class VectorEnv:
    """Envs with the same agents, side by side. `envs[3]` is the fourth, to be asked for its roles.

    What an env plays depends on nothing but the seed, its index and its own actions: episode `k` of env `i`
    has the seed `derive_seed(seed, i, k)`, however many envs there are and whichever is faster. An episode
    that failed counts too; an env that failed is made anew for the next one.

    `autoreset` is what follows on an episode's end, which is when no agent is left:

    - "next_step": the env's next step begins its next episode instead, whatever the actions.
    - "same_step": the next episode begins at once; `Result.final` is the last result of the ended one.
    - "off": the env may not be stepped further; `reset(only=[...])` begins its next episode.

    Source: the autoreset modes of Gymnasium 1.x, carried over to many agents.

    One thread at a time may use a vector; `close` may come from any.
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
            makes: gives a fresh env at every call; or a list of such functions, one for each env.
            copies: how many times over: `VectorEnv(make, 64)` has 64 envs.
            seed: what the seeds of all episodes derive from; without one it is drawn, see `envs.seed`.
            autoreset: "next_step", "same_step" or "off".
            workers: how many threads take steps, at most; with 0, `send` takes them itself. By default
                there are none or, if an env is `blocking`, as many as there are steps to take at once.

        Raises:
            ConfigError: there are no envs, or two that differ in their agents, or an argument makes no sense.
            InvalidOption: the seed is no whole number from 0 up.
            Exception: what the first `make` raised, if all of them did; where only some did, they are tried
                again at the first reset.
        """
        makes = [makes] if callable(makes) or not isinstance(makes, Sequence) or isinstance(makes, str) else list(makes)
        _check_arguments(makes, copies, autoreset, workers)
        makes *= copies
        self.seed = random.SystemRandom().getrandbits(32) if seed is None else _check_seed(seed)
        self.autoreset = autoreset
        self._places = [_Place(index, make, self.seed, autoreset == "same_step") for index, make in enumerate(makes)]
        try:
            self.possible_agents = _make_all(self._places)
        except BaseException:
            for place in self._places:
                place.close()
            raise
        self._outstanding: set[int] = set()  # sent, and not received yet
        self._ready: dict[int, Result | BaseException] = {}  # what came of those of them that have ended
        if workers is None:
            workers = len(makes) if any(place.env is not None and place.env.blocking for place in self._places) else 0
        self._threads = _Threads(workers, self._ready) if workers else None
        self._closed = False
        self._finalizer = weakref.finalize(self, _abandon, self._places, self._threads)

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: int) -> MultiAgentEnv:
        """The env at this index, to be looked at while none of its steps is outstanding.

        Raises:
            EnvError: it could not be made, or the vector is closed.
        """
        env = self._places[index].env
        if env is None:
            raise EnvError(f"VectorEnv: there is no env {index}: its make() failed, or the vector is closed")
        return env

    def __iter__(self) -> Iterator[MultiAgentEnv]:
        return (self[index] for index in range(len(self)))

    @property
    def outstanding(self) -> list[int]:
        """The envs that were sent to and whose results were not received yet."""
        return sorted(self._outstanding)

    def reset(
        self,
        seed: int | Mapping[int, int] | Sequence[int] | None = None,
        options: Mapping[str, Any] | None = None,
        only: Iterable[int] | None = None,
    ) -> list[Result]:
        """Begin a new episode in all envs or some. A step that is outstanding there ends first, unread.

        Args:
            seed: what seeds derive from now; episodes count from 0 again. None: the envs go on to their next
                episodes. A dict of index to seed: one episode with this very seed, in these envs only. A list
                of seeds: likewise one for each env.
            options: what the scenario takes. The episodes that autoreset begins get them, too.
            only: the indices of the envs to reset.

        Returns:
            A result for each, by index.

        Raises:
            InvalidOption: a seed is no whole number from 0 up, or `only` stands beside a dict of seeds;
                nothing has changed. Or a scenario does not take the options.
            EnvError: there is no such env, or the vector is closed.
        """
        self._check_open()
        own_seeds: dict[int, int] = {}
        if isinstance(seed, list | tuple):
            if len(seed) != len(self):
                raise InvalidOption(f"VectorEnv: {len(seed)} seeds for {len(self)} envs; give a dict of index to seed")
            seed = dict(enumerate(seed))
        if isinstance(seed, Mapping):
            if only is not None:
                raise InvalidOption("VectorEnv: seeds of their own tell which envs to reset; leave out `only`")
            only, own_seeds, seed = seed, {index: _check_seed(given) for index, given in seed.items()}, None
        indices = {self._place(index).index for index in (range(len(self)) if only is None else only)}
        base_seed = None if seed is None else _check_seed(seed)
        if base_seed is not None and only is None:
            self.seed = base_seed
        self._drop(indices)
        places = [self._places[index] for index in sorted(indices)]
        for place in places:
            place.prepare(base_seed, own_seeds.get(place.index), options)
        results = self._run([(place, {}) for place in places])
        for result in results:
            if result.error and result.error.type == InvalidOption.__name__:
                raise InvalidOption(f"VectorEnv: env {result.index}: {result.error.message}")
        return results

    def step(self, actions: Sequence[Actions] | Mapping[int, Actions]) -> list[Result]:
        """Take one step in all envs or some, and wait for all of these.

        Args:
            actions: for each env, in order, a dict with one text for every acting agent; or a dict of index
                to such dicts. For an env that begins its next episode with this step, anything will do.

        Returns:
            A result for each, by index.

        Raises:
            InvalidAction: they are not those of the acting agents; nothing has changed in any env.
            EpisodeOver: an env was never reset, or is over with autoreset off; nothing has changed.
            EnvError: there is no such env, or its last step is outstanding, or the vector is closed.
        """
        return self._run(self._jobs(actions))

    def send(self, actions: Sequence[Actions] | Mapping[int, Actions]) -> None:
        """Begin what `step` does, and wait for nothing. Raises what `step` raises."""
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
        if at_least > len(self._outstanding):
            raise EnvError(
                f"VectorEnv: recv() cannot wait for {at_least} results while {len(self._outstanding)} steps are "
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
        if self._threads:
            self._threads.stop()
            self._threads.join()
        for place in self._places:
            place.close()
        self._finalizer.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Before a step: all is checked before anything is begun

    def _check_open(self) -> None:
        if self._closed:
            raise EnvError("VectorEnv: this vector is closed; make a new one")

    def _place(self, index: int) -> _Place:
        with suppress(TypeError, IndexError):
            if index >= 0:
                return self._places[index]
        raise EnvError(f"VectorEnv: there is no env {index!r}; they are numbered from 0 to {len(self) - 1}")

    def _jobs(self, actions: Sequence[Actions] | Mapping[int, Actions]) -> list[_Job]:
        self._check_open()
        if isinstance(actions, Mapping):
            return [self._job(self._place(index), given) for index, given in actions.items()]
        actions = list(actions)
        if len(actions) != len(self):
            raise InvalidAction(
                f"VectorEnv: {len(actions)} dicts of actions for {len(self)} envs; to step some of them, give a dict "
                "of index to actions"
            )
        return list(map(self._job, self._places, actions))

    def _job(self, place: _Place, actions: Actions) -> _Job:
        index = place.index
        if index in self._outstanding:
            raise EnvError(f"VectorEnv: the last step of env {index} is outstanding; recv() its result first")
        if place.live:
            try:
                place.check(actions)
            except InvalidAction as error:
                raise InvalidAction(f"VectorEnv: env {index}: {error}") from error
            return place, dict(actions)
        if place.episode < 0:
            raise EpisodeOver(f"VectorEnv: env {index} was never reset; call reset() first")
        if self.autoreset == "off":
            raise EpisodeOver(
                f"VectorEnv: the episode of env {index} is over, and autoreset is off; reset(only=[{index}]) begins "
                "the next one. To step the others, give a dict of index to actions"
            )
        return place, {}

    # A step

    def _run(self, jobs: list[_Job]) -> list[Result]:
        self._start(jobs)
        indices = sorted(place.index for place, _ in jobs)
        self._wait_for(indices)
        return self._take(indices)

    def _start(self, jobs: list[_Job]) -> None:
        if self._threads:
            self._threads.grow(len(self._outstanding) - len(self._ready) + len(jobs))
        for place, actions in jobs:
            if self._threads:
                self._threads.start(place, actions)
            else:
                self._ready[place.index] = place.play(actions)
            self._outstanding.add(place.index)

    def _wait_for(self, indices: Iterable[int]) -> None:
        for index in indices:
            while index not in self._ready:
                self._wait()

    def _wait(self, timeout: float | None = None) -> None:
        if self._threads:  # without threads nobody waits: what was sent is ready
            self._threads.wait(timeout)
            self._check_open()  # another thread may have closed it meanwhile

    def _take(self, indices: list[int]) -> list[Result]:
        for index in indices:
            if isinstance(error := self._ready[index], BaseException):  # such as the SystemExit of sys.exit()
                self._drop({index})
                raise error
        self._outstanding.difference_update(indices)
        return [self._ready.pop(index) for index in indices]  # type: ignore[misc]

    def _drop(self, indices: set[int]) -> None:
        outstanding = self._outstanding & indices
        self._wait_for(outstanding)
        self._outstanding -= outstanding
        for index in outstanding:
            del self._ready[index]


class _Place:
    """One env of a vector: its episodes one after the other, and what it fails at.

    `play` runs in any thread; it and `close` exclude each other.
    """

    def __init__(self, index: int, make: Make, base_seed: int, same_step: bool) -> None:
        self.index = index
        self.env: MultiAgentEnv | None = None
        self.possible_agents: tuple[str, ...] | None = None  # what they must be, once that is known
        self.episode = -1
        self.live = False
        self._make, self._base_seed, self._same_step = make, base_seed, same_step
        self._own_seed: int | None = None
        self._seed = 0
        self._options: dict[str, Any] = {}
        self._broken = False
        self._closed = False
        self._lock = threading.Lock()

    def make_env(self) -> MultiAgentEnv:
        """Make the env; one that stands here already is closed."""
        self._release()
        self.env = env = self._make()
        if not isinstance(env, MultiAgentEnv):
            self.env = None
            raise ConfigError(f"VectorEnv: env {self.index} is no MultiAgentEnv; its make() gave {env!r}")
        if self.possible_agents not in (None, tuple(env.possible_agents)):
            raise ConfigError(
                f"VectorEnv: env {self.index} has the agents {list(env.possible_agents)}, those before it "
                f"{list(self.possible_agents or ())}; all envs of a vector have the same"
            )
        return env

    def prepare(self, base_seed: int | None, own_seed: int | None, options: Mapping[str, Any] | None) -> None:
        """The next `play` begins an episode, the first of a new seed if one is given, maybe with a seed of its own."""
        if base_seed is not None:
            self._base_seed, self.episode = base_seed, -1
        self._own_seed, self._options, self.live = own_seed, dict(options or {}), False

    def check(self, actions: Actions) -> None:
        """Refuse what a step would refuse, with InvalidAction."""
        if self.env is not None:
            self.env.check_actions(actions)

    def play(self, actions: dict[str, str]) -> Result:
        """Take a step or, where no episode is live, begin one."""
        with self._lock:
            if self._closed:
                raise EnvError(f"VectorEnv: env {self.index} was closed")
            if not self.live or self.env is None:
                return self._begin()
            result = self._step(self.env, actions)
            return self._go_on(result) if result.done and self._same_step else result

    def close(self, wait: bool = True) -> None:
        """Close the env for good; without waiting, only if nobody is at it."""
        if self._lock.acquire(blocking=wait):
            try:
                self._closed = True
                self._release()
            finally:
                self._lock.release()

    def _begin(self) -> Result:
        self.episode += 1
        own_seed, self._own_seed = self._own_seed, None
        self._seed = derive_seed(self._base_seed, self.index, self.episode) if own_seed is None else own_seed
        try:
            env = self.make_env() if self.env is None or self._broken else self.env
            self._broken = True  # until the reset has come to its end
            observations, infos = env.reset(self._seed, dict(self._options))
            zeros, noes = dict.fromkeys(env.agents, 0.0), dict.fromkeys(env.agents, False)
            return self._tell(env, observations, zeros, noes, noes.copy(), infos)
        except Exception as error:
            return self._fail(error)

    def _step(self, env: MultiAgentEnv, actions: dict[str, str]) -> Result:
        self._broken, self.live = True, False  # until the step has come to its end
        try:
            return self._tell(env, *env.step(actions))
        except Exception as error:
            return self._fail(error)

    def _go_on(self, ended: Result) -> Result:
        """Autoreset in the same step."""
        begun = self._begin()
        return Result(
            begun.index,
            begun.episode,
            begun.seed,
            begun.observations,
            ended.rewards,
            ended.terminations,
            ended.truncations,
            begun.infos,
            ended.returns,
            ended.done,
            ended.error or begun.error,
            final=ended,
        )

    def _tell(
        self,
        env: MultiAgentEnv,
        observations: Observations,
        rewards: dict[str, float],
        terminations: dict[str, bool],
        truncations: dict[str, bool],
        infos: Infos,
    ) -> Result:
        done = env.done
        result = Result(
            self.index,
            self.episode,
            self._seed,
            observations,
            rewards,
            terminations,
            truncations,
            infos,
            dict(env.returns),
            done,
        )
        self._broken, self.live = False, not done
        return result

    def _fail(self, error: Exception) -> Result:
        told = EpisodeError("env", type(error).__name__, str(error))
        return Result(self.index, self.episode, self._seed, done=True, error=told)

    def _release(self) -> None:
        """Close the env if there is one; what it cannot release is worth a warning."""
        env, self.env, self.live = self.env, None, False
        if env is not None:
            try:
                env.close()
            except Exception as error:
                warnings.warn(f"{env.scenario}: close() raised {error!r}", RuntimeWarning, stacklevel=2)


_Job: TypeAlias = tuple[_Place, dict[str, str]]


class _Threads:
    """Where envs take their steps: each in the thread that is free, first come, first served.

    Threads are made as they are needed, `most` at most. They are daemons, so that a step that never ends
    cannot keep the interpreter from its exit, and know nothing of the vector, so that it can be collected.
    A result is put into `ready` by the thread itself, so that none is lost if Ctrl-C breaks into a wait.
    """

    def __init__(self, most: int, ready: dict[int, Result | BaseException]) -> None:
        self._most, self._ready = most, ready
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()  # None: let a thread end
        self._wake: SimpleQueue[None] = SimpleQueue()  # something has ended since somebody last looked
        self._threads: list[threading.Thread] = []
        self._stopped = False

    def grow(self, running: int) -> None:
        """So many steps are about to run at once."""
        for number in range(len(self._threads), min(running, self._most)):
            thread = threading.Thread(target=self._work, name=f"marl_gem-vector-{number}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def start(self, place: _Place, actions: dict[str, str]) -> None:
        """Let a place play in a thread."""
        self._jobs.put((place, actions))

    def wait(self, timeout: float | None) -> None:
        """Until something may have ended since the last wait, or for so many seconds."""
        with suppress(Empty):
            self._wake.get(timeout=None if timeout is None else min(timeout, threading.TIMEOUT_MAX))

    def stop(self) -> None:
        """Begin no step any more, and let the threads end."""
        self._stopped = True
        for _ in self._threads:
            self._jobs.put(None)

    def join(self) -> None:
        """Wait until the threads have ended."""
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while job := self._jobs.get():
            place, actions = job
            if not self._stopped:
                self._play(place, actions)
            if self._stopped:
                place.close(wait=False)  # who stopped the threads may not have waited for this one
            if self._wake.empty():  # one waking is enough for all that have ended until it is heard
                self._wake.put(None)

    def _play(self, place: _Place, actions: dict[str, str]) -> None:
        try:
            self._ready[place.index] = place.play(actions)
        except BaseException as error:
            self._ready[place.index] = error


def _abandon(places: list[_Place], threads: _Threads | None) -> None:
    """Nobody closed the vector before it was collected, or before the interpreter's exit: wait for nothing."""
    if threads:
        threads.stop()
    for place in places:
        place.close(wait=False)
    warnings.warn(
        f"a VectorEnv of {len(places)} envs was never closed; write `with VectorEnv(...) as envs:` or call close()",
        ResourceWarning,
        stacklevel=2,
    )


def _make_all(places: list[_Place]) -> tuple[str, ...]:
    """Make all envs that can be made; gives the agents, which they have in common."""
    agents: tuple[str, ...] | None = None
    first: dict[int, int] = {}
    failures = []
    for place in places:
        place.possible_agents = agents
        try:
            env = place.make_env()
        except ConfigError:
            raise
        except Exception as error:
            failures.append(error)
            continue
        agents = tuple(env.possible_agents)
        if first.setdefault(id(env), place.index) != place.index:
            raise ConfigError(
                f"VectorEnv: env {place.index} is the same object as env {first[id(env)]}; "
                "make() must give a fresh one at every call"
            )
    if agents is None:
        raise failures[0]
    for place in places:
        place.possible_agents = agents
    return agents


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
