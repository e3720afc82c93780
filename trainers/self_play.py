"""The loop: policies learn from the games that they play with one another.

    self_play = SelfPlay.start(config)
    for metrics in self_play.warm_up(): ...
    while self_play.updates < config.self_play.updates:
        metrics, episodes = self_play.update()

One policy holds all seats, or each seat has its own, some of which may not learn (see `seating`). Each update plays
games, turns them into transitions with per-agent advantages, and lets every policy take one step on the REINFORCE
loss of its own. In a share of the games one seat learns and older versions hold the others, so that policies do not
run in circles around their newest selves.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

import torch

from marl_gem.errors import ConfigError
from marl_gem.policies import Policy
from marl_gem.rollout import Job, collect
from marl_gem.seeding import derive_seed
from marl_gem.trainers.config import TrainConfig
from marl_gem.trainers.demonstrations import play, stretches, texts
from marl_gem.trainers.imitation import imitate
from marl_gem.trainers.seating import ONE, Ground, Phase, learners, phases, training_ground
from marl_gem.trainers.tiny import tiny_model, tiny_tokenizer
from marl_gem.trainers.trainee import Trainee, load_pretrained
from marl_gem.trainers.transitions import Trajectory, trajectories, whole, with_advantages
from marl_gem.types import Episode
from marl_gem.views import view

Learning = dict[str, tuple[str, ...]]
"""For each game, by its id, the seats that learn from it."""


class SelfPlay:
    """The policies that learn: all the state there is in a run.

    Args:
        config: what to do.
        trainees: the policies, by name.
        updates: how many updates there have been.
        demonstrations: what the warm start may imitate, if it has been played already.
    """

    def __init__(
        self,
        config: TrainConfig,
        trainees: Mapping[str, Trainee],
        *,
        updates: int = 0,
        demonstrations: Sequence[Episode] | None = None,
    ) -> None:
        self.config = config
        self.trainees = dict(trainees)
        self.updates = updates
        self.ground = training_ground(config)
        self.phases = phases(config, self.ground.agents)
        self._demonstrations = demonstrations

    @classmethod
    def start(cls, config: TrainConfig) -> SelfPlay:
        """A new run: models from the folder that the configuration names, or tiny ones made for the scenario."""
        if config.threads:
            torch.set_num_threads(config.threads)
        names = learners(phases(config, training_ground(config).agents))
        if folder := config.policy.start_from:
            return cls(config, {name: Trainee(_told(name, config), config, *load_pretrained(folder)) for name in names})
        demonstrations = play(config)
        size = config.policy
        has_tools = any(role.tools for one in demonstrations for role in one.roles.values())
        tokenizer = tiny_tokenizer(texts(demonstrations), split=size.tokens, tools=has_tools)
        trainees = {}
        for name in names:
            model = tiny_model(
                tokenizer,
                width=size.width,
                layers=size.layers,
                heads=size.heads,
                context=size.context,
                seed=derive_seed(config.seed, "weights", *_apart(name)),
            )
            trainees[name] = Trainee(_told(name, config), config, model, tokenizer)
        return cls(config, trainees, demonstrations=demonstrations)

    @property
    def phase(self) -> Phase:
        """The phase of the next update, or the last one."""
        return [phase for phase in self.phases if phase.start <= self.updates][-1]

    def policies(self, phase: Phase, ground: Ground | None = None) -> dict[str, Policy]:
        """Who holds each seat in a phase, as policies. Those that do not learn are made for the ground."""
        ground = ground or self.ground
        return {
            seat: self.trainees[who].policy if who in self.trainees else ground.fixed(who)
            for seat, who in phase.seats.items()
        }

    def warm_up(self) -> Iterator[dict[str, Any]]:
        """Imitate demonstrations, one policy after the other, and yield each step's metrics.

        Where several policies learn, `policy` tells whose step it was. Pretrained models need no such start: set
        `imitation.steps` to 0.

        Raises:
            ConfigError: there is nothing for a policy to imitate, or more than it can read.
        """
        plan = self.config.imitation
        if plan.steps:
            demonstrations = self._demonstrations or play(self.config)
            seen = view(self.config.policy.view)
            for name, seats in learners(self.phases).items():
                trainee = self.trainees[name]
                shown = stretches(demonstrations, seats, trainee.llm, seen)
                if not shown:
                    raise ConfigError(
                        f"there is nothing for {trainee.name} to imitate: in {len(demonstrations)} games nobody had a "
                        f"turn as {' or '.join(seats)}; play more (imitation.games), or seat random there"
                    )
                steps = imitate(
                    trainee.learner,
                    shown,
                    steps=plan.steps,
                    batch=plan.batch,
                    learning_rate=plan.learning_rate,
                    seed=derive_seed(self.config.seed, "imitation", *_apart(name)),
                )
                whose = {"policy": name} if len(self.trainees) > 1 else {}
                yield from ({**whose, **metrics} for metrics in steps)
        self._demonstrations = None

    def update(self) -> tuple[dict[str, Any], list[Episode]]:
        """Play, learn, and return this update's metrics and episodes.

        An episode that failed teaches nothing, and is told as one of `failed`; its neighbours count.

        The metrics: `update`, how many there have been; `games` and `failed`; `return/AGENT`, the mean return of
        each learning seat; `illegal`, the share of turns with an illegal move; `flat`, the agents whose returns had
        no spread; `seconds_playing`, `seconds_learning`; and those of `Trainee.learn`, with `/POLICY` behind each
        name where several policies learn.

        Raises:
            MarlGemError: every episode failed.
        """
        phase, begun = self.phase, time.perf_counter()
        for name in phase.learners:
            if self.updates == phase.start:
                self.trainees[name].hold()
            self.trainees[name].remember()
        jobs, learning = self._jobs(phase)
        episodes = collect(self.ground.make, jobs, concurrency=len(jobs))
        played, ended = whole(episodes), time.perf_counter()
        learned = self._learn(phase, played, learning)
        self.updates += 1
        returns: dict[str, list[float]] = {}
        for episode in played:
            for agent in learning[episode.id]:
                returns.setdefault(agent, []).append(episode.returns[agent])
        metrics = {
            "update": self.updates,
            "games": len(played),
            "failed": len(episodes) - len(played),
            **{f"return/{agent}": fmean(values) for agent, values in sorted(returns.items())},
            "illegal": fmean("illegal" in turn.info for episode in played for turn in episode.turns),
            **learned,
            "seconds_playing": ended - begun,
            "seconds_learning": time.perf_counter() - ended,
        }
        return metrics, episodes

    def _learn(self, phase: Phase, episodes: Sequence[Episode], learning: Learning) -> dict[str, Any]:
        """Let each policy take its step on the turns of its seats."""
        plan = self.config.self_play
        batch: list[Trajectory] = []
        for episode in episodes:
            batch += trajectories(episode, learning[episode.id], plan.gamma)
        batch, baselines = with_advantages(batch, plan.normalization)
        metrics: dict[str, Any] = {"flat": sorted(group for group, baseline in baselines.items() if baseline.flat)}
        for name in phase.learners:
            own = [trajectory for trajectory in batch if phase.seats[trajectory[0].agent] == name]
            learned = self.trainees[name].learn(own, learning_rate=self._rate(phase), kl=self._kl(phase))
            metrics |= {key + (f"/{name}" if len(self.trainees) > 1 else ""): value for key, value in learned.items()}
        return metrics

    def _jobs(self, phase: Phase) -> tuple[list[Job], Learning]:
        """This update's games, and who learns from each."""
        plan, seed = self.config.self_play, self.config.seed
        newest, seats = self.policies(phase), list(phase.learning)
        against_older = round(plan.older_selves * plan.games) if len(seats) > 1 else 0
        older = {**newest, **(self._older(phase) if against_older else {})}
        jobs: list[Job] = []
        learning: Learning = {}
        for game in range(plan.games):
            name = f"{self.updates}-{game}"
            own = learning[name] = (seats[game % len(seats)],) if game < against_older else tuple(seats)
            seating = {seat: newest[seat] if seat in own else older[seat] for seat in phase.seats}
            jobs.append(Job(derive_seed(seed, "game", self.updates, game), seating, name))
        return jobs, learning

    def _older(self, phase: Phase) -> dict[str, Policy]:
        """An older version for each seat that learns; one version a policy in each update."""
        versions = {}
        for name in phase.learners:
            trainee = self.trainees[name]
            draw = random.Random(derive_seed(self.config.seed, "older", self.updates, *_apart(name)))
            versions[name] = trainee.older(*draw.choice(trainee.pool))
        return {seat: versions[name] for seat, name in phase.learning.items()}

    def _rate(self, phase: Phase) -> float:
        """Along a cosine, from the full rate to a tenth of it."""
        done, total = self.updates - phase.start, phase.end - phase.start
        return self.config.self_play.learning_rate * (0.55 + 0.45 * math.cos(math.pi * done / total))

    def _kl(self, phase: Phase) -> float:
        """Along a line."""
        plan, done, total = self.config.self_play, self.updates - phase.start, phase.end - phase.start
        return plan.kl + (plan.kl_final - plan.kl) * done / total


def _apart(name: str) -> tuple[str, ...]:
    """What tells the seeds of one policy from another's."""
    return () if name == ONE else (name,)


def _told(name: str, config: TrainConfig) -> str:
    """What a policy is called in records."""
    return name if config.seats else config.scenario
