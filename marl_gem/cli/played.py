"""Episodes in the terminal as they are played: rounds, who speaks, who hears it, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from rich.text import Text

from marl_gem.cli.terminal import out, plain
from marl_gem.env import Infos, MultiAgentEnv, Observations
from marl_gem.runs.parts import Part
from marl_gem.types import Episode
from marl_gem.viewer.messages import ShownPart
from marl_gem.viewer.transcript import ShownTurn, transcript
from marl_gem.views import as_text
from marl_gem.wrappers.base import AroundStep, Wrapper

NAMED = 6
"""So many agents are named in a line."""


class Rounds(Wrapper):
    """Says whose turn it is while people play.

    Args:
        env: the env.
        people: the agents that people play.
    """

    def __init__(self, env: MultiAgentEnv, people: Collection[str]) -> None:
        super().__init__(env)
        self._people = people

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Observations, Infos]:
        results = super().reset(seed, options)
        self._announce()
        return results

    def around_step(self, actions: Mapping[str, str]) -> AroundStep:
        step = yield actions
        self._announce()
        return step

    def _announce(self) -> None:
        acting = self.env.acting
        if acting:
            names = [f"{agent} (you)" if agent in self._people else agent for agent in acting]
            _show_round(self.env.steps + 1, names)


def show_episode(episode: Episode) -> None:
    """An episode that policies played: each message once, with who heard it."""
    shown = transcript(episode)
    rounds: list[list[ShownTurn]] = []
    for turn in shown.turns:
        if rounds and turn.step and turn.step == rounds[-1][-1].step:
            rounds[-1].append(turn)
        else:
            rounds.append([turn])
    for number, turns in enumerate(rounds, 1):
        _show_round(number, [turn.agent for turn in turns])
        for text, agents in _seen(turns):
            out.print(plain(f"{_names(agents)} {'see' if len(agents) > 1 else 'sees'}: {text}", "dim"))
        for turn in turns:
            _show_turn(turn, episode.models.get(turn.agent, ""))
    show_end(episode, ())


def show_end(episode: Episode, people: Sequence[str]) -> None:
    """How an episode ended, with what people saw last."""
    for agent in people:
        info = episode.final_infos.get(agent, {})
        if "final_observation" in info:
            out.print(plain(as_text(info["final_observation"])))
    for agent, info in episode.final_infos.items():
        if reason := info.get("illegal") or info.get("reason"):
            out.print(plain(f"{agent}: {reason}"))
    returns = ", ".join(f"{agent} {value:+g}" for agent, value in episode.returns.items())
    out.print(Text.assemble((episode.ending, "bold"), plain(f" after {len(episode.turns)} turns: {returns}")))


def _show_round(number: int, acting: Sequence[str]) -> None:
    out.print(plain(f"-- round {number}: {_names(acting)}{' together' if len(acting) > 1 else ''}", "bold"))


def _seen(turns: Iterable[ShownTurn]) -> list[tuple[str, list[str]]]:
    """What agents are newly shown in a round, each text once, with who sees it; what others said is left out."""
    found: dict[str, list[str]] = {}
    for turn in turns:
        texts = [_part_text(part) for part in turn.observation if _is_new(part)]
        if texts:
            found.setdefault("\n".join(texts), []).append(turn.agent)
    return list(found.items())


def _is_new(part: ShownPart) -> bool:
    return part.kind == "result" or not part.turn


def _show_turn(turn: ShownTurn, who: str) -> None:
    """Who says what to whom, and what is wrong with it."""
    hearers = f" to {_names(turn.heard)}" if turn.heard else ""
    head = Text.assemble(plain(turn.agent, "bold"), plain(f" ({who}){hearers}: "))
    out.print(Text.assemble(head, plain("\n".join(map(_part_text, turn.response)))))
    if turn.illegal:
        out.print(plain(f"  illegal: {turn.illegal}", "yellow"))


def _part_text(part: Part) -> str:
    if part.kind == "result":
        return f"{part.name} -> {part.text}"
    if part.kind == "call":
        return f"calls {part.name} {json.dumps(json.loads(part.text), ensure_ascii=False)}"
    if part.kind == "broken call":
        return f"a call that cannot be read ({part.name}): {part.text}"
    return f"[image {part.text[:80]}]" if part.kind == "image" else part.text


def _names(agents: Sequence[str]) -> str:
    if len(agents) <= NAMED:
        return ", ".join(agents)
    return f"{', '.join(agents[: NAMED // 2])} and {len(agents) - NAMED // 2} others"
