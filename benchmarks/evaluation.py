"""What an evaluation costs over its models' answers. Prints one line of JSON.

    python benchmarks/evaluation.py

1,000 episodes of three turns are live at once; every answer takes 100 ms, so that 10,000 episodes take 3 s at best.
"bare" is the yardstick of this machine: a thousand asyncio tasks that sleep so long and do nothing else. "played"
is an evaluation without a folder, "journalled" one with it, until the last episode is on disk. They alternate; the
best of the rounds counts, since whatever else runs on the machine only adds. `share` is the ideal time over the time
taken, `journal_overhead` what the folder adds to it.

"http" asks a server in another process that takes 100 ms an answer, through HTTPModel; there the client's and the
server's processor set the pace, so the yardstick "bare" is the same calls without episodes. `peak_mib` is the most
memory that this process ever held.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from marl_gem.evaluation import Numbers, Progress, plan_evaluation, run
from marl_gem.llm import LLM, Sampling
from marl_gem.policies import Info, LLMPolicy, Policy
from marl_gem.types import Message, Observation, Response, Role

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.toys import ThreeTurns

LIVE, TURNS, LATENCY, ROUNDS = 1000, 3, 0.1, 5
EPISODES, HTTP_EPISODES, HTTP_ROUNDS = 10_000, 2000, 3
LEAST_SHARE, MOST_OVERHEAD, MOST_MIB = 0.9, 0.05, 1536


def main() -> None:
    report: dict[str, Any] = {"benchmark": "evaluation", "live": LIVE, "turns": TURNS, "latency_s": LATENCY}
    ideal = EPISODES * TURNS * LATENCY / LIVE
    seconds = take_turns(
        {
            "bare": lambda: bare(EPISODES, lambda number: asyncio.sleep(LATENCY)),
            "played": lambda: evaluation(Sleeper(), EPISODES, journalled=False),
            "journalled": lambda: evaluation(Sleeper(), EPISODES, journalled=True),
        },
        ROUNDS,
    )
    report["ideal_s"] = ideal
    for name, taken in seconds.items():
        report[name] = {"seconds": round(taken, 3), "share": round(ideal / taken, 3)}
    report["journal_overhead"] = round(seconds["journalled"] / seconds["played"] - 1, 4)
    report["http"] = over_http()
    report["peak_mib"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    report["limits"] = {"share": LEAST_SHARE, "journal_overhead": MOST_OVERHEAD, "peak_mib": MOST_MIB}
    report["met"] = (
        report["journalled"]["share"] >= LEAST_SHARE
        and report["journal_overhead"] < MOST_OVERHEAD
        and report["peak_mib"] < MOST_MIB
    )
    print(json.dumps(report))


def take_turns(ways: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """The least seconds of each."""
    seconds = [{name: way() for name, way in ways.items()} for _ in range(rounds)]
    return {name: min(of_round[name] for of_round in seconds) for name in ways}


def bare(episodes: int, answer: Callable[[int], Awaitable[Any]]) -> float:
    """Seconds for as many answers as the episodes have turns, with nothing around them."""

    async def answers() -> float:
        numbers = iter(range(episodes))

        async def work() -> None:
            for number in numbers:
                for turn in range(TURNS):
                    await answer(number * TURNS + turn)

        begun = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(LIVE)))
        return time.perf_counter() - begun

    return asyncio.run(answers())


def evaluation(policy: Policy, episodes: int, journalled: bool) -> float:
    """Seconds from the first episode's beginning until the last one counts."""
    seen: list[Progress] = []
    with tempfile.TemporaryDirectory() as folder:
        plan = plan_evaluation(ThreeTurns, policy, Numbers(n=episodes))
        result = run(plan, Path(folder) / "run" if journalled else None, concurrency=LIVE, watch=seen.append)
        assert result.pending == 0, result.report.errors
    return seen[-1].seconds


def over_http() -> dict[str, Any]:
    from marl_gem.llm.http import HTTPModel
    from tests.fake_server import serving

    question: Message = {"role": "user", "content": "Well?"}
    exchange: list[Message] = [question, {"role": "assistant", "content": "ok"}]
    with serving("--latency", str(LATENCY)) as url:
        model: LLM = HTTPModel(url, "tiny", logprobs="off")

        def ask(number: int) -> Awaitable[Response]:
            return model.complete([*exchange * (number % TURNS), question], Sampling(), number)

        seconds = take_turns(
            {
                "bare": lambda: bare(HTTP_EPISODES, ask),
                "journalled": lambda: evaluation(LLMPolicy(model), HTTP_EPISODES, journalled=True),
            },
            HTTP_ROUNDS,
        )
    rates = {f"{name}_calls_a_second": round(HTTP_EPISODES * TURNS / taken) for name, taken in seconds.items()}
    return {"episodes": HTTP_EPISODES} | rates | {"share_of_bare": round(seconds["bare"] / seconds["journalled"], 3)}


class Sleeper:
    """Answers after a while."""

    name = "sleeper"

    def agent(self, agent_id: str, role: Role, seed: int) -> Sleeper:
        return self

    async def act(self, observation: Observation, info: Info) -> Response:
        await asyncio.sleep(LATENCY)
        return Response("go on", usage={"prompt_tokens": 20, "completion_tokens": 3}, seconds=LATENCY)


if __name__ == "__main__":
    main()
