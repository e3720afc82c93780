"""The parts that the strategies of users and assistants share.

Rephrased       a policy that wraps another one and translates what it reads and writes
split_thought   separates a thought from a reply
together        adds up the cost of several answers
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
    """A policy that wraps another one and translates its role, its observations and its answers.

    The wrapped policy's history has its answers as it wrote them, so that it sees their format.

    Args:
        policy: the wrapped policy.
        how: a word for the strategy, added to the name.
        role: from the seat's role and the episode's seed to the wrapped policy's role.
        say: from the wrapped policy's text to the action and the thought, which is not sent.
        hear: from the seat's observation to the wrapped policy's.
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
        """The wrapped policy's sampling; None if it is not a model."""
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
    """A function for `Rephrased` that appends paragraphs to the instructions."""
    return lambda role, seed: Role("\n\n".join([role.instructions.rstrip(), *paragraphs]), role.tools)


def split_thought(text: str, mark: str) -> tuple[str, str | None]:
    """The thought and the reply in a text of the form `Thought: ...`, then a mark such as `Reply: ...`.

    A mark is at the start of a line, and the last one counts. Without a mark, the text before the first thought is the
    reply.

    Args:
        text: the model's answer.
        mark: the word of the mark without its colon; case does not matter.

    Returns:
        The thought, empty if there is none, and the reply, None if there is only a thought.
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
    """An answer with the sums of tokens, cost, time and retries of it and of the other answers of its turn."""
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
