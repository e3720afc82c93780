"""A PettingZoo game played in text: connect four, random play against a player who looks one move ahead.

    pip install 'marl-gem[pettingzoo]' 'pettingzoo[classic]'
    python examples/pettingzoo_in_text.py

Put an `LLMPolicy` in one of the seats, and a language model plays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from pettingzoo.classic import connect_four_v3

from marl_gem import MultiAgentEnv
from marl_gem.convert import from_pettingzoo
from marl_gem.policies import Policy, RandomPolicy, ScriptedPolicy
from marl_gem.rollout import Job, collect

RULES = (
    "You play connect four. Your discs are X, the other's are O. A disc falls to the lowest free place of its column; "
    "whoever first has four in a row, column or diagonal wins. Answer with the number of a column, such as [3]."
)
ROWS, COLUMNS = range(6), range(7)


def board(agent: str, seen: Mapping[str, Any]) -> str:
    """The board as text. PettingZoo gives two planes: the agent's discs and the other player's."""
    mine, theirs = seen["observation"][..., 0], seen["observation"][..., 1]
    rows = [" ".join("X" if mine[r, c] else "O" if theirs[r, c] else "." for c in COLUMNS) for r in ROWS]
    return "\n".join([*rows, " ".join(map(str, COLUMNS))])


def make() -> MultiAgentEnv:
    return from_pettingzoo(connect_four_v3.env, instructions=RULES, describe=board)


def look_ahead(observation: Any, info: Mapping[str, Any]) -> str:
    """Win if one can, else stop the other from winning, else play close to the middle."""
    rows = [line.split() for line in observation.splitlines()[: len(ROWS)]]
    for disc in "XO":
        for move in info["legal_actions"]:
            column = int(move.strip("[]"))
            row = max(row for row in ROWS if rows[row][column] == ".")
            rows[row][column] = disc
            if any(disc * 4 in line for line in lines(rows)):
                return str(move)
            rows[row][column] = "."
    return str(min(info["legal_actions"], key=lambda move: abs(int(move.strip("[]")) - 3)))


def lines(rows: list[list[str]]) -> Iterator[str]:
    """Every row, column and diagonal of the board."""
    yield from map("".join, rows)
    yield from map("".join, zip(*rows, strict=True))
    for shift in range(-len(ROWS), len(COLUMNS) + len(ROWS)):
        yield "".join(rows[r][r + shift] for r in ROWS if r + shift in COLUMNS)
        yield "".join(rows[r][shift - r] for r in ROWS if shift - r in COLUMNS)


def main(games: int = 20) -> None:
    seating: dict[str, Policy] = {"player_0": RandomPolicy(), "player_1": ScriptedPolicy(look_ahead, "look ahead")}
    episodes = collect(make, [Job(seed, seating) for seed in range(games)])
    print(f"The last of {games} games, as player_1 sees it:")
    print(episodes[-1].final_infos["player_1"]["final_observation"])
    wins = Counter(episode.models[agent] for episode in episodes for agent, won in episode.returns.items() if won > 0)
    print(f"Look ahead wins {wins['look ahead']}, random play {wins['random']}.")


if __name__ == "__main__":
    main()
