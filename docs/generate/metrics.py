"""Every metric that training writes into metrics.jsonl, with its formula."""

from __future__ import annotations

from collections.abc import Mapping

from generate.markdown import Undocumented, code, escape, table

INTRO = """# Logged metrics

Training writes one line of JSON for each update into `metrics.jsonl`, and some for the warm start and for measurements.
Where several policies or agents learn, a name is followed by a slash and theirs: `entropy/user` is the entropy of the
policy `user`.
"""


def pages() -> dict[str, str]:
    """The page of all metrics, those of each algorithm apart.

    Raises:
        Undocumented: a metric has no formula.
    """
    from marl_gem.trainers import algorithms, metrics

    text = f"{INTRO}\n{_table(metrics.METRIC_FORMULAS)}"
    for name in algorithms.algorithms():
        formulas = algorithms.algorithm_class(name).METRICS
        text += f'\n## Of the algorithm "{name}"\n\n' + (_table(formulas) if formulas else "None beside those above.\n")
    return {"metrics": text}


def _table(formulas: Mapping[str, str]) -> str:
    for name, formula in formulas.items():
        if not formula:
            raise Undocumented(f"the metric {name!r} has no formula")
    return table(("metric", "what it is"), [(code(name), escape(formula)) for name, formula in formulas.items()])
