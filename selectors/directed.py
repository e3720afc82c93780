"""The scenario itself says who acts next."""

from __future__ import annotations

from collections.abc import Sequence

from marl_gem.selectors.base import AgentSelector


class DirectedSelector(AgentSelector):
    """The scenario names who acts next, for games that keep their own turn order.

    Call `direct` in `_reset` and in `_process_actions`. Until it is called, the first agent acts; if it
    is not called again, the same agents act again, less those that left.
    """

    def reset(self, agents: Sequence[str]) -> None:
        super().reset(agents)
        self.acting = tuple(self.order[:1])

    def add(self, agent: str) -> None:
        super().add(agent)
        if not self.acting:
            self.acting = (agent,)

    def direct(self, *agents: str) -> None:
        """These agents act next."""
        self.acting = agents

    def advance(self) -> None:
        """Nothing to do: the scenario has spoken already."""

    def remove(self, agent: str) -> None:
        super().remove(agent)
        self.acting = tuple(other for other in self.acting if other != agent)
