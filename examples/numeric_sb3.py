"""Stable-Baselines3 learns tic-tac-toe against random play: MaskablePPO of sb3-contrib on a numeric env.

    pip install 'marl-gem[pettingzoo]' sb3-contrib
    python examples/numeric_sb3.py

What was trained is then a policy in marl_gem like any other.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import torch
from sb3_contrib import MaskablePPO

import marl_gem
from marl_gem.convert import to_gymnasium, to_numeric
from marl_gem.policies import RandomPolicy, ScriptedPolicy
from marl_gem.rollout import Job, collect

SCENARIO, GAMES, STEPS = "game:TicTacToe-v0", 200, 3_072
dice = random.Random(0)


def random_move(observation: Any, info: Mapping[str, Any]) -> str:
    return dice.choice(info["legal_actions"])


def main() -> None:
    torch.set_num_threads(1)
    env = to_numeric(to_gymnasium(marl_gem.make(SCENARIO), "player_0", {"player_1": random_move}))
    model = MaskablePPO("MultiInputPolicy", env, n_steps=512, gamma=1.0, ent_coef=0.01, seed=0)

    def learned(seen: Mapping[str, Any]) -> Any:
        return model.predict(seen, action_masks=seen["action_mask"], deterministic=True)[0]

    policy = ScriptedPolicy(env.numeric.player("player_0", learned), "MaskablePPO")
    print(f"{SCENARIO}: {env.action_space.n} actions, observations of {env.observation_space['observation'].shape}")
    print(f"before: {won(policy):.0%} of {GAMES} games won as player_0")
    model.learn(STEPS)
    print(f"after {STEPS} steps: {won(policy):.0%}")
    print(f"random play: {won(RandomPolicy()):.0%}")


def won(policy: Any) -> float:
    jobs = [Job(seed, {"player_0": policy, "player_1": RandomPolicy()}) for seed in range(GAMES)]
    episodes = collect(lambda: marl_gem.make(SCENARIO), jobs)
    return sum(episode.returns["player_0"] > 0 for episode in episodes) / GAMES


if __name__ == "__main__":
    main()
