"""The time of `import marl_gem` and of the first commands, and the heavy packages that the import brings along.

    python benchmarks/import_time.py

Prints one line of JSON. "seconds": the median over new interpreters, the start of Python included, which "pass" gives
alone; the kinds take turns, so a busy machine slows all of them. "import": what the import adds to that. "heavy": the
large optional packages that were imported; there should be none.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

HEAVY = ("torch", "transformers", "litellm", "textarena", "networkx", "numpy", "matplotlib")
REPETITIONS = 5
STARTS = {
    "pass": ["-c", "pass"],
    "import marl_gem": ["-c", "import marl_gem"],
    "marl-gem --help": ["-m", "marl_gem.cli", "--help"],
    "marl-gem list": ["-m", "marl_gem.cli", "list"],
}


def main() -> None:
    seconds: dict[str, list[float]] = {name: [] for name in STARTS}
    for name in [*STARTS, *list(STARTS) * REPETITIONS]:  # the first round warms the disk cache
        started = time.perf_counter()
        subprocess.run([sys.executable, *STARTS[name]], check=True, stdout=subprocess.DEVNULL)
        seconds[name].append(time.perf_counter() - started)
    medians = {name: round(statistics.median(taken[1:]), 3) for name, taken in seconds.items()}
    listing = f"import sys, marl_gem; marl_gem.make; print(*({{*{HEAVY}}} & sys.modules.keys()))"
    heavy = subprocess.run([sys.executable, "-c", listing], check=True, capture_output=True, text=True).stdout
    added = round(medians["import marl_gem"] - medians["pass"], 3)
    print(json.dumps({"benchmark": "import_time", "seconds": medians, "import": added, "heavy": sorted(heavy.split())}))


if __name__ == "__main__":
    main()
