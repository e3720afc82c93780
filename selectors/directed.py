"""The scenario itself names the agents that act next."""

from __future__ import annotations

from collections.abc import Sequence

from marl_gem.errors import SelectorError
from marl_gem.selectors.base import AgentSelector


class DirectedSelector(AgentSelector):
    """The scenario names the agents that act next, for games that keep their own turn order.

    Call `direct` in `_reset`, `_process_action` or `_process_actions`. Before the first call the first agent acts;
    without another call the same agents act again, except those that left.
    """

    def reset(self, agents: Sequence[str]) -> None:
        super().reset(agents)
        self._directed = False

    def direct(self, *agents: str) -> None:
        """Let these agents act next, at the same time if there are several.

        Raises:
            SelectorError: an argument is no agent id.
        """
        for agent in agents:
            if not isinstance(agent, str):
                raise SelectorError(f"direct() takes agent ids, one by one, such as direct('a', 'b'), not {agent!r}")
        self._directed = True
        self._acting = agents

    def advance(self) -> None:
        if not (self._acting or self._directed):
            self._acting = tuple(self.order[:1])

    def remove(self, agent: str) -> None:
        super().remove(agent)
        if self._acting:
            self._acting = tuple(other for other in self._acting if other != agent)
