"""A two-agent game in one file: a seller and a buyer haggle, and each knows only what the thing is worth to itself.

    python examples/haggle.py
    python examples/haggle.py --games 1000 --seed 7

What to take from it: a scenario with private information and rewards that differ per seat, a policy
with memory, many episodes at once, and one transcript to read.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from typing import Any

from marl_gem import Episode, Metadata, MultiAgentEnv, Observation, Response, Role, SequentialSelector
from marl_gem.policies import Info
from marl_gem.rollout import Job, collect

PRICE = re.compile(r"\[offer (\d{1,3})\]")


class Haggle(MultiAgentEnv):
    """`[offer 40]` names a price, `[deal]` takes the other's. After eight messages the chance is gone.

    A deal earns the seller the price less what the bicycle is worth to it, the buyer what it is worth to it
    less the price. Words around the brackets are welcome, and the other hears them.
    """

    possible_agents = ("seller", "buyer")
    selector = SequentialSelector()
    max_steps = 8
    metadata = Metadata(turn_order="sequential", reward_range=(-999.0, 999.0))

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        self.worth = {"seller": self.rng.randrange(20, 60), "buyer": self.rng.randrange(50, 100)}
        self.price: int | None = None
        self.send("The buyer looks at the bicycle. What do you ask for it?", to="seller")

    def role(self, agent: str) -> Role:
        return Role(
            f"You are the {agent} of a used bicycle. It is worth {self.worth[agent]} to you; do not tell. Get a good "
            "price. Name one as [offer 40], or take the other's last offer with [deal]. You have four messages."
        )

    def _process_action(self, agent: str, action: str) -> None:
        self.send(action, sender=agent)
        if "[deal]" in action and self.price is not None:
            self.rewards = {"seller": self.price - self.worth["seller"], "buyer": self.worth["buyer"] - self.price}
            self.infos = {other: {"price": self.price} for other in self.agents}
            self.terminations = dict.fromkeys(self.agents, True)
        elif offer := PRICE.search(action):
            self.price = int(offer[1])


class Haggler:
    """A policy: asks for a margin over its own worth, and gives way by a share of it with every message."""

    def __init__(self, margin: float, giving_way: float) -> None:
        self.margin, self.giving_way = margin, giving_way
        self.name = f"margin {margin:g}, giving way {giving_way:g}"

    def agent(self, agent_id: str, role: Role, seed: int) -> HagglingAgent:
        return HagglingAgent(self, agent_id, role)


class HagglingAgent:
    """The policy in one seat of one episode: here is its memory."""

    def __init__(self, policy: Haggler, agent_id: str, role: Role) -> None:
        self.policy, self.gain = policy, 1 if agent_id == "seller" else -1
        self.worth = int(re.findall(r"worth (\d+)", role.instructions)[0])
        self.margin = policy.margin

    async def act(self, observation: Observation, info: Info) -> Response:
        wanted = round(self.worth * (1 + self.gain * self.margin))
        offered = PRICE.search(str(observation))
        if offered and (int(offered[1]) - wanted) * self.gain >= 0:
            return Response("That will do. [deal]")
        self.margin *= 1 - self.policy.giving_way
        return Response(f"How about [offer {wanted}]?")


def main() -> None:
    parser = argparse.ArgumentParser(description="A seller and a buyer haggle.")
    parser.add_argument("--games", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    hard, soft = Haggler(margin=0.8, giving_way=0.2), Haggler(margin=0.4, giving_way=0.6)
    for seller, buyer in ((soft, soft), (hard, soft), (soft, hard), (hard, hard)):
        seating = {"seller": seller, "buyer": buyer}
        episodes = collect(Haggle, [Job(options.seed + game, seating) for game in range(options.games)])
        deals = [episode for episode in episodes if episode.ending == "terminated"]
        earned = {agent: sum(episode.returns[agent] for episode in episodes) / len(episodes) for agent in seating}
        print(f"seller: {seller.name}; buyer: {buyer.name}")
        print(f"  deals {len(deals)} of {len(episodes)}; mean gain: {earned['seller']:.1f}, {earned['buyer']:.1f}")
    show(episodes[0])


def show(episode: Episode) -> None:
    print(f"\nOne of the last, seed {episode.seed}:")
    for turn in episode.turns:
        print(f"  {turn.agent:<7}{turn.response.text}")
    print(f"  {episode.ending}: {episode.returns}")


if __name__ == "__main__":
    main()
