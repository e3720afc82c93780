"""A playthrough: one episode written down as text, to be read by people and replayed by tests.

    text = playthrough("game:KuhnPoker-v0", seed=3)
    assert replay(text) == text

It tells the roles, and for the first steps who sees, may do and says what, and what comes of it; later steps take
a line each, with a digest of all that came of them. Long texts are cut, with a digest of the whole. So whatever an
agent is shown or given, a change of it changes the text.
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
from marl_gem.testing.play import Actions, Player, snapshot
from marl_gem.types import Metadata, Observation, Role

TOLD_IN_FULL = 6
"""How many steps are told in full."""

_LONGEST = 800
_MOST_LINES = 16
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\xa0\xad\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ud800-\udfff]")
_FULL_STEP = re.compile(r"step (\d+)$")
_SAYS = re.compile(r'(\S.*?) says (".*")$')
_BRIEF_STEP = re.compile(r"(\d+) (\{.*\}) [0-9a-f]{8}$")

Script: TypeAlias = Callable[[MultiAgentEnv, Observations, Infos], Actions | None]
"""What is said next; None if nothing more is."""


def playthrough(id: str, seed: int = 0, *, steps: int = 40, options: Mapping[str, Any] | None = None) -> str:
    """Play a scenario at random, by legal actions where they are listed, and write down what happens.

    Args:
        id: a scenario's id; `options` are passed to `make`.
        seed: fixes the episode and what is said in it.
        steps: how many are played at most.

    Raises:
        RegistryError: there is no such scenario, or not here.
    """
    player = Player(seed, noise=0.0)
    return _write(
        id, seed, options or {}, lambda env, seen, infos: player.act(env, seen, infos) if env.steps < steps else None
    )


def replay(text: str) -> str:
    """Play again what a playthrough tells; the text as it reads now. It stops where the actions no longer fit.

    Raises:
        RecordError: the text is no playthrough.
        RegistryError: there is no such scenario, or not here.
    """
    head, script = _read(text)
    actions = iter(script)
    return _write(head["scenario"], head["seed"], head["options"], lambda *_: next(actions, None))


def playthrough_file(id: str) -> Path:
    """Where the playthrough of a scenario lies in a folder of them: `game/KuhnPoker-v0.txt`."""
    family, _, name = id.partition(":")
    return Path(family) / f"{re.sub(r'[^A-Za-z0-9._-]', '_', name)}.txt"


# Reading


def _read(text: str) -> tuple[dict[str, Any], list[Actions]]:
    """The head, and what was said in every step."""
    lines = text.splitlines()
    try:
        head = dict(line.split(": ", 1) for line in lines[: lines.index("")] if not line.startswith("#"))
        told = {
            "scenario": head["scenario"],
            "seed": int(head["seed"]),
            "options": json.loads(head.get("options", "{}")),
        }
        return told, _said(lines)
    except (ValueError, KeyError, IndexError) as error:
        raise RecordError(f"this is no playthrough: {error!r}. Make one with: marl-gem playthrough ID") from error


def _said(lines: list[str]) -> list[Actions]:
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
    met: set[str] = set()
    cut = False
    while not env.done:
        for agent in [agent for agent in env.agents if agent not in met]:
            met.add(agent)
            yield from ("", *_role(agent, env.role(agent)))
        actions = script(env, observations, infos)
        if actions is None:
            break
        full = env.steps < TOLD_IN_FULL
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
    told = ["zero-sum" if metadata.zero_sum else ""] if metadata.zero_sum is not False else ["not zero-sum"]
    told.append(metadata.turn_order or "")
    if metadata.reward_range:
        told.append("rewards from {:g} to {:g}".format(*metadata.reward_range))
    told.append("agents may join" if metadata.joins else "")
    return ", ".join(filter(None, told)) or "none declared"


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
    """Rewards that are not 0, who ended, and what was told; of a step told in brief, no infos but those at an end."""
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
    """A text set in, cut if it is long, with a digest of the whole."""
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
    """Characters that an editor would not show, written as Python writes them."""
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
