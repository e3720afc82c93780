"""The scenario itself says who acts next."""

from __future__ import annotations

from collections.abc import Sequence

from marl_gem.errors import SelectorError
from marl_gem.selectors.base import AgentSelector


class DirectedSelector(AgentSelector):
    """The scenario names who acts next, for games that keep their own turn order.

    Call `direct` in `_reset` and in `_process_actions`. Until it is called, the first agent acts; if it
    is not called again, the same agents act again, less those that left.
    """

    def reset(self, agents: Sequence[str]) -> None:
        super().reset(agents)
        self._directed = False

    def direct(self, *agents: str) -> None:
        """These agents act next.

        Raises:
            SelectorError: what is given are no agent ids.
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
