"""Score the recorded episodes of a run again: after a fix in its scenario, or with another rubric.

    regraded = regrade("runs/eval-1", "runs/eval-1-regraded")
    regraded.changes.changed

Without a rubric, the recorded actions go through the scenario as it is now, with the same seeds, tasks and options. An
episode in which an agent observes something else than in the record cannot be scored so: its actions answered something
else. It is left out, and the reason is kept. With a rubric (`reward`), the record itself is scored.

The run that is scored again is only read. The new run has the same tasks, seats and responses, so that the two can be
compared. No model is asked, except where the scenario's rewards or the rubric ask one.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeAlias

import msgspec

from marl_gem import bounds
from marl_gem.episode_play import failed_episode
from marl_gem.errors import (
    AgentError,
    ConfigError,
    EnvError,
    LLMError,
    MissingPackage,
    RecordError,
    RegistryError,
    ReplayDiverged,
)
from marl_gem.evaluation.budget import Budget
from marl_gem.evaluation.plan import Numbers, Plan, Player, Slot, plan_evaluation, plan_grid, plan_tournament
from marl_gem.evaluation.playing import Playing, Progress, Slots
from marl_gem.evaluation.report import RegradeConfig, RunConfig, read_config, read_report
from marl_gem.evaluation.rescored import Changes, what_changed
from marl_gem.evaluation.result_store import Recorded, ResultStore
from marl_gem.evaluation.run import Result, conclude
from marl_gem.faults import FAULTS, message_of
from marl_gem.llm import Sampling
from marl_gem.policies import Policy
from marl_gem.policies.base import Agent
from marl_gem.policies.replay import EpisodeReplay
from marl_gem.registry import load_function
from marl_gem.rollout import Job, stream
from marl_gem.runs.entries import Entry
from marl_gem.runs.folder import read_config as read_stored
from marl_gem.runs.lock import run_lock
from marl_gem.runs.reader import RunReader
from marl_gem.specs import ScenarioSpec
from marl_gem.step_results import as_reward
from marl_gem.types import Episode, EpisodeError, Limits, Origin, Role

Reward: TypeAlias = Callable[[Episode, str], float | Awaitable[float]]
"""A rubric: what an agent gets for an episode, a finite number, or an awaitable that gives it."""

DIVERGED = ReplayDiverged.__name__


@dataclass(frozen=True)
class Regraded:
    """What came of it: the new run, what changed, how many recorded lines could not be read, and in how many episodes
    the agents' instructions or tools are others now."""

    result: Result
    changes: Changes
    unreadable: int
    other_roles: int


def regrade(
    run: Path | str,
    out: Path | str,
    *,
    reward: Reward | str | None = None,
    resume: bool = False,
    concurrency: int = 64,
    stop: Callable[[], bool] = lambda: False,
    watch: Callable[[Progress], None] | None = None,
) -> Regraded:
    """Score the recorded episodes of an evaluation, a grid or a tournament again, into a new run.

    Args:
        run: the folder of the run. It may be unfinished: what is there is scored, and `resume` does the rest later.
        out: the folder of the new run.
        reward: the rubric, which gives each agent's return instead of the scenario; or where it is, as text. An
            agent with a return above 0 then succeeds, and in a contest the one with the highest.
        resume: continue the run in `out`, with what is not scored yet or could not be.
        concurrency: how many episodes are scored at once.
        stop: called before each episode; once it returns true no new one starts.
        watch: called with the progress whenever episodes have been written to disk.

    Raises:
        ConfigError: `run` is no such run or its scenario does not fit it any more, or `out` holds something else.
        RecordError: `run` holds no finished episode.
        JournalError: a folder cannot be read or written.
        RegistryError: there is no such rubric.
        MissingPackage: the scenario needs a package that is not installed.
    """
    folder, out = Path(run), Path(out)
    if os.path.realpath(folder) == os.path.realpath(out):
        raise ConfigError(f"{out} is the run that is to be scored again; choose another folder for the new scores")
    bounds.CONCURRENCY.check("concurrency", concurrency)
    rubric, name = _rubric(reward)
    plan = _plan(folder, name)
    recorded = _Recorded(plan, folder)
    if not recorded.entries:
        raise RecordError(
            f"{folder} has no finished episode to score again; `marl-gem view {folder}` shows what it has"
        )
    return asyncio.run(_regrade(plan, recorded, rubric, out, resume, concurrency, stop, watch))


async def _regrade(
    plan: Plan,
    recorded: _Recorded,
    rubric: Reward | None,
    out: Path,
    resume: bool,
    concurrency: int,
    stop: Callable[[], bool],
    watch: Callable[[Progress], None] | None,
) -> Regraded:
    with run_lock(out) as lock:
        store = ResultStore.open(plan, out, resume, lock)
        scoring: _Replaying | _Judging
        scoring = _Replaying(store, recorded) if rubric is None else _Judging(store, recorded, rubric)
        try:
            playing = Playing(store, scoring, Budget(), stop, watch, {DIVERGED})
            await playing.finish(min(concurrency, max(1, len(recorded.entries))))
        finally:
            store.close()
        result = conclude(store, out, lock, playing.stopped)
    folders = {match.folder for match in plan.matches}
    changes = what_changed(recorded.folder, out, folders)
    return Regraded(result, changes, recorded.unreadable, getattr(scoring, "other_roles", 0))


def _rubric(reward: Reward | str | None) -> tuple[Reward | None, str]:
    """The rubric and its name."""
    if reward is None or isinstance(reward, str):
        return (load_function(reward), reward) if reward else (None, "")
    return reward, getattr(reward, "__qualname__", type(reward).__qualname__)


# The plan, from the stored configuration


class _Played:
    """A policy as a run recorded it; it answers nothing."""

    def __init__(self, name: str, sampling: Sampling | None) -> None:
        self.name = name
        if sampling:
            self.sampling = sampling

    def agent(self, agent_id: str, role: Role, seed: int) -> Agent:
        raise AgentError(f"{self.name} is known from a record alone")


def _plan(folder: Path, reward: str) -> Plan:
    """The plan of the stored run, with the scenario as it is now.

    Raises:
        ConfigError: see `regrade`.
    """
    config = _stored(folder)
    spec_error = f"{folder} cannot be scored again"
    try:
        spec = ScenarioSpec.parse(config.scenario, config.options, config.wrappers)
        info = spec.inspect()
        n, order = (config.n, config.order) if config.tasks is None else (None, None)
        numbers = Numbers(n, config.repeats, config.seed, config.limits, config.tasks, order)
        players = _players(config, folder)
        seats = {agent: [who] if isinstance(who, str) else who for agent, who in config.seats.items()}
        if config.kind == "tournament":
            plan = plan_tournament(spec, {name: players[who] for name, who in config.players.items()}, numbers, info)
        elif config.kind == "grid":
            plan = plan_grid(
                spec, {agent: [players[who] for who in whos] for agent, whos in seats.items()}, numbers, info
            )
        else:
            plan = plan_evaluation(spec, {agent: players[who] for agent, (who,) in seats.items()}, numbers, info)
    except MissingPackage:
        raise
    except (RegistryError, EnvError, AgentError, ConfigError) as error:
        raise ConfigError(f"{spec_error}: {error}") from error
    again = msgspec.to_builtins(RegradeConfig(os.path.realpath(folder), reward))
    matches = tuple(replace(match, folder=_old_folder(folder, match.folder)) for match in plan.matches)
    return replace(plan, asked={**plan.asked, "regraded": again}, matches=matches)


def _stored(folder: Path) -> RunConfig:
    if not folder.is_dir():
        state = "is a file" if folder.exists() else "does not exist"
        raise ConfigError(f"{folder} {state}; name the folder of an evaluation, a grid or a tournament")
    if RunReader(folder).is_training:
        raise ConfigError(f"{folder} is a training run; only evaluations, grids and tournaments are scored again")
    try:
        config = read_config(read_stored(folder))
    except (ValueError, msgspec.ValidationError) as error:
        raise ConfigError(f"{folder} is no evaluation: {error}") from error
    if config.kind == "cell":
        raise ConfigError(f"{folder} is a part of the run in {Path(os.path.realpath(folder)).parent}; score that again")
    return config


def _players(config: RunConfig, folder: Path) -> dict[str, Player]:
    """Every player of a run, by the text by which it was asked for."""
    names: dict[str, str] = {}
    with contextlib.suppress(RecordError):  # a run that was killed has none
        names = {seat.who: seat.model for match in read_report(folder).matches for seat in match.players.values()}
    texts = [*config.players.values(), *(who for found in config.seats.values() for who in _listed(found))]
    return {
        who: Player(who, _played(names.get(who, who), config.sampling.get(who)), typed=False)
        for who in dict.fromkeys(texts)
    }


def _played(name: str, sampling: Mapping[str, Any] | None) -> Policy:
    return _Played(name, msgspec.convert(sampling, Sampling) if sampling else None)


def _listed(who: str | list[str]) -> list[str]:
    return [who] if isinstance(who, str) else who


def _old_folder(run: Path, folder: str) -> str:
    """The folder of a combination in the stored run: it begins with the same number, whatever follows."""
    number = folder.partition("_")[0]
    found = sorted(run.glob(f"{number}_*")) if number else []
    return found[0].name if found else folder


# The recorded episodes


class _Recorded:
    """The finished episodes of a run, by id; `unreadable` counts lines that hold none of this plan."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.folder = folder
        self.entries: dict[str, tuple[RunReader, Entry]] = {}
        self.unreadable = 0
        for name in sorted({match.folder for match in plan.matches}):
            if not (folder / name).is_dir():
                continue
            run = RunReader(folder / name, root=folder)
            for entry in run.entries():
                summary = entry.summary
                if summary and summary.error:
                    continue
                slot = plan.slots.get(summary.id) if summary else None
                if summary is None or slot is None or slot.seed != summary.seed:
                    self.unreadable += 1
                else:
                    self.entries[summary.id] = run, entry

    def read(self, id: str) -> Episode:
        run, entry = self.entries[id]
        return run.read(entry)


# Scoring


class _Scoring:
    """What both ways of scoring share; see `marl_gem.evaluation.playing.Players`."""

    def __init__(self, store: ResultStore, recorded: _Recorded) -> None:
        self._store, self._recorded = store, recorded

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        """Nothing is left to do."""

    def revoke(self) -> None:
        """Nothing is taken before it begins."""

    def _recorded_slots(self, slots: Slots) -> Iterator[tuple[Slot, Episode]]:
        pending = iter(slots.take, None)  # no limit holds any back
        return ((slot, self._recorded.read(slot.id)) for slot in pending if slot.id in self._recorded.entries)


class _Replaying(_Scoring):
    """Sends the recorded actions through the scenario."""

    def __init__(self, store: ResultStore, recorded: _Recorded) -> None:
        super().__init__(store, recorded)
        self.other_roles = 0
        self._live: dict[str, Episode] = {}

    async def play(self, slots: Slots, concurrency: int) -> AsyncGenerator[Recorded, None]:
        """Replay slots, at most so many at once, and yield each as it finishes."""
        plan = self._store.plan
        jobs = (self._job(slot, episode) for slot, episode in self._recorded_slots(slots))
        async with contextlib.aclosing(stream(plan.scenario.make, jobs, concurrency=concurrency)) as episodes:
            async for episode in episodes:
                yield self._store.record(self._as_recorded(episode))

    def _job(self, slot: Slot, episode: Episode) -> Job:
        self._live[slot.id] = episode
        record = self._store.plan.numbers.limits.record
        limits = Limits(turns=max(1, len(episode.turns)) if episode.limit else None, record=record)
        return replace(self._store.plan.job(slot), seating=EpisodeReplay(episode), limits=limits)

    def _as_recorded(self, again: Episode) -> Episode:
        """The replay, with what the record alone can know: what was read and how long it took."""
        before = self._live.pop(again.id)
        if before.roles and not again.error and before.roles != again.roles:
            self.other_roles += 1
        return msgspec.structs.replace(
            again,
            limit=before.limit if again.limit else "",
            seconds=before.seconds,
            roles=before.roles or again.roles,
        )


class _Judging(_Scoring):
    """Scores the records by a rubric."""

    def __init__(self, store: ResultStore, recorded: _Recorded, reward: Reward) -> None:
        super().__init__(store, recorded)
        self._reward = reward

    async def play(self, slots: Slots, concurrency: int) -> AsyncGenerator[Recorded, None]:
        """Score slots, at most so many at once, and yield each as it is scored."""
        live: set[asyncio.Task[Episode]] = set()
        try:
            for slot, episode in self._recorded_slots(slots):
                live.add(asyncio.create_task(self._score(slot, episode)))
                if len(live) >= concurrency:
                    done, live = await asyncio.wait(live, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        yield self._store.record(task.result())
            for scored in asyncio.as_completed(live):
                yield self._store.record(await scored)
        finally:
            for task in live:
                task.cancel()

    async def _score(self, slot: Slot, episode: Episode) -> Episode:
        """The episode with the rubric's returns, or with what the rubric raised as its error."""
        returns: dict[str, float] = {}
        for agent in episode.returns:
            try:
                value = self._reward(episode, agent)
                value = await value if inspect.isawaitable(value) else value
                returns[agent] = as_reward(value, agent, "the rubric")
            except FAULTS as error:
                origin: Origin = "llm" if isinstance(error, LLMError) else "env"
                fault = EpisodeError(origin, type(error).__name__, message_of(error), agent)
                return failed_episode(self._store.plan.job(slot), fault, episode.scenario)
        return _with_returns(episode, returns)


def _with_returns(episode: Episode, returns: dict[str, float]) -> Episode:
    """The episode with other returns, each paid in the agent's last turn. What the scenario said of success is left
    out, since it goes by other rules."""
    last = {turn.agent: index for index, turn in enumerate(episode.turns)}
    turns = tuple(
        msgspec.structs.replace(turn, reward=returns.get(turn.agent, 0.0) if last[turn.agent] == index else 0.0)
        for index, turn in enumerate(episode.turns)
    )
    infos = {
        agent: {name: value for name, value in info.items() if name not in ("success", "failure")}
        for agent, info in episode.final_infos.items()
    }
    return msgspec.structs.replace(episode, turns=turns, returns=returns, final_infos=infos)
