"""Play the episodes of later updates while an update is computed.

The episodes of update k are played with the weights after update k - n, n being `training.staleness`: as soon as these
exist, and after the episodes of the update before. So how old the weights are depends on no timing, and a run follows
from its seed. They are played in a thread of their own with copies of the policies (`PlayingCopy`), so that weights
never change under a running answer.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future

from marl_gem.trainers.episode_plan import Plan
from marl_gem.trainers.opponent_pool import Snapshot
from marl_gem.trainers.play import EpisodePlayer, Played
from marl_gem.trainers.samplers.base import PlayingCopy
from marl_gem.trainers.sections import TrainConfig


class Pipeline:
    """Plays plans in the order in which they are submitted, in a thread.

    Args:
        config: the run's.
        copies: who answers for each policy that learns; nothing else may use them.
    """

    def __init__(self, config: TrainConfig, copies: Mapping[str, PlayingCopy]) -> None:
        self._copies = copies
        self._player = EpisodePlayer(config, copies)
        self._pending: deque[tuple[Plan, Future[Played]]] = deque()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._turn = asyncio.Lock()  # of the plan that is played; those that wait get it in order
        self._thread = threading.Thread(target=self._work, name="marl_gem-rollouts", daemon=True)
        self._thread.start()

    @property
    def pending(self) -> int:
        """How many plans were submitted whose episodes were not fetched yet."""
        return len(self._pending)

    def submit(self, plan: Plan, newest: Mapping[str, Snapshot]) -> None:
        """Play a plan after those before it.

        Args:
            plan: the episodes.
            newest: for each policy that learns the weights that hold its seats.
        """
        self._pending.append((plan, asyncio.run_coroutine_threadsafe(self._play(plan, newest), self._loop)))

    def next(self) -> tuple[Plan, Played]:
        """The plan that was submitted first, and its episodes in its order, as soon as they are played.

        Raises:
            MarlGemError: as `EpisodePlayer.play`.
        """
        plan, episodes = self._pending.popleft()
        return plan, episodes.result()

    def close(self) -> None:
        """Throw away what was not fetched, and wait until the thread has ended. May be called twice.

        What cannot be interrupted is waited for, such as the batch that a model in this process is answering.
        """
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
        self._pending.clear()

    def _work(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:  # at its end it cancels what is live
            runner.run(self._wait())

    async def _wait(self) -> None:
        await self._stop.wait()

    async def _play(self, plan: Plan, newest: Mapping[str, Snapshot]) -> Played:
        async with self._turn:
            for name, snapshot in newest.items():
                self._copies[name].load(snapshot)
            return await self._player.play(plan)
