"""Colonel Blotto: two players spread their soldiers over fields at the same time; whoever has more fields wins.

No way to spread them beats all others: what beats one loses to a third (Borel, 1921).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from marl_gem.analysis import Node, Strategy
from marl_gem.env import MultiAgentEnv
from marl_gem.errors import InvalidOption
from marl_gem.selectors.parallel import ParallelSelector
from marl_gem.types import Metadata, Role

PLAYERS = ("player_0", "player_1")
_NUMBERS_IN_TEXT = re.compile(r"\[([\d ]{1,40})\]")


def allocations(soldiers: int, fields: int) -> list[tuple[int, ...]]:
    """All ways to spread the soldiers, in lexical order."""
    if fields == 1:
        return [(soldiers,)]
    return [(n, *rest) for n in range(soldiers + 1) for rest in allocations(soldiers - n, fields - 1)]


def outcome(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    """1, 0 or -1: the first has more soldiers in more fields, in as many, or in fewer than the second."""
    won = sum((a > b) - (a < b) for a, b in zip(first, second, strict=True))
    return (won > 0) - (won < 0)


class Blotto(MultiAgentEnv):
    """One round. An answer is a number of soldiers for each field in brackets, such as `[4 3 0]`; the first counts.

    Rewards: 1 to the winner and -1 to the loser, 0 each for a draw. Who gives no legal answer loses to one who does,
    and its info has `illegal`.

    Args:
        soldiers: each player's, from 1 to 20.
        fields: from 2 to 5.
    """

    possible_agents = PLAYERS
    selector = ParallelSelector()
    metadata = Metadata(zero_sum=True, turn_order="parallel", reward_range=(-1.0, 1.0))

    def __init__(self, soldiers: int = 7, fields: int = 3) -> None:
        if not (1 <= soldiers <= 20 and 2 <= fields <= 5):
            raise InvalidOption(f"Blotto takes 1 to 20 soldiers and 2 to 5 fields, not {soldiers} and {fields}")
        self.soldiers, self.fields = soldiers, fields
        self._answers = {f"[{' '.join(map(str, a))}]": a for a in allocations(soldiers, fields)}
        self.possible_actions = tuple(self._answers)

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        self.chosen: dict[str, str] = {}

    def role(self, agent: str) -> Role:
        example = next(reversed(self._answers))
        return Role(
            f"You and another player spread {self.soldiers} soldiers over {self.fields} fields at the same time. A "
            "field goes to whoever has more soldiers there; whoever gets more fields wins. Answer with a number for "
            f"each field, {self.soldiers} in all, in brackets, such as {example}."
        )

    def observe(self, agent: str) -> str:
        if not self.terminations[agent]:
            return f"Spread {self.soldiers} soldiers over {self.fields} fields."
        mine, other = (self.chosen.get(player, "nothing") for player in (agent, *({*PLAYERS} - {agent})))
        return f"You: {mine}. The other player: {other}. You get {self.returns[agent]:+g}."

    def render(self) -> str:
        spread = [f"{player}: {self.chosen.get(player, 'nothing')}" for player in PLAYERS]
        result = ", ".join(f"{player} {value:+g}" for player, value in self.returns.items())
        start = f"{self.soldiers} soldiers, {self.fields} fields"
        return f"{start}; both spread theirs" if self.acting else "\n".join([start, *spread, result])

    def legal_actions(self, agent: str) -> list[str]:
        return list(self._answers)

    def _process_actions(self, actions: dict[str, str]) -> None:
        for agent, action in actions.items():
            match = _NUMBERS_IN_TEXT.search(action)
            answer = f"[{' '.join(match[1].split())}]" if match else ""
            if answer in self._answers:
                self.chosen[agent] = answer
            else:
                self.infos[agent]["illegal"] = f"{action[:80]!r} is no number of soldiers for each field"
        answered = [player in self.chosen for player in PLAYERS]
        won = answered[0] - answered[1]
        if all(answered):
            won = outcome(*(self._answers[self.chosen[player]] for player in PLAYERS))
        self.rewards = {PLAYERS[0]: float(won), PLAYERS[1]: float(-won)}
        self.terminations = dict.fromkeys(PLAYERS, True)


def analyse(env: MultiAgentEnv, strategy: Strategy) -> dict[str, float]:
    """The registered analysis of two policies, one in each seat.

    Args:
        env: a fresh env, which is reset.
        strategy: the policies' probabilities; they are scaled to the legal answers.

    Returns:
        `exploitability`: the mean over both seats of what a best response wins, from 0 to 1; `value/player_0`, what the
        first wins on average against the second; `illegal`, the greatest probability of an illegal answer.
    """
    env.reset(seed=0)
    node = Node(env)
    assert isinstance(node.state, Blotto)
    spread = allocations(node.state.soldiers, node.state.fields)
    chances, illegal = [], 0.0
    for player in PLAYERS:
        decision = node.decision(player)
        given = strategy(decision)
        weights = [given.get(action, 0.0) for action in decision.actions]
        total = sum(weights)
        illegal = max(illegal, 1 - total)
        chances.append([w / total if total else 1 / len(weights) for w in weights])
    against = [[_gain(answer, other, spread) for answer in spread] for other in chances]
    value = sum(p * gain for p, gain in zip(chances[0], against[1], strict=True))
    return {"exploitability": (max(against[0]) + max(against[1])) / 2, "value/player_0": value, "illegal": illegal}


def _gain(answer: tuple[int, ...], chances: Sequence[float], spread: Sequence[tuple[int, ...]]) -> float:
    """What an answer wins on average against answers with these probabilities."""
    return sum(p * outcome(answer, other) for p, other in zip(chances, spread, strict=True))
