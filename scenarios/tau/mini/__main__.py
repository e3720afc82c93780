"""python -m marl_gem.scenarios.tau.mini: writes the data and the tasks of the mini domains anew."""

from __future__ import annotations

from marl_gem.scenarios.tau.mini import write

write()
