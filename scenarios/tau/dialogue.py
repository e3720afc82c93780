"""A finished dialogue: what the rewards of the user's seat are computed from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple, TypeAlias

from marl_gem.scenarios.tau.domain import Task, Verdict

STOP = "###STOP###"
"""What the user says to end the dialogue."""

End: TypeAlias = Literal["stopped", "handed over", "cut off", "broken call"]
"""How a dialogue ended.

The user stopped, the assistant handed over to a human, the dialogue reached its limit, or, under the official rules,
the assistant made a call that cannot be read.
"""


class Dialogue(NamedTuple):
    """`messages` are (speaker, text), without calls of tools."""

    task: Task
    messages: tuple[tuple[str, str], ...]
    verdict: Verdict
    end: End

    @property
    def user_messages(self) -> list[str]:
        """What the user said, without messages that only end the dialogue."""
        return [text for speaker, text in self.messages if speaker == "user" and text.replace(STOP, "").strip()]


UserReward: TypeAlias = Callable[[Dialogue], float | Awaitable[float]]
"""From a finished dialogue to the user's reward, or to an awaitable that gives it."""
