"""What strategies of users and of assistants are made of.

Rephrased       a policy that speaks through another one, in another form
split_thought   what was thought, and what was said
together        an answer with the cost of all that led to it
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from marl_gem.llm import Sampling
from marl_gem.policies import Agent, Info, Policy
from marl_gem.types import Observation, Response, Role


class Rephrased:
    """A policy that speaks through another one: what that is told, and what it says, is put in other words.

    The other one remembers what it said as it said it, so that its history shows it the form.

    Args:
        policy: the other one.
        how: what is done to it, for its name.
        role: from the seat's role, and the seed, to the other policy's role.
        say: from the other policy's text to the action and what nobody else should hear of it.
        hear: from what the seat observes to what the other policy does.
    """

    def __init__(
        self,
        policy: Policy,
        how: str,
        role: Callable[[Role, int], Role],
        say: Callable[[str], tuple[str, str]] = lambda text: (text, ""),
        hear: Callable[[Observation], Observation] = lambda observation: observation,
    ) -> None:
        self.policy, self.how = policy, how
        self._role, self._say, self._hear = role, say, hear

    @property
    def name(self) -> str:
        return f"{self.policy.name} ({self.how})"

    @property
    def sampling(self) -> Sampling | None:
        """How the other one draws its answers, if it is a model."""
        return getattr(self.policy, "sampling", None)

    def agent(self, agent_id: str, role: Role, seed: int) -> Agent:
        return _RephrasedAgent(self.policy.agent(agent_id, self._role(role, seed), seed), self._say, self._hear)


class _RephrasedAgent:
    def __init__(
        self, agent: Agent, say: Callable[[str], tuple[str, str]], hear: Callable[[Observation], Observation]
    ) -> None:
        self._agent, self._say, self._hear = agent, say, hear

    async def act(self, observation: Observation, info: Info) -> Response:
        response = await self._agent.act(self._hear(observation), info)
        text, thought = self._say(response.text)
        reasoning = "\n\n".join(filter(None, (response.reasoning, thought)))
        return msgspec.structs.replace(response, text=text, reasoning=reasoning)


def adding(*paragraphs: str) -> Callable[[Role, int], Role]:
    """The same role with more instructions."""
    return lambda role, seed: Role("\n\n".join([role.instructions.rstrip(), *paragraphs]), role.tools)


def split_thought(text: str, mark: str) -> tuple[str, str | None]:
    """What was thought and what was said, of a text in the form `Thought: ...`, then a mark such as `Reply: ...`.

    Marks stand at the beginning of a line; the last one counts, as what comes before it was not meant for others.
    Without one all that comes before a thought was said. None if nothing was: there is but a thought.
    """
    thoughts, marks = _starts("thought", text), _starts(mark, text)
    if not thoughts and not marks:
        return "", text.strip()
    if not marks:
        return text[thoughts[0].end() :].strip(), text[: thoughts[0].start()].strip() or None
    end = next((later.start() for later in thoughts if later.start() > marks[-1].start()), len(text))
    before = text[: marks[-1].start()] + text[end:]
    return _pattern("thought").sub("", before, count=1).strip(), text[marks[-1].end() : end].strip()


def _starts(mark: str, text: str) -> list[re.Match[str]]:
    return list(_pattern(mark).finditer(text))


def _pattern(mark: str) -> re.Pattern[str]:
    return re.compile(rf"^[ \t>*_#]*{mark}[ \t*_]*:[*_]*", re.IGNORECASE | re.MULTILINE)


def together(answer: Response, others: Sequence[Response]) -> Response:
    """An answer with the tokens, cost, time and retries of others that it took to get there."""
    every = [answer, *others]
    fresh = [response for response in every if not response.cached] or every
    costs = [r.cost for r in fresh if r.usage or r.token_ids or r.cost is not None]
    return msgspec.structs.replace(
        answer,
        usage=dict(sum((Counter(response.usage) for response in every), Counter())),
        cost=None if not costs or None in costs else sum(cost or 0.0 for cost in costs),
        seconds=sum(response.seconds for response in every),
        retries=sum(response.retries for response in every),
        cached=all(response.cached for response in every),
    )
