"""What seats that are answered elsewhere add to an episode. Prints one line of JSON for each scenario.

    python benchmarks/integrations.py

The same answers come from a model in this process ("rollout"), from a function that `SeatRunner.play_sync` calls
("runner"), and from a caller that steps each episode ("stepped"): milliseconds of CPU time an episode, the least of
three rounds of 300 episodes.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence

import marl_gem
from marl_gem.integrations import SeatRunner, Start, SteppedEpisode
from marl_gem.llm import Sampling
from marl_gem.policies import LLMPolicy
from marl_gem.rollout import Job, collect
from marl_gem.types import Message, Response, ToolSpec

EPISODES, ROUNDS, ANSWER = 300, 3, "[bet]"


class Local:
    """A model that always gives the same answer."""

    name = "local"

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, seed: int, tools: Sequence[ToolSpec] = ()
    ) -> Response:
        await asyncio.sleep(0)
        return Response(ANSWER)


def rollout(scenario: str) -> None:
    policy = LLMPolicy(Local())
    collect(lambda: marl_gem.make(scenario), [Job(seed, policy) for seed in range(EPISODES)])


def runner(scenario: str) -> None:
    starts = [Start(seed) for seed in range(EPISODES)]
    SeatRunner(scenario).play_sync(lambda requests: [ANSWER] * len(requests), starts)


def stepped(scenario: str) -> None:
    async def play() -> None:
        seats = SeatRunner(scenario)
        for seed in range(EPISODES):
            episode = SteppedEpisode(seats, Start(seed))
            while (question := await episode.next_question()) is not None:
                episode.answer(question.agent, ANSWER)
            await episode.result()

    asyncio.run(play())


def milliseconds(function: Callable[[str], None], scenario: str) -> float:
    taken = []
    for _ in range(ROUNDS):
        started = time.process_time()
        function(scenario)
        taken.append(time.process_time() - started)
    return round(min(taken) / EPISODES * 1000, 2)


def main() -> None:
    for scenario in ("game:KuhnPoker-v0", "ta:TicTacToe-v0"):
        figures = {f.__name__: milliseconds(f, scenario) for f in (rollout, runner, stepped)}
        print(json.dumps({"benchmark": "integrations", "scenario": scenario, **figures}))


if __name__ == "__main__":
    main()
