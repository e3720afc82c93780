"""Writes docs/gem-ids.md, the table of GEM's ids: python docs/generate/gem.py, from the repository's root."""

from __future__ import annotations

from pathlib import Path

from marl_gem.scenarios.tasks import gem

HEAD = """# GEM's ids

Which of the ids of [GEM](https://github.com/axon-rl/gem) run here, which need data, and how to get these. GEM's own
examples, its web shop and the games of KORGym are left out. `python docs/generate/gem.py` writes this page.

"""


def main() -> None:
    """Write the page."""
    Path(__file__).parents[1].joinpath("gem-ids.md").write_text(HEAD + gem.table(), "utf-8")


if __name__ == "__main__":
    main()
