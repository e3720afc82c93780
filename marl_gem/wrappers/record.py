"""Every episode on disk, for those who write the loop themselves. (`marl_gem.rollout` gives episodes anyway.)"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Self

from marl_gem.env import Infos, MultiAgentEnv, Observations, Step
from marl_gem.episode_builder import EpisodeBuilder
from marl_gem.errors import EpisodeOver, InvalidAction, RecordError
from marl_gem.types import EpisodeError, Response, to_json
from marl_gem.wrappers.base import Wrapper


class RecordEpisodes(Wrapper):
    """Appends each episode to a file, one `Episode` as JSON a line; `marl_gem.types.from_json` reads a line.

    An episode is written when it ends, and is on the disk when `step` returns. One that `reset` or `close`
    breaks off is written as "truncated" if anybody has acted, one that failed as "error". What stands in the
    file stays there. Several recorders may write to one file. A fork records nothing: it tries something out.

    Roles, observations, rewards and infos are recorded as they are where the wrapper stands. Actions are recorded as
    they were given here. `Episode.id` is the seed and the number of the episode, counted from 0.

    Args:
        path: a file whose name ends in `.jsonl`, or a folder, in which it is `episodes.jsonl`. Folders are made.

    Raises:
        RecordError: the file cannot be written to. Later also, at an episode's end: an info or a tool's schema is
            no plain data.
    """

    settles = frozenset({"observations", "actions", "rewards", "ending"})

    def __init__(self, env: MultiAgentEnv, path: str | Path) -> None:
        super().__init__(env)
        given = Path(path)
        self._path: Path | None = given if given.suffix == ".jsonl" else given / "episodes.jsonl"
        _prepare(self._path)
        self._count = 0
        self._open: EpisodeBuilder | None = None
        self._observations: Observations = {}
        self._episode_fields: dict[str, Any] = {}

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Observations, Infos]:
        returns = self.returns if self._open else {}
        observations, infos = super().reset(seed=seed, options=options)
        self._finish(returns)
        self._open = EpisodeBuilder()
        self._observations = observations
        self._episode_fields = {
            "id": f"{self.seed}-{self._count}",
            "scenario": self.scenario,
            "seed": self.seed,
            "options": dict(options or {}),
            "zero_sum": self.metadata.zero_sum,
        }
        self._count += 1
        return observations, infos

    def step(self, actions: Mapping[str, str]) -> Step:
        episode = self._open
        try:
            if episode:
                self.check_actions(actions)  # what is refused seats nobody
                self._seat(episode)
            step = super().step(actions)
        except (InvalidAction, EpisodeOver):
            raise  # nothing has changed
        except Exception as error:
            if episode:
                episode.begin(self._observations, _responses(actions))
                episode.error = EpisodeError("env", type(error).__name__, str(error))
                self._finish(self.returns)
            raise
        if episode:
            episode.begin(self._observations, _responses(actions))
            self._observations, rewards, terminations, truncations, infos = step
            episode.complete(self.returns, rewards, terminations, truncations, infos)
            if self.done:
                self._finish(self.returns, over=True)
        return step

    def fork(self) -> Self:
        twin = super().fork()
        twin._path = twin._open = None
        return twin

    def close(self) -> None:
        try:
            self._finish(self.returns if self._open else {})
        finally:
            super().close()

    def _seat(self, episode: EpisodeBuilder) -> None:
        """Note what those are told who act for the first time."""
        try:
            for agent in self.acting:
                if agent not in episode.roles:
                    episode.seat(agent, self.role(agent))
        except Exception as error:
            self._fault("role", error)

    def _finish(self, returns: Mapping[str, float], over: bool = False) -> None:
        episode, self._open = self._open, None
        if episode and episode.turns and self._path:
            _append(self._path, to_json(episode.episode(returns=returns, cut_short=not over, **self._episode_fields)))


def _responses(actions: Mapping[str, str]) -> dict[str, Response]:
    return {agent: Response(text) for agent, text in actions.items()}


def _append(path: Path, line: str) -> None:
    """Add a line, all of it on the disk when this returns."""
    try:
        with path.open("ab") as file:
            _lock(file)
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
            _lock(file)  # another recorder may be in the middle of a line
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")
    except OSError as error:
        raise _unwritable(path, error) from error


def _lock(file: BinaryIO) -> None:
    """Keep other recorders from the file until it is closed, where the system can."""
    with contextlib.suppress(ImportError):
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX)


def _unwritable(path: Path, error: OSError) -> RecordError:
    return RecordError(f"episodes cannot be written to {path}: {error}. Give RecordEpisodes another path")
