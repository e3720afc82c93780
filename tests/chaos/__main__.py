"""The long rounds: `make chaos`, or `python -m tests.chaos [NAME ...] [--seed N]` for some of them.

Prints the table, then each violation; the exit code is 1 if there is one.
"""

from __future__ import annotations

import argparse
import importlib
import sys

from tests.chaos.table import Row, markdown

MODULES = ("faults", "kills", "journal", "checkpoints", "plugins", "commands", "pages")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("names", nargs="*", default=MODULES, metavar="NAME", help=f"of {', '.join(MODULES)}")
    parser.add_argument("--seed", type=int, default=0, help="everything random follows from it")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(MODULES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join(MODULES)}")
    rows: list[Row] = []
    for name in arguments.names:
        print(f"{name} ...", file=sys.stderr, flush=True)
        found = importlib.import_module(f"tests.chaos.{name}").long_round(arguments.seed)
        print(markdown(found), file=sys.stderr, flush=True)  # at once: a round may take many minutes
        rows += found
    print(markdown(rows))
    for row in rows:
        for violation in row.violations:
            print(f"VIOLATED: {row.promise} ({row.attack}): {violation}")
    return int(any(row.violations for row in rows))


if __name__ == "__main__":
    sys.exit(main())
