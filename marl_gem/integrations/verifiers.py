"""Any scenario as a verifiers v1 environment: an agent of verifiers for each seat, a reward for each seat.

    # marl_gem_tictactoe.py, on the Python path: the module is the id of the environment
    from marl_gem.integrations import SeatRunner, Start
    from marl_gem.integrations.verifiers import environment

    ScenarioTaskset, ScenarioEnv = environment(SeatRunner("ta:TicTacToe-v0"), [Start(seed) for seed in range(100)])
    __all__ = ["ScenarioEnv", "ScenarioTaskset"]

Tested with verifiers 0.4. See docs/other-trainers.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from marl_gem.errors import ConfigError, MissingPackage
from marl_gem.integrations.seat_runner import SeatRunner, Start
from marl_gem.integrations.stepped import SteppedEpisode

try:
    import verifiers.v1 as vf
except ImportError as error:
    raise MissingPackage(error.name or "verifiers", "verifiers", "an environment of verifiers") from error


class ScenarioData(vf.TaskData):  # type: ignore[misc]
    """A task: how its episode starts, see `Start.to_text`."""

    start: str


class ScenarioTask(vf.Task[ScenarioData, vf.State, vf.TaskConfig]):  # type: ignore[misc]
    pass


def environment(runner: SeatRunner, starts: Sequence[Start]) -> tuple[type, type]:
    """The taskset and the env of a scenario.

    Args:
        runner: each of its seats becomes a role of the env, with the seat's name.
        starts: the tasks.

    Raises:
        ConfigError: a seat's name cannot be that of a role.
    """
    for seat in runner.seats:
        if not seat.isidentifier() or seat.startswith("_") or seat in vf.EnvConfig.model_fields:
            raise ConfigError(f"{seat!r} cannot name a role in verifiers; it is taken there, or no identifier")

    class ScenarioTaskset(vf.Taskset[ScenarioTask, vf.TasksetConfig]):  # type: ignore[misc]
        def load(self) -> Iterator[ScenarioTask]:
            for index, start in enumerate(starts):
                data = ScenarioData(idx=index, prompt=None, start=start.to_text())
                yield ScenarioTask(data, self.config.task)

    # No shell and no files: a role answers in the chat. Its runtime is a process of this machine.
    role = vf.AgentConfig(harness={"id": "null"}, runtime=vf.SubprocessConfig())
    fields: dict[str, Any] = dict.fromkeys(runner.seats, role)
    annotations = {"__annotations__": dict.fromkeys(runner.seats, vf.AgentConfig), "__module__": __name__}
    config = type("ScenarioEnvConfig", (vf.EnvConfig,), fields | annotations)

    class ScenarioEnv(vf.Env[config]):  # type: ignore[misc, valid-type]
        async def run(self, task: Any, agents: Any) -> None:
            episode = SteppedEpisode(runner, Start.from_text(task.data.start))
            try:
                traces = await asyncio.gather(*(_play(episode, seat, task, agents) for seat in runner.seats))
                returns = {} if any(cut for _, cut in traces) else (await episode.result()).returns
            finally:
                await episode.close()
            for seat, (trace, _) in zip(runner.seats, traces, strict=True):
                if trace is not None:
                    trace.record_reward("return", returns.get(seat, 0.0), 1.0)
                    trace.record_metric("cut_short", float(not returns))

    return ScenarioTaskset, ScenarioEnv


async def _play(episode: SteppedEpisode, seat: str, task: Any, agents: Any) -> tuple[Any, bool]:
    """Play one seat; its trace, None if it never acted, and whether a limit of verifiers has ended the episode."""
    question = await episode.question(seat)
    if question is None:
        return None, False
    data = vf.TaskData(idx=task.data.idx, prompt=None, system_prompt=question.instructions or None)
    async with getattr(agents, seat).interaction(vf.Task(data)) as interaction:
        while question is not None:
            segment = await interaction.turn(question.text)
            if segment.terminated:
                await episode.close()
                return interaction.trace, True
            question = await episode.step(seat, segment.last_reply)
    return interaction.trace, False
