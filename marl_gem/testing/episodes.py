"""Checks that compare episodes: purity, seeds, copies side by side, forks, resets, and how episodes end."""

from __future__ import annotations

import functools
import io
import json
import os
import pickle
import random
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from itertools import zip_longest
from typing import Any

from marl_gem.env import MultiAgentEnv
from marl_gem.errors import EpisodeOver, InvalidOption, PromiseBroken
from marl_gem.testing.random_play import (
    THOROUGH,
    Make,
    Moment,
    Plan,
    PlayFailed,
    Snapshot,
    apply_actions,
    in_one_line,
    moments,
    must_equal,
    play_randomly,
    reproduce,
    short,
    snapshots,
)


def check_plays(make: Make, plan: Plan = THOROUGH) -> None:
    """Random play raises nothing."""
    for _ in moments(make, plan):
        pass


def check_seeding(make: Make, plan: Plan = THOROUGH) -> None:
    """The same seed gives the same episode, and no global random generator is used."""
    for seed in plan.seeds:
        with _global_generators() as state:
            random.seed(1)
            expected = _episode(make, seed, plan)
            random.seed(2)
            before = state()
            with closing(make()) as env:
                again = snapshots(env, seed, plan.steps)
                must_equal(seed, expected, again, "played again with the same seed, the episode differs")
                if env.seed != seed:
                    raise PromiseBroken(f"reset(seed={seed}) leaves env.seed at {env.seed!r}")
            touched = [name for name, value in state().items() if name in before and value != before[name]]
        if touched:
            complaint = f"{' and '.join(touched)} changed while the env played; draw from self.rng only"
            raise PromiseBroken(f"{complaint}\n{reproduce(seed, [])}")


@contextmanager
def _global_generators() -> Iterator[Callable[[], dict[str, Any]]]:
    """Gives a function that returns the state of the global generators; restores Python's at the end."""

    def state() -> dict[str, Any]:
        numpy = sys.modules.get("numpy.random")
        found: dict[str, Any] = {"Python's global generator": random.getstate()}
        return found if numpy is None else {**found, "NumPy's global generator": short_state(numpy.get_state())}

    def short_state(parts: Any) -> tuple[bytes, int]:
        return parts[1].tobytes(), parts[2]

    python = random.getstate()
    try:
        yield state
    finally:
        random.setstate(python)


def check_purity(make: Make, plan: Plan = THOROUGH) -> None:
    """observe, role and legal_actions change nothing, however often they are called."""
    for seed in plan.seeds:
        expected = _episode(make, seed, plan)
        for method in ("observe", "role", "legal_actions"):
            with closing(make()) as env:
                asked = snapshots(env, seed, plan.steps, functools.partial(_call_for_all, env, method))
                must_equal(seed, expected, asked, f"{method} changes something; called between steps")


def _call_for_all(env: MultiAgentEnv, method: str, now: Moment) -> None:
    """Call a method for every agent three times, forwards and backwards."""
    agents = env.acting if method == "legal_actions" else env.agents
    drawn = env.rng.getstate()
    first = {agent: _call(env, method, agent, now) for agent in agents}
    for agent in [*reversed(agents), *agents]:
        again = _call(env, method, agent, now)
        if again != first[agent]:
            changed = f"{short(first[agent])} at first and {short(again)} when called again"
            raise now.broken(f"{method}({agent!r}) is {changed}")
    if env.rng.getstate() != drawn:
        raise now.broken(f"{method} draws from env.rng")


def _call(env: MultiAgentEnv, method: str, agent: str, now: Moment) -> Any:
    try:
        return getattr(env, method)(agent)
    except Exception as error:
        raise now.broken(f"{method}({agent!r}) raised {in_one_line(error)}") from error


def check_render(make: Make, plan: Plan = THOROUGH) -> None:
    """render gives people a text at every moment, and changes nothing."""
    for seed in plan.seeds:
        expected = _episode(make, seed, plan)
        with closing(make()) as env:
            rendered = snapshots(env, seed, plan.steps, functools.partial(_render, env))
            must_equal(seed, expected, rendered, "render changes something; called between steps")


def _render(env: MultiAgentEnv, now: Moment) -> None:
    drawn = env.rng.getstate()
    try:
        picture: object = env.render()
    except Exception as error:
        raise now.broken(f"render() raised {in_one_line(error)}") from error
    if not isinstance(picture, str):
        raise now.broken(f"render() gives text, not {short(picture)}")
    if env.rng.getstate() != drawn:
        raise now.broken("render draws from env.rng")


def check_isolation(make: Make, plan: Plan = THOROUGH) -> None:
    """Copies do not affect one another, stepped in turn or in threads."""
    seeds = range(plan.seeds[0], plan.seeds[0] + plan.copies)
    expected = {seed: _episode(make, seed, plan) for seed in seeds}
    beside = f"beside {plan.copies - 1} copies"
    envs = {seed: make() for seed in seeds}
    turns = zip_longest(*(snapshots(env, seed, plan.steps) for seed, env in envs.items()))
    for seed, column in zip(seeds, zip(*turns, strict=True), strict=True):
        found = [part for part in column if part is not None]
        must_equal(seed, expected[seed], found, f"{beside} that are stepped in turn with it, an episode differs")
    for env in envs.values():
        env.close()

    def in_thread(seed: int) -> None:
        with closing(make()) as env:
            found = snapshots(env, seed, plan.steps)
            must_equal(seed, expected[seed], found, f"{beside} in other threads, an episode differs")

    with ThreadPoolExecutor(plan.copies) as pool, _switching_often():
        list(pool.map(in_thread, seeds))


@contextmanager
def _switching_often() -> Iterator[None]:
    earlier = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(earlier)


def check_forking(make: Make, plan: Plan = THOROUGH) -> None:
    """A fork is equal to its env, and independent of it."""
    for seed in plan.seeds:
        expected = _episode(make, seed, plan)
        with closing(make()) as env:
            forked = snapshots(env, seed, plan.steps, functools.partial(_play_fork, env, expected))
            must_equal(seed, expected, forked, "a fork is not independent; after it was played ahead, the env differs")


def _play_fork(env: MultiAgentEnv, expected: list[Snapshot], now: Moment) -> None:
    """Fork at steps 0, 1, 2, 4, 8, ..., and play the fork to the end of the expected episode."""
    if now.step & (now.step - 1):
        return
    past, ahead = expected[: now.step + 1], expected[now.step + 1 :]
    try:
        with closing(env.fork()) as fork:
            found = list(apply_actions(fork, [part["actions"] for part in ahead]))
    except Exception as error:
        raise now.broken(f"fork() or playing the fork raised {in_one_line(error)}") from error
    must_equal(now.seed, expected, [*past, *found], f"a fork made at step {now.step} differs")


def check_processes(make: Make, plan: Plan = THOROUGH) -> str | None:
    """The same seed gives the same episode in another process."""
    try:
        task = pickle.dumps((make, plan))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        return (
            f"make cannot be sent to another process; let it be a function or class of a module ({in_one_line(error)})"
        )
    answers = []
    for hash_seed in ("1", "2"):
        code, output, complaints = _in_child(task, hash_seed)
        if code:
            complaint = complaints.decode(errors="replace").strip().rpartition("\n")[2]
            return f"another process could not make and play the env ({complaint})"
        answers.append(json.loads(output.rpartition(b"\n")[2]))
        if isinstance(answers[-1], str):
            raise PlayFailed(f"in another process: {answers[-1]}")
    for seed, expected, found in zip(plan.seeds, *answers, strict=True):
        must_equal(seed, expected, found, "with another PYTHONHASHSEED (the order of sets?) the episode differs")
    return None


def _in_child(task: bytes, hash_seed: str) -> tuple[int, bytes, bytes]:
    """The exit code of a process that does this task, and what it wrote to stdout and to stderr."""
    with (
        tempfile.TemporaryFile() as complaints,
        subprocess.Popen(
            [sys.executable, "-c", "from marl_gem.testing import episodes; episodes._run_in_child()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        ) as child,
    ):
        assert child.stdin is not None and child.stdout is not None
        with suppress(BrokenPipeError):  # it has ended already
            child.stdin.write(task)
            child.stdin.flush()
        output = child.stdout.read()
        code = child.wait()
        complaints.seek(0)
        return code, output, complaints.read()


def _run_in_child() -> None:
    """In the other process: load `make`, play, and write the snapshots as the last line."""
    make, plan = pickle.load(sys.stdin.buffer)
    sys.stdin = io.StringIO()
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    make().close()
    try:
        answer: Any = [_episode(make, seed, plan) for seed in plan.seeds]
    except PlayFailed as error:
        answer = str(error)
    sys.stdout.write(f"\n{json.dumps(answer)}")


def _end_with_the_parent() -> None:
    """Wait until the parent closes the pipe, as it does when it is killed, and end this process."""
    os.read(0, 1)
    os._exit(1)


def check_reset(make: Make, plan: Plan = THOROUGH) -> None:
    """reset starts a new episode whatever came before, and refuses bad seeds and unknown options."""
    seed, other = plan.seeds[0], plan.seeds[-1] + 1
    expected = _episode(make, seed, plan)
    with closing(make()) as env:
        for steps, what in ((0, "right after another reset"), (1, "after one step"), (plan.steps, "after an episode")):
            for _ in play_randomly(env, other, steps):
                pass
            must_equal(seed, expected, snapshots(env, seed, plan.steps), f"reset {what}, the episode differs")
        for bad in ({"seed": -1}, {"seed": "7"}, {"options": {"no such option": 1}}):
            if wrong := must_raise(InvalidOption, functools.partial(env.reset, **bad)):
                raise PromiseBroken(f"reset({', '.join(f'{k}={v!r}' for k, v in bad.items())}) {wrong}")
        must_equal(seed, expected, snapshots(env, seed, plan.steps), "reset after a refused reset, the episode differs")
        env.reset()
        drawn = env.seed
        env.reset()
        if drawn == env.seed:
            raise PromiseBroken(f"reset() without a seed gives the seed {drawn!r} twice; it should draw a fresh one")


def check_lifecycle(make: Make, plan: Plan = THOROUGH) -> None:
    """step needs a live episode; close may be called twice."""
    env = make()
    if wrong := must_raise(EpisodeOver, functools.partial(env.step, {})):
        raise PromiseBroken(f"step before the first reset {wrong}")
    env.max_steps = min(env.max_steps or plan.steps, plan.steps)
    for seed in plan.seeds:
        last: dict[str, str] = {}
        for now in play_randomly(env, seed, plan.steps):
            last = dict(now.actions) or last
        if not env.done:
            continue  # check_ending reports it
        for actions in (last, {}):
            if wrong := must_raise(EpisodeOver, functools.partial(env.step, actions)):
                raise now.broken(f"step({short(actions)}) after the end {wrong}")
    try:
        env.close()
        env.close()
    except Exception as error:
        raise PromiseBroken(f"close() twice raised {in_one_line(error)}") from error


def check_ending(make: Make, plan: Plan = THOROUGH) -> None:
    """Every episode ends: by itself, or by truncation at max_steps."""
    for seed in plan.seeds:
        with closing(make()) as env:
            if env.max_steps is not None:
                env.max_steps = min(env.max_steps, plan.steps)
            limit = env.max_steps or 10 * plan.steps
            steps = sum(1 for _ in play_randomly(env, seed, limit, noise=0)) - 1
            if not env.done:
                limited = env.max_steps is not None
                advice = "its max_steps has no effect" if limited else "set max_steps, on the class or in make()"
                raise PromiseBroken(f"the episode goes on after {steps} steps of random play; {advice}\nseed {seed}")


def must_raise(kind: type[Exception], call: Callable[[], object]) -> str:
    """What is wrong with a call that must raise this exception; empty if it does."""
    try:
        call()
    except kind:
        return ""
    except Exception as error:
        return f"raised {in_one_line(error)} instead of {kind.__name__}"
    return f"was accepted instead of raising {kind.__name__}"


def _episode(make: Make, seed: int, plan: Plan) -> list[Snapshot]:
    with closing(make()) as env:
        return list(snapshots(env, seed, plan.steps))
