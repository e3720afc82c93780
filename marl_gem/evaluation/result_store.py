"""The episodes of a run: complete on disk, summarized in memory."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from marl_gem.errors import ConfigError, JournalError, RecordError
from marl_gem.evaluation.journal import Journal, write_whole
from marl_gem.evaluation.plan import FORMAT, Config, Plan, differences
from marl_gem.evaluation.summary import EpisodeSummary, summarize
from marl_gem.types import Episode, EpisodeError, to_json


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

    def __init__(self, plan: Plan, folder: Path | None) -> None:
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
            self._episodes[name] = Journal(folder / name / "episodes.jsonl")
            self._errors[name] = Journal(folder / name / "errors.jsonl")

    @classmethod
    def open(cls, plan: Plan, folder: Path | None, resume: bool) -> ResultStore:
        """Begin a run, or go on with the one in the folder. The caller has locked it.

        Raises:
            ConfigError: the folder holds a run and `resume` is false, or a run of another configuration, or no run.
            JournalError: it cannot be read or written, or a line is damaged.
        """
        if folder is not None:
            stored = stored_config(folder, resume)
            if stored and (changes := differences(stored, plan.config())):
                raise ConfigError(
                    f"{folder} was started with another configuration: {'; '.join(changes)}. Resume it without these "
                    "changes, or choose another folder"
                )
            _write_configs(plan, folder)
        store = cls(plan, folder)
        for journal in (*store._errors.values(), *store._episodes.values()):
            store._read(journal)
        return store

    async def store(self, episodes: Sequence[Episode]) -> list[EpisodeSummary]:
        """Write finished episodes to disk, then count them.

        Returns:
            a summary of each. An episode that no record can hold has become a failure of its env.

        Raises:
            JournalError: they cannot be written; they stay pending.
        """
        if not self._episodes:
            self.kept += episodes
            summaries = [self._summarize(episode) for episode in episodes]
        else:
            summaries = await asyncio.to_thread(self._write, episodes)
        for summary in summaries:
            self._count(summary)
        return summaries

    def close(self) -> None:
        """Wait for what a thread is writing still."""
        with self._writing:
            pass

    def _write(self, episodes: Sequence[Episode]) -> list[EpisodeSummary]:
        lines: dict[Journal, list[str]] = {}
        summaries = []
        with self._writing:
            for episode in episodes:
                stored, line = _line(episode)
                folder = self.plan.matches[self.plan.slots[episode.id].match].folder
                lines.setdefault((self._errors if stored.error else self._episodes)[folder], []).append(line)
                summaries.append(self._summarize(stored))
            for journal, added in lines.items():
                journal.append("".join(added).encode("ascii"))
        return summaries

    def _read(self, journal: Journal) -> None:
        """Count what an earlier process has written."""
        failed = journal in self._errors.values()
        for number, episode in journal.episodes():
            slot = self.plan.slots.get(episode.id)
            if slot is None or slot.seed != episode.seed or (episode.error is not None) != failed:
                raise JournalError(f"{journal.path}, line {number}: episode {episode.id!r} is not of this run")
            if episode.id in self.finished:
                raise JournalError(f"{journal.path}, line {number}: episode {episode.id!r} is there twice; remove one")
            self._count(self._summarize(episode))

    def _summarize(self, episode: Episode) -> EpisodeSummary:
        return summarize(episode, self.plan.ground.competitive)

    def _count(self, summary: EpisodeSummary) -> None:
        self.tokens += summary.tokens
        self.cost = None if self.cost is None or summary.cost is None else self.cost + summary.cost
        if summary.error:
            self.attempts += 1
            self.failures[summary.id] = summary
            return
        self.failures.pop(summary.id, None)
        self.finished[summary.id] = summary
        for agent, outcome in summary.outcomes.items():
            self.episodes_of[agent] += 1
            self.successes[agent] += outcome.success


def stored_config(folder: Path, resume: bool) -> Config | None:
    """What the run in a folder was asked for; None if the folder is empty or not there.

    Raises:
        ConfigError: there is a run and `resume` is false, or what is there is no run.
    """
    path = folder / "config.json"
    try:
        others = [file.name for file in folder.iterdir() if not file.name.startswith(".")]
        config = json.loads(path.read_bytes()) if "config.json" in others else None
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ConfigError(f"{path} is damaged: {error}") from error
    except OSError as error:
        raise JournalError(f"cannot read {folder}: {error.strerror}") from error
    if not others:
        return None
    if not isinstance(config, dict) or "kind" not in config:
        raise ConfigError(f"{folder} holds something that is no evaluation; choose another folder")
    if config.get("format") != FORMAT:
        raise ConfigError(f"{folder} has format {config.get('format')!r}, not {FORMAT}; use the marl_gem that wrote it")
    if config["kind"] == "cell":
        raise ConfigError(f"{folder} is a part of the run in {folder.parent}; resume that")
    if not resume:
        raise ConfigError(f"{folder} holds a run already: go on with it (--resume), or choose another folder")
    return config


def _write_configs(plan: Plan, folder: Path) -> None:
    """The run's configuration, and that of each match with a folder of its own; untouched where it says so already."""
    plans = {folder: plan} | {folder / match.folder: plan.alone(match) for match in plan.matches if match.folder}
    for place, its_plan in plans.items():
        try:
            place.mkdir(parents=True, exist_ok=True)
            there = (place / "config.json").read_bytes() if (place / "config.json").exists() else b""
        except OSError as error:
            raise JournalError(f"cannot write to {place}: {error.strerror}") from error
        config = json.dumps(its_plan.config(), indent=2).encode() + b"\n"
        if there != config:
            write_whole(place / "config.json", config)


def _line(episode: Episode) -> tuple[Episode, str]:
    """An episode as a line of a journal. One that holds what no record can is the env's fault, and told as such."""
    try:
        return episode, to_json(episode) + "\n"
    except RecordError as error:
        fault = EpisodeError("env", type(error).__name__, str(error))
        gone: dict[str, Any] = {"turns": (), "returns": {}, "final_infos": {}, "roles": {}}
        bare = msgspec.structs.replace(episode, **gone, ending="error", error=fault)
        return bare, to_json(bare) + "\n"
