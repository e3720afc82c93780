"""Show agents their history, for loops from text to text."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from marl_gem import views
from marl_gem.awaiting import wait_for
from marl_gem.env import Infos, MultiAgentEnv, Observations
from marl_gem.errors import ConfigError
from marl_gem.types import Message, Observation, Response, Role
from marl_gem.views import AnyView, Exchange, History
from marl_gem.wrappers.base import AroundStep, Wrapper
from marl_gem.wrappers.observations import ObservationWrapper

Template: TypeAlias = Callable[[Sequence[Message]], Observation]


class ShowHistory(ObservationWrapper):
    """Shows agents a view of their history: all that a model needs for its next response, in one observation.

        env = ShowHistory(env, "chat")
        observations, infos = env.reset()
        actions = {agent: model(text) for agent, text in observations.items()}

    The observation is what `LLMPolicy` would show its model with the same view. It holds the role's instructions if
    the view shows them, so `role` keeps the tools only.

    A view that has to be awaited, such as a summary by a language model, is waited for. That blocks the thread, and
    `blocking` says so: rollouts then step the env in threads. Within a running event loop it is refused.

    Args:
        env: the env to wrap.
        view: a function from role and history to chat messages, or the name of a view, such as `chat` or `window:8`.
        template: makes an observation of the messages: `views.plain`, `views.as_json` or their names `plain`, `json`;
            or a function, for instance one that applies a model's chat template.

    Raises:
        ConfigError: there is no such view or template. Later also, from `reset`, `step` and `observe`: the view has
            to be awaited and an event loop is running in this thread.
    """

    changes = frozenset({"prompts"})
    settles = frozenset({"observations", "actions", "prompts"})

    def __init__(self, env: MultiAgentEnv, view: AnyView | str = "chat", template: Template | str = "plain") -> None:
        super().__init__(env)
        self._view: AnyView = views.view(view) if isinstance(view, str) else view
        self._template: Template = views.template(template) if isinstance(template, str) else template
        for given in (self._view, self._template):
            if not callable(given):
                raise ConfigError(f"ShowHistory takes a view and a template, which are functions, not {given!r}")
        self._awaited = views.must_be_awaited(self._view)
        self._histories: dict[str, History] = {}

    @property
    def blocking(self) -> bool:  # type: ignore[override]
        return self._awaited or self.env.blocking

    def role(self, agent: str) -> Role:
        return Role(tools=self.env.role(agent).tools)

    def observation(self, agent: str, observation: Observation) -> Observation:
        history = self._histories.get(agent) or History()
        history.append(Exchange(observation, None))
        try:
            messages = self._view(self.env.role(agent), history)
            return self._template(_wait_for(messages) if inspect.isawaitable(messages) else messages)
        finally:
            history.pop()  # until the agent has answered

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Observations, Infos]:
        self._check_loop()
        observations, infos = Wrapper.reset(self, seed, options)
        self._histories = {}
        return self._change(observations, infos), infos

    def around_step(self, actions: Mapping[str, str]) -> AroundStep:
        self._check_loop()
        seen = {agent: self.env.observe(agent) for agent in self.acting}
        observations, rewards, terminations, truncations, infos = yield actions
        for agent, text in actions.items():
            self._histories.setdefault(agent, History()).append(Exchange(seen[agent], Response(text)))
        return self._change(observations, infos), rewards, terminations, truncations, infos

    def _check_loop(self) -> None:
        """Raise before anything has changed what `_wait_for` would raise afterwards."""
        if self._awaited:
            _refuse_running_loop()


def _wait_for(messages: Awaitable[list[Message]]) -> list[Message]:
    try:
        _refuse_running_loop()
    except ConfigError:
        if inspect.iscoroutine(messages):
            messages.close()
        raise

    async def wait() -> list[Message]:
        return await messages

    return wait_for(wait())


def _refuse_running_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigError(
        "ShowHistory: this view has to be awaited, which would block the event loop that runs in this thread. "
        "Call reset, step and observe in another thread (asyncio.to_thread), or seat an LLMPolicy with this view"
    )
