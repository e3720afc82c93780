"""A playthrough: one episode written as text, for people to read and for tests to replay.

    text = playthrough("game:KuhnPoker-v0", seed=3)
    assert replay(text) == text

It holds the roles and, of the first steps, each acting agent's observation, legal actions and action, and the
results. Each later step is one line, with a digest of its results. Long texts are cut, with a digest of the full text.
So any change of what an agent observes or gets changes the text.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias

from marl_gem import registry
from marl_gem.env import Infos, MultiAgentEnv, Observations
from marl_gem.errors import InvalidAction, RecordError
from marl_gem.testing.random_play import Actions, Player, snapshot
from marl_gem.types import Metadata, Observation, Role

FULL_STEPS = 6
"""The number of steps that are written in full."""

_LONGEST = 800
_MOST_LINES = 16
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\xa0\xad\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ud800-\udfff]")
_FULL_STEP = re.compile(r"step (\d+)$")
_SAYS = re.compile(r'(\S.*?) says (".*")$')
_BRIEF_STEP = re.compile(r"(\d+) (\{.*\}) [0-9a-f]{8}$")

Script: TypeAlias = Callable[[MultiAgentEnv, Observations, Infos], Actions | None]
"""Gives the next actions; None at the end."""


def playthrough(id: str, seed: int = 0, *, steps: int = 40, options: Mapping[str, Any] | None = None) -> str:
    """Play a scenario at random, with legal actions if they are listed, and write what happens as text.

    Args:
        id: a scenario's id.
        seed: of the episode and of the random actions.
        steps: at most this many.
        options: are passed to `make`.

    Raises:
        RegistryError: there is no such scenario, or not here.
    """
    player = Player(seed, noise=0.0)
    return _write(
        id, seed, options or {}, lambda env, seen, infos: player.act(env, seen, infos) if env.steps < steps else None
    )


def replay(text: str) -> str:
    """Play the actions of a playthrough again, and give the text as it is now. It stops where actions no longer fit.

    Raises:
        RecordError: the text is no playthrough.
        RegistryError: there is no such scenario, or not here.
    """
    head, script = _read(text)
    actions = iter(script)
    return _write(head["scenario"], head["seed"], head["options"], lambda *_: next(actions, None))


def playthrough_file(id: str) -> Path:
    """The path of a scenario's playthrough in a folder of them: `game/KuhnPoker-v0.txt`."""
    family, _, name = id.partition(":")
    return Path(family) / f"{re.sub(r'[^A-Za-z0-9._-]', '_', name)}.txt"


# Reading


def _read(text: str) -> tuple[dict[str, Any], list[Actions]]:
    """The head, and the actions of every step."""
    lines = text.splitlines()
    try:
        head = dict(line.split(": ", 1) for line in lines[: lines.index("")] if not line.startswith("#"))
        values = {
            "scenario": head["scenario"],
            "seed": int(head["seed"]),
            "options": json.loads(head.get("options", "{}")),
        }
        return values, _actions(lines)
    except (ValueError, KeyError, IndexError) as error:
        raise RecordError(f"this is no playthrough: {error!r}. Make one with: marl-gem playthrough ID") from error


def _actions(lines: list[str]) -> list[Actions]:
    script: list[Any] = []
    for line in lines:
        if _FULL_STEP.match(line):
            script.append({})
        elif says := _SAYS.match(line):
            script[-1][says[1]] = json.loads(says[2])
        elif brief := _BRIEF_STEP.match(line):
            script.append(json.loads(brief[2]))
    return script


# Writing


def _write(id: str, seed: int, options: Mapping[str, Any], script: Script) -> str:
    with closing(registry.make(id, **options)) as env:
        return "\n".join(_episode(env, id, seed, options, script)) + "\n"


def _episode(env: MultiAgentEnv, id: str, seed: int, options: Mapping[str, Any], script: Script) -> Iterator[str]:
    yield from _head(env, id, seed, options)
    observations, infos = env.reset(seed=seed)
    seen: set[str] = set()
    cut = False
    while not env.done:
        for agent in [agent for agent in env.agents if agent not in seen]:
            seen.add(agent)
            yield from ("", *_role(agent, env.role(agent)))
        actions = script(env, observations, infos)
        if actions is None:
            break
        full = env.steps < FULL_STEPS
        if full:
            yield from ("", f"step {env.steps + 1}", *_turns(observations, infos, actions))
        try:
            step = env.step(actions)
        except InvalidAction as error:
            yield f"cannot go on: {error}"
            return
        observations, *_, infos = step
        if not full:
            yield from [] if cut else [""]
            cut = True
            yield f"{env.steps} {json.dumps(dict(actions))} {_digest(_canonical(snapshot(env, actions, *step)))}"
        yield from _outcome(env, step, full)
    yield from ("", f"{'over' if env.done else 'stopped'} after {env.steps} steps", f"returns: {_signed(env.returns)}")


def _head(env: MultiAgentEnv, id: str, seed: int, options: Mapping[str, Any]) -> Iterator[str]:
    given = "".join(f" -o {shlex.quote(f'{name}={json.dumps(options[name])}')}" for name in sorted(options))
    yield "# What happened, and must happen again. Made by:"
    yield f"#   marl-gem playthrough {id} --seed {seed}{given}"
    yield f"scenario: {id}"
    if options:
        yield f"options: {_canonical(options)}"
    yield f"seed: {seed}"
    yield f"agents: {', '.join(env.possible_agents)}"
    yield f"metadata: {_metadata_text(env.metadata)}"


def _metadata_text(metadata: Metadata) -> str:
    parts = ["zero-sum" if metadata.zero_sum else ""] if metadata.zero_sum is not False else ["not zero-sum"]
    parts.append(metadata.turn_order or "")
    if metadata.reward_range:
        parts.append("rewards from {:g} to {:g}".format(*metadata.reward_range))
    parts.append("agents may join" if metadata.joins else "")
    return ", ".join(filter(None, parts)) or "none declared"


def _role(agent: str, role: Role) -> Iterator[str]:
    yield f"role of {agent}"
    yield from _block(role.instructions)
    for tool in role.tools:
        yield f"  tool {tool.name}: {_cut(_canonical(tool.parameters))}"
        yield from _block(tool.description)


def _turns(observations: Observations, infos: Infos, actions: Actions) -> Iterator[str]:
    for agent, action in actions.items():
        if agent in observations:
            yield f"{agent} sees"
            yield from _block(observations[agent])
        if legal := infos.get(agent, {}).get("legal_actions"):
            shown = ", ".join(map(_escape, legal[:8]))
            rest = f", ... {len(legal)} in all {_digest(_canonical(legal))}" if len(legal) > 8 else ""
            yield f"  legal: {shown}{rest}"
        yield f"{agent} says {json.dumps(action)}"


def _outcome(env: MultiAgentEnv, step: tuple[Any, ...], full: bool) -> Iterator[str]:
    """Rewards other than 0, agents that ended, and infos; of a step that is not written in full only the last infos."""
    _, rewards, terminations, truncations, infos = step
    if any(rewards.values()):
        yield f"rewards: {_signed(rewards)}"
    for agent, info in infos.items():
        ended = terminations[agent] or truncations[agent]
        rest = {key: value for key, value in info.items() if key not in ("legal_actions", "final_observation")}
        if rest and (full or ended):
            yield f"info of {agent}: {_cut(_escape(_canonical(rest)))}"
        if ended:
            yield f"{agent} is {'terminated' if terminations[agent] else 'truncated'} and sees"
            yield from _block(info["final_observation"])


def _signed(numbers: Mapping[str, float]) -> str:
    return ", ".join(f"{agent} {number:+g}" for agent, number in numbers.items())


# Text


def _block(observation: Observation) -> Iterator[str]:
    """An indented text, cut if it is long, with a digest of the full text."""
    text = observation if isinstance(observation, str) else "\n".join(map(_part, observation))
    lines = text[:_LONGEST].split("\n")[:_MOST_LINES] if text else []
    yield from (f"  | {_escape(line)}".rstrip() for line in lines)
    if (shown := len("\n".join(lines))) < len(text):
        yield f"  ... {len(text) - shown} more characters; all of it is {_digest(text)}"


def _part(part: Mapping[str, Any]) -> str:
    return str(part["text"]) if part.get("type") == "text" else _cut(_canonical(part))


def _cut(text: str) -> str:
    return (
        text
        if len(text) <= 300
        else f"{text[:240]} ... {len(text) - 240} more characters; all of it is {_digest(text)}"
    )


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def _escape(text: str) -> str:
    """Write characters that an editor would not show as Python escapes them."""
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
