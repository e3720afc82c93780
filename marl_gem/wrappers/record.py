"""Every episode on disk, for those who write the loop themselves. (`marl_gem.rollout` gives episodes anyway.)"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from marl_gem.env import Infos, MultiAgentEnv, Observations, Step
from marl_gem.errors import EpisodeOver, InvalidAction, RecordError
from marl_gem.types import Ending, Episode, EpisodeError, Observation, Response, Turn, to_json
from marl_gem.wrappers.base import Wrapper


class RecordEpisodes(Wrapper):
    """Appends each episode to a file, one `Episode` as JSON a line; `marl_gem.types.from_json` reads a line.

    An episode is written when it ends, and is on the disk when `step` returns. One that `reset` or `close`
    breaks off is written as "truncated" if anybody has acted, one that failed as "error". What stands in the
    file stays there. Several recorders may write to one file. A fork records nothing: it tries something out.

    Observations, rewards and infos are recorded as they are where the wrapper stands. Actions are recorded as
    they were given here. `Episode.id` is the seed and the number of the episode, counted from 0.

    Args:
        path: a file whose name ends in `.jsonl`, or a folder, in which it is `episodes.jsonl`. Folders are made.

    Raises:
        RecordError: the file cannot be written to. Later also, at an episode's end: an info is no plain data.
    """

    settles = frozenset({"observations", "actions", "rewards", "ending"})

    def __init__(self, env: MultiAgentEnv, path: str | Path) -> None:
        super().__init__(env)
        given = Path(path)
        self._path: Path | None = given if given.suffix == ".jsonl" else given / "episodes.jsonl"
        _prepare(self._path)
        self._count = 0
        self._open: _OpenEpisode | None = None

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Observations, Infos]:
        observations, infos = super().reset(seed=seed, options=options)
        broken_off, self._open = self._open, _OpenEpisode(self, self._count, observations, options)
        self._count += 1
        self._write(broken_off)
        return observations, infos

    def step(self, actions: Mapping[str, str]) -> Step:
        episode = self._open
        try:
            step = super().step(actions)
        except (InvalidAction, EpisodeOver):
            raise  # nothing has changed
        except Exception as error:
            if episode:
                episode.take(actions)
                episode.error = EpisodeError("env", type(error).__name__, str(error))
                self._finish()
            raise
        if episode:
            episode.take(actions)
            episode.complete(self, *step)
            if self.done:
                self._finish()
        return step

    def fork(self) -> Self:
        twin = super().fork()
        twin._path = twin._open = None
        return twin

    def close(self) -> None:
        try:
            self._finish()
        finally:
            super().close()

    def _finish(self) -> None:
        episode, self._open = self._open, None
        self._write(episode)

    def _write(self, episode: _OpenEpisode | None) -> None:
        if episode and episode.turns and self._path:
            _append(self._path, to_json(episode.record()))


class _OpenEpisode:
    """An episode while it is being played."""

    def __init__(
        self, env: MultiAgentEnv, number: int, observations: Observations, options: Mapping[str, Any] | None
    ) -> None:
        self.turns: list[_OpenTurn] = []
        self.error: EpisodeError | None = None
        self._id, self._scenario, self._seed, self._options = (
            f"{env.seed}-{number}",
            env.scenario,
            env.seed,
            dict(options or {}),
        )
        self._observations = observations
        self._returns = dict(env.returns)
        self._returns_at_end: dict[str, float] = {}
        self._last: dict[str, _OpenTurn] = {}
        self._final_infos: Infos = {}
        self._done = self._terminated = False
        self._started = time.monotonic()

    def take(self, actions: Mapping[str, str]) -> None:
        """These agents act."""
        for agent, text in actions.items():
            self._last[agent] = turn = _OpenTurn(agent, self._observations[agent], text)
            self.turns.append(turn)

    def complete(
        self,
        env: MultiAgentEnv,
        observations: Observations,
        rewards: Mapping[str, float],
        terminations: Mapping[str, bool],
        truncations: Mapping[str, bool],
        infos: Infos,
    ) -> None:
        """What came of it."""
        self._observations, self._returns, self._done = observations, dict(env.returns), env.done
        for agent, reward in rewards.items():
            info = dict(infos[agent])  # wrappers further outside may write into the other one
            if turn := self._last.get(agent):
                turn.reward += reward
                turn.info = info if turn.info is None else turn.info
            if terminations[agent] or truncations[agent]:
                self._final_infos[agent] = info
                self._returns_at_end[agent] = self._returns[agent]
                self._terminated = self._terminated or terminations[agent]

    def record(self) -> Episode:
        for agent, before in self._returns_at_end.items():
            if turn := self._last.get(agent):  # what came after the agent's end belongs to its last action
                turn.reward += self._returns[agent] - before
        ending: Ending = "error" if self.error else "terminated" if self._done and self._terminated else "truncated"
        return Episode(
            id=self._id,
            scenario=self._scenario,
            seed=self._seed,
            turns=tuple(Turn(t.agent, t.observation, Response(t.text), t.reward, t.info or {}) for t in self.turns),
            returns=self._returns,
            ending=ending,
            error=self.error,
            options=self._options,
            final_infos=self._final_infos,
            seconds=round(time.monotonic() - self._started, 6),
        )


@dataclass(slots=True)
class _OpenTurn:
    agent: str
    observation: Observation
    text: str
    reward: float = 0.0
    info: dict[str, Any] | None = None


def _append(path: Path, line: str) -> None:
    """Add a line, all of it on the disk when this returns."""
    try:
        with path.open("ab") as file:
            file.write(f"{line}\n".encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise _unwritable(path, error) from error


def _prepare(path: Path) -> None:
    """Make the file where there is none; a line that was cut off earlier stays one of its own."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> RecordError:
    return RecordError(f"episodes cannot be written to {path}: {error}. Give RecordEpisodes another path")
