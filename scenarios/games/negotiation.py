"""Two agents divide items. What the items are worth to each only it knows, so that talk can find what both gain from.

After DeVault et al. (2015) and Lewis et al. (Deal or No Deal, arXiv 1706.05125).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from itertools import product
from typing import Any

from marl_gem.env import MultiAgentEnv
from marl_gem.errors import InvalidOption
from marl_gem.policies.base import Info
from marl_gem.selectors.sequential import SequentialSelector
from marl_gem.types import Metadata, Observation, Response, Role
from marl_gem.views import as_text

PLAYERS = ("player_0", "player_1")
ITEMS = ("book", "hat", "ball")
TOTAL = 10
"""What all items together are worth to each player."""

LONGEST = 500
"""So many characters of what a player says are heard."""

_OFFER = re.compile(r"\[(\d) (\d) (\d)\]")
_DEAL = "[deal]"


class Negotiation(MultiAgentEnv):
    """`[2 0 1]` proposes to take two books, no hat and a ball, and to leave the rest; `[deal]` takes the last proposal.

    The other hears all that is said. A proposal for more than there is, a deal without a proposal, and an answer
    without either are illegal, and the turn passes.

    Rewards: at a deal what a player's share is worth to it, divided by 10, the worth of everything to each of them; 0
    to both without a deal.

    Args:
        turns: of both players together, from 2 to 50; then it is over without a deal.
    """

    possible_agents = PLAYERS
    selector = SequentialSelector()
    metadata = Metadata(turn_order="sequential", reward_range=(0.0, 1.0))

    def __init__(self, turns: int = 10) -> None:
        if not 2 <= turns <= 50:
            raise InvalidOption(f"Negotiation takes 2 to 50 turns, not {turns}")
        self.turns = turns

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        self.counts, fitting = self.rng.choice(_deals())
        self.values = dict(zip(PLAYERS, self.rng.sample(fitting, 2), strict=True))
        self.proposal: tuple[int, ...] = ()  # what its author takes
        self.send("Make the first proposal.", to=PLAYERS[0])

    def role(self, agent: str) -> Role:
        there = ", ".join(f"{count} {item}{'s' * (count > 1)}" for count, item in zip(self.counts, ITEMS, strict=True))
        worth = ", ".join(f"a {item} {value}" for item, value in zip(ITEMS, self.values[agent], strict=True))
        return Role(
            f"You and another player divide {there}. What they are worth to you: {worth}; to the other they are worth "
            "something else. Propose what you take as numbers of books, hats and balls, such as "
            f"[{' '.join(map(str, self.counts))}] for all, or answer [deal] to take the other's last proposal. Without "
            f"a deal after {self.turns} turns both get nothing."
        )

    def legal_actions(self, agent: str) -> list[str]:
        shares = product(*(range(count + 1) for count in self.counts))
        return [_DEAL] * bool(self.proposal) + [f"[{' '.join(map(str, share))}]" for share in shares]

    def render(self) -> str:
        values = [f"{agent}: values {self.values[agent]}, return {self.returns[agent]:g}" for agent in PLAYERS]
        return "\n".join([f"{ITEMS} {self.counts}", *values, *map(str, self.message_log[-2:])])

    def _process_action(self, agent: str, action: str) -> None:
        other = PLAYERS[1 - PLAYERS.index(agent)]
        self.send(action[:LONGEST], sender=agent)
        share = tuple(map(int, found.groups())) if (found := _OFFER.search(action)) else ()
        if _DEAL in action and self.proposal:
            rest = tuple(count - taken for count, taken in zip(self.counts, self.proposal, strict=True))
            shares = {other: self.proposal, agent: rest}
            self.rewards = {player: _worth(shares[player], self.values[player]) / TOTAL for player in PLAYERS}
            self.terminations = dict.fromkeys(PLAYERS, True)
            return
        if share and all(taken <= count for taken, count in zip(share, self.counts, strict=True)):
            self.proposal = share
        else:
            self.infos[agent]["illegal"] = f"{action[:80]!r} is neither a possible proposal nor a deal"
        if self.steps >= self.turns:
            self.send("There is no deal.")
            self.terminations = dict.fromkeys(PLAYERS, True)


@functools.cache
def _deals() -> list[tuple[tuple[int, ...], list[tuple[int, ...]]]]:
    """Every number of items from 1 to 3 each, with the values by which all are worth 10; at least two."""
    values = list(product(range(TOTAL + 1), repeat=len(ITEMS)))
    found = [(counts, [v for v in values if _worth(v, counts) == TOTAL]) for counts in product((1, 2, 3), repeat=3)]
    return [(counts, fitting) for counts, fitting in found if len(fitting) > 1]


def _worth(share: tuple[int, ...], values: tuple[int, ...]) -> int:
    return sum(count * value for count, value in zip(share, values, strict=True))


def best_joint(counts: tuple[int, ...], values: Mapping[str, tuple[int, ...]]) -> float:
    """The greatest sum of both rewards: every item goes to whom it is worth more."""
    best = [max(pair) for pair in zip(*values.values(), strict=True)]
    return _worth(counts, tuple(best)) / TOTAL


class RulePolicy:
    """`scripted:rule`: asks for all, then for less each turn, and takes what is worth as much as it would ask for."""

    name = "scripted:rule"

    def agent(self, agent_id: str, role: Role, seed: int) -> RuleAgent:
        counts = tuple(int(n) for n in re.findall(r"(\d) (?:book|hat|ball)", role.instructions))
        values = tuple(int(n) for n in re.findall(r"a (?:book|hat|ball) (\d+)", role.instructions))
        return RuleAgent(counts, values)


class RuleAgent:
    """The policy in one seat: how much it still asks for."""

    def __init__(self, counts: tuple[int, ...], values: tuple[int, ...]) -> None:
        self.counts, self.values = counts, values
        self.asked = TOTAL

    async def act(self, observation: Observation, info: Info) -> Response:
        if offers := _OFFER.findall(as_text(observation)):
            rest = tuple(count - int(taken) for count, taken in zip(self.counts, offers[-1], strict=True))
            if _worth(rest, self.values) >= self.asked:
                return Response(f"Fine. {_DEAL}")
        shares = product(*(range(count + 1) for count in self.counts))
        enough = [share for share in shares if _worth(share, self.values) >= self.asked]
        share = min(enough, key=lambda share: (sum(share), _worth(share, self.values)))
        self.asked = max(self.asked - 1, TOTAL // 2)
        return Response(f"I take [{' '.join(map(str, share))}].")


def policy(scenario: str, options: Mapping[str, Any]) -> RulePolicy:
    """The policy behind `scripted:rule`; see `marl_gem.registry.register_policy`."""
    return RulePolicy()
