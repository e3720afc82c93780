"""Scenarios as environments of skyrl-gym, for one seat.

    runner = SeatRunner("ta:TicTacToe-v0", others={"player_1": "random"})
    skyrl_gym.register("tictactoe", entry_point=environment(runner))

Tested with skyrl-gym 0.4. See docs/other-trainers.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from marl_gem.errors import ConfigError, EpisodeOver, MissingPackage
from marl_gem.integrations.seat_runner import SeatRunner, Start
from marl_gem.integrations.stepped import LoopThread, Question, SteppedEpisode

try:
    from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput
except ImportError as error:
    raise MissingPackage(error.name or "skyrl_gym", "skyrl-gym", "an environment of skyrl-gym") from error


class SeatTextEnv(BaseTextEnv):  # type: ignore[misc]
    """One episode of one seat. The reward is the seat's return, and comes with the last step.

    Args:
        runner: has one seat; `others` holds the rest.
        start: how the episode starts.
    """

    def __init__(self, runner: SeatRunner, start: Start) -> None:
        super().__init__()
        if len(runner.seats) != 1:
            raise ConfigError(f"skyrl-gym has one agent, not {', '.join(runner.seats)}; name the other seats in others")
        self._runner, self._start = runner, start
        self._loop: LoopThread | None = None
        self._episode: SteppedEpisode | None = None
        self.max_turns = 10**9  # the scenario says when it is over

    def init(self, prompt: list[dict[str, str]]) -> tuple[list[dict[str, str]], dict[str, Any]]:
        """The agent's instructions and its first observation; what the prompt of the data set holds comes before."""
        self.close()
        self._loop = LoopThread()
        self._episode = self._loop.begin(self._runner, self._start)
        question = self._loop.call(self._episode.question(self._runner.seats[0]))
        if question is None:
            self._loop.call(self._episode.result())  # raises if the episode has failed
            raise ConfigError(f"{self._runner.seats[0]!r} is never asked in this episode; use another start")
        system = [{"role": "system", "content": question.instructions}] if question.instructions else []
        kept = [message for message in prompt if message.get("content")]
        return [*system, *kept, _message(question)], {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Take the agent's turn."""
        if self._loop is None or self._episode is None or self._episode.done:
            raise EpisodeOver("no episode is live; call init first")
        self.turns += 1
        question = self._loop.call(self._episode.step(self._runner.seats[0], action))
        if question is not None:
            return BaseTextEnvStepOutput(observations=[_message(question)], reward=0.0, done=False, metadata={})
        returns = self._loop.call(self._episode.result()).returns
        reward = returns[self._runner.seats[0]]
        return BaseTextEnvStepOutput(observations=[], reward=reward, done=True, metadata={"returns": returns})

    def close(self) -> None:
        """End the episode and the thread that plays it."""
        if self._loop is not None:
            self._loop.close()
        self._loop = self._episode = None


def environment(runner: SeatRunner) -> Callable[..., SeatTextEnv]:
    """An entry point for `skyrl_gym.register`: each env plays the start that its data row names in `extras["start"]`.

    A start is a seed, or the text of `Start.to_text`.
    """

    def make(env_config: Any = None, extras: Mapping[str, Any] | None = None, **_: Any) -> SeatTextEnv:
        return SeatTextEnv(runner, Start.from_text(str((extras or {}).get("start", 0))))

    return make


def _message(question: Question) -> dict[str, str]:
    return {"role": "user", "content": question.text}
