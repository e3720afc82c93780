"""Self-play: one policy in every seat, learning from its own games.

    self_play = SelfPlay.start(config)
    for metrics in self_play.warm_up(): ...
    while self_play.updates < config.self_play.updates:
        metrics, episodes = self_play.update()

Each update plays games, turns them into transitions with per-agent advantages, and takes one step on the
REINFORCE loss. In a share of the games an older version holds the other seats, so that the policy does not
run in circles around its newest self.
"""

from __future__ import annotations

import copy
import math
import random
import time
from collections.abc import Iterator
from statistics import fmean
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

import marl_gem.registry
from marl_gem.agents import LLMPolicy, Policy, RandomPolicy
from marl_gem.env import MultiAgentEnv
from marl_gem.errors import ConfigError
from marl_gem.llm import Sampling
from marl_gem.llm.transformers import TransformersLLM
from marl_gem.rollout import Job, collect
from marl_gem.seeding import derive_seed
from marl_gem.trainers.config import PolicyConfig, TrainConfig
from marl_gem.trainers.imitation import check_played, example_texts, imitate
from marl_gem.trainers.learner import Learner
from marl_gem.trainers.tiny import tiny_model, tiny_tokenizer
from marl_gem.trainers.transitions import Trajectory, merge, trajectories, with_advantages
from marl_gem.types import Episode
from marl_gem.views import view

Weights = dict[str, torch.Tensor]


class SelfPlay:
    """A policy, its learner and its older versions: all the state there is in a run.

    Args:
        config: what to do.
        model, tokenizer: the policy's.
        updates: how many updates the model has had.
        pool: older versions, as (number of updates, weights), oldest first.
        reference: what the policy is held near; None takes the model as it is at the first update.
    """

    def __init__(
        self,
        config: TrainConfig,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        updates: int = 0,
        pool: list[tuple[int, Weights]] | None = None,
        reference: PreTrainedModel | None = None,
    ) -> None:
        self.config = config
        self.updates = updates
        self.pool = pool or []
        self.llm = TransformersLLM(model, tokenizer, name=config.scenario)
        self.llm.version = updates
        self.learner = Learner(
            model,
            pad_token=tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id,
            temperature=config.policy.temperature,
            clip=config.self_play.clip,
        )
        self.policy = make_policy(config.policy, self.llm)
        self.reference = reference
        self._older = TransformersLLM(copy.deepcopy(model), tokenizer, name=config.scenario)

    @classmethod
    def start(cls, config: TrainConfig) -> SelfPlay:
        """A new run: the model that the configuration names, or a tiny one made for the scenario."""
        if config.threads:
            torch.set_num_threads(config.threads)
        if config.policy.start_from:
            return cls(config, *load_pretrained(config.policy.start_from))
        size = config.policy
        tokenizer = tiny_tokenizer(example_texts(random_games(config), roles(config)))
        model = tiny_model(
            tokenizer,
            width=size.width,
            layers=size.layers,
            heads=size.heads,
            context=size.context,
            seed=derive_seed(config.seed, "weights"),
        )
        return cls(config, model, tokenizer)

    def warm_up(self) -> Iterator[dict[str, float]]:
        """Imitate random legal play, and yield each step's metrics. A pretrained model needs none: set steps to 0."""
        plan = self.config.imitation
        if plan.steps:
            yield from imitate(
                self.learner,
                self.llm,
                view(self.config.policy.view),
                random_games(self.config),
                roles(self.config),
                steps=plan.steps,
                batch=plan.batch,
                learning_rate=plan.learning_rate,
                seed=derive_seed(self.config.seed, "imitation"),
            )

    def update(self) -> tuple[dict[str, Any], list[Episode]]:
        """Play, learn, and return this update's metrics and episodes.

        The metrics: `update`, how many there have been; `games`, `turns`, `rows` (what the turns were merged
        into); `return/AGENT`, the mean return of each learning seat; `illegal`, the share of turns with an
        illegal move; `flat`, the agents whose returns had no spread; `seconds_playing`, `seconds_learning`;
        and those of `Learner.update`.
        """
        plan, begun = self.config.self_play, time.perf_counter()
        if self.reference is None:
            self.reference = copy.deepcopy(self.llm.model)
        self._remember()
        jobs, learning = self._jobs()
        episodes = list(check_played(collect(lambda: make(self.config), jobs, concurrency=len(jobs))))
        played = time.perf_counter()
        batch: list[Trajectory] = []
        for episode in episodes:
            batch += trajectories(episode, learning[episode.id], plan.gamma)
        batch, baselines = with_advantages(batch, plan.normalization)
        turns = sum(map(len, batch))
        rows = merge(batch)
        learned = self.learner.update(
            rows,
            learning_rate=self._learning_rate(),
            denominator=turns,
            reference=self.reference,
            kl=plan.kl + (plan.kl_final - plan.kl) * self.updates / plan.updates,
        )
        self.updates += 1
        self.llm.version = self.updates
        returns: dict[str, list[float]] = {}
        for episode in episodes:
            for agent in learning[episode.id]:
                returns.setdefault(agent, []).append(episode.returns[agent])
        metrics = {
            "update": self.updates,
            "games": len(episodes),
            "turns": turns,
            "rows": len(rows),
            **{f"return/{agent}": fmean(values) for agent, values in sorted(returns.items())},
            "illegal": fmean("illegal" in turn.info for episode in episodes for turn in episode.turns),
            "flat": sorted(group for group, baseline in baselines.items() if baseline.flat),
            **learned,
            "seconds_playing": played - begun,
            "seconds_learning": time.perf_counter() - played,
        }
        return metrics, episodes

    def _remember(self) -> None:
        """Keep the present version in the pool, if it is time.

        The pool always spans the whole run, the first version included: when it is full, every second
        version goes and versions are kept half as often from then on.
        """
        plan = self.config.self_play
        interval = plan.pool_every
        while self.updates // interval >= plan.pool_size:
            interval *= 2
        if plan.older_selves and self.updates % interval == 0:
            weights = {name: value.detach().clone() for name, value in self.llm.model.state_dict().items()}
            self.pool = [kept for kept in self.pool if kept[0] % interval == 0] + [(self.updates, weights)]

    def _jobs(self) -> tuple[list[Job], dict[str, tuple[str, ...]]]:
        """This update's games, and which seats learn in each."""
        plan, seed = self.config.self_play, self.config.seed
        seats = tuple(make(self.config).possible_agents)
        against_older = round(plan.older_selves * plan.games) if len(seats) > 1 and self.pool else 0
        if against_older:
            version, weights = random.Random(derive_seed(seed, "older", self.updates)).choice(self.pool)
            self._older.model.load_state_dict(weights)
            self._older.version = version
        older = make_policy(self.config.policy, self._older)
        jobs, learning = [], {}
        for game in range(plan.games):
            name = f"{self.updates}-{game}"
            learning[name] = (seats[game % len(seats)],) if game < against_older else seats
            seating: dict[str, Policy] = {seat: self.policy if seat in learning[name] else older for seat in seats}
            jobs.append(Job(derive_seed(seed, "game", self.updates, game), seating, name))
        return jobs, learning

    def _learning_rate(self) -> float:
        """Along a cosine, from the full rate to a tenth of it."""
        plan = self.config.self_play
        return plan.learning_rate * (0.55 + 0.45 * math.cos(math.pi * self.updates / plan.updates))


def make_policy(config: PolicyConfig, llm: TransformersLLM) -> LLMPolicy:
    """A model seen through the configuration's view, answering as it says."""
    return LLMPolicy(llm, view(config.view), Sampling(config.max_tokens, config.temperature))


def make(config: TrainConfig) -> MultiAgentEnv:
    """A fresh env as the configuration wants it."""
    return marl_gem.registry.make(config.scenario, **config.options)


def roles(config: TrainConfig) -> dict[str, Any]:
    """What every seat is told before its first turn."""
    env = make(config)
    env.reset(seed=derive_seed(config.seed, "roles"))
    return {agent: env.role(agent) for agent in env.agents}


def random_games(config: TrainConfig) -> list[Episode]:
    """Games of random legal play, to make a tokenizer from and to imitate."""
    seeds = (derive_seed(config.seed, "random game", game) for game in range(config.imitation.games))
    episodes = collect(lambda: make(config), [Job(seed, RandomPolicy()) for seed in seeds])
    return list(check_played(episodes))


def load_pretrained(folder: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model and its tokenizer from a folder, in the layout of transformers; nothing is downloaded.

    Raises:
        ConfigError: the folder holds none.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        return AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, use_safetensors=True), tokenizer
    except (OSError, ValueError) as error:
        raise ConfigError(f"{folder!r} holds no transformers model with a tokenizer: {error}") from error
