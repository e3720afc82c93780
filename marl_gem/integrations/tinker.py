"""Scenarios as environments of the Tinker cookbook: an `Env` for each seat, a group builder with per-agent advantages.

    builder = SeatGroupBuilder(runner, Start(seed), episodes=8)
    group = await do_group_rollout(builder, completer)

Tested with tinker-cookbook 0.5.8. See docs/other-trainers.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from marl_gem.errors import ConfigError, MissingPackage
from marl_gem.integrations.advantages import per_agent_advantages
from marl_gem.integrations.outside_model import Completion
from marl_gem.integrations.seat_runner import SeatRunner, Start
from marl_gem.integrations.stepped import Question, SteppedEpisode

try:
    import tinker
    from tinker_cookbook.rl import types
except ImportError as error:
    raise MissingPackage(error.name or "tinker", "tinker", "an environment of the Tinker cookbook") from error


class SeatEnv(types.Env):  # type: ignore[misc]
    """One seat of an episode. Its rewards come at the end, from `SeatGroupBuilder.compute_group_rewards`.

    Args:
        episode: several seats may share it; their envs are rolled out at the same time.
        seat: which.
    """

    def __init__(self, episode: SteppedEpisode, seat: str) -> None:
        self.episode, self.seat = episode, seat

    async def initial_observation(self) -> Any:
        question = await self.episode.question(self.seat)
        if question is None:
            await self.episode.result()  # raises if the episode has failed
            return types.InitialObservationOverflow(reward=0.0, metrics={"never_asked": 1.0})
        return self._shown(question)

    async def step(self, action: list[int], *, extra: Any = None) -> types.StepResult:
        reason = str((extra or {}).get("stop_reason") or "")
        question = await self.episode.step(self.seat, Completion(tuple(action), finish_reason=reason))
        if question is None:
            await self.episode.result()
            return types.StepResult(0.0, True, tinker.ModelInput.empty(), [])
        return types.StepResult(0.0, False, *self._shown(question))

    def _shown(self, question: Question) -> tuple[Any, list[int]]:
        request = question.request
        if not request.prompt_ids:
            raise ConfigError("Tinker takes prompts in tokens; give SeatRunner the model's tokenizer")
        return tinker.ModelInput.from_ints(list(request.prompt_ids)), list(request.ends)


class SeatGroupBuilder(types.EnvGroupBuilder):  # type: ignore[misc]
    """Episodes from the same start; the envs of a group are those of all seats in all of them, seat by seat.

    The cookbook subtracts a group's mean reward. With `normalize` the rewards are the returns, normalized over the
    group's episodes for each seat by itself: so their mean is 0, and what the cookbook trains with is the per-agent
    advantage. Without, they are the returns; then give a runner with one seat.

    Args:
        runner: its seats are trained.
        start: how the episodes start.
        episodes: how many there are in the group.
        normalize: see above.
    """

    def __init__(self, runner: SeatRunner, start: Start, episodes: int = 8, *, normalize: bool = True) -> None:
        self._runner, self._start, self._episodes, self._normalize = runner, start, episodes, normalize
        self._begun: list[SteppedEpisode] = []

    async def make_envs(self) -> Sequence[SeatEnv]:
        first = self._start.repeat * self._episodes
        starts = [self._start._replace(repeat=first + index) for index in range(self._episodes)]
        begun = [SteppedEpisode(self._runner, start) for start in starts]
        self._begun += begun
        return [SeatEnv(episode, seat) for seat in self._runner.seats for episode in begun]

    async def compute_group_rewards(
        self, trajectory_group: list[Any], env_group: Sequence[SeatEnv]
    ) -> list[tuple[float, dict[str, float | int]]]:
        returns = [(await env.episode.result()).returns[env.seat] for env in env_group]
        seats = [env.seat for env in env_group]
        rewards = per_agent_advantages(returns, seats) if self._normalize else returns
        metrics = [{f"return/{seat}": value} for seat, value in zip(seats, returns, strict=True)]
        return list(zip(rewards, metrics, strict=True))

    async def cleanup(self) -> None:
        for episode in self._begun:
            await episode.close()
        self._begun = []

    def logging_tags(self) -> list[str]:
        return [self._runner.info.scenario]
