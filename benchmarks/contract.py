"""What the contract costs: speed beside PettingZoo, and memory. Prints one line of JSON.

    python benchmarks/contract.py

"steps": steps a second of CPU time of tic-tac-toe, random legal play, every observation read: ours, and
PettingZoo's `tictactoe_v3` with its wrappers (`env`) and without (`raw_env`). PettingZoo's loop picks moves as its
documentation does, by `action_space(agent).sample(mask)`, and by plain Python ("_plain"), which is quicker. The loops
take turns; medians are printed, and how many times as fast ours is.

"live": KiB for each of 10,000 envs in the middle of an episode beyond what the game itself keeps, and for each of
10,000 episodes that a rollout plays at once, everything counted that is not the game's; and microseconds a
step when 10, 100, ... 10,000 envs are stepped in turn, with the same of PettingZoo's `raw_env`: what both lose
at 10,000 is the processor's cache.

What keeps a step of a small game cheap, measured on tic-tac-toe when it was written:

- `step_results.StepBuffers` copies dicts of defaults: a copy takes a third of the time of a new dict. Infos are made
  in a loop, which takes half the time of a comprehension.
- Results that were changed in place have all their keys; looking for that alone (`MultiAgentEnv._check_results`) saves
  a tenth of the step. The checks of flags, infos and acting agents likewise ask first for what is usual.
- `env.rng` is made when it is asked for: it takes longer than all the rest of a reset, and 2.5 KB. The selector's too.
- `fork` copies the generator's state with `copy.copy`; `deepcopy` takes 1 ms for it.
- Nothing reads `vars(self)`, which would make all later attribute accesses slower.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import statistics
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

from pettingzoo.classic import tictactoe_v3

import marl_gem
from marl_gem.policies import Info
from marl_gem.rollout import Job, stream
from marl_gem.types import Observation, Response, Role

SCENARIO = "game:TicTacToe-v0"
ROUNDS, SECONDS = 9, 0.4
LIVE = 10_000
COUNTS = (10, 100, 1_000, 10_000)


def main() -> None:
    print(json.dumps({"benchmark": "contract", "steps": compare_speed(), "live": {**memory(), **cost()}}))


def compare_speed() -> dict[str, float]:
    loops = {
        "marl_gem": our_loop(),
        "env": their_loop(tictactoe_v3.env, as_documented),
        "env_plain": their_loop(tictactoe_v3.env, plainly),
        "raw_env": their_loop(tictactoe_v3.raw_env, as_documented),
        "raw_env_plain": their_loop(tictactoe_v3.raw_env, plainly),
    }
    speeds: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(ROUNDS):
        for name, episode in loops.items():
            taken, started = 0, time.process_time()
            while (elapsed := time.process_time() - started) < SECONDS:
                taken += episode()
            speeds[name].append(taken / elapsed)
    medians = {name: statistics.median(measured) for name, measured in speeds.items()}
    ratios = {f"times_{name}": round(medians["marl_gem"] / medians[name], 2) for name in loops if name != "marl_gem"}
    return {name: round(median) for name, median in medians.items()} | ratios


def our_loop() -> Callable[[], int]:
    env, dice = marl_gem.make(SCENARIO), random.Random(0)

    def episode() -> int:
        observations, infos = env.reset(seed=dice.getrandbits(32))
        while not env.done:
            (agent,) = observations
            observations, _, _, _, infos = env.step({agent: dice.choice(infos[agent]["legal_actions"])})
        return env.steps

    return episode


def their_loop(make: Callable[[], Any], pick: Callable[[Any, str, Any, random.Random], int]) -> Callable[[], int]:
    env, dice = make(), random.Random(0)

    def episode() -> int:
        taken = 0
        env.reset(seed=dice.getrandbits(32))
        for agent in env.agent_iter():
            observation, _, terminated, truncated, _ = env.last()
            if terminated or truncated:
                env.step(None)
            else:
                env.step(pick(env, agent, observation["action_mask"], dice))
                taken += 1
        return taken

    return episode


def as_documented(env: Any, agent: str, mask: Any, dice: random.Random) -> int:
    return env.action_space(agent).sample(mask)  # type: ignore[no-any-return]


def plainly(env: Any, agent: str, mask: Any, dice: random.Random) -> int:
    return dice.choice([action for action, legal in enumerate(mask.tolist()) if legal])


def memory() -> dict[str, float]:
    """KiB an episode, less what the game keeps: a board, the open squares and who marked which."""
    game = allocated(lambda: [game_state(env) for env in live_envs(LIVE)])
    return {
        "game_kib": round(game, 2),
        "env_kib": round(allocated(lambda: live_envs(LIVE)) - game, 2),
        "rollout_kib": round(asyncio.run(rollout_memory()) - game, 2),
    }


def live_envs(count: int) -> list[marl_gem.MultiAgentEnv]:
    envs = [marl_gem.make(SCENARIO) for _ in range(count)]
    for seed, env in enumerate(envs):
        _, infos = env.reset(seed=seed)
        for _ in range(4):
            (agent,) = env.acting
            _, _, _, _, infos = env.step({agent: infos[agent]["legal_actions"][0]})
    return envs


def game_state(env: Any) -> tuple[Any, ...]:
    return env.board.copy(), env.open.copy(), env.marked.copy()


def allocated(make: Callable[[], Any]) -> float:
    """KiB that what `make` returns holds, for each of LIVE."""
    make_warm = make()
    del make_warm
    gc.collect()
    tracemalloc.start()
    held = make()
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del held
    return size / 1024 / LIVE


class Waiting:
    """Plays the first open squares; at the fifth turn of the game everybody waits."""

    name = "waiting"

    def __init__(self, gate: asyncio.Event) -> None:
        self._gate = gate
        self.waiting = 0

    def agent(self, agent_id: str, role: Role, seed: int) -> Waiting:
        return self

    async def act(self, observation: Observation, info: Info) -> Response:
        if len(info["legal_actions"]) == 5:
            self.waiting += 1
            await self._gate.wait()
        return Response(info["legal_actions"][0])


async def rollout_memory() -> float:
    gate = asyncio.Event()
    policy = Waiting(gate)
    gc.collect()
    tracemalloc.start()
    episodes = stream(lambda: marl_gem.make(SCENARIO), (Job(n, policy) for n in range(LIVE)), concurrency=LIVE)
    first = asyncio.ensure_future(anext(episodes))
    while policy.waiting < LIVE:
        await asyncio.sleep(0)
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    gate.set()
    await first
    await episodes.aclose()
    return size / 1024 / LIVE


def cost() -> dict[str, dict[str, float]]:
    """Microseconds of CPU a step, when so many envs take turns; medians."""
    ways = {"us_a_step": our_turns, "us_a_step_raw_env": their_turns}
    measured: dict[str, dict[int, list[float]]] = {name: {count: [] for count in COUNTS} for name in ways}
    for _ in range(5):
        for name, turns in ways.items():
            for count in COUNTS:
                measured[name][count].append(cost_of(turns(count), count))
    return {
        name: {str(count): round(statistics.median(costs), 2) for count, costs in by_count.items()}
        for name, by_count in measured.items()
    }


def cost_of(play: Callable[[], None], count: int) -> float:
    """Microseconds a step. `play` takes five steps in each of `count` envs."""
    gc.collect()
    steps, started = 0, time.process_time()
    while steps < 50_000:
        play()
        steps += 5 * count
    return (time.process_time() - started) / steps * 1e6


def our_turns(count: int) -> Callable[[], None]:
    envs = [marl_gem.make(SCENARIO) for _ in range(count)]

    def play() -> None:
        infos = [env.reset(seed=seed)[1] for seed, env in enumerate(envs)]
        for _ in range(5):
            for index, env in enumerate(envs):
                (agent,) = env.acting
                _, _, _, _, infos[index] = env.step({agent: infos[index][agent]["legal_actions"][-1]})

    return play


def their_turns(count: int) -> Callable[[], None]:
    envs = [tictactoe_v3.raw_env() for _ in range(count)]

    def play() -> None:
        for seed, env in enumerate(envs):
            env.reset(seed=seed)
        for _ in range(5):
            for env in envs:
                observation, *_ = env.last()
                env.step(max(action for action, legal in enumerate(observation["action_mask"].tolist()) if legal))

    return play


if __name__ == "__main__":
    main()
