"""Policies that repeat the responses of a recorded run, or of one recorded episode."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from marl_gem.errors import AgentError, RecordError, ReplayDiverged
from marl_gem.policies.base import Agent, Info, PolicyPerSeat
from marl_gem.runs.folder import EPISODES
from marl_gem.runs.index import read_episode_at, read_episodes
from marl_gem.seeding import agent_seed
from marl_gem.types import Episode, EpisodeError, Observation, Response, Role, Turn


class ReplayPolicy:
    """Repeat recorded responses: each agent answers as it did in the recorded episode with the same seed and repeat.

    The responses keep their cost and tokens, and are marked as `cached`. An agent must observe what it observed in the
    record; otherwise its episode ends with a ReplayDiverged that shows the difference.

    Args:
        path: a JSONL file of episodes, or a run's folder with an `episodes.jsonl`. A last line without a newline is
            left out.

    Raises:
        RecordError: there is no such file, it holds no turn, or a line of it is no episode.
    """

    def __init__(self, path: str | Path) -> None:
        path = Path(path)
        self.path = path / EPISODES if path.is_dir() else path
        self.name = f"replay:{path}"
        self._offsets: defaultdict[tuple[str, int], list[int]] = defaultdict(list)  # of lines, in bytes
        self._seeds = set[int]()
        for offset, episode in read_episodes(self.path):
            self._seeds.add(episode.seed)
            for agent_id in {turn.agent for turn in episode.turns}:
                self._offsets[agent_id, _seed(episode, agent_id)].append(offset)
        if not self._offsets:
            raise RecordError(
                f"{self.path} holds no turn that could be replayed: it is empty, unfinished or no file of episodes. "
                "Name a run's folder, such as replay:runs/demo, or its episodes.jsonl"
            )

    def agent(self, agent_id: str, role: Role, seed: int) -> Agent:
        """Take a seat.

        Raises:
            AgentError: no recorded episode has a turn of this agent with this seed, or the file has changed.
        """
        offsets = self._offsets.get((agent_id, seed))
        if not offsets:
            some = ", ".join(map(str, sorted(self._seeds)[:5]))
            raise AgentError(
                f"{self.path} holds no turn of {agent_id!r} in an episode with this seed and repeat; "
                f"it holds {len(self._seeds)} seeds: {some}{', ...' if len(self._seeds) > 5 else ''}"
            )
        episodes = [self._read(offset) for offset in offsets]
        records = [_Record(tuple(episode.turns_of(agent_id)), episode.error) for episode in episodes]
        return _ReplayAgent(str(self.path), agent_id, records, cached=True)

    def _read(self, offset: int) -> Episode:
        try:
            return read_episode_at(self.path, offset)
        except RecordError as error:
            raise AgentError(f"{self.path} has changed since the replay began: {error}") from error


class EpisodeReplay(PolicyPerSeat):
    """Repeat one recorded episode, each agent under the name of the policy that played it.

    The responses are exactly those of the record. An agent that observes something else than in the record, or has no
    turn there, ends its episode with a ReplayDiverged.
    """

    def __init__(self, episode: Episode) -> None:
        agents = dict.fromkeys(turn.agent for turn in episode.turns)
        super().__init__("replay", {agent: _RecordedSeat(episode, agent) for agent in agents})

    def agent(self, agent_id: str, role: Role, seed: int) -> Agent:
        if agent_id not in self.policies:
            raise ReplayDiverged(f"{agent_id!r} is to act, and has no turn in the record")
        return super().agent(agent_id, role, seed)


class _RecordedSeat:
    """One agent of one recorded episode, as a policy."""

    def __init__(self, episode: Episode, agent_id: str) -> None:
        self.name = episode.models.get(agent_id, "unknown")
        self._record = _Record(tuple(episode.turns_of(agent_id)), episode.error)

    def agent(self, agent_id: str, role: Role, seed: int) -> Agent:
        return _ReplayAgent("the record", agent_id, [self._record], cached=False)


class _Record(NamedTuple):
    """The turns of one agent in one episode, and the error that ended the episode, if there was one."""

    turns: tuple[Turn, ...]
    error: EpisodeError | None


class _ReplayAgent:
    """One agent. If several episodes have its seed, it follows those whose observations agree with what it observes.

    `source` is what messages call the record. `cached` says whether the responses are marked as repeated.
    """

    def __init__(self, source: str, agent_id: str, records: Sequence[_Record], *, cached: bool) -> None:
        self._source, self._agent_id, self._records, self._cached = source, agent_id, records, cached
        self._turns = 0

    async def act(self, observation: Observation, info: Info) -> Response:
        index = self._turns
        longer = [record for record in self._records if len(record.turns) > index]
        matching = [record for record in longer if record.turns[index].observation == observation]
        if not matching:
            reason = self._reason(longer, observation)
            raise ReplayDiverged(f"{self._agent_id!r} cannot go on by {self._source}: {reason}")
        responses = [record.turns[index].response for record in matching]
        if any(response.text != responses[0].text for response in responses):
            raise AgentError(
                f"{self._source} holds {len(matching)} episodes in which {self._agent_id!r} had this seed and saw the "
                f"same, but answered differently in turn {index + 1}; replay a file with only one of them"
            )
        self._records, self._turns = matching, index + 1
        return msgspec.structs.replace(responses[0], cached=True) if self._cached else responses[0]

    def _reason(self, longer: Sequence[_Record], observation: Observation) -> str:
        index = self._turns
        if longer:
            then, now = _difference(longer[0].turns[index].observation, observation)
            return f"in turn {index + 1} it observed {then}, and now {now}"
        error = next((record.error for record in self._records if record.error), None)
        ending = f", where the episode broke off ({error.type}: {error.message})" if error else ""
        return f"the record ends after {index} turns{ending}, but the episode goes on"


def _seed(episode: Episode, agent_id: str) -> int:
    """The seed that the rollout gave this agent in this episode."""
    return agent_seed(episode.seed, agent_id, episode.repeat)


def _difference(recorded: Observation, observed: Observation) -> tuple[str, str]:
    """Two observations that differ, shortened to begin just before the first difference."""
    texts = [value if isinstance(value, str) else json.dumps(value) for value in (recorded, observed)]
    pairs = enumerate(zip(*texts, strict=False))
    start = max(0, next((index for index, (a, b) in pairs if a != b), min(map(len, texts))) - 20)
    first, second = (f"{'...' if start else ''}{text[start : start + 80]}" for text in texts)
    return repr(first), repr(second)
