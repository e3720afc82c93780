"""Record episodes to a file from a loop of your own. (`marl_gem.rollout` returns episodes by itself.)"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from marl_gem.env import Infos, MultiAgentEnv, Observations
from marl_gem.episode_builder import EpisodeBuilder
from marl_gem.errors import EpisodeOver, InvalidAction, JournalError, RecordError
from marl_gem.faults import FAULTS, message_of
from marl_gem.runs.folder import EPISODES
from marl_gem.runs.journal import Journal
from marl_gem.step_results import as_step
from marl_gem.types import EpisodeError, Response, to_json
from marl_gem.wrappers.base import AroundStep, Wrapper


class RecordEpisodes(Wrapper):
    """Append each episode to a file, one `Episode` as JSON a line; `marl_gem.types.from_json` reads a line.

    An episode is written when it ends, and is on disk when `step` returns. An episode that `reset` or `close`
    interrupts is written with the ending "truncated" if any agent has acted, one that failed with "error". Lines that
    are in the file already are kept. Several recorders may write to one file. A fork records nothing.

    Roles, observations, rewards and infos are recorded as this wrapper sees them, actions as they were passed to it.
    `Episode.id` is the seed and the number of the episode, counted from 0.

    Args:
        env: what to record.
        path: a file whose name ends in `.jsonl`, or a folder, in which it is `episodes.jsonl`. Folders are made.

    Raises:
        RecordError: the file cannot be written. From `reset` and `step` also: an observation, an info or a role is not
            plain data. The episode has then failed, and is recorded so.
    """

    settles = frozenset({"observations", "actions", "rewards", "ending"})

    def __init__(self, env: MultiAgentEnv, path: str | Path) -> None:
        super().__init__(env)
        given = Path(path)
        self._journal: Journal | None = _open(given if given.suffix == ".jsonl" else given / EPISODES)
        self._count = 0
        self._builder: EpisodeBuilder | None = None
        self._observations: Observations = {}
        self._episode_fields: dict[str, Any] = {}

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Observations, Infos]:
        returns = self.returns if self._builder else {}
        observations, infos = super().reset(seed=seed, options=options)
        self._finish(returns)
        builder = EpisodeBuilder()
        try:
            self._observations, _ = builder.observed(observations, infos)
            builder.sent(self.message_log)
        except RecordError as error:
            self._fault("reset", error)
        self._builder = builder
        self._episode_fields = {
            "id": f"{self.seed}-{self._count}",
            "scenario": self.scenario,
            "seed": self.seed,
            "options": dict(options or {}),
            "zero_sum": self.metadata.zero_sum,
        }
        self._count += 1
        return observations, infos

    def around_step(self, actions: Mapping[str, str]) -> AroundStep:
        episode = self._builder
        if episode is None:
            return (yield actions)
        responses: dict[str, Response] = {}
        try:
            self.check_actions(actions)  # before any role is recorded
            responses = {agent: episode.response(agent, Response(text)) for agent, text in actions.items()}
            self._record_roles(episode)
            step = yield actions
            observations, rewards, terminations, truncations, infos = as_step(step, self.scenario)
            observations, infos = episode.observed(observations, infos)
        except (InvalidAction, EpisodeOver):
            raise  # nothing has changed
        except FAULTS as error:
            episode.begin(self._observations, responses)
            episode.error = EpisodeError("env", type(error).__name__, message_of(error))
            self._finish(self.returns)
            self._state = "not reset after a failure"
            raise
        episode.begin(self._observations, responses)
        self._observations = observations
        episode.complete(self.returns, rewards, terminations, truncations, infos)
        episode.sent(self.message_log)
        if self.done:
            self._finish(self.returns, over=True)
        return step

    def fork(self) -> Self:
        copy = super().fork()
        copy._journal = copy._builder = None
        return copy

    def close(self) -> None:
        try:
            self._finish(self.returns if self._builder else {})
        finally:
            super().close()

    def _record_roles(self, episode: EpisodeBuilder) -> None:
        """Record the roles of agents that act for the first time."""
        try:
            for agent in self.acting:
                if agent not in episode.roles:
                    episode.set_role(agent, self.role(agent))
        except FAULTS as error:
            self._fault("role", error)

    def _finish(self, returns: Mapping[str, float], over: bool = False) -> None:
        episode, self._builder = self._builder, None
        if not (episode and episode.turns and self._journal):
            return
        line = to_json(episode.episode(returns=returns, cut_short=not over, **self._episode_fields)).encode("ascii")
        try:
            self._journal.append([line])
        except JournalError as error:
            raise _unwritable(self._journal.path, error) from error


def _open(path: Path) -> Journal:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return Journal(path, shared=True)
    except (OSError, JournalError) as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: Exception) -> RecordError:
    cause = error.__cause__ if isinstance(error, JournalError) else error
    return RecordError(f"episodes cannot be written to {path}: {cause}. Give RecordEpisodes another path")
