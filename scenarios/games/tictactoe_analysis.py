"""Perfect play of tic-tac-toe: as a scripted policy, and as the opponent in an exact analysis.

Both serve `game:TicTacToe-v0` and `ta:TicTacToe-v0`, whose boards are read from their text: three rows of three
cells, each a mark or the number of the empty square. Perfect play takes any move whose minimax value is the best,
each with the same probability.
"""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Mapping
from typing import Any

from marl_gem.analysis import Node, Strategy
from marl_gem.env import MultiAgentEnv
from marl_gem.errors import ConfigError
from marl_gem.policies import Info
from marl_gem.types import Observation, Response, Role
from marl_gem.views import as_text

PLAYERS = ("player_0", "player_1")
LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
OTHER = {"X": "O", "O": "X"}
_ROW = re.compile(r"^ ?([XO\d])(?: \| | )([XO\d])(?: \| | )([XO\d]) ?$", re.MULTILINE)


def best_moves(cells: str, mark: str) -> tuple[int, ...]:
    """The squares, from 0, that are best for the player with this mark, who is to move.

    Args:
        cells: the nine cells row by row; any character but X and O is an empty square.
        mark: "X" or "O".
    """
    values = {square: -_value(_marked(cells, square, mark), OTHER[mark]) for square in _empty(cells)}
    return tuple(square for square, value in values.items() if value == max(values.values()))


def read_board(text: str) -> str:
    """The nine cells of the last board in an observation, as `best_moves` takes them.

    Raises:
        ConfigError: there is no board in it.
    """
    rows = _ROW.findall(text)[-3:]
    if len(rows) < 3:
        raise ConfigError(f"scripted:perfect reads the board from the observation, but there is none in {text[:80]!r}")
    return "".join("".join(row) for row in rows)


def analyse(env: MultiAgentEnv, strategy: Strategy, marks: str) -> dict[str, float]:
    """The registered analysis: how often a policy loses to perfect play.

    Every reachable position is visited once, weighted by its probability. The strategy gets one of the histories that
    lead there, so the result is exact for policies that see only the current observation. An illegal answer counts as
    an empty text, with the consequences that the scenario gives it.

    Args:
        env: a fresh env, which is reset.
        strategy: the policies' probabilities.
        marks: the marks of the first and of the second player.

    Returns:
        `lost_to_perfect/player_0` and `lost_to_perfect/player_1`, the share of games, from 0 to 1, that the policy
        in this seat loses to perfect play in the other; `lost_to_perfect`, the mean of the two.
    """
    env.reset(seed=0)
    lost = {player: _Losses(player, strategy, marks).share(Node(env)) for player in PLAYERS}
    each = {f"lost_to_perfect/{player}": share for player, share in lost.items()}
    return {**each, "lost_to_perfect": sum(lost.values()) / len(lost)}


class _Losses:
    """The share of games that a player loses from a position on, against perfect play."""

    def __init__(self, player: str, strategy: Strategy, marks: str) -> None:
        self._player, self._strategy = player, strategy
        self._marks = dict(zip(PLAYERS, marks, strict=True))
        self._known: dict[tuple[str, int], float] = {}

    def share(self, node: Node, illegal: int = 0) -> float:
        """From this node on; `illegal` counts the illegal answers that were just given."""
        if node.env.done:
            return float(node.env.returns[self._player] < 0)
        (agent,) = node.env.acting
        cells = read_board(as_text(node.state.observe(agent)))
        total = 0.0
        for action, weight in self._weights(node, agent, cells).items():
            position = _marked(cells, cells.index(action[1]), self._marks[agent]) if action else cells
            key = position, 0 if action else illegal + 1
            if key not in self._known:
                self._known[key] = self.share(node.child({agent: action}), key[1])
            total += weight * self._known[key]
        return total

    def _weights(self, node: Node, agent: str, cells: str) -> dict[str, float]:
        """Each action's probability; all illegal answers count as the empty one."""
        if agent != self._player:
            best = best_moves(cells, self._marks[agent])
            return {f"[{cells[square]}]": 1 / len(best) for square in best}
        weights = {action: weight for action, weight in self._strategy(node.decision(agent)).items() if weight}
        rest = 1 - sum(weights.values())
        return {**weights, "": rest} if rest > 1e-9 else weights


# The scripted policy


def policy(scenario: str, options: Mapping[str, Any], marks: str) -> PerfectPolicy:
    """The policy behind `scripted:perfect`; see `marl_gem.registry.register_policy`."""
    return PerfectPolicy(marks)


class PerfectPolicy:
    """Plays perfectly in either seat; `marks` are those of the first and of the second player."""

    name = "scripted:perfect"

    def __init__(self, marks: str) -> None:
        self._marks = dict(zip(PLAYERS, marks, strict=True))

    def agent(self, agent_id: str, role: Role, seed: int) -> PerfectAgent:
        return PerfectAgent(self._marks[agent_id], random.Random(seed))


class PerfectAgent:
    """Perfect play in one seat of one episode."""

    def __init__(self, mark: str, rng: random.Random) -> None:
        self._mark, self._rng = mark, rng

    async def act(self, observation: Observation, info: Info) -> Response:
        cells = read_board(as_text(observation))
        return Response(f"[{cells[self._rng.choice(best_moves(cells, self._mark))]}]")


# Minimax


@functools.cache
def _value(cells: str, mark: str) -> int:
    """1, 0 or -1: what the player with this mark gets if it is to move and both play perfectly."""
    for a, b, c in LINES:
        if cells[a] == cells[b] == cells[c]:
            return 1 if cells[a] == mark else -1
    return max((-_value(_marked(cells, square, mark), OTHER[mark]) for square in _empty(cells)), default=0)


def _empty(cells: str) -> list[int]:
    return [square for square, cell in enumerate(cells) if cell not in OTHER]


def _marked(cells: str, square: int, mark: str) -> str:
    return cells[:square] + mark + cells[square + 1 :]
