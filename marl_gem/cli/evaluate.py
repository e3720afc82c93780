"""marl-gem eval and marl-gem tournament: numbers with intervals, from runs that can be resumed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as ProgressBar

from marl_gem import bounds
from marl_gem.cli.exit_codes import ExitCode
from marl_gem.cli.fitted_markdown import FittedMarkdown
from marl_gem.cli.interrupts import stop_on_interrupt
from marl_gem.cli.terminal import (
    Options,
    ResetOptions,
    Tools,
    Wait,
    Wrappers,
    as_trained,
    err,
    number,
    out,
    person,
    read_reset,
    read_scenario,
)
from marl_gem.errors import ConfigError
from marl_gem.evaluation import (
    Budget,
    Numbers,
    Plan,
    Player,
    Progress,
    plan_evaluation,
    plan_grid,
    plan_tournament,
    run,
)
from marl_gem.evaluation.markdown import summary
from marl_gem.evaluation.markup import money_text
from marl_gem.evaluation.result_store import stored_config
from marl_gem.evaluation.task_choice import read_tasks
from marl_gem.llm.models import Models
from marl_gem.policies import HumanPolicy
from marl_gem.runs.folder import fresh_folder
from marl_gem.specs import PolicySpec, ScenarioSpec, assign_candidates, load_policy, parse_assignment
from marl_gem.types import Limits

PLAIN_LINE_EVERY = 10.0
"""Seconds between two lines about the progress where there is no terminal."""

FEW = 3
"""The success of each of so many agents fits behind a progress bar."""

Scenario = Annotated[str | None, typer.Argument(help="A scenario id; marl-gem list shows them.")]
N = Annotated[int | None, number(bounds.TASKS, "-n", help="How many tasks; by default all there are, or 100.")]
Tasks = Annotated[
    str | None, typer.Option(metavar="3,7-9", help="These tasks, by their numbers from 0, instead of the first n.")
]
Shuffle = Annotated[
    bool, typer.Option("--shuffle", help="Draw the n tasks. Otherwise all grades in proportion, or the first n.")
]
Repeats = Annotated[int | None, number(bounds.REPEATS, help="How often each task is played; more than 1 gives pass^k.")]
Seed = Annotated[int | None, number(bounds.SEED, help="Fixes every random choice.")]
Out = Annotated[Path | None, typer.Option("--out", help="The run's folder; by default a fresh one in runs/.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the run in --out; what is not given is as it was.")]
Concurrency = Annotated[int, number(bounds.CONCURRENCY, help="How many episodes are live at once.")]
Processes = Annotated[int, number(bounds.PROCESSES, help="How many processes play; 0 for one for each processor.")]
MaxTurns = Annotated[int | None, number(bounds.TURNS, help="Of an episode: it is cut after so many turns.")]
MaxTokens = Annotated[int | None, number(bounds.TOKENS, help="Of an episode: it is cut after so many tokens.")]
MaxSeconds = Annotated[float | None, number(bounds.SECONDS, help="Of an episode: it is cut after so long.")]
MaxCost = Annotated[float | None, number(bounds.DOLLARS, help="Of an episode: it is cut after so many US dollars.")]
RunEpisodes = Annotated[int | None, number(bounds.EPISODES, "--run-max-episodes", help="Of the run: no more episodes.")]
RunTokens = Annotated[int | None, number(bounds.RUN_TOKENS, "--run-max-tokens", help="Of the run: then none starts.")]
RunSeconds = Annotated[
    float | None, number(bounds.SECONDS, "--run-max-seconds", help="Of this call: then none starts.")
]
RunCost = Annotated[float | None, number(bounds.DOLLARS, "--run-max-cost", help="Of the run, in US dollars.")]
Cache = Annotated[Path | None, typer.Option(help="Keep the models' answers in this file, and ask nothing twice.")]


def evaluate(
    scenario: Scenario = None,
    seats: Annotated[
        list[str] | None,
        typer.Option("--seat", metavar="AGENT=WHO", help="A seat and its policy; others play at random."),
    ] = None,
    grid: Annotated[
        bool, typer.Option("--grid", help="A seat may be given several times: play all combinations.")
    ] = False,
    n: N = None,
    tasks: Tasks = None,
    shuffle: Shuffle = False,
    repeats: Repeats = None,
    seed: Seed = None,
    resume: Resume = False,
    folder: Out = None,
    concurrency: Concurrency = 64,
    processes: Processes = 1,
    max_turns: MaxTurns = None,
    max_tokens: MaxTokens = None,
    max_seconds: MaxSeconds = None,
    max_cost: MaxCost = None,
    run_episodes: RunEpisodes = None,
    run_tokens: RunTokens = None,
    run_seconds: RunSeconds = None,
    run_cost: RunCost = None,
    cache: Cache = None,
    wait: Wait = None,
    wrappers: Wrappers = None,
    tools: Tools = None,
    options: Options = None,
    reset: ResetOptions = None,
) -> None:
    """Evaluate policies: success, returns, tokens, cost and more, with intervals, and every episode on disk.

    Where the scenario knows, also which tasks were solved, why others were not, and trivial baselines to compare with.

    A run can be killed at any moment and continues with --resume. The first Ctrl-C ends it in order, the second at
    once.
    """
    asked = _Asked(scenario, folder, resume, ("eval", "grid"), options, wrappers, tools)
    limits = Limits(max_turns, max_tokens, max_seconds, max_cost)
    numbers = asked.numbers(n, repeats, seed, limits, tasks, shuffle, read_reset(reset))
    assignments = list(map(parse_assignment, seats)) if seats else asked.stored_seats()
    spec = asked.spec(spec for _, spec in assignments)
    info = spec.inspect()
    candidates = assign_candidates(assignments, info)
    grid = grid or (not seats and asked.stored is not None and asked.stored.kind == "grid")
    several = [agent for agent, specs in candidates.items() if len(specs) > 1]
    if several and not grid:
        times = len(candidates[several[0]])
        raise ConfigError(f"seat {several[0]!r} is given {times} times; --grid plays all combinations")
    if grid and not several:
        raise ConfigError("a grid needs a seat that is given several times, as in --seat a=random --seat a=human")
    models = Models(cache, wait)
    players = {
        agent: [_player(policy, spec, (agent,), models) for policy in specs] for agent, specs in candidates.items()
    }
    if grid:
        plan = plan_grid(spec, players, numbers, info)
    else:
        plan = plan_evaluation(spec, {agent: player for agent, (player,) in players.items()}, numbers, info)
    _run(plan, asked, concurrency, processes, Budget(run_episodes, run_tokens, run_seconds, run_cost))


def tournament(
    scenario: Scenario = None,
    players: Annotated[
        list[str] | None, typer.Option("--player", metavar="NAME=WHO", help="A player. Give two or more.")
    ] = None,
    n: Annotated[int | None, number(bounds.TASKS, "-n", help="Games of each seating; all tasks, or 100.")] = None,
    tasks: Tasks = None,
    shuffle: Shuffle = False,
    seed: Seed = None,
    resume: Resume = False,
    folder: Out = None,
    concurrency: Concurrency = 64,
    processes: Processes = 1,
    max_turns: MaxTurns = None,
    max_tokens: MaxTokens = None,
    max_seconds: MaxSeconds = None,
    max_cost: MaxCost = None,
    run_episodes: RunEpisodes = None,
    run_tokens: RunTokens = None,
    run_seconds: RunSeconds = None,
    run_cost: RunCost = None,
    cache: Cache = None,
    wait: Wait = None,
    wrappers: Wrappers = None,
    tools: Tools = None,
    options: Options = None,
    reset: ResetOptions = None,
) -> None:
    """Let players meet, each in every seat equally often, and rate them.

    A run can be killed at any moment and continues with --resume. The first Ctrl-C ends it in order, the second at
    once.
    """
    asked = _Asked(scenario, folder, resume, ("tournament",), options, wrappers, tools)
    limits = Limits(max_turns, max_tokens, max_seconds, max_cost)
    numbers = asked.numbers(n, None, seed, limits, tasks, shuffle, read_reset(reset))
    named = _by_name(players) if players else asked.stored_players()
    spec = asked.spec(named.values())
    info, models = spec.inspect(), Models(cache, wait)
    met = {name: _player(policy, spec, info.agents, models) for name, policy in named.items()}
    plan = plan_tournament(spec, met, numbers, info)
    _run(plan, asked, concurrency, processes, Budget(run_episodes, run_tokens, run_seconds, run_cost))


class _Asked:
    """What the command line says, and where it says nothing, what the run that is resumed was asked for."""

    def __init__(
        self,
        scenario: str | None,
        folder: Path | None,
        resume: bool,
        kinds: tuple[str, ...],
        options: list[str] | None,
        wrappers: list[str] | None,
        tools: list[str] | None,
    ) -> None:
        if resume and folder is None:
            raise ConfigError("which run should continue? Name its folder with --out")
        self.resume, self.kind = resume, kinds[0]
        self.stored = stored_config(folder, resume) if folder else None
        if self.stored and self.stored.kind not in kinds:
            command = "tournament" if self.stored.kind == "tournament" else "eval"
            raise ConfigError(f"{folder} is not such a run; continue it: marl-gem {command} --out {folder} --resume")
        self.scenario = scenario or (self.stored.scenario if self.stored else "")
        if not self.scenario:
            raise ConfigError("which scenario? For instance game:KuhnPoker-v0; `marl-gem list` shows all")
        stem = f"{self.kind}-{self.scenario.partition(':')[2] or self.scenario}"
        self.folder = folder or fresh_folder(Path("runs"), stem.replace("/", "-"))
        self._options, self._wrappers, self._tools = options, wrappers, tools

    def numbers(
        self,
        n: int | None,
        repeats: int | None,
        seed: int | None,
        limits: Limits,
        tasks: str | None,
        shuffle: bool,
        reset: dict[str, Any],
    ) -> Numbers:
        """How much is played."""
        before = self.stored
        numbers = Numbers(
            n,
            repeats or (before.repeats if before else 1),
            (before.seed if before else 0) if seed is None else seed,
            before.limits if before and limits == Limits() else limits,
            None if tasks is None else read_tasks(tasks),
            "shuffled" if shuffle else None,
            reset,
        )
        return numbers.continued(before) if before else numbers

    def stored_seats(self) -> list[tuple[str, PolicySpec]]:
        """The assignments of the run that is resumed; several of an agent in a grid."""
        seats = self.stored.seats if self.stored else {}
        listed = {agent: [who] if isinstance(who, str) else who for agent, who in seats.items()}
        return [(agent, PolicySpec.parse(text)) for agent, texts in listed.items() for text in texts]

    def stored_players(self) -> dict[str, PolicySpec]:
        """The players of the tournament that is resumed."""
        return {name: PolicySpec.parse(text) for name, text in (self.stored.players if self.stored else {}).items()}

    def spec(self, policies: Iterable[PolicySpec]) -> ScenarioSpec:
        """The scenario, with the options of this command, else of the stored run, else of the policies' training.

        Its wrappers and tools are those of this command, or without any those of the stored run.
        """
        before = self.stored
        spec = read_scenario(self.scenario, self._options, self._wrappers, self._tools)
        if before and not (self._wrappers or self._tools):
            spec = ScenarioSpec.parse(spec, wrappers=before.wrappers)
        return as_trained(spec, policies, before.options if before else {})


def _by_name(assignments: list[str]) -> dict[str, PolicySpec]:
    """The players of a tournament.

    Raises:
        ConfigError: two have the same name.
    """
    pairs = [parse_assignment(assignment) for assignment in assignments]
    names = [name for name, _ in pairs]
    if doubled := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"two players are called {doubled!r}; every player needs another name")
    return dict(pairs)


def _player(policy: PolicySpec, scenario: ScenarioSpec, agents: tuple[str, ...], models: Models) -> Player:
    loaded = load_policy(policy, scenario, agents=agents, models=models, human=person)
    return Player(str(policy), loaded, models=models)


def _run(plan: Plan, asked: _Asked, concurrency: int, processes: int, budget: Budget) -> None:
    folder, human = asked.folder, any(isinstance(player.policy, HumanPolicy) for player in plan.players)
    command = "tournament" if plan.kind == "tournament" else "eval"
    again = f"marl-gem {command} --out {folder} --resume"
    err.print(
        f"[bold]{escape(plan.info.scenario)}[/]: {len(plan.slots)} episodes in {escape(str(folder))}", soft_wrap=True
    )
    with stop_on_interrupt("the episodes that are live", again) as stop, _shown(plan, human) as watch:
        result = run(
            plan,
            folder,
            resume=asked.resume,
            concurrency=1 if human else concurrency,
            processes=processes,
            budget=budget,
            stop=lambda: bool(stop),
            watch=watch,
        )
    out.print(FittedMarkdown(summary(result.report), hyperlinks=False))
    for file in sorted(path for path in folder.iterdir() if path.is_file() and path.name[0] != "."):
        out.print(f"  {escape(str(file))}", soft_wrap=True)
    if result.pending:
        err.print(
            f"[yellow]{result.pending} episodes are pending.[/] Continue with:\n  {escape(again)}", soft_wrap=True
        )
        sys.exit(ExitCode.INTERRUPTED if result.stopped == "interrupted" else ExitCode.FAILED)


@contextmanager
def _shown(plan: Plan, human: bool) -> Iterator[Callable[[Progress], None]]:
    """Show how far a run is: a bar in a terminal, else a line now and then; nothing where a person plays."""
    if human:
        yield lambda progress: None
    elif err.is_terminal:
        columns = (BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn("{task.fields[figures]}"))
        with ProgressBar(*columns, console=err) as bar:
            task = bar.add_task("", total=len(plan.slots), figures="")
            yield lambda progress: bar.update(task, completed=progress.done, figures=escape(_figures(plan, progress)))
    else:
        last = time.monotonic()

        def line(progress: Progress) -> None:
            nonlocal last
            if time.monotonic() - last >= PLAIN_LINE_EVERY or progress.done == progress.total:
                last = time.monotonic()
                text = f"{progress.done}/{progress.total} episodes {_figures(plan, progress)}"
                err.print(escape(text), soft_wrap=True)

        yield line


def _success(shares: Mapping[str, float]) -> list[str]:
    """How often each agent succeeded so far; of many agents the mean."""
    if len(shares) > FEW:
        return [f"success {100 * sum(shares.values()) / len(shares):.0f}%"]
    return [f"{agent} {100 * share:.0f}%" for agent, share in shares.items()]


def _figures(plan: Plan, progress: Progress) -> str:
    """The few figures that fit behind a progress bar."""
    parts = _success(progress.success) if plan.kind == "eval" else []
    if progress.failed:
        parts.append(f"{progress.failed} failed")
    if progress.tokens:
        parts.append(f"{progress.tokens:,} tokens")
    if progress.cost != 0:
        expected = (progress.cost or 0.0) + (progress.cost_left or 0.0)
        parts.append(
            f"cost {money_text(progress.cost)}" + (f" of about {money_text(expected)}" if progress.cost_left else "")
        )
    if progress.left is not None and progress.done < progress.total:
        minutes, seconds = divmod(round(progress.left), 60)
        parts.append(f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d} left")
    return "  ".join(parts)
