"""Any scenario as an OpenEnv server, which any OpenEnv client plays.

    app = create_app(SeatRunner("ta:TicTacToe-v0", others={"player_1": "random"}))   # then: uvicorn module:app

Tested with OpenEnv 0.10. See docs/other-trainers.md.
"""

from __future__ import annotations

import random
import uuid
from typing import Any

from marl_gem.errors import EpisodeOver, InvalidAction, MissingPackage
from marl_gem.integrations.seat_runner import SeatRunner, Start
from marl_gem.integrations.stepped import LoopThread, Question, SteppedEpisode

try:
    from openenv.core.env_server import http_server
    from openenv.core.env_server.interfaces import Environment
    from openenv.core.env_server.types import Action, Observation, State
    from pydantic import Field
except ImportError as error:
    raise MissingPackage(error.name or "openenv", "openenv", "an OpenEnv server") from error


class ScenarioAction(Action):  # type: ignore[misc]
    """An agent's answer. `agent` may be left out: then it is the agent that the last observation named."""

    text: str
    agent: str = ""


class ScenarioObservation(Observation):  # type: ignore[misc]
    """What an agent is asked: `text` is what is new to it, `instructions` what it is told before its first turn.

    With the last observation come `returns`, those of all agents; `reward` is then the sum over the client's agents,
    and 0 before.
    """

    agent: str = ""
    text: str = ""
    instructions: str = ""
    legal_actions: list[str] | None = None
    returns: dict[str, float] = Field(default_factory=dict)


class ScenarioEnvironment(Environment):  # type: ignore[misc]
    """One client's episodes, one after the other.

    Args:
        runner: its seats are the client's.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, runner: SeatRunner) -> None:
        super().__init__()
        self._runner = runner
        self._loop: LoopThread | None = None
        self._episode: SteppedEpisode | None = None
        self._question: Question | None = None
        self._state = State()

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, options: dict[str, Any] | None = None, **_: Any
    ) -> ScenarioObservation:
        """Begin an episode; without a seed one is drawn."""
        self._leave()
        self._loop = self._loop or LoopThread()
        seed = random.randrange(2**31) if seed is None else seed
        self._state = State(episode_id=episode_id or str(uuid.uuid4()), step_count=0)
        self._episode = self._loop.begin(self._runner, Start(seed, options or {}))
        return self._observe(self._loop, self._episode)

    def step(self, action: ScenarioAction, timeout_s: float | None = None, **_: Any) -> ScenarioObservation:
        """Answer for the agent that was asked, and see who is asked next."""
        if self._loop is None or self._episode is None or self._question is None:
            raise EpisodeOver("no episode is live; call reset first")
        agent = action.agent or self._question.agent
        if agent != self._question.agent:
            raise InvalidAction(f"{self._question.agent!r} is asked now, not {agent!r}")
        self._state.step_count += 1
        self._loop.call(self._answer(self._episode, agent, action.text))
        return self._observe(self._loop, self._episode)

    @property
    def state(self) -> State:
        return self._state

    def close(self) -> None:
        self._leave()
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    @staticmethod
    async def _answer(episode: SteppedEpisode, agent: str, text: str) -> None:
        episode.answer(agent, text)

    def _observe(self, loop: LoopThread, episode: SteppedEpisode) -> ScenarioObservation:
        question = self._question = loop.call(episode.next_question())
        if question is None:
            returns = loop.call(episode.result()).returns
            reward = sum(returns.get(seat, 0.0) for seat in self._runner.seats)
            return ScenarioObservation(done=True, reward=reward, returns=returns)
        legal = question.info.get("legal_actions")
        return ScenarioObservation(
            reward=0.0,
            agent=question.agent,
            text=question.text,
            instructions=question.instructions,
            legal_actions=None if legal is None else list(legal),
        )

    def _leave(self) -> None:
        if self._loop is not None and self._episode is not None:
            self._loop.call(self._episode.close())
        self._episode = self._question = None


def create_app(runner: SeatRunner, *, name: str | None = None, max_concurrent_envs: int = 64) -> Any:
    """A FastAPI app that serves this scenario to `max_concurrent_envs` clients at once; `uvicorn` runs it."""
    return http_server.create_app(
        lambda: ScenarioEnvironment(runner),
        ScenarioAction,
        ScenarioObservation,
        env_name=name or runner.info.scenario,
        max_concurrent_envs=max_concurrent_envs,
    )
