"""Scenarios and policies of these tests, and what a run leaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from marl_gem import MultiAgentEnv, ParallelSelector, Response, Role
from marl_gem.evaluation import Report
from marl_gem.policies import Info
from marl_gem.types import Episode, Metadata, Observation, from_json
from tests.slow_game import SlowPolicy
from tests.toys import OneAnswer

GUESS = SlowPolicy()

# Scenarios and policies


class Answer(OneAnswer):
    """`OneAnswer`, where "set" puts a value into the infos that JSON cannot hold."""

    def _process_actions(self, actions: dict[str, str]) -> None:
        super()._process_actions(actions)
        if actions["solver"] == "set":
            self.infos["solver"]["odd"] = {1, 2}


class Tasks(Answer):
    tasks = 5


class Highest(MultiAgentEnv):
    """All name a number at once, and the highest wins what the others lose."""

    selector = ParallelSelector()
    metadata = Metadata(zero_sum=True)

    def __init__(self, players: int = 2) -> None:
        self.possible_agents = tuple(f"seat_{number}" for number in range(players))

    def observe(self, agent: str) -> str:
        return "A number?"

    def _process_actions(self, actions: dict[str, str]) -> None:
        mean = sum(map(float, actions.values())) / len(actions)
        self.rewards = {agent: float(text) - mean for agent, text in actions.items()}
        self.terminations = dict.fromkeys(actions, True)


class Answers:
    """Answers by the number of the episode, as `answer` says; what it returns may be an exception."""

    def __init__(self, answer: Callable[[int], Response | str | Exception], name: str = "answers") -> None:
        self.name = name
        self.begun = 0
        self._answer = answer

    def agent(self, agent_id: str, role: Role, seed: int) -> Answers:
        return self

    async def act(self, observation: Observation, info: Info) -> Response:
        answer = self._answer(self.begun)
        self.begun += 1
        await asyncio.sleep(0)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Response) else Response(answer)


# What a run leaves


def episodes_in(path: Path) -> list[Episode]:
    return [from_json(line, Episode) for line in path.read_text().splitlines()]


def ids(folder: Path) -> list[str]:
    return [episode.id for episode in episodes_in(folder / "episodes.jsonl")]


def timeless(value: Any) -> Any:
    """A report as plain data, without what depends on the clock, such as its checksum."""
    if isinstance(value, msgspec.Struct):
        return timeless(json.loads(json.dumps(msgspec.to_builtins(value))))
    if isinstance(value, dict):
        return {name: timeless(part) for name, part in value.items() if name not in ("seconds", "crc32")}
    return [timeless(part) for part in value] if isinstance(value, list) else value


def report_of(folder: Path) -> Any:
    return timeless(json.loads((folder / "report.json").read_text()))


def played(folder: Path) -> dict[str, Any]:
    """Every episode without its times, by id."""
    return {
        episode.id: (episode.seed, episode.returns, [turn.response.text for turn in episode.turns])
        for episode in episodes_in(folder / "episodes.jsonl")
    }


def numbers_of(report: Report, agent: str, match: int = 0) -> Any:
    return report.matches[match].agents[agent]


class SlowAgentOnce:
    """A policy that is its own agent."""

    name = "once"

    def agent(self, agent_id: str, role: Role, seed: int) -> Any:
        return self


class SlowAgentThatSays(SlowAgentOnce):
    def __init__(self, text: str) -> None:
        self._text = text

    async def act(self, observation: Observation, info: Info) -> Response:
        await asyncio.sleep(0.002)
        return Response(self._text)
