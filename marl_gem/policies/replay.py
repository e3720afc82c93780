"""A policy that answers as a recorded run did."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from marl_gem.errors import AgentError, RecordError
from marl_gem.policies.base import Agent, Info
from marl_gem.seeding import agent_seed
from marl_gem.types import Episode, EpisodeError, Observation, Response, Role, Turn, from_json


class ReplayPolicy:
    """Gives each seat of each episode the responses that were recorded there: with the same seed and repeat.

    They come as they were recorded, with their cost and tokens, and are marked as `cached`. What a seat observes
    must be what it observed then: a replay that has left the record says so, and does not go on.

    Args:
        path: a file of episodes, one a line, or the folder of a run that has an `episodes.jsonl`. A last line
            that is torn is left out.

    Raises:
        RecordError: there is no such file, or a line of it is no episode.
    """

    def __init__(self, path: str | Path) -> None:
        path = Path(path)
        self.path = path / "episodes.jsonl" if path.is_dir() else path
        self.name = f"replay:{path}"
        self._places: defaultdict[tuple[str, int], list[int]] = defaultdict(list)  # bytes into the file
        self._seeds = set[int]()
        for place, episode in self._episodes():
            self._seeds.add(episode.seed)
            for agent_id in {turn.agent for turn in episode.turns}:
                self._places[agent_id, _seed(episode, agent_id)].append(place)

    def agent(self, agent_id: str, role: Role, seed: int) -> Agent:
        """Take a seat.

        Raises:
            AgentError: no recorded episode has this seat with this seed.
        """
        places = self._places.get((agent_id, seed))
        if not places:
            some = ", ".join(map(str, sorted(self._seeds)[:5]))
            raise AgentError(
                f"{self.path} holds no turn of {agent_id!r} in an episode with this seed and repeat; "
                f"it holds {len(self._seeds)} seeds: {some}{', ...' if len(self._seeds) > 5 else ''}"
            )
        episodes = [self._read(place) for place in places]
        records = [_Record(tuple(episode.turns_of(agent_id)), episode.error) for episode in episodes]
        return _ReplayAgent(self.path, agent_id, records)

    def _episodes(self) -> Iterator[tuple[int, Episode]]:
        """Every episode, and the place where its line begins."""
        place = 0
        try:
            with self.path.open("rb") as file:
                for number, line in enumerate(file, 1):
                    if line.endswith(b"\n"):
                        yield place, _parse(line, f"{self.path}, line {number}")
                    place += len(line)
        except OSError as error:
            raise RecordError(f"cannot read a recorded run from {self.path}: {error.strerror}") from error

    def _read(self, place: int) -> Episode:
        try:
            with self.path.open("rb") as file:
                file.seek(place)
                return _parse(file.readline(), str(self.path))
        except (OSError, RecordError) as error:
            raise AgentError(f"{self.path} has changed since the replay began: {error}") from error


class _Record(NamedTuple):
    """The turns of one seat in one episode, and what that broke off with, if it did."""

    turns: tuple[Turn, ...]
    error: EpisodeError | None


class _ReplayAgent:
    """One seat. If several episodes had it with this seed, what was observed tells them apart."""

    def __init__(self, path: Path, agent_id: str, records: Sequence[_Record]) -> None:
        self._path, self._agent_id, self._records = path, agent_id, records
        self._answered = 0

    async def act(self, observation: Observation, info: Info) -> Response:
        number = self._answered
        going = [record for record in self._records if len(record.turns) > number]
        same = [record for record in going if record.turns[number].observation == observation]
        if not same:
            raise AgentError(f"{self._agent_id!r} cannot go on by {self._path}: {self._why(going, observation)}")
        responses = [record.turns[number].response for record in same]
        if any(response.text != responses[0].text for response in responses):
            raise AgentError(
                f"{self._path} holds {len(same)} episodes in which {self._agent_id!r} had this seed and saw the same, "
                f"but answered differently in turn {number + 1}; replay a file with only one of them"
            )
        self._records, self._answered = same, number + 1
        return msgspec.structs.replace(responses[0], cached=True)

    def _why(self, going: Sequence[_Record], observation: Observation) -> str:
        number = self._answered
        if going:
            then, now = _apart(going[0].turns[number].observation, observation)
            return f"in turn {number + 1} it observed {then}, and now {now}"
        error = next((record.error for record in self._records if record.error), None)
        broken = f", where the episode broke off ({error.type}: {error.message})" if error else ""
        return f"the record ends after {number} turns{broken}, but the episode goes on"


def _seed(episode: Episode, agent_id: str) -> int:
    """What the agent's random choices followed from: that tells its turns from all others."""
    return agent_seed(episode.seed, agent_id, episode.repeat)


def _parse(line: bytes, where: str) -> Episode:
    try:
        return from_json(line.decode(), Episode)
    except (RecordError, UnicodeDecodeError) as error:
        raise RecordError(f"{where}: {error}") from error


def _apart(one: Observation, other: Observation) -> tuple[str, str]:
    """Two observations that differ, from shortly before the place where they do."""
    texts = [value if isinstance(value, str) else json.dumps(value) for value in (one, other)]
    pairs = enumerate(zip(*texts, strict=False))
    start = max(0, next((place for place, (a, b) in pairs if a != b), min(map(len, texts))) - 20)
    first, second = (f"{'...' if start else ''}{text[start : start + 80]}" for text in texts)
    return repr(first), repr(second)
