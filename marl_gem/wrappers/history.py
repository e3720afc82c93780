"""Views of the history for loops that take a text and give a text."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from marl_gem import views
from marl_gem.env import Infos, MultiAgentEnv, Observations, Step
from marl_gem.errors import ConfigError
from marl_gem.types import Message, Observation, Response, Role
from marl_gem.views import AnyView, Exchange, History
from marl_gem.wrappers.base import Wrapper
from marl_gem.wrappers.observations import ObservationWrapper

Template: TypeAlias = Callable[[Sequence[Message]], Observation]


class ShowHistory(ObservationWrapper):
    """Shows agents a view of their history: all that a model needs for its next answer, in one observation.

        env = ShowHistory(env, "chat")
        observations, infos = env.reset()
        actions = {agent: model(text) for agent, text in observations.items()}

    The observation is what `LLMPolicy` would show its model under the same view. The role's instructions stand
    in it where the view shows them, so `role` keeps the tools alone.

    A view that has to be awaited, such as the summary of a language model, is waited for. That blocks the
    thread, and `blocking` says so: rollouts then take steps in threads. Within a running event loop it is
    refused.

    Args:
        view: from role and history to chat messages, or the name of a view.
        template: makes an observation of the messages: `views.plain`, `views.as_json`, or a function, for
            instance one that applies a model's chat template.
    """

    changes = frozenset({"prompts"})
    settles = frozenset({"observations", "actions", "prompts"})

    def __init__(self, env: MultiAgentEnv, view: AnyView | str = "chat", template: Template = views.plain) -> None:
        super().__init__(env)
        for given in (template,) if isinstance(view, str) else (view, template):
            if not callable(given):
                raise ConfigError(f"ShowHistory takes a view and a template, which are functions, not {given!r}")
        self._view: AnyView = views.view(view) if isinstance(view, str) else view
        self._template = template
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
        return self._show(observations, infos), infos

    def step(self, actions: Mapping[str, str]) -> Step:
        self._check_loop()
        seen = {agent: self.env.observe(agent) for agent in self.acting}
        observations, rewards, terminations, truncations, infos = Wrapper.step(self, actions)
        for agent, text in actions.items():
            self._histories.setdefault(agent, History()).append(Exchange(seen[agent], Response(text)))
        return self._show(observations, infos), rewards, terminations, truncations, infos

    def _check_loop(self) -> None:
        """Refuse before anything has changed what would be refused afterwards."""
        if self._awaited:
            _refuse_running_loop()


class _SharedLoop:
    """Where ordinary code waits: an event loop in a thread, which is there for as long as anybody waits.

    All share it who wait at the same time, because a model is not to be used in two loops at once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting = 0

    def wait_for(self, messages: Awaitable[list[Message]]) -> list[Message]:
        async def wait() -> list[Message]:
            return await messages

        with self._lock:
            if not self._waiting:
                self._begin()
            self._waiting += 1
            answer = asyncio.run_coroutine_threadsafe(wait(), self._runner.get_loop())
        try:
            return answer.result()
        finally:
            answer.cancel()  # if something has broken into the wait, such as Ctrl-C
            with self._lock:
                self._waiting -= 1
                if not self._waiting:
                    self._end()

    def _begin(self) -> None:
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._thread = threading.Thread(
            target=self._runner.get_loop().run_forever, name="marl_gem-history", daemon=True
        )
        self._thread.start()

    def _end(self) -> None:
        loop = self._runner.get_loop()
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()
        self._runner.close()


_shared_loop = _SharedLoop()


def _wait_for(messages: Awaitable[list[Message]]) -> list[Message]:
    try:
        _refuse_running_loop()
    except ConfigError:
        if inspect.iscoroutine(messages):
            messages.close()
        raise
    return _shared_loop.wait_for(messages)


def _refuse_running_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigError(
        "ShowHistory: this view has to be awaited, which would block the event loop that is running in this thread. "
        "Call reset, step and observe in another thread (asyncio.to_thread), or seat an LLMPolicy with this view"
    )
