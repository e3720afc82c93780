"""tianshou learns tic-tac-toe: DQN in one seat of the numeric env, random legal moves in the other.

    pip install 'marl-gem[pettingzoo]' tianshou
    python examples/numeric_tianshou.py

Put a second DQN into the other seat, and they learn by playing against each other.
"""

from __future__ import annotations

from typing import Any

import torch
from tianshou.algorithm import DQN
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.multiagent.marl import MultiAgentOffPolicyAlgorithm
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.algorithm.random import MARLRandomDiscreteMaskedOffPolicyAlgorithm
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv, PettingZooEnv
from tianshou.trainer import OffPolicyTrainerParams
from tianshou.utils.net.common import Net

import marl_gem
from marl_gem.convert import to_numeric

SCENARIO = "game:TicTacToe-v0"


def make() -> PettingZooEnv:
    return PettingZooEnv(to_numeric(marl_gem.make(SCENARIO)))


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    env = make()
    inputs, actions = env.observation_space["observation"].shape, env.action_space
    net = Net(state_shape=inputs, action_shape=actions.n, hidden_sizes=[128])
    policy = DiscreteQLearningPolicy(model=net, action_space=actions, eps_training=0.2)
    dqn = DQN(policy=policy, optim=AdamOptimizerFactory(lr=1e-3), gamma=1.0, target_update_freq=50)
    players = [dqn, MARLRandomDiscreteMaskedOffPolicyAlgorithm(action_space=actions)]
    both = MultiAgentOffPolicyAlgorithm(algorithms=players, env=env)
    collector = Collector(both, DummyVectorEnv([make] * 8), VectorReplayBuffer(20_000, 8), exploration_noise=True)
    judge = Collector(both, DummyVectorEnv([make] * 8))
    print(f"{SCENARIO}: {actions.n} actions, observations of {inputs}")
    print(f"before: {mean_return(judge):+.2f} for player_0 in 200 games")
    both.run_training(
        OffPolicyTrainerParams(
            training_collector=collector,
            max_epochs=1,
            epoch_num_steps=4_000,
            collection_step_num_env_steps=200,
            update_step_num_gradient_steps_per_sample=0.2,
            batch_size=128,
            multi_agent_return_reduction=lambda returns: returns[:, 0],
            verbose=False,
            show_progress=False,
        )
    )
    print(f"{len(collector.buffer)} transitions in the replay buffer")
    print(f"after 4000 steps: {mean_return(judge):+.2f}")


def mean_return(judge: Any) -> float:
    judge.reset()
    return float(judge.collect(n_episode=200).returns[:, 0].mean())


if __name__ == "__main__":
    main()
