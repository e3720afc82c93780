"""A public goods game: what is given to a common pot grows and is shared by all, so that giving helps the others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from marl_gem.analysis import Node, Strategy
from marl_gem.env import MultiAgentEnv
from marl_gem.errors import InvalidOption
from marl_gem.policies import ScriptedPolicy
from marl_gem.policies.base import Info
from marl_gem.selectors.parallel import ParallelSelector
from marl_gem.types import Metadata, Observation, Role

TOKENS = 10
"""What each player has in a round."""

LONGEST = 300
"""So many characters of what a player says are heard."""

_GIFT = re.compile(r"\[give (\d{1,2})\]")


class PublicGoods(MultiAgentEnv):
    """In each round all players have 10 tokens and give `[give 0]` to `[give 10]` of them at the same time.

    The pot is multiplied by `factor` and shared equally. With n players, a round's reward is
    (10 - gift + factor * pot / n) / 10: 1 if nobody gives, `factor` if everybody gives all. As long as `factor` is less
    than n, each token that a player gives costs it 1 - factor / n of a token, whatever the others do: to give nothing
    is the only equilibrium of a round. What is no gift counts as `[give 0]`, and is illegal.

    Args:
        players: from 2 to 50.
        rounds: from 1 to 1000.
        factor: what the pot is multiplied by, from 1 to 10.
        talk: whether before each round all say something, at the same time, which everybody hears.
    """

    selector = ParallelSelector()
    possible_actions = tuple(f"[give {gift}]" for gift in range(TOKENS + 1))

    def __init__(self, players: int = 4, rounds: int = 5, factor: float = 2.0, talk: bool = False) -> None:
        if not (2 <= players <= 50 and 1 <= rounds <= 1000 and 1 <= factor <= 10):
            raise InvalidOption(
                "PublicGoods takes 2 to 50 players, 1 to 1000 rounds and a factor from 1 to 10, not "
                f"{players}, {rounds} and {factor}"
            )
        self.possible_agents = tuple(f"player_{index}" for index in range(players))
        self.rounds, self.factor, self.talk = rounds, factor, talk
        self.metadata = Metadata(turn_order="parallel", reward_range=(0.0, 1.0 + factor))

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        self.round, self.talking = 1, self.talk
        self.gifts: dict[str, int] = {}

    def role(self, agent: str) -> Role:
        players = len(self.possible_agents)
        return Role(
            f"You are {agent}, one of {players} players. In each of {self.rounds} rounds everybody has {TOKENS} tokens "
            f"and puts some into a pot. The pot is multiplied by {self.factor:g} and shared equally by all. You keep "
            f"the rest. Answer with your gift in brackets, from [give 0] to [give {TOKENS}]."
            + (" Before each round all may say something." if self.talk else "")
        )

    def observe(self, agent: str) -> str:
        new = [str(message) for message in self.new_messages(agent)]
        if self.terminations.get(agent):
            return "\n".join(new)
        asked = "Say something to the others." if self.talking else "How much do you give?"
        return "\n".join([*new, f"Round {self.round} of {self.rounds}. {asked}"])

    def legal_actions(self, agent: str) -> list[str] | None:
        return None if self.talking else list(self.possible_actions)

    def render(self) -> str:
        gifts = ", ".join(f"{agent} {gift}" for agent, gift in self.gifts.items())
        returns = ", ".join(f"{agent} {value:g}" for agent, value in self.returns.items())
        return f"Round {self.round} of {self.rounds}\nlast gifts: {gifts or 'none yet'}\nreturns: {returns}"

    def _process_actions(self, actions: dict[str, str]) -> None:
        if self.talking:
            for agent, text in actions.items():
                self.send(text[:LONGEST], sender=agent)
            self.talking = False
            return
        for agent, action in actions.items():
            found = _GIFT.search(action)
            if not found or int(found[1]) > TOKENS:
                self.infos[agent]["illegal"] = f"{action[:80]!r} is no gift from [give 0] to [give {TOKENS}]"
            self.gifts[agent] = int(found[1]) if found and int(found[1]) <= TOKENS else 0
        pot = self.factor * sum(self.gifts.values())
        share = pot / len(self.gifts)
        self.rewards = {agent: (TOKENS - gift + share) / TOKENS for agent, gift in self.gifts.items()}
        given = ", ".join(f"{agent} {gift}" for agent, gift in self.gifts.items())
        self.send(f"Round {self.round}, gifts: {given}. Everybody gets {share:.2f}.")
        if self.round == self.rounds:
            self.terminations = dict.fromkeys(self.agents, True)
            return
        self.round, self.talking = self.round + 1, self.talk


def policy(scenario: str, options: Mapping[str, Any]) -> ScriptedPolicy:
    """The policy behind `scripted:conditional`: gives all at first, and then the mean of the last gifts."""

    def answer(observation: Observation, info: Info) -> str:
        if not info.get("legal_actions"):
            return "I give what the others give."
        gifts = re.findall(r"player_\d+ (\d+)", str(observation).rpartition("gifts: ")[2].partition(".")[0])
        return f"[give {round(sum(map(int, gifts)) / len(gifts)) if gifts else TOKENS}]"

    return ScriptedPolicy(answer, "scripted:conditional")


def analyse(env: MultiAgentEnv, strategy: Strategy) -> dict[str, float]:
    """The registered analysis of a policy in every seat, in closed form, of the first gifts.

    Args:
        env: a fresh env without talk, which is reset.
        strategy: the policies' probabilities; they are scaled to the legal gifts.

    Returns:
        `gift`: the mean share of their tokens that players give, from 0 to 1; `value`: the mean reward of a round,
        1 + (factor - 1) * gift; `exploitability`: the mean gain of a player that gives nothing instead,
        (1 - factor / n) * gift; `illegal`, the greatest probability of an illegal answer.
    """
    env.reset(seed=0)
    node = Node(env)
    game = node.state
    assert isinstance(game, PublicGoods)
    means, illegal = [], 0.0
    for agent in env.agents:
        decision = node.decision(agent)
        given = strategy(decision)
        weights = [given.get(action, 0.0) for action in decision.actions]
        total = sum(weights)
        illegal = max(illegal, 1 - total)
        means.append(sum(gift * w for gift, w in enumerate(weights)) / total / TOKENS if total else 0.5)
    gift = sum(means) / len(means)
    value = 1 + (game.factor - 1) * gift
    gain = (1 - game.factor / len(means)) * gift
    return {"gift": gift, "value": value, "exploitability": max(gain, 0.0), "illegal": illegal}
