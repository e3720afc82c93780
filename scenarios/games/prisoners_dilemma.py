"""The iterated prisoner's dilemma. Two players cooperate or defect; after each round another one follows by chance."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from marl_gem.analysis import Node, Strategy
from marl_gem.env import MultiAgentEnv
from marl_gem.errors import InvalidOption
from marl_gem.policies import ScriptedPolicy
from marl_gem.policies.base import Info
from marl_gem.selectors.parallel import ParallelSelector
from marl_gem.types import Metadata, Observation, Role

PLAYERS = ("player_0", "player_1")
MOVES = ("[cooperate]", "[defect]")
REWARDS = {(0, 0): -1.0, (0, 1): -3.0, (1, 0): 0.0, (1, 1): -2.0}
"""A player's reward by its move and the other's: 0 cooperates, 1 defects."""

_MOVE = re.compile(r"\[(cooperate|defect)\]")
PAST = {0: "cooperated", 1: "defected"}
LONGEST = 300
"""So many characters of what a player says are heard."""


class PrisonersDilemma(MultiAgentEnv):
    """In each round both answer `[cooperate]` or `[defect]` at the same time; then both are shown what was played.

    Rewards of a round: -1 each if both cooperate, -2 each if both defect, 0 for who defects alone and -3 for the other.
    After each round another one follows with the probability `discount`, so that returns are discounted on average. An
    answer with neither move counts as `[defect]`, and is illegal.

    Args:
        discount: from 0 to 0.99.
        talk: whether before each round both say something, at the same time, which the other hears.
    """

    possible_agents = PLAYERS
    selector = ParallelSelector()
    possible_actions = MOVES
    metadata = Metadata(turn_order="parallel", reward_range=(-3.0, 0.0))

    def __init__(self, discount: float = 0.96, talk: bool = False) -> None:
        if not 0 <= discount <= 0.99:
            raise InvalidOption(f"PrisonersDilemma takes a discount from 0 to 0.99, not {discount}")
        self.discount, self.talk = discount, talk
        self.max_steps = 1000 * (1 + talk)

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        self.round, self.talking = 1, self.talk

    def role(self, agent: str) -> Role:
        return Role(
            "You and another player choose at the same time, round after round. Both [cooperate]: -1 each. Both "
            "[defect]: -2 each. If one defects alone, it gets 0 and the other -3. After each round another one follows "
            f"with a probability of {self.discount:g}. Answer with [cooperate] or [defect]."
            + (" Before each round both may say something." if self.talk else "")
        )

    def observe(self, agent: str) -> str:
        new = [str(message) for message in self.new_messages(agent)]
        if self.terminations.get(agent):
            return "\n".join(new)
        asked = "Say something to the other." if self.talking else "Your choice?"
        return "\n".join([*new, f"Round {self.round}. {asked}"])

    def legal_actions(self, agent: str) -> list[str] | None:
        return None if self.talking else list(MOVES)

    def _process_actions(self, actions: dict[str, str]) -> None:
        if self.talking:
            for agent, text in actions.items():
                self.send(text[:LONGEST], sender=agent)
            self.talking = False
            return
        moves = {}
        for agent, action in actions.items():
            found = _MOVE.search(action)
            moves[agent] = int(not found or found[0] == MOVES[1])
            if not found:
                self.infos[agent]["illegal"] = f"{action[:80]!r} has neither [cooperate] nor [defect]"
        for agent, other in (PLAYERS, PLAYERS[::-1]):
            self.rewards[agent] = REWARDS[moves[agent], moves[other]]
            self.send(f"Round {self.round}: you {PAST[moves[agent]]}, the other {PAST[moves[other]]}.", to=agent)
        if self.rng.random() >= self.discount:
            self.terminations = dict.fromkeys(PLAYERS, True)
        self.round, self.talking = self.round + 1, self.talk


def policy(scenario: str, options: Mapping[str, Any]) -> ScriptedPolicy:
    """The policy behind `scripted:tit_for_tat`: cooperates at first, and then plays what the other played last."""

    def answer(observation: Observation, info: Info) -> str:
        if not info.get("legal_actions"):
            return "I do as you do."
        return MOVES["the other defected" in str(observation)]

    return ScriptedPolicy(answer, "scripted:tit_for_tat")


def mean_rewards(first: Sequence[float], second: Sequence[float], discount: float) -> tuple[float, float]:
    """The exact mean reward of a round, discounted, of two memory-one strategies.

    Args:
        first, second: probabilities to cooperate: in the first round, and after the own and the other's last moves CC,
            CD, DC, DD.
        discount: from 0, less than 1.
    """
    swapped = [second[0], second[1], second[3], second[2], second[4]]  # as the first player sees the last round

    def moves(a: float, b: float) -> list[float]:
        return [a * b, a * (1 - b), (1 - a) * b, (1 - a) * (1 - b)]

    after = [moves(first[1 + last], swapped[1 + last]) for last in range(4)]
    visits = moves(first[0], swapped[0])
    weight, total = 1 - discount, [0.0] * 4
    while weight > 1e-12:
        total = [so_far + weight * visit for so_far, visit in zip(total, visits, strict=True)]
        visits = [sum(visits[last] * after[last][now] for last in range(4)) for now in range(4)]
        weight *= discount
    rewards = list(REWARDS.values())
    mine = sum(visit * reward for visit, reward in zip(total, rewards, strict=True))
    others = sum(total[now] * rewards[(0, 2, 1, 3)[now]] for now in range(4))
    return mine, others


def analyse(env: MultiAgentEnv, strategy: Strategy) -> dict[str, float]:
    """The registered analysis of two policies, one in each seat, as memory-one strategies.

    Args:
        env: a fresh env without talk, which is reset.
        strategy: the policies' probabilities, asked in the first round and after each of its four outcomes; an answer
            that is illegal counts as defection.

    Returns:
        `value/player_0` and `value/player_1`: the mean reward of a round, discounted, -1 if both cooperate and -2 if
        both defect; `cooperation`: the probability that a player cooperates in the first round; `illegal`, the
        greatest probability of an illegal answer.
    """
    env.reset(seed=0)
    node = Node(env)
    game = node.state
    assert isinstance(game, PrisonersDilemma)
    discount, game.discount = game.discount, 1.0  # the forks go on after the first round
    after = [node.child(dict(zip(PLAYERS, (a, b), strict=True))) for a in MOVES for b in MOVES]
    game.discount = discount
    chances, illegal = [], 0.0
    for player in PLAYERS:
        outcomes = after if player == PLAYERS[0] else [after[0], after[2], after[1], after[3]]
        answers = [strategy(at.decision(player)) for at in (node, *outcomes)]
        illegal = max([illegal, *(1 - sum(answer.values()) for answer in answers)])
        chances.append([answer.get(MOVES[0], 0.0) for answer in answers])
    values = mean_rewards(chances[0], chances[1], discount)
    found = {f"value/{player}": value for player, value in zip(PLAYERS, values, strict=True)}
    return {**found, "cooperation": (chances[0][0] + chances[1][0]) / 2, "illegal": illegal}
