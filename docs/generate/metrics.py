"""Every metric that training writes into metrics.jsonl, with its formula."""

from __future__ import annotations

from typing import Any

from generate.markdown import Undocumented, code, escape, table

INTRO = """# Logged metrics

Training writes one line of JSON an update into `metrics.jsonl`. A name that ends in `/NAME` has one entry for each
policy or agent of that name.
"""


def pages() -> dict[str, str]:
    """The page of all metrics.

    Raises:
        Undocumented: a metric has no formula or description.
    """
    from marl_gem.trainers import metrics

    rows = []
    for name, entry in metrics.METRICS.items():
        description = _text(entry)
        if not description:
            raise Undocumented(f"the metric {name!r} has no description in marl_gem.trainers.metrics.METRICS")
        rows.append((code(name), escape(description)))
    return {"metrics": INTRO + "\n" + table(("metric", "what it is"), rows)}


def _text(entry: Any) -> str:
    return entry if isinstance(entry, str) else ". ".join(str(part) for part in entry if part)
