"""Do policies of different runs understand one another? Every pair of several runs' policies, on the same tasks.

    python benchmarks/cross_play.py runs/desk-0 runs/desk-1 runs/desk-2 --also scripted:expert -n 200

Each run's policies are seated with those of every other run, and with the policies of `--also`, on the scenario and the
test options of the first run. The table shows how often the last seat succeeded, and the list the pairs from the
worst up, with the distance in points from the pair that was trained together (of the run that holds the last seat).
Prints one JSON line; the table and the list for people go to standard error.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from marl_gem.evaluation import Numbers, Player, plan_grid, run
from marl_gem.specs import load_policy
from marl_gem.trainers.config import read_config


class Pair(NamedTuple):
    """Policies in the seats, and how often the last seat's succeeded."""

    seats: tuple[str, ...]
    success: float
    episodes: int


def cross_play(runs: Sequence[str], also: Sequence[str], episodes: int) -> list[Pair]:
    """Every combination of the runs' policies and the others, one for each seat of the first run's scenario."""
    scenario = read_config(Path(runs[0])).scenarios[0].test_spec
    agents = scenario.inspect().agents
    seats = {
        agent: [Player(who, load_policy(who, scenario, agents=(agent,))) for who in (*runs, *also)] for agent in agents
    }
    report = run(plan_grid(scenario, seats, Numbers(n=episodes)), concurrency=episodes).report
    pairs = []
    for match in report.matches:
        success = match.agents[agents[-1]].success
        names = tuple(match.players[agent].who for agent in agents)
        pairs.append(Pair(names, success.mean if success else 0.0, match.episodes))
    return pairs


def table(pairs: Sequence[Pair]) -> list[str]:
    """Rows are the policies in all seats but the last, columns those in the last."""
    rows = list(dict.fromkeys(pair.seats[:-1] for pair in pairs))
    columns = list(dict.fromkeys(pair.seats[-1] for pair in pairs))
    cells = {(pair.seats[:-1], pair.seats[-1]): pair.success for pair in pairs}
    width = max(len(" ".join(row)) for row in rows)
    lines = [" " * width + "".join(f"  {column[-16:]:>16}" for column in columns)]
    for row in rows:
        lines.append(f"{' '.join(row):<{width}}" + "".join(f"  {cells[row, column]:>16.1%}" for column in columns))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", help="folders of runs, or checkpoints such as runs/desk@40")
    parser.add_argument("--also", action="append", default=[], help="a policy that is no run, such as scripted:expert")
    parser.add_argument("-n", type=int, default=200, help="episodes of each pair")
    arguments = parser.parse_args()
    pairs = cross_play(arguments.runs, arguments.also, arguments.n)
    together = {pair.seats[-1]: pair.success for pair in pairs if len({*pair.seats}) == 1}
    ranked = sorted(pairs, key=lambda pair: pair.success)
    print("\n".join(table(pairs)), file=sys.stderr)
    for pair in ranked:
        distance = 100 * (pair.success - together[pair.seats[-1]])
        print(f"{pair.success:7.1%}  {distance:+6.1f} points  {' '.join(pair.seats)}", file=sys.stderr)
    for who in sorted(together, key=lambda name: min(pair.success for pair in pairs if name in pair.seats)):
        worst = min(pair.success for pair in pairs if who in pair.seats)
        print(f"{who}: together {together[who]:.1%}, worst pair {worst:.1%}", file=sys.stderr)
    print(json.dumps({"benchmark": "cross_play", "pairs": [pair._asdict() for pair in ranked]}))


if __name__ == "__main__":
    main()
