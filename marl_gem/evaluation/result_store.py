"""The episodes of a run: complete on disk, summarized in memory."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from marl_gem.errors import AgentError, ConfigError, JournalError, RecordError
from marl_gem.evaluation.plan import Plan
from marl_gem.evaluation.report import RunConfig, read_config
from marl_gem.evaluation.summary import EpisodeSummary, summarize
from marl_gem.runs import folder as run_folder
from marl_gem.runs.configuration import differences
from marl_gem.runs.files import write_json
from marl_gem.runs.journal import Journal
from marl_gem.runs.lock import RunLock
from marl_gem.specs import PolicySpec
from marl_gem.types import Episode, EpisodeError, from_json, to_json


class Recorded(msgspec.Struct, frozen=True):
    """A finished episode: its summary, and its line in a journal. `episode` is set where there is no journal."""

    summary: EpisodeSummary
    line: bytes = b""
    episode: Episode | None = None


class ResultStore:
    """The episodes of a plan.

    Attributes:
        finished: summaries of the episodes that count, by id.
        failures: summaries of those that failed and are pending, by id.
        attempts: how many episodes ever failed.
        tokens, cost: what all episodes took together; the cost in US dollars, None if any price is unknown.
        episodes_of, successes: by agent, the episodes it was in, and those in which it succeeded.
        kept: the episodes themselves, if there is no folder.
    """

    def __init__(self, plan: Plan, folder: Path | None, lock: RunLock | None = None) -> None:
        self.plan = plan
        self.finished: dict[str, EpisodeSummary] = {}
        self.failures: dict[str, EpisodeSummary] = {}
        self.attempts = self.tokens = 0
        self.cost: float | None = 0.0
        self.episodes_of: Counter[str] = Counter()
        self.successes: Counter[str] = Counter()
        self.kept: list[Episode] = []
        self._writing = threading.Lock()
        self._episodes: dict[str, Journal] = {}
        self._errors: dict[str, Journal] = {}
        if folder is None:
            return
        for name in sorted({match.folder for match in plan.matches}):
            self._episodes[name] = Journal(folder / name / run_folder.EPISODES, lock)
            self._errors[name] = Journal(folder / name / run_folder.ERRORS, lock)

    @classmethod
    def open(cls, plan: Plan, folder: Path | None, resume: bool, lock: RunLock | None = None) -> ResultStore:
        """Start a run, or continue the one in the folder, which the caller has locked; `lock` is that lock.

        Raises:
            ConfigError: the folder holds a run and `resume` is false, or a run with another configuration, or
                something else.
            JournalError: it cannot be read or written, or a line is damaged.
        """
        if folder is not None:
            stored = stored_config(folder, resume)
            if stored and (changes := _changes(stored, plan.config())):
                raise ConfigError(
                    f"{folder} was started with another configuration: {'; '.join(changes)}. Resume it without these "
                    "changes, or choose another folder"
                )
            _write_configs(plan, folder)
        store = cls(plan, folder, lock)
        for journal in (*store._errors.values(), *store._episodes.values()):
            store._read(journal)
        return store

    def record(self, episode: Episode) -> Recorded:
        """A finished episode in the form that `store` takes."""
        contest = self.plan.info.zero_sum
        return record(episode, contest) if self._episodes else Recorded(summarize(episode, contest), episode=episode)

    async def store(self, batch: Sequence[Recorded]) -> None:
        """Write finished episodes to disk, then count them.

        Raises:
            JournalError: they cannot be written; they stay pending.
        """
        if self._episodes:
            await asyncio.to_thread(self._write, batch)
        else:
            self.kept += [recorded.episode or from_json(recorded.line.decode(), Episode) for recorded in batch]
        for recorded in batch:
            self._count(recorded.summary)

    def close(self) -> None:
        """Wait until a thread that is still writing has finished."""
        with self._writing:
            pass

    def _write(self, batch: Sequence[Recorded]) -> None:
        lines: dict[Journal, list[bytes]] = {}
        with self._writing:
            for recorded in batch:
                folder = self.plan.matches[self.plan.slots[recorded.summary.id].match].folder
                journals = self._errors if recorded.summary.error else self._episodes
                lines.setdefault(journals[folder], []).append(recorded.line)
            for journal, added in lines.items():
                journal.append(added)

    def _read(self, journal: Journal) -> None:
        """Count what an earlier process has written."""
        failed = journal in self._errors.values()
        for number, episode in journal.outlines():
            slot = self.plan.slots.get(episode.id)
            if slot is None or slot.seed != episode.seed or (episode.error is not None) != failed:
                raise JournalError(f"{journal.path}, line {number}: episode {episode.id!r} is not of this run")
            if episode.id in self.finished:
                raise JournalError(f"{journal.path}, line {number}: episode {episode.id!r} is there twice; remove one")
            self._count(summarize(episode, self.plan.info.zero_sum))

    def _count(self, summary: EpisodeSummary) -> None:
        self.tokens += summary.tokens
        cost = summary.cost
        self.cost = None if self.cost is None or cost is None else self.cost + cost
        if summary.error:
            self.attempts += 1
            self.failures[summary.id] = summary
            return
        self.failures.pop(summary.id, None)
        self.finished[summary.id] = summary
        for agent, outcome in summary.outcomes.items():
            self.episodes_of[agent] += 1
            self.successes[agent] += outcome.success


def stored_config(folder: Path, resume: bool) -> RunConfig | None:
    """The configuration of the run in a folder; None if the folder is empty or not there, and `resume` is false.

    Raises:
        ConfigError: there is a run and `resume` is false, or none and it is true; or a part of a run, or something
            else.
        JournalError: the folder cannot be read.
    """
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file, and a run needs a folder; choose another name")
    if run_folder.is_empty(folder):
        if resume:
            state = "holds no run" if folder.exists() else "does not exist"
            raise ConfigError(f"{folder} {state}: check the name, or start a run there without --resume")
        return None
    try:
        config = read_config(run_folder.read_config(folder))
    except (ValueError, msgspec.ValidationError) as error:
        raise ConfigError(f"{folder} holds something that is no evaluation ({error}); choose another folder") from error
    if config.kind == "cell":
        raise ConfigError(f"{folder} is a part of the run in {folder.parent}; resume that")
    if not resume:
        raise ConfigError(f"{folder} holds a run already: continue it with --resume, or choose another folder")
    return config


def _changes(stored: RunConfig, wanted: RunConfig) -> list[str]:
    """Where two configurations differ. More tasks and repeats are no change, nor is another version of marl_gem."""
    before, after = (msgspec.to_builtins(_canonical(config)) for config in (stored, wanted))
    return differences(before, after, ignore={"version"}, may_grow={"n", "repeats"})


def _canonical(config: RunConfig) -> RunConfig:
    """The same with the text of each policy as `PolicySpec` writes it, so that spelling is no difference, nor is how
    long a server is waited for."""
    return msgspec.structs.replace(
        config,
        seats={
            agent: _policy_text(texts) if isinstance(texts, str) else [_policy_text(text) for text in texts]
            for agent, texts in config.seats.items()
        },
        players={name: _policy_text(text) for name, text in config.players.items()},
        sampling={_policy_text(text): sampling for text, sampling in config.sampling.items()},
    )


def _policy_text(text: str) -> str:
    try:
        return str(PolicySpec.parse(text).without_waits())
    except (AgentError, ConfigError):  # the name of a policy that came from Python
        return text


def _write_configs(plan: Plan, folder: Path) -> None:
    """Write the run's configuration, and that of each match with a folder for itself; and the grades of its tasks,
    which a viewer shows while the run goes on."""
    plans = {folder: plan} | {folder / match.folder: plan.alone(match) for match in plan.matches if match.folder}
    for path, its_plan in plans.items():
        run_folder.write_config(path, msgspec.to_builtins(its_plan.config()))
        if grades := plan.info.grades:
            listed = {str(task): grades[task] for task in sorted(plan.tasks)}
            write_json(path / run_folder.TASKS, {"format": 1, "grades": listed})


def record(episode: Episode, contest: bool) -> Recorded:
    """A finished episode as a line of a journal. One that holds what no record can hold becomes a failure of its env.

    `contest` is whether it is one, where its record does not say.
    """
    try:
        return Recorded(summarize(episode, contest), _line(episode))
    except RecordError as error:
        fault = EpisodeError("env", type(error).__name__, str(error))
        empty: dict[str, Any] = {"turns": (), "returns": {}, "final_infos": {}, "roles": {}}
        bare = msgspec.structs.replace(episode, **empty, ending="error", error=fault)
        return Recorded(summarize(bare, contest), _line(bare))


def _line(episode: Episode) -> bytes:
    return to_json(episode).encode("ascii")
