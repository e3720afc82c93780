"""Every wrapper that a text can name."""

from __future__ import annotations

import marl_gem.registry
from generate.markdown import Undocumented, code, escape, table

INTRO = """# Wrappers by name

What `marl_gem.make(id, wrappers=[...])`, `--wrap` and `wrappers` in a training file can name, as `time_limit=20` (the
value of the first parameter) or `reward_clip,low=0,high=1`. `marl_gem.registry.register_wrapper` adds one.
"""


def pages() -> dict[str, str]:
    """The page of all wrappers.

    Raises:
        Undocumented: a wrapper has no description.
    """
    rows = []
    for name, wrapper in marl_gem.registry.wrappers().items():
        if not wrapper.description:
            raise Undocumented(f"the wrapper {name!r} is registered without a description")
        rows.append((code(name), ", ".join(map(code, wrapper.parameters)), escape(wrapper.description)))
    return {"wrappers": f"{INTRO}\n{table(('name', 'parameters', 'what it does'), rows)}"}
