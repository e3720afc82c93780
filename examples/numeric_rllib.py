"""RLlib learns Kuhn poker by self-play: one PPO with masked actions in both seats of the numeric env.

    pip install 'marl-gem[pettingzoo]' 'ray[rllib]' torch
    python examples/numeric_rllib.py

RLlib's module for masked actions wants the observation under the key "observations".
"""

from __future__ import annotations

import logging
import os

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.wrappers.pettingzoo_env import PettingZooEnv
from ray.rllib.examples.rl_modules.classes.action_masking_rlm import ActionMaskingTorchRLModule
from ray.tune.registry import register_env

import marl_gem
from marl_gem.convert import to_numeric

SCENARIO, ROUNDS = "game:KuhnPoker-v0", 6


def make(_: object = None) -> PettingZooEnv:
    return PettingZooEnv(to_numeric(marl_gem.make(SCENARIO), key="observations"))


def main() -> None:
    ray.init(num_cpus=1, include_dashboard=False, object_store_memory=100_000_000, logging_level=logging.ERROR)
    register_env("kuhn", make)
    config = (
        PPOConfig()
        .environment("kuhn")
        .env_runners(num_env_runners=0)
        .multi_agent(policies={"both"}, policy_mapping_fn=lambda *_, **__: "both")
        .rl_module(rl_module_spec=RLModuleSpec(module_class=ActionMaskingTorchRLModule))
        .training(train_batch_size_per_learner=500, minibatch_size=125, num_epochs=4, lr=1e-3, gamma=1.0)
    )
    algorithm = config.build_algo()
    print(f"{SCENARIO}: {make().action_spaces['player_0'].n} actions, one policy for both seats")
    for number in range(1, ROUNDS + 1):
        result = algorithm.train()
        chips = result["env_runners"]["agent_episode_returns_mean"]
        entropy = result["learners"]["both"]["entropy"]
        print(f"round {number}: player_0 {chips['player_0']:+.2f} chips a hand, entropy {entropy:.2f}")
    algorithm.stop()
    ray.shutdown()


if __name__ == "__main__":
    main()
