"""The time of `import marl_gem`, and the heavy packages it imports. Prints one line of JSON.

    python benchmarks/import_time.py

"seconds": the median over new interpreters that import it, minus that of new interpreters that do not.
"heavy": the large optional packages that were imported; there should be none.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

HEAVY = ("torch", "transformers", "litellm", "textarena", "networkx", "numpy", "matplotlib")
REPETITIONS = 5


def main() -> None:
    seconds: dict[str, list[float]] = {"pass": [], "import marl_gem": []}
    for code in [*seconds, *list(seconds) * REPETITIONS]:  # the first round warms the disk cache
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        seconds[code].append(time.perf_counter() - started)
    bare, ours = (statistics.median(taken[1:]) for taken in seconds.values())
    listing = f"import sys, marl_gem; print(*({{*{HEAVY}}} & sys.modules.keys()))"
    heavy = subprocess.run([sys.executable, "-c", listing], check=True, capture_output=True, text=True).stdout
    print(json.dumps({"benchmark": "import_time", "seconds": round(ours - bare, 3), "heavy": sorted(heavy.split())}))


if __name__ == "__main__":
    main()
