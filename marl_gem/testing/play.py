"""Random play that can be seen again, and records of it that can be compared."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import zip_longest
from reprlib import Repr
from typing import Any, TypeAlias

from marl_gem.env import MultiAgentEnv
from marl_gem.errors import PromiseBroken
from marl_gem.seeding import derive_seed
from marl_gem.types import Observation, Role, ToolSpec

Make: TypeAlias = Callable[[], MultiAgentEnv]
Actions: TypeAlias = Mapping[str, str]
Snapshot: TypeAlias = dict[str, Any]

SMALL_TALK = ("yes", "no", "1", "2", "A", "I pass.", "What do you think?", "I agree.")
_BRACKETED = re.compile(r"\[[^\[\]\n]{1,40}\]")
_BRACKETED_WITHIN_A_LINE = re.compile(r"(?<=[^\n])\[[^\[\]\n]{1,40}\]")


@dataclass(frozen=True)
class Plan:
    """How much the checks play.

    `seeds`: the episodes; `steps`: how far each is played at most; `copies`: how many run side by side;
    `seconds`: the longest that an env may take over one action.
    """

    seeds: tuple[int, ...] = (0, 1, 2)
    steps: int = 100
    copies: int = 32
    seconds: float = 5.0


THOROUGH = Plan()


class PlayFailed(PromiseBroken):
    """The env raised where a check only wanted to play."""


class Parted(PromiseBroken):
    """Two episodes that should be one and the same went different ways."""


# Playing


@dataclass(frozen=True)
class Moment:
    """What `reset` (step 0) or a step gave, and what had been said up to there."""

    seed: int
    step: int
    alive: tuple[str, ...]
    """Who was alive when the step began."""
    history: Sequence[Actions]
    observations: dict[str, Observation]
    rewards: dict[str, float]
    terminations: dict[str, bool]
    truncations: dict[str, bool]
    infos: dict[str, dict[str, Any]]

    @property
    def actions(self) -> Actions:
        """What was said in this step."""
        return self.history[self.step - 1] if self.step else {}

    def broken(self, what: str) -> PromiseBroken:
        """A promise was broken here."""
        return PromiseBroken(f"{what}\n{where(self.seed, self.history[: self.step])}")


def episodes(make: Make, plan: Plan, noise: float = 0.1) -> Iterator[tuple[MultiAgentEnv, Moment]]:
    """All that the plan has to play, moment for moment."""
    for seed in plan.seeds:
        with closing(make()) as env:
            for moment in play(env, seed, plan.steps, noise):
                yield env, moment


def play(env: MultiAgentEnv, seed: int, steps: int, noise: float = 0.1) -> Iterator[Moment]:
    """Reset and play at random, one moment after the other.

    The same seed and the same observations lead to the same actions. Whoever reads may look at `env` in
    between. `noise` is how often an agent says just anything.

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
        raise PlayFailed(f"{in_one_line(error)}\n{where(seed, history)}") from error


class Player:
    """Plays all seats at random, each with dice of its own."""

    def __init__(self, seed: int, noise: float) -> None:
        self._seed, self._noise = seed, noise
        self._dice: dict[str, random.Random] = {}
        self._roles: dict[str, Role] = {}

    def act(self, env: MultiAgentEnv, observations: Mapping[str, Observation], infos: Mapping[str, Any]) -> Actions:
        """Something to say for everybody who acts."""
        for agent in env.acting:
            if agent not in self._dice:
                self._dice[agent] = random.Random(derive_seed(self._seed, agent))
                self._roles[agent] = env.role(agent)
        return {
            agent: choose(self._dice[agent], self._roles[agent], observations[agent], infos.get(agent), self._noise)
            for agent in env.acting
        }


def choose(dice: random.Random, role: Role, observation: Observation, info: Any, noise: float = 0.0) -> str:
    """A legal action if they are listed, a call of a tool, something in brackets that was shown, or small talk."""
    if dice.random() < noise:
        return dice.choice(SMALL_TALK)
    if isinstance(info, Mapping) and info.get("legal_actions"):
        return str(dice.choice(info["legal_actions"]))
    if isinstance(role, Role) and role.tools and dice.random() < 0.5:
        return _call(dice, dice.choice(role.tools))
    shown = f"{role.instructions if isinstance(role, Role) else ''}\n{observation}"
    # What stands at the start of a line is mostly the name of who speaks.
    in_brackets = _BRACKETED_WITHIN_A_LINE.findall(shown) or _BRACKETED.findall(shown)
    return str(dice.choice(in_brackets or SMALL_TALK))


def _call(dice: random.Random, tool: ToolSpec) -> str:
    """A call whose arguments fit the tool's schema, as far as its types go."""
    properties = tool.parameters.get("properties") or {}
    arguments = {name: _argument(dice, schema) for name, schema in properties.items()}
    return f"<tool_call>{json.dumps({'name': tool.name, 'arguments': arguments})}</tool_call>"


def _argument(dice: random.Random, schema: Mapping[str, Any]) -> Any:
    if "enum" in schema:
        return dice.choice(schema["enum"])
    ready = {
        "integer": dice.randrange(10),
        "number": dice.random(),
        "boolean": dice.random() < 0.5,
        "array": [],
        "object": {},
    }
    return ready.get(str(schema.get("type")), dice.choice(SMALL_TALK))


# Comparing


def trace(
    env: MultiAgentEnv, seed: int, steps: int, between: Callable[[Moment], object] | None = None
) -> Iterator[Snapshot]:
    """All that happens in an episode of random play, in a form that can be compared.

    `between` is called after every moment.
    """
    for moment in play(env, seed, steps):
        four = (moment.rewards, moment.terminations, moment.truncations, moment.infos)
        yield snapshot(env, moment.actions, moment.observations, *four)
        if between:
            between(moment)


def replay(env: MultiAgentEnv, actions: Iterable[Actions]) -> Iterator[Snapshot]:
    """What comes of saying these things, one step after the other."""
    for said in actions:
        yield snapshot(env, said, *env.step(said))


def snapshot(env: MultiAgentEnv, actions: Any, observations: Any, *four: Any) -> Snapshot:
    """What a step gave, and what everybody can see of the env afterwards."""
    names = ("rewards", "terminations", "truncations", "infos")
    parts = {"actions": actions, "observations": observations, **dict(zip(names, four, strict=True))}
    parts |= {"agents": env.agents, "acting": env.acting, "returns": env.returns}
    return {name: as_data(part) for name, part in parts.items()}


def must_equal(seed: int, expected: Sequence[Snapshot], found: Iterable[Snapshot], what: str) -> None:
    """Two episodes are the same; `what` says what was done to the second.

    Raises:
        Parted: they are not, or the second one could not be played.
    """
    history: list[Actions] = []
    try:
        for step, (one, other) in enumerate(zip_longest(expected, found)):
            history += [one["actions"]] if one and step else []
            if one is None or other is None:
                raise Parted(f"{what}: it is {'longer' if one is None else 'shorter'}\n{where(seed, history)}")
            for name in one:
                if one[name] != other[name]:
                    unlike = f"at step {step} {name} are {_unlike(one[name], other[name])}"
                    raise Parted(f"{what}: {unlike}\n{where(seed, history)}")
    except PlayFailed as error:
        raise Parted(f"{what}: it fails with {error}") from error


def _unlike(one: Any, other: Any) -> str:
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        key = next(key for key in one if one[key] != other[key])
        return f"{short(other[key])} for {key!r} instead of {short(one[key])}"
    return f"{short(other)} instead of {short(one)}"


def as_data(value: Any) -> Any:
    """A copy that equals another if both show the same; an object that is no data is told by its type."""
    if isinstance(value, Mapping):
        return {str(key): as_data(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [as_data(part) for part in value]
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    if isinstance(value, float) and value != value:
        return "nan"
    return value if value is None or isinstance(value, str | int | float) else f"a {type(value).__name__}"


# Telling


def where(seed: int, history: Sequence[Actions]) -> str:
    """How to get there again."""
    said = ", ".join(short(dict(actions)) for actions in history[-8:])
    earlier = f"{len(history) - 8} earlier ones, " if len(history) > 8 else ""
    return f"seed {seed}, step {len(history)}" + (f", after the actions {earlier}{said}" if said else "")


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
