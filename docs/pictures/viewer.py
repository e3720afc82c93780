"""Make docs/pictures/viewer.png anew: an evaluation is played, and its page is photographed in Chromium.

    python docs/pictures/viewer.py

Needs Debian's `chromium` (or Chrome under that name).
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

PICTURE = Path(__file__).with_suffix(".png")
SCENARIO = "tau:retail-mini-v0"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "runs" / "retail"
        marl_gem = [sys.executable, "-m", "marl_gem.cli"]
        seats = ["--seat", "user=scripted:oracle", "--seat", "assistant=scripted:oracle"]
        subprocess.run([*marl_gem, "eval", SCENARIO, *seats, "--out", str(run)], check=True, capture_output=True)
        view = [*marl_gem, "view", str(run), "--episode", "3", "--no-browser", "--port", "0"]
        with subprocess.Popen(view, stdout=subprocess.PIPE, text=True, env=None) as server:
            try:
                assert server.stdout is not None
                url = next(found[0] for line in server.stdout if (found := re.search(r"http://\S+", line)))
                photograph(url, PICTURE)
            finally:
                server.terminate()
    print(f"{PICTURE}: {PICTURE.stat().st_size // 1024} KiB")


def photograph(url: str, file: Path) -> None:
    """A picture of the page at `url`, 1200 by 760 pixels, in few colours so that the file is small."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=8000"]
    command = ["chromium", *flags, "--window-size=1200,760", f"--screenshot={file}", url]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    from PIL import Image

    with Image.open(file) as picture:
        picture.convert("RGB").quantize(128).save(file, optimize=True)


if __name__ == "__main__":
    main()
