"""The loop: policies learn from the episodes that they play with one another.

    loop = TrainingLoop(config, learners)
    while loop.updates < config.training.updates:
        metrics, episodes = loop.update()

One policy holds all seats (self-play), or several policies hold some each (co-evolution). An update plays episodes,
turns them into transitions, has the algorithm give them advantages, and lets every policy take its steps on its own.
In a share of the episodes one seat learns and earlier versions hold the other learning seats, so that policies do not
circle around their newest versions. The loop knows the protocols of algorithm, backend and sampler, and nothing of
models.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from marl_gem.runs.outcomes import outcomes
from marl_gem.trainers.backends.base import Weights
from marl_gem.trainers.batch import Trajectory, completed, trajectories
from marl_gem.trainers.episode_plan import Plan, PlannedEpisode, plan_episodes
from marl_gem.trainers.garbage import paused_collector
from marl_gem.trainers.league import League, Opponent
from marl_gem.trainers.learn import PolicyStep, learn
from marl_gem.trainers.learner import Learner
from marl_gem.trainers.opponent_pool import Snapshot
from marl_gem.trainers.pipeline import Pipeline
from marl_gem.trainers.play import EpisodePlayer, Played
from marl_gem.trainers.policy_algorithms import group_size, make_algorithms
from marl_gem.trainers.policy_tables import for_policy
from marl_gem.trainers.rewards import SeatEpisodes, SeatReward
from marl_gem.trainers.samplers.base import Sampler
from marl_gem.trainers.schedule import TrainingPhase, learning_rate, linear, training_phases
from marl_gem.trainers.sections import TrainConfig
from marl_gem.types import Episode


class TrainingLoop:
    """The policies that learn, and how many updates there have been: all the state there is in a run.

    Args:
        config: what to do.
        learners: the policies, by name.
        updates: how many updates there have been.
    """

    def __init__(self, config: TrainConfig, learners: Mapping[str, Learner], *, updates: int = 0) -> None:
        self.config = config
        self.learners = dict(learners)
        self.updates = updates
        self.configs = {name: for_policy(config, name) for name in self.learners}
        self.algorithms = make_algorithms(config, self.learners)
        self.rewards = {name: SeatReward.parse(mine.training.reward) for name, mine in self.configs.items()}
        self.specs = [scenario.spec for scenario in config.scenarios]
        self.phases = training_phases(config, [spec.inspect().agents for spec in self.specs])
        several = any(len(p.policies(index)) > 1 for p in self.phases for index in range(len(self.specs)))
        self._uses_pool = several and config.training.opponent_pool_fraction > 0
        self.league = League(config.league)
        self.player = EpisodePlayer(config, {name: learner.sampler for name, learner in self.learners.items()})
        self._pipeline: Pipeline | None = None

    def set_samplers(self, samplers: Mapping[str, Sampler]) -> None:
        """Let others answer for the policies while episodes are played."""
        for name, sampler in samplers.items():
            self.learners[name].sampler = sampler
        self.player = EpisodePlayer(self.config, {name: learner.sampler for name, learner in self.learners.items()})

    @property
    def phase(self) -> TrainingPhase:
        """The phase of the next update, or the last one."""
        return self.phase_of(self.updates)

    def phase_of(self, update: int) -> TrainingPhase:
        """The phase of an update."""
        return [phase for phase in self.phases if phase.start <= update][-1]

    def update(self) -> tuple[dict[str, Any], list[Episode]]:
        """Play, learn, and return this update's metrics (see `metrics.METRIC_FORMULAS`) and episodes.

        An episode that failed is left out of the batch, and counted in `failed`.

        Raises:
            MarlGemError: every episode failed.
        """
        begun, done = time.perf_counter(), self.updates - self.phase.start
        for name in self.phase.learners:
            self._prepare(name, done=done)
        plan, (episodes, repeated) = self._play()
        phase = plan.phase
        planned = {entry.id: entry for entry in plan.episodes}
        finished = completed(episodes)
        self._record(phase, finished, planned)
        played = time.perf_counter()
        learned = self._learn(phase, finished, planned, repeated)
        self.updates += 1
        metrics = {
            "update": self.updates,
            "episodes_played": len(finished),
            "failed": len(episodes) - len(finished),
            **_mean_returns(finished, planned, several=len(self.specs) > 1),
            "illegal": fmean("illegal" in turn.info for episode in finished for turn in episode.turns),
            **learned,
            **self.league.metrics(),
            "seconds_playing": played - begun,
            "seconds_learning": time.perf_counter() - played,
        }
        return metrics, episodes

    def _prepare(self, name: str, *, done: int) -> None:
        """Set a policy's reference and keep a snapshot, if it is time, after so many updates of the phase."""
        learner, training = self.learners[name], self.configs[name].training
        moves = done == 0 or (training.reference_every and done % training.reference_every == 0)
        if moves and (training.kl or training.kl_final):
            learner.backend.set_reference()
        if self._uses_pool:
            half = training.precision == "bfloat16"
            learner.pool.snapshot(learner.backend.version, lambda: _halved(learner.backend.weights(), half))

    def _plan(self, update: int) -> Plan:
        """The episodes of an update, as the pools and the league are now."""
        phase = self.phase_of(update).at(update, self.config.training.alternate_every)
        pools = {name: learner.pool for name, learner in self.learners.items()}
        size = group_size(self.config, self.algorithms)
        return plan_episodes(self.config, phase, update, self.league, pools, group_size=size)

    def _play(self) -> tuple[Plan, Played]:
        """This update's episodes; with staleness those of the next updates are begun, too."""
        training = self.config.training
        if not training.staleness:
            plan = self._plan(self.updates)
            with paused_collector():
                return plan, asyncio.run(self.player.play(plan))
        if self._pipeline is None:
            copies = {name: learner.sampler.playing_copy() for name, learner in self.learners.items()}
            self._pipeline = Pipeline(self.config, copies)
        due = range(self.updates + self._pipeline.pending, min(self.updates + training.staleness + 1, training.updates))
        backends = {name: learner.backend for name, learner in self.learners.items()} if due else {}
        newest = {name: Snapshot(backend.version, backend.weights()) for name, backend in backends.items()}
        for update in due:
            self._pipeline.submit(self._plan(update), newest)
        return self._pipeline.next()

    def close(self) -> None:
        """End what plays ahead of the updates, and throw it away; the next update would play it anew."""
        if self._pipeline is not None:
            self._pipeline.close()
            self._pipeline = None

    def _record(self, phase: TrainingPhase, episodes: Sequence[Episode], planned: Mapping[str, PlannedEpisode]) -> None:
        """Tell the league how the policies did against their opponents: 1 for a win or success, 0.5 for a draw."""
        results: dict[str, list[tuple[Opponent, float]]] = {}
        for episode in episodes:
            entry = planned[episode.id]
            if entry.opponents:
                (seat,) = entry.learning
                outcome = outcomes(episode)[seat]
                score = 0.5 if outcome.result == "draw" else float(outcome.success)
                met = results.setdefault(phase.seatings[entry.scenario][seat], [])
                met += [(opponent, score) for opponent in entry.opponents.values()]
        self.league.record(results)

    def _learn(
        self,
        phase: TrainingPhase,
        episodes: Sequence[Episode],
        planned: Mapping[str, PlannedEpisode],
        repeated: Mapping[str, Counter[str]],
    ) -> dict[str, Any]:
        """Let each policy take its steps on the turns of its seats, without those that a group has in common."""
        found: list[Trajectory] = []
        holders: list[str] = []  # the policy of each trajectory
        paid = self._paid(phase, episodes, planned)
        for episode in episodes:
            entry = planned[episode.id]
            for agent in entry.learning:
                name = phase.seatings[entry.scenario][agent]
                final_prompt = self.learners[name].sampler.final_prompt if self._needs_critic(name) else None
                gamma, reward = self.configs[name].training.gamma, paid.get((episode.id, agent))
                part = trajectories(episode, (agent,), gamma, entry.group, final_prompt, reward)
                first = repeated[episode.id][agent] if episode.id in repeated else 0
                part = [trajectory[first:] for trajectory in part if len(trajectory) > first]
                found += part
                holders += [name] * len(part)
        steps = {name: self._policy_step(name, phase) for name in phase.learners}
        return _mean_rewards(paid) | learn(found, holders, steps, name_metrics=len(self.learners) > 1)

    def _needs_critic(self, name: str) -> bool:
        return self.algorithms[name].needs.critic

    def _policy_step(self, name: str, phase: TrainingPhase) -> PolicyStep:
        """How a policy learns in this update."""
        training, done = self.configs[name].training, self.updates - phase.start
        return PolicyStep(
            self.learners[name],
            self.algorithms[name],
            training,
            learning_rate(training, done, phase.length),
            linear(training.kl, training.kl_final, done, phase.length),
        )

    def _paid(
        self, phase: TrainingPhase, episodes: Sequence[Episode], planned: Mapping[str, PlannedEpisode]
    ) -> dict[tuple[str, str], float]:
        """By episode and agent what policies with a reward of their own get for an episode."""
        paid: dict[tuple[str, str], float] = {}
        for scenario in range(len(self.specs)):
            for agent, name in phase.learning(scenario).items():
                reward = self.rewards[name]
                entries = ((episode, planned[episode.id]) for episode in episodes)
                mine = [(e, entry) for e, entry in entries if entry.scenario == scenario and agent in entry.learning]
                if reward is not None and mine:
                    learned_from = [episode for episode, _ in mine]
                    values = reward(SeatEpisodes(agent, learned_from, [entry.group for _, entry in mine]))
                    paid |= {(e.id, agent): value for e, value in zip(learned_from, values, strict=True)}
        return paid


def _halved(weights: Weights, half: bool) -> Weights:
    """The weights, in bfloat16 if `half`: what a run computes in, and enough for an opponent."""
    return {name: value.bfloat16() if half else value for name, value in weights.items()}


def _mean_rewards(paid: Mapping[tuple[str, str], float]) -> dict[str, float]:
    """The mean of what each agent got in place of the scenario's rewards."""
    agents = dict.fromkeys(agent for _, agent in paid)
    return {f"reward/{agent}": fmean(value for (_, who), value in paid.items() if who == agent) for agent in agents}


def _mean_returns(
    episodes: Sequence[Episode], planned: Mapping[str, PlannedEpisode], *, several: bool
) -> dict[str, float]:
    """The mean undiscounted return of each seat, over the episodes in which it learned."""
    returns: dict[str, list[float]] = {}
    for episode in episodes:
        for agent in planned[episode.id].learning:
            key = f"return/{episode.scenario}/{agent}" if several else f"return/{agent}"
            returns.setdefault(key, []).append(episode.returns[agent])
    return {key: fmean(values) for key, values in sorted(returns.items())}
