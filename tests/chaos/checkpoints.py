"""Checkpoints and models that are damaged or malicious: each is refused with a message, or is what it was.

    python -m tests.chaos checkpoints --seed 7

A case takes a sound checkpoint, spoils a copy of it, and reads that as `play`, `eval` and `train --resume` do. Cases
run in a process of their own, under limits of memory and time; what it does not survive is a violation.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import random
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from marl_gem.errors import MarlGemError
from marl_gem.policies import PolicyPerSeat
from marl_gem.rollout import Job, collect
from marl_gem.specs import ScenarioSpec
from marl_gem.trainers import checkpoint
from marl_gem.trainers.start import start
from tests.chaos.checkpoint_damage import ATTACKS, Attack
from tests.chaos.table import Row
from tests.trainers.support import desk, kuhn

CASES = 600
CASE_SECONDS = 60.0
"""How long a case may take on a machine that does other things, too."""
MEMORY = 3 << 30
"""How much more memory a case may take than the process had before it."""

SOURCES = {
    "kuhn": lambda: kuhn("imitation.steps=0", "imitation.episodes=10", "policy.width=8", "training.episodes=8"),
    "desk": lambda: desk("imitation.steps=0", "imitation.episodes=10", "policy.width=8"),
}


def long_round(seed: int) -> list[Row]:
    """At least 500 cases, and writes onto a disk that is full."""
    with tempfile.TemporaryDirectory() as folder:
        rows = _in_processes(seed, CASES, Path(folder))
        return [*rows, full_disks(seed, 40, Path(folder))]


def write_sources(folder: Path) -> None:
    """A run with a checkpoint after one update for each of `SOURCES`."""
    for name, config in SOURCES.items():
        loop, _ = start(config())
        loop.update()
        checkpoint.save(folder / name / "checkpoints", loop)


class Outcome:
    """What reading came to: refused with a message, or accepted, with a fingerprint of what was read."""

    def __init__(self, run: Path, scenario: str) -> None:
        self.fingerprint = ""
        self.message = ""
        try:
            options = checkpoint.scenario_options(run, scenario)
            policy = checkpoint.load_policy(run, scenario)
            loop = checkpoint.load(run)
            parts = policy.policies if isinstance(policy, PolicyPerSeat) else {"": policy}
            seen = [json.dumps(options, sort_keys=True), str(loop.updates), repr(loop.config)]
            for seat, part in sorted(parts.items()):
                seen += [seat, part.name, str(part.sampling), _digest(part.llm.model.state_dict())]  # type: ignore[attr-defined]
                seen.append(part.llm.tokenizer.backend_tokenizer.to_str())  # type: ignore[attr-defined]
            for name, learner in sorted(loop.learners.items()):
                seen += [name, str(learner.backend.version), _digest(learner.backend.weights())]
                seen += [_digest(learner.backend.optimizer_state()), _digest(learner.backend.reference or {})]
                seen += [f"{old.version} {_digest(old.weights)}" for old in learner.pool.snapshots]
            seats = {agent: parts.get(agent, next(iter(parts.values()))) for agent in loop.specs[0].inspect().agents}
            collect(ScenarioSpec.parse(scenario).make, [Job(1, seats)])  # an episode may fail; a process may not
            self.fingerprint = hashlib.sha256("\n".join(seen).encode("utf-8", "backslashreplace")).hexdigest()
        except MarlGemError as error:
            self.message = str(error)


def _digest(tensors: dict[str, Any]) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name}{tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()


def play_case(seed: int, number: int, sources: Path, folder: Path, sound: dict[str, str]) -> tuple[Attack, str]:
    """Spoil a copy of a checkpoint and read it.

    Args:
        seed, number: the case follows from them.
        sources: what `write_sources` has written.
        folder: an empty folder for the copy.
        sound: the fingerprints of the sources; filled when they are first needed.

    Returns:
        the attack, and in which way its promise was broken; "" if it was kept.
    """
    rng = random.Random(f"{seed} {number}")
    name = rng.choice(sorted(SOURCES))
    attack = ATTACKS[number % len(ATTACKS)]
    scenario = SOURCES[name]().scenarios[0].id
    if name not in sound:
        sound[name] = Outcome(sources / name, scenario).fingerprint
    run, mark = Path(shutil.copytree(sources / name, folder / name)), folder / "mark"
    done = f"case {number}, {name}: {attack.spoil(rng, run, mark)}"
    begun = time.monotonic()
    try:
        outcome = Outcome(run, scenario)
    except Exception as error:
        return attack, f"{done}: traceback: {type(error).__name__}: {error!s:.200}"
    if mark.exists():
        return attack, f"{done}: its code ran"
    if time.monotonic() - begun > CASE_SECONDS:
        return attack, f"{done}: took {time.monotonic() - begun:.0f} s"
    if outcome.message:
        return attack, ""
    if attack.must_be_refused or (attack.must_be_equal and outcome.fingerprint != sound[name]):
        return attack, f"{done}: accepted"
    return attack, ""


def full_disks(seed: int, count: int, folder: Path) -> Row:
    """Write checkpoints while no file may grow beyond a random size."""
    rng, violations, begun = random.Random(seed), [], time.monotonic()
    loop, _ = start(SOURCES["kuhn"]())
    checkpoints = folder / "full" / "checkpoints"
    first = checkpoint.save(checkpoints, loop)
    largest = max(file.stat().st_size for file in first.rglob("*") if file.is_file())
    for number in range(count):
        loop.updates = number + 1
        before = sorted(path.name for path in checkpoints.iterdir())
        limit = rng.randrange(1, largest)
        try:
            with no_larger_files(limit):
                checkpoint.save(checkpoints, loop)
            violations.append(f"{limit} bytes: written")
        except MarlGemError as error:
            if "cannot write a checkpoint" not in str(error):
                violations.append(f"{limit} bytes: {error}")
        except Exception as error:
            violations.append(f"{limit} bytes: traceback: {error!r:.200}")
        if sorted(path.name for path in checkpoints.iterdir()) != before:
            violations.append(f"{limit} bytes: a draft is left, or a checkpoint is gone")
    loop.updates = 0
    if not Outcome(checkpoints.parent, loop.config.title).fingerprint:
        violations.append("the last checkpoint is not complete")
    promise = "a message, no draft is left, and the last checkpoint is complete"
    return Row(
        "a disk that is full while a checkpoint is written", promise, count, violations, time.monotonic() - begun
    )


@contextlib.contextmanager
def no_larger_files(limit: int) -> Iterator[None]:
    """No file grows beyond so many bytes: whoever writes, in Python or not, gets an error of the system."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


# The process that plays the cases


def _in_processes(seed: int, count: int, folder: Path) -> list[Row]:
    """All cases, in a process that is started again when a case ends it."""
    violations: dict[str, list[str]] = {attack.name: [] for attack in ATTACKS}
    seconds = {attack.name: 0.0 for attack in ATTACKS}
    number, sources = 0, folder / "sources"
    write_sources(sources)
    while number < count:
        command = [sys.executable, "-m", __name__, f"--seed={seed}", f"--first={number}", f"--last={count}"]
        environment = {**os.environ, "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        process = subprocess.Popen(
            [*command, str(sources)], stdout=subprocess.PIPE, stdin=subprocess.PIPE, bufsize=0, env=environment
        )
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b"y\n" * 10_000)
        process.stdin.close()
        last = time.monotonic()
        while number < count:
            ready, _, _ = select.select([process.stdout], [], [], 3 * CASE_SECONDS)
            line = process.stdout.readline() if ready else b""
            attack = ATTACKS[number % len(ATTACKS)].name
            seconds[attack] += time.monotonic() - last
            last, number = time.monotonic(), number + 1
            if not line:
                process.kill()
                violations[attack].append(f"case {number - 1}: {'ended its process' if ready else 'hangs'}")
                break
            if violation := json.loads(line):
                violations[attack].append(violation)
        process.wait()
    cases = Counter(ATTACKS[case % len(ATTACKS)].name for case in range(count))
    return [
        Row(attack.name, attack.promise, cases[attack.name], violations[attack.name], seconds[attack.name])
        for attack in ATTACKS
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int)
    parser.add_argument("--first", type=int)
    parser.add_argument("--last", type=int)
    parser.add_argument("sources", type=Path)
    arguments = parser.parse_args()
    sound: dict[str, str] = {}
    results = os.fdopen(os.dup(1), "w")
    sys.stdout = io.StringIO()  # lines of libraries are none of ours
    for name in SOURCES:
        sound[name] = Outcome(arguments.sources / name, SOURCES[name]().scenarios[0].id).fingerprint
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    if pages:
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, resource.RLIM_INFINITY))
    for number in range(arguments.first, arguments.last):
        with tempfile.TemporaryDirectory() as folder:
            _, violation = play_case(arguments.seed, number, arguments.sources, Path(folder), sound)
        results.write(json.dumps(violation) + "\n")
        results.flush()


if __name__ == "__main__":
    main()
