"""Exact analysis of small two-player zero-sum card games: values, best responses, exploitability.

A game is given by functions on the deal of all cards and the history of moves (`CardGame`). A strategy maps each
information set to the probabilities of its moves. Both seats' strategies stand in one table.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from marl_gem import analysis
from marl_gem.analysis import Node
from marl_gem.env import MultiAgentEnv

Deal = TypeVar("Deal", str, tuple[str, str, str])
"""The cards: that of seat 0, that of seat 1, and then those that both come to see."""

History: TypeAlias = tuple[str, ...]
Table: TypeAlias = Mapping[Hashable, Sequence[float]]


@dataclass(frozen=True)
class CardGame(Generic[Deal]):
    """The rules, as the analysis needs them."""

    deals: Sequence[Deal]
    """All deals, each as likely as the others."""

    moves: Callable[[History], Sequence[str]]
    """The legal moves; none at the end."""

    mover: Callable[[History], int]
    """The seat that moves, 0 or 1."""

    winnings: Callable[[Deal, History], float]
    """What seat 0 wins at the end, in chips."""

    information_set: Callable[[Deal, History], Hashable]
    """What the mover knows."""

    situation: Callable[[MultiAgentEnv], tuple[Deal, History]]
    """Where an env of the game is."""


def read_table(
    game: CardGame[Deal], env: MultiAgentEnv, strategy: analysis.Strategy
) -> tuple[dict[Hashable, Any], float]:
    """A strategy as a table of both seats, and the greatest probability that it gives to illegal answers.

    Each information set's probabilities are scaled to its legal moves; if all are 0, the moves count as equally likely.
    """
    table: dict[Hashable, Any] = {}
    illegal = 0.0
    for node in _decision_nodes(game, env):
        (agent,) = node.env.acting
        at = game.information_set(*game.situation(node.state))
        if at not in table:
            decision = node.decision(agent)
            given = strategy(decision)
            weights = [given.get(action, 0.0) for action in decision.actions]
            total = sum(weights)
            table[at] = tuple(w / total for w in weights) if total else (1 / len(weights),) * len(weights)
            illegal = max(illegal, 1 - total)
    return table, illegal


def _decision_nodes(game: CardGame[Deal], env: MultiAgentEnv) -> Iterator[Node]:
    """A node of the game tree for every information set, and some more."""
    found: set[Deal] = set()
    shown: set[tuple[int, Hashable]] = set()  # what deals look like to each seat
    for seed in itertools.count():
        env.reset(seed=seed)
        deal: Deal = game.situation(Node(env).state)[0]
        views = {(0, (deal[0], *deal[2:])), (1, (deal[1], *deal[2:]))}
        if deal not in found and not views <= shown:
            shown |= views
            yield from _walk(Node(env.fork()))
        found.add(deal)
        if len(found) == len(game.deals):
            return


def _walk(root: Node) -> Iterator[Node]:
    nodes = [root]
    while nodes:
        node = nodes.pop()
        if not node.env.done:
            yield node
            (agent,) = node.env.acting
            nodes += [node.child({agent: action}) for action in node.decision(agent).actions]


def value(game: CardGame[Deal], first: Table, second: Table) -> float:
    """What seat 0 wins a hand on average, in chips."""

    def walk(deal: Deal, history: History) -> float:
        moves = game.moves(history)
        if not moves:
            return game.winnings(deal, history)
        chances = (first, second)[game.mover(history)][game.information_set(deal, history)]
        return sum(p * walk(deal, (*history, move)) for p, move in zip(chances, moves, strict=True) if p)

    return sum(walk(deal, ()) for deal in game.deals) / len(game.deals)


def best_response_value(game: CardGame[Deal], seat: int, strategy: Table) -> float:
    """The most that the player in `seat` can win a hand on average against `strategy`, in chips."""

    def walk(history: History, reach: Mapping[Deal, float]) -> float:
        """The winnings, weighted by how likely the other's moves make each deal."""
        moves = game.moves(history)
        if not moves:
            sign = 1 if seat == 0 else -1
            return sum(weight * sign * game.winnings(deal, history) for deal, weight in reach.items())
        if game.mover(history) != seat:
            chances = {deal: strategy[game.information_set(deal, history)] for deal in reach}
            return sum(
                walk((*history, move), {deal: weight * chances[deal][index] for deal, weight in reach.items()})
                for index, move in enumerate(moves)
            )
        known: dict[Hashable, dict[Deal, float]] = {}
        for deal, weight in reach.items():
            known.setdefault(game.information_set(deal, history), {})[deal] = weight
        return sum(max(walk((*history, move), part) for move in moves) for part in known.values())

    return walk((), dict.fromkeys(game.deals, 1 / len(game.deals)))


def exploitability(game: CardGame[Deal], strategy: Table) -> float:
    """The mean over both seats of what a best response wins against a strategy, in chips a hand: NashConv / 2."""
    return (best_response_value(game, 0, strategy) + best_response_value(game, 1, strategy)) / 2
