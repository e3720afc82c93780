"""Reproducible random play, and snapshots of it that can be compared."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import zip_longest
from reprlib import Repr
from types import NoneType
from typing import Any, TypeAlias

from marl_gem.env import MultiAgentEnv
from marl_gem.errors import PromiseBroken
from marl_gem.policies.random import SMALL_TALK, babble
from marl_gem.seeding import derive_seed
from marl_gem.types import Observation, Role

Make: TypeAlias = Callable[[], MultiAgentEnv]
Actions: TypeAlias = Mapping[str, str]
Snapshot: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """How much the checks play."""

    # The seeds of the episodes; at least one.
    seeds: tuple[int, ...] = (0, 1, 2)

    # Each episode is played for this many steps at most.
    steps: int = 100

    # This many envs run side by side.
    copies: int = 32

    # An env may take this long over one action, in seconds.
    seconds: float = 5.0


THOROUGH = Plan()


class PlayFailed(PromiseBroken):
    """The env raised while a check was only playing it."""


class EpisodesDiffer(PromiseBroken):
    """Two episodes that should be equal differ."""


# Playing


@dataclass(frozen=True)
class Moment:
    """What `reset` (step 0) or a step returned, and the actions up to there."""

    seed: int
    step: int
    alive: tuple[str, ...]
    """The agents that were alive when the step began."""
    history: Sequence[Actions]
    observations: dict[str, Observation]
    rewards: dict[str, float]
    terminations: dict[str, bool]
    truncations: dict[str, bool]
    infos: dict[str, dict[str, Any]]

    @property
    def actions(self) -> Actions:
        """The actions of this step."""
        return self.history[self.step - 1] if self.step else {}

    def broken(self, what: str) -> PromiseBroken:
        """The error that says that a promise is broken here."""
        return PromiseBroken(f"{what}\n{reproduce(self.seed, self.history[: self.step])}")


def moments(make: Make, plan: Plan, noise: float = 0.1) -> Iterator[tuple[MultiAgentEnv, Moment]]:
    """All moments of all episodes of the plan."""
    for seed in plan.seeds:
        with closing(make()) as env:
            for moment in play_randomly(env, seed, plan.steps, noise):
                yield env, moment


def play_randomly(env: MultiAgentEnv, seed: int, steps: int, noise: float = 0.1) -> Iterator[Moment]:
    """Reset and play at random; yields a moment after the reset and after each step.

    The same seed and the same observations lead to the same actions. The caller may look at `env` between moments.

    Args:
        env: is reset with `seed`.
        seed: of the episode and of the random actions.
        steps: at most this many.
        noise: the probability, from 0 to 1, that an agent gives a text that the scenario does not ask for.

    Raises:
        PlayFailed: the env raised.
    """
    history: list[Actions] = []
    player = Player(seed, noise)
    try:
        observations, infos = env.reset(seed=seed)
        yield Moment(seed, 0, env.agents, history, observations, {}, {}, {}, infos)
        while not env.done and len(history) < steps:
            alive = env.agents
            history.append(player.act(env, observations, infos))
            step = env.step(history[-1])
            observations, *_, infos = step
            yield Moment(seed, len(history), alive, history, *step)
    except PromiseBroken:
        raise
    except (Exception, SystemExit) as error:
        raise PlayFailed(f"{in_one_line(error)}\n{reproduce(seed, history)}") from error


class Player:
    """Plays all agents at random, each with its own random generator."""

    def __init__(self, seed: int, noise: float) -> None:
        self._seed, self._noise = seed, noise
        self._rngs: dict[str, random.Random] = {}
        self._roles: dict[str, Role] = {}

    def act(self, env: MultiAgentEnv, observations: Mapping[str, Observation], infos: Mapping[str, Any]) -> Actions:
        """An action for every acting agent."""
        for agent in env.acting:
            if agent not in self._rngs:
                self._rngs[agent] = random.Random(derive_seed(self._seed, agent))
                self._roles[agent] = env.role(agent)
        return {
            agent: random_action(
                self._rngs[agent], self._roles[agent], observations[agent], infos.get(agent), self._noise
            )
            for agent in env.acting
        }


def random_action(rng: random.Random, role: Role, observation: Observation, info: Any, noise: float = 0.0) -> str:
    """A legal action if they are listed, else babble; small talk with the probability `noise`."""
    if rng.random() < noise:
        return rng.choice(SMALL_TALK)
    if isinstance(info, Mapping) and info.get("legal_actions"):
        return str(rng.choice(info["legal_actions"]))
    return babble(rng, role if isinstance(role, Role) else Role(), observation)


# Comparing


def snapshots(
    env: MultiAgentEnv, seed: int, steps: int, between: Callable[[Moment], object] | None = None
) -> Iterator[Snapshot]:
    """Snapshots of an episode of random play. `between` is called after every moment."""
    for moment in play_randomly(env, seed, steps):
        four = (moment.rewards, moment.terminations, moment.truncations, moment.infos)
        yield snapshot(env, moment.actions, moment.observations, *four)
        if between:
            between(moment)


def apply_actions(env: MultiAgentEnv, actions: Iterable[Actions]) -> Iterator[Snapshot]:
    """Snapshots of the steps that these actions give."""
    for step in actions:
        yield snapshot(env, step, *env.step(step))


def snapshot(env: MultiAgentEnv, actions: Any, observations: Any, *four: Any) -> Snapshot:
    """What a step returned, and the public state of the env after it, in a form that can be compared."""
    names = ("rewards", "terminations", "truncations", "infos")
    parts = {"actions": actions, "observations": observations, **dict(zip(names, four, strict=True))}
    parts |= {"agents": env.agents, "acting": env.acting, "returns": env.returns}
    return {name: as_data(part) for name, part in parts.items()}


def must_equal(seed: int, expected: Sequence[Snapshot], found: Iterable[Snapshot], what: str) -> None:
    """Compare two episodes, snapshot by snapshot.

    Args:
        seed: of the episode, for the message.
        expected, found: the snapshots.
        what: the start of the message: what was done when the second episode was played.

    Raises:
        EpisodesDiffer: they differ, or the second one could not be played.
    """
    history: list[Actions] = []
    try:
        for step, (left, right) in enumerate(zip_longest(expected, found)):
            history += [left["actions"]] if left and step else []
            if left is None or right is None:
                raise EpisodesDiffer(
                    f"{what}: it is {'longer' if left is None else 'shorter'}\n{reproduce(seed, history)}"
                )
            for name in left:
                if left[name] != right[name]:
                    difference = f"at step {step} {name} are {_difference(left[name], right[name])}"
                    raise EpisodesDiffer(f"{what}: {difference}\n{reproduce(seed, history)}")
    except PlayFailed as error:
        raise EpisodesDiffer(f"{what}: it fails with {error}") from error


def _difference(left: Any, right: Any) -> str:
    if isinstance(left, dict) and isinstance(right, dict) and left.keys() == right.keys():
        key = next(key for key in left if left[key] != right[key])
        return f"{short(right[key])} for {key!r} instead of {short(left[key])}"
    return f"{short(right)} instead of {short(left)}"


PLAIN = (str, int, bool, NoneType)


def as_data(value: Any) -> Any:
    """A copy as plain data that can be compared; an object that is no plain data becomes the name of its type."""
    if type(value) in PLAIN:  # most parts are, and to ask for a Mapping takes long
        return value
    if isinstance(value, Mapping):
        return {str(key): as_data(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [as_data(part) for part in value]
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    if isinstance(value, float) and value != value:
        return "nan"
    return value if value is None or isinstance(value, str | int | float) else f"a {type(value).__name__}"


# Messages


def reproduce(seed: int, history: Sequence[Actions]) -> str:
    """The seed, step and actions that lead to a moment, for an error message."""
    actions = ", ".join(short(dict(actions)) for actions in history[-8:])
    earlier = f"{len(history) - 8} earlier ones, " if len(history) > 8 else ""
    return f"seed {seed}, step {len(history)}" + (f", after the actions {earlier}{actions}" if actions else "")


def in_one_line(error: BaseException) -> str:
    """An exception in one line of bounded length."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text if len(text) < 400 else text[:400] + '...'}"


def short(value: object) -> str:
    """A value as text of bounded length."""
    brief = Repr()
    brief.maxstring = brief.maxother = 100
    brief.maxdict = brief.maxlist = brief.maxtuple = brief.maxset = 12
    return brief.repr(value)
