"""One env of a vector: its episodes one after the other, and its failures as results."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from marl_gem.env import Infos, MultiAgentEnv, Observations
from marl_gem.errors import ConfigError, EnvError, ScenarioFault
from marl_gem.faults import close_env, message_of, shown
from marl_gem.seeding import derive_seed
from marl_gem.step_results import as_reset, as_step
from marl_gem.types import EpisodeError
from marl_gem.vector.result import Result

Make: TypeAlias = Callable[[], MultiAgentEnv]
Actions: TypeAlias = Mapping[str, str]


class Slot:
    """An env at one index of a vector. A broken env is made anew for its next episode.

    `play` may run in any thread; it and `close` exclude each other. Whatever the env's code raises is a result
    with an error, SystemExit included; KeyboardInterrupt alone passes through.
    """

    def __init__(self, index: int, make: Make, base_seed: int, same_step: bool) -> None:
        self.index = index
        self.env: MultiAgentEnv | None = None
        self.possible_agents: tuple[str, ...] | None = None  # the agents all envs of the vector have, once known
        self.episode = -1
        self.live = False
        self._make, self._base_seed, self._same_step = make, base_seed, same_step
        self._next_seed: int | None = None  # of the next episode, if it is given and not derived
        self._seed = 0
        self._options: dict[str, Any] = {}
        self._broken = False
        self._closed = False
        self._lock = threading.Lock()

    def make_env(self) -> MultiAgentEnv:
        """Make the env; an earlier one is closed first."""
        self._release()
        self.env = env = self._make()
        if not issubclass(type(env), MultiAgentEnv):
            self.env = None
            raise ConfigError(f"VectorEnv: env {self.index} is no MultiAgentEnv; its make() gave {shown(env)}")
        if self.possible_agents not in (None, tuple(env.possible_agents)):
            raise ConfigError(
                f"VectorEnv: env {self.index} has the agents {list(env.possible_agents)}, those before it "
                f"{list(self.possible_agents or ())}; all envs of a vector have the same"
            )
        return env

    def prepare(self, base_seed: int | None, next_seed: int | None, options: Mapping[str, Any] | None) -> None:
        """Let the next `play` begin an episode.

        Args:
            base_seed: what the seeds derive from now, with episodes counted from 0 again; None keeps the last.
            next_seed: the seed of the next episode, if it is not to be derived.
            options: for this reset and those that follow until the next `prepare`.
        """
        if base_seed is not None:
            self._base_seed, self.episode = base_seed, -1
        self._next_seed, self._options, self.live = next_seed, dict(options or {}), False

    def check(self, actions: Actions) -> None:
        """Raise InvalidAction if a step would; change nothing."""
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
            return self._autoreset(result) if result.done and self._same_step else result

    def close(self, wait: bool = True) -> None:
        """Close the env for good. Without waiting it is closed only if it is not in use."""
        if self._lock.acquire(blocking=wait):
            try:
                self._closed = True
                self._release()
            finally:
                self._lock.release()

    def _begin(self) -> Result:
        self.episode += 1
        given, self._next_seed = self._next_seed, None
        self._seed = derive_seed(self._base_seed, self.index, self.episode) if given is None else given
        try:
            env = self.make_env() if self.env is None or self._broken else self.env
            self._broken = True  # until the reset has returned
            observations, infos = as_reset(env.reset(self._seed, dict(self._options)), env.scenario)
            rewards, terminations = dict.fromkeys(env.agents, 0.0), dict.fromkeys(env.agents, False)
            return self._result(env, observations, rewards, terminations, terminations.copy(), infos)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return self._failed(error)

    def _step(self, env: MultiAgentEnv, actions: dict[str, str]) -> Result:
        self._broken, self.live = True, False  # until the step has returned
        try:
            return self._result(env, *as_step(env.step(actions), env.scenario))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return self._failed(error)

    def _autoreset(self, ended: Result) -> Result:
        """Begin the next episode in the step that ended one."""
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

    def _result(
        self,
        env: MultiAgentEnv,
        observations: Observations,
        rewards: dict[str, float],
        terminations: dict[str, bool],
        truncations: dict[str, bool],
        infos: Infos,
    ) -> Result:
        done = bool(env.done)
        if not (done or observations):
            raise ScenarioFault(f"{env.scenario}: the episode is not over, but no agent observes anything")
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

    def _failed(self, error: BaseException) -> Result:
        record = EpisodeError("env", type(error).__name__, message_of(error))
        return Result(self.index, self.episode, self._seed, done=True, error=record)

    def _release(self) -> None:
        """Close the env if there is one; a failure to close it is a warning."""
        env, self.env, self.live = self.env, None, False
        if env is not None:
            close_env(env)


def make_all(slots: Sequence[Slot]) -> tuple[str, ...]:
    """Make all envs that can be made; the others are tried again at their first reset.

    Returns:
        The agents that all envs have.

    Raises:
        ConfigError: two envs differ in their agents or are one object, or a `make` gave something else.
        BaseException: what the first `make` raised, if all of them failed.
    """
    agents: tuple[str, ...] | None = None
    first: dict[int, int] = {}
    failures: list[BaseException] = []
    for slot in slots:
        slot.possible_agents = agents
        try:
            env = slot.make_env()
        except (ConfigError, KeyboardInterrupt):
            raise
        except BaseException as error:
            failures.append(error)
            continue
        agents = tuple(env.possible_agents)
        if first.setdefault(id(env), slot.index) != slot.index:
            raise ConfigError(
                f"VectorEnv: env {slot.index} is the same object as env {first[id(env)]}; "
                "make() must give a fresh one at every call"
            )
    if agents is None:
        raise failures[0]
    for slot in slots:
        slot.possible_agents = agents
    return agents
