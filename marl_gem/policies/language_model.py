"""A policy that asks a language model, behind a view of the agent's history."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable

import msgspec

from marl_gem.episode_clock import waiting_for_model
from marl_gem.errors import ContextTooLong
from marl_gem.llm import LLM, Sampling
from marl_gem.llm.wire import split_reasoning
from marl_gem.policies.base import Agent, Info
from marl_gem.seeding import derive_seed
from marl_gem.types import Message, Observation, Response, Role
from marl_gem.views import AnyView, Exchange, History, chat, cut, without_reasoning


class LLMPolicy:
    """A language model behind a view of the agent's history.

    The tools of the agent's role are offered to the model. A prompt that does not fit is cut: the oldest
    exchanges after the first are left out, as few as will do, and `Response.cut` tells how many.

    Args:
        llm: answers.
        view: makes messages of the history.
        sampling: how answers are drawn.
        keep_reasoning: whether later prompts hold what the model thought before it spoke. By default they do
            not, as the makers of such models advise; then an answer that was thought over is no prefix of the
            next prompt.
    """

    def __init__(
        self, llm: LLM, view: AnyView = chat, sampling: Sampling | None = None, *, keep_reasoning: bool = False
    ) -> None:
        self.llm = llm
        self.view = view
        self.sampling = sampling or Sampling()
        self.keep_reasoning = keep_reasoning

    @property
    def name(self) -> str:
        return self.llm.name

    def agent(self, agent_id: str, role: Role, seed: int) -> Agent:
        return _LLMAgent(self, role, seed)


class _LLMAgent:
    def __init__(self, policy: LLMPolicy, role: Role, seed: int) -> None:
        self._policy, self._role, self._seed = policy, role, seed
        self._history = History()
        self._cut = 0

    def remember(self, observation: Observation, response: Response) -> None:
        """Have answered an observation so, see `continuation.Remembers`."""
        self._cut = response.cut
        self._history.append(Exchange(observation, response))

    async def act(self, observation: Observation, info: Info) -> Response:
        seed = derive_seed(self._seed, len(self._history))
        self._history.append(Exchange(observation, None))
        while True:
            try:
                response = await self._ask(seed)
                break
            except ContextTooLong:
                droppable = len(self._history) - 1
                if self._cut >= droppable:
                    raise
                self._cut += max(1, (droppable - self._cut) // 2)
        if response.reasoning == "":
            reasoning, text = split_reasoning(response.text)
            if reasoning:
                response = msgspec.structs.replace(response, text=text, reasoning=reasoning)
        if self._cut:
            response = msgspec.structs.replace(response, cut=self._cut)
        self._history[-1] = Exchange(observation, response)
        return response

    async def _ask(self, seed: int) -> Response:
        policy = self._policy
        shown = policy.view(self._role, cut(self._history, self._cut) if self._cut else self._history)
        messages = await shown if inspect.isawaitable(shown) else shown
        if not policy.keep_reasoning:
            messages = without_reasoning(messages)
        with waiting_for_model(policy.name):
            return await policy.llm.complete(messages, policy.sampling, seed, self._role.tools)


def summarizer(
    llm: LLM,
    sampling: Sampling | None = None,
    instructions: str = "Sum up what has happened so far, in a few sentences. Keep whatever may matter later.",
) -> Callable[[str], Awaitable[str]]:
    """What a language model says of a text in short, for `views.summary`.

    The same text is asked about with the same seed. By default the model takes the most likely tokens, up to 256.
    """
    sampling = sampling or Sampling(max_tokens=256, temperature=0.0)

    async def summarize(text: str) -> str:
        system: Message = {"role": "system", "content": instructions}
        with waiting_for_model(llm.name):
            response = await llm.complete([system, {"role": "user", "content": text}], sampling, derive_seed(text))
        return response.text

    return summarize
