"""Hostile plug-ins beside healthy neighbours: each fault is that of its episode, and every record can be read.

Each kind of `tests/chaos/hostile_plugins.py` plays an evaluation in which every third task goes wrong. Then the run is
resumed, reported, read by the viewer and exported. Commands are run on plug-ins that end the program, and what could
exhaust the machine runs in processes of limited memory.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
from rich.console import Console

from marl_gem.errors import MarlGemError
from marl_gem.evaluation import evaluate
from marl_gem.export.chat import write_chat
from marl_gem.runs.journal import Journal
from marl_gem.runs.reader import RunReader
from marl_gem.types import Episode, from_json, to_json
from marl_gem.vector import VectorEnv
from marl_gem.viewer.text import show_episodes, show_transcript
from tests.chaos.hostile_plugins import HARMLESS, HOSTILE, POLICIES, SOMETIMES, TASKS, Game, Player, is_bad
from tests.chaos.table import Row

ROOT = Path(__file__).parents[2]
BAD = {f"{task}.0" for task in range(TASKS) if is_bad(task)}

Episodes = dict[str, Episode]
Check = Callable[[int, Path, Episodes], list[str]]
"""Takes the seed, an empty folder and the episodes of a healthy scenario; returns what went wrong."""


def long_round(seed: int) -> list[Row]:
    """All kinds."""
    return [*attack(seed), exits(), exhaustion()]


def attack(seed: int, count: int | None = None, kinds: Mapping[str, Check] | None = None) -> list[Row]:
    """Play with `count` of the kinds, drawn by the seed; by default with all."""
    begun = time.monotonic()
    chosen = [*(dict(all_kinds()) if kinds is None else kinds).items()]
    random.Random(seed).shuffle(chosen)
    chosen = chosen[:count]
    broken: list[str] = []
    healthy = _healthy(seed)
    for name, check in chosen:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                broken += [f"{name}: {problem}" for problem in check(seed, Path(folder), healthy)]
            except BaseException as error:  # whatever gets out of an evaluation is a violation
                broken.append(f"{name}: {''.join(traceback.format_exception_only(error))[:300]}")
    return [
        Row(
            "hostile scenarios, agents and values, in every third task",
            "each fails its episode with a reason; the others are played once and unchanged; records can be read",
            len(chosen),
            broken,
            time.monotonic() - begun,
        )
    ]


def all_kinds() -> Iterator[tuple[str, Check]]:
    for name, make in HOSTILE.items():
        yield name, partial(_play, make, Player, BAD)
        yield f"{name}, in a VectorEnv", partial(_step_together, make)
    for name, make in HARMLESS.items():
        yield name, partial(_play, make, Player, set())
    for name, make in SOMETIMES.items():
        yield name, partial(_play, make, Player, None)
    for name, policy in POLICIES.items():
        yield name, partial(_play, lambda: Game, policy, BAD)


def _healthy(seed: int) -> Episodes:
    result = evaluate(Game, Player(), n=TASKS, seed=seed)
    return {episode.id: _timeless(episode) for episode in result.episodes}


def _play(
    make: Callable[[], type[Game]],
    policy: Callable[[], Player],
    bad: set[str] | None,
    seed: int,
    folder: Path,
    healthy: Episodes,
) -> list[str]:
    """What went wrong in an evaluation and in all that is done with it afterwards. `bad` None: any may fail."""
    scenario, out = make(), folder / "run"
    result = evaluate(scenario, policy(), n=TASKS, seed=seed, out=out, concurrency=3)
    failed = {episode.id for episode in _read(out / "errors.jsonl")}
    problems = [*_compare(out, healthy, failed if bad is None else bad, bad == set())]
    if result.report.episodes.counted != TASKS - len(failed) or result.pending != len(failed):
        problems.append(f"the report counts {result.report.episodes}")
    problems += _look(out, folder)
    again = evaluate(make(), policy(), n=TASKS, seed=seed, out=out, resume=True, concurrency=3)
    if bad is not None and again.pending != len(bad):
        problems.append(f"resumed, {again.pending} are pending")
    healed = evaluate(type(scenario.__name__, (Game,), {}), Player(), n=TASKS, seed=seed, out=out, resume=True)
    if healed.pending:
        problems.append(f"resumed with a healthy scenario, {healed.pending} are pending")
    if bad:
        problems += _compare(out, healthy, set(), False)
    return problems


def _compare(out: Path, healthy: Episodes, bad: set[str], odd: bool) -> Iterator[str]:
    """Compare what was played with what a healthy scenario plays. `odd`: its infos differ."""
    played = _read(out / "episodes.jsonl")
    ids = [episode.id for episode in played]
    if sorted(ids) != sorted(healthy.keys() - bad):
        yield f"played were {sorted(ids)}"
    for episode in played:
        if not odd and _timeless(episode) != healthy[episode.id]:
            yield f"episode {episode.id} is another than beside healthy ones"
    for episode in _read(out / "errors.jsonl"):
        if episode.error is None or episode.error.origin not in ("env", "agent") or not episode.error.type:
            yield f"episode {episode.id} has the error {episode.error}"


def _read(path: Path) -> list[Episode]:
    """The episodes of a journal; each must be what is written for it."""
    episodes = [episode for _, episode in Journal(path).episodes()]
    for episode in episodes:
        assert from_json(to_json(episode), Episode) == episode, f"{episode.id} does not come back"
    return episodes


def _timeless(episode: Episode) -> Episode:
    return msgspec.structs.replace(episode, seconds=0.0, scenario="")


def _look(out: Path, folder: Path) -> list[str]:
    """Read the run as the viewer does, and export it."""
    reader, text = RunReader(out), Console(file=io.StringIO())
    entries = reader.entries()
    show_episodes(text, reader, entries, None)
    for entry in entries:
        show_transcript(text, reader, entry, "")
    written = write_chat(reader, folder / "chat.jsonl")
    files = [path.name for path in out.iterdir()]
    return [] if written and {"report.json", "report.md"} <= {*files} else [f"the run has only {files}"]


def _step_together(make: Callable[[], type[Game]], seed: int, folder: Path, healthy: Episodes) -> list[str]:
    """Step a hostile env beside a healthy one in a vector; the healthy one must not notice."""
    problems = []
    scenario = make()
    with (
        VectorEnv([scenario, Game], seed=seed, workers=0) as envs,
        contextlib.suppress(KeyboardInterrupt),  # is raised to the caller, as documented
    ):
        for _ in range(3):
            results = envs.reset(options={"task": 1})
            while not results[1].done:
                results = envs.step([dict.fromkeys(result.observations, "1") for result in results])
            if results[1].error or results[1].returns != {"a": 2.0, "b": 2.0}:
                problems.append(f"the neighbour came to {results[1].error or results[1].returns}")
    return problems


# Commands

EXITS = {
    "at import": "import sys\nsys.exit(0)\n",
    "in the constructor": "class Game(Game):\n    def __init__(self): exit()\n",
    "in the second constructor": (
        "class Game(Game):\n    made = 0\n    def __init__(self):\n"
        "        Game.made += 1\n        if Game.made > 1: raise SystemExit(0)\n"
    ),
    "in reset": "class Game(Game):\n    def reset(self, seed=None, options=None): quit()\n",
    "in _reset": "class Game(Game):\n    def _reset(self, options): raise SystemExit(0)\n",
    "in step": "class Game(Game):\n    def step(self, actions): raise SystemExit(0)\n",
    "in observe": "class Game(Game):\n    def observe(self, agent): raise SystemExit(0)\n",
    "in role": "class Game(Game):\n    def role(self, agent): raise SystemExit(0)\n",
    "in metadata": "class Game(Game):\n    @property\n    def metadata(self): raise SystemExit(0)\n",
    "in possible_agents": "class Game(Game):\n    @property\n    def possible_agents(self): raise SystemExit(0)\n",
    "in trivial_baselines": "class Game(Game):\n    @property\n    def trivial_baselines(self): raise SystemExit(0)\n",
    "in a raised constructor": "class Game(Game):\n    def __init__(self): 1 / 0\n",
}
"""Code after `from tests.chaos.hostile_plugins import Game`, by where it ends the program or raises."""

COMMANDS = (
    ("eval", "-n", "5"),
    ("play",),
    ("play", "-n", "3"),
    ("check", "--only", "plays", "--only", "metadata"),
    ("list",),
)


def exits(names: Sequence[str] = tuple(EXITS), commands: Sequence[tuple[str, ...]] = COMMANDS) -> Row:
    """Commands on scenarios that end the program: never exit code 0 without a result, never a traceback."""
    begun, broken, cases = time.monotonic(), [], 0
    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(names):
            file = Path(folder) / f"hostile_{number}.py"
            file.write_text(f"from tests.chaos.hostile_plugins import Game\n{EXITS[name]}", "utf-8")
            for command in commands:
                out = ["--out", str(Path(folder) / f"run-{number}")] if command[0] == "eval" else []
                code, output = run_command([command[0], f"{file}:Game", *command[1:], *out])
                cases += 1
                about = f"{' '.join(command)} with an exit {name}"
                if "Traceback" in output:
                    broken.append(f"{about}: a traceback: {output[-300:]}")
                if code not in (1, 2) and not (command[0] == "list" and code == 0 and "agents" in output):
                    broken.append(f"{about}: exit code {code}: {output[-200:]}")
    promise = "the exit code is not 0, and a message names the plug-in; no traceback"
    return Row("plug-ins that end the program, in every command", promise, cases, broken, time.monotonic() - begun)


def run_command(arguments: list[str]) -> tuple[int, str]:
    """A command line in this process: its exit code, and what it printed."""
    from marl_gem.cli import main

    output = io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["marl-gem", *arguments]),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(output),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        try:
            main()
            code: Any = 0
        except SystemExit as ended:
            code = ended.code
        except BaseException:
            output.write(traceback.format_exc())
            code = -1
    return int(code or 0), output.getvalue()


# What could exhaust the machine

GREEDY = {
    "a text of 500 MB in an info": "'x' * 500_000_000",
    "a text of 500 MB in a list a hundred times": "['x' * 500_000_000] * 100",
    "more than there is memory": "[bytearray(10**8) for _ in range(10**6)]",
    "a list of 20 million numbers": "[0] * 20_000_000",
}


def exhaustion(kinds: Sequence[str] = tuple(GREEDY)) -> Row:
    """Values that are too large, each in a process that may use 3 GB."""
    begun, broken = time.monotonic(), []
    for name in kinds:
        code = f"import tests.chaos.plugins as p; p.play_greedy({GREEDY[name]!r})"
        ended = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30)),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if ended.returncode or ended.stdout.strip() != "ok":
            broken.append(f"{name}: {ended.returncode}: {ended.stdout[-200:]} {ended.stderr[-300:]}")
    promise = "the episode fails with a reason, and its neighbours are played"
    return Row("values that exhaust memory", promise, len(kinds), broken, time.monotonic() - begun)


def play_greedy(expression: str) -> None:
    """Evaluate a scenario that puts a large value into infos, and print ok if only its episodes fail."""

    class Greedy(Game):
        def _process_action(self, agent: str, action: str) -> None:
            super()._process_action(agent, action)
            if self.bad:
                self.infos[agent]["x"] = eval(expression)

    with tempfile.TemporaryDirectory() as folder:
        try:
            evaluate(Greedy, Player(), n=TASKS, out=Path(folder) / "run", concurrency=1)
            played = {episode.id for episode in _read(Path(folder) / "run" / "episodes.jsonl")}
        except MarlGemError as error:
            sys.exit(str(error))
    sys.stdout.write("ok" if played == {f"{task}.0" for task in range(TASKS)} - BAD else str(sorted(played)))
