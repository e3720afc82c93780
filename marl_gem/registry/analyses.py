"""Exact analyses: what can be computed of how well given policies play a scenario. See `marl_gem.analysis`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from marl_gem.errors import RegistryError, ScenarioFault
from marl_gem.faults import foreign_code
from marl_gem.registry.tables import load_family, new_table, resolve

if TYPE_CHECKING:  # to list scenarios takes none of these, which take long to import
    from marl_gem.analysis import Strategy
    from marl_gem.env import MultiAgentEnv


@dataclass(frozen=True)
class RegisteredAnalysis:
    """An exact analysis of a scenario; see `marl_gem.analysis`."""

    entry_point: str | Callable[..., dict[str, float]]
    description: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)


_analyses: dict[str, RegisteredAnalysis] = new_table()


def register_analysis(
    scenario: str, entry_point: str | Callable[..., dict[str, float]], *, description: str = "", **arguments: Any
) -> None:
    """Register a scenario's exact analysis of how well given policies play it.

        register_analysis("game:KuhnPoker-v0", "marl_gem.scenarios.games.kuhn_analysis:analyse")

    Args:
        scenario: its id.
        entry_point: a callable, or where to find one: `"package.module:function"`. It is called with a fresh env of
            the scenario, a `marl_gem.analysis.Strategy` and `arguments` by name, and returns numbers by name, such
            as `{"exploitability": 0.045}`.
        description: one line that says what the numbers mean.

    Raises:
        RegistryError: the scenario has an analysis already.
    """
    if scenario in _analyses:
        raise RegistryError(f"{scenario!r} has an analysis already; a scenario has one at most")
    _analyses[scenario] = RegisteredAnalysis(entry_point, description, arguments)


def analysis(id: str) -> RegisteredAnalysis | None:
    """The exact analysis of the scenario with this id; None if it has none, or no such scenario is registered."""
    family, colon, _ = id.partition(":")
    if colon:
        load_family(family)
    return _analyses.get(id)


def analyse(env: MultiAgentEnv, strategy: Strategy) -> dict[str, float]:
    """What the exact analysis of an env's scenario says of a strategy.

    Args:
        env: a fresh env, made with the options and wrappers that the policies are used with; it is reset.
        strategy: gives the probability of each legal action at a decision; see `marl_gem.analysis`.

    Returns:
        numbers by name, as the analysis' description explains them; empty if the scenario has no analysis.
    """
    registered = analysis(env.scenario)
    if registered is None:
        return {}
    with foreign_code(f"the exact analysis of {env.scenario} failed", ScenarioFault):
        numbers: dict[str, float] = resolve(registered.entry_point)(env, strategy, **registered.arguments)
    return numbers
