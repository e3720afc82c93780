"""Tools: functions that an agent may call, with a schema made of their signature and docstring.

    @tool
    def weather(city: str, days: int = 1) -> str:
        \"\"\"The weather of the next days.

        Args:
            city: Where, such as "Rome".
            days: How many days, from 1 to 7.
        \"\"\"
        ...

    result = await weather.call({"city": "Rome"})

The arguments are checked against the annotations before the function is called; what is wrong is text that a model can
use. A function may be asynchronous. One that is not is called in a thread, so that it holds up nothing else. The model
does not see parameters that are annotated with `Context`, or with a class of `Resource`: they are filled in.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import re
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Self, TypeAlias, overload

import msgspec

from marl_gem.errors import ConfigError, LLMError, ResourceError
from marl_gem.faults import is_interrupt, message_of, shown
from marl_gem.tools.context import Context, Scope
from marl_gem.tools.resources import ResourcePool, in_resource_loop
from marl_gem.tools.result import ToolError, ToolResult, as_result, failure
from marl_gem.tools.signature import Signature, code_of
from marl_gem.types import ToolSpec


class Tool:
    """A tool that agents may call: its schema, and code that answers a call.

    Args:
        spec: name, description and JSON schema of the arguments.
        run: gets the checked arguments and the context; returns what `as_result` takes.
        timeout: seconds that a call may take; None sets no limit.
        max_length: the most characters of an answer; what exceeds it is left out in its middle, and the answer says so.

    Raises:
        ConfigError: the name is none that servers take, or a limit is no positive number.
    """

    def __init__(
        self, spec: ToolSpec, run: Callable[..., Any], *, timeout: float | None = 60.0, max_length: int | None = 10_000
    ) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", spec.name):
            raise ConfigError(f"{spec.name!r} is no name for a tool; use up to 64 letters, digits, _ and -")
        for name, limit in (("timeout", timeout), ("max_length", max_length)):
            if limit is not None and not (isinstance(limit, (int, float)) and limit > 0):
                raise ConfigError(f"tool {spec.name}: {name} is a positive number or None, not {shown(limit)}")
        self.spec, self.timeout, self.max_length = spec, timeout, max_length
        self._run = run

    @property
    def name(self) -> str:
        """The name by which it is called."""
        return self.spec.name

    async def call(self, arguments: Mapping[str, Any], context: Context | None = None) -> ToolResult:
        """Answer a call. What goes wrong is in the result, except where the model has no part in it.

        Args:
            arguments: JSON values by name, as the model wrote them.
            context: of the call; by default an empty one, whose resources are given back after the call.

        Raises:
            ResourceError: a pool could not give a resource.
            LLMError: a model that the tool asks could not answer.
        """
        if context is None:
            context = Context()
            try:
                return await self.call(arguments, context)
            finally:
                context.leases.release()
        try:
            checked = self._checked(arguments)
        except ToolError as error:
            return failure(str(error), "arguments")
        limit = asyncio.timeout(self.timeout)
        try:
            async with limit:
                value = await self._answer(checked, context)
        except BaseException as error:
            if limit.expired() and isinstance(error, TimeoutError):
                return failure(f"{self.name} took longer than {self.timeout:g} s and was stopped", "time-out")
            return self._failed(error)
        return as_result(value, self.name, self.max_length)

    def _failed(self, error: BaseException) -> ToolResult:
        """The result of a call whose code raised; raises what is no business of the model."""
        if isinstance(error, (ResourceError, LLMError, GeneratorExit)) or is_interrupt(error):
            raise error
        if isinstance(error, asyncio.CancelledError) and (task := asyncio.current_task()) and task.cancelling():
            raise error
        if isinstance(error, ToolError):
            return failure(str(error), "refused")
        text = f"{self.name} raised {type(error).__name__}: {message_of(error)}"
        return ToolResult(as_result(f"Error: {text}", self.name, self.max_length).content, "raised")

    def _checked(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as the code takes them. Raises ToolError."""
        return dict(arguments)

    async def _answer(self, arguments: dict[str, Any], context: Context) -> Any:
        value = self._run(arguments, context)
        return await value if inspect.isawaitable(value) else value

    def __deepcopy__(self, memo: object) -> Self:
        return self  # what a tool knows of an episode is in the context

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class FunctionTool(Tool):
    """A tool made by `tool`. Called as a function, it is the function that it was made of."""

    def __init__(self, function: Callable[..., Any], settings: Mapping[str, Any]) -> None:
        self._function, self._settings = function, settings
        self._is_class = isinstance(function, type)
        self._signature = Signature(function, settings["name"], settings["description"])
        super().__init__(self._signature.spec, function, timeout=settings["timeout"], max_length=settings["max_length"])
        self.scope: Scope = settings["scope"]
        self._pools = _pools(self._signature, settings["resources"])
        self._in_thread = settings["in_thread"] and not inspect.iscoroutinefunction(code_of(function))
        self.__doc__, self.__wrapped__ = function.__doc__, function
        self.__module__, self.__qualname__ = function.__module__, getattr(function, "__qualname__", self.name)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._function(*arguments, **named)

    def __get__(self, instance: object, owner: type | None = None) -> FunctionTool:
        """As a method of a class: the tool of the bound method."""
        if instance is None:
            return self
        return FunctionTool(self._function.__get__(instance, owner), {**self._settings, "name": self.name})

    def __reduce__(self) -> str | tuple[Any, ...]:
        found: Any = sys.modules.get(self.__module__)
        for name in self.__qualname__.split("."):
            found = getattr(found, name, None)
        return self.__qualname__ if found is self else (FunctionTool, (self._function, self._settings))

    def _checked(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return self._signature.check(arguments)

    async def _answer(self, arguments: dict[str, Any], context: Context) -> Any:
        if not self._pools:
            return await self._perform(arguments, {}, context)
        use = partial(self._perform, arguments)
        if self.scope == "call":
            return await in_resource_loop(context.leases.use_once(self._pools, use, context))
        return await in_resource_loop(context.leases.use(self._key(context), self._pools, use, context))

    def _key(self, context: Context) -> str:
        return f"agent {context.agent}" if self.scope == "agent" else self.scope

    async def _perform(self, arguments: dict[str, Any], resources: Mapping[str, Any], context: Context) -> Any:
        function = self._function
        if self._is_class:
            make: Any = function
            function = make() if self.scope == "call" else context.leases.state(self._key(context), make)
        filled = {**arguments, **resources, **dict.fromkeys(self._signature.contexts, context)}
        value = await in_thread(function, filled) if self._in_thread else function(**filled)
        return await value if inspect.isawaitable(value) else value


Decorated: TypeAlias = Callable[..., Any]


@overload
def tool(function: Decorated) -> FunctionTool: ...
@overload
def tool(
    *,
    name: str = "",
    description: str = "",
    timeout: float | None = 60.0,
    max_length: int | None = 10_000,
    in_thread: bool = True,
    resources: Mapping[str, ResourcePool[Any]] | None = None,
    scope: Scope = "agent",
) -> Callable[[Decorated], FunctionTool]: ...


def tool(
    function: Decorated | None = None,
    *,
    name: str = "",
    description: str = "",
    timeout: float | None = 60.0,
    max_length: int | None = 10_000,
    in_thread: bool = True,
    resources: Mapping[str, ResourcePool[Any]] | None = None,
    scope: Scope = "agent",
) -> FunctionTool | Callable[[Decorated], FunctionTool]:
    """Make a tool of a function, a class or a bound method; as a decorator, with or without arguments.

        @tool(timeout=5.0, resources={"session": ResourcePool(Session, size=8)})
        async def run(code: str, session: Session) -> str: ...

    Of a class the tool is its `__call__`: an object of it is made without arguments at the first call of an episode,
    and keeps what it likes until the end. A decorated method is a tool of the object whose method it is, as in
    `database.look_up`.

    Args:
        function: each parameter is annotated with a type that JSON can hold: str, int, float, bool, None, lists, dicts,
            Literal, enums, unions, dataclasses, TypedDicts, msgspec Structs. A parameter that is annotated with
            `Context` gets the context of the call, one with a class of `Resource` a resource from its pool.
        name: by default the function's.
        description: by default the docstring's, without the part on parameters.
        timeout: seconds that a call may take. A thread cannot be stopped: it is left alone, and its answer dropped.
        max_length: the most characters of an answer.
        in_thread: False calls a function that is not asynchronous where it stands, for those that are done at once.
        resources: by name of the parameter the pool of its resources; without one, the pool of the class itself.
        scope: who uses a resource, or the object of a class: "agent" (each agent has another, for the episode),
            "episode" (all agents share it) or "call".

    Raises:
        TypeError: a parameter has no annotation, or one without a JSON type; a pool is of no parameter.
        ConfigError: the name or a limit cannot be used.
    """
    settings = {
        "name": name,
        "description": description,
        "timeout": timeout,
        "max_length": max_length,
        "in_thread": in_thread,
        "resources": resources or {},
        "scope": scope,
    }
    if function is None:
        return lambda decorated: FunctionTool(decorated, settings)
    return FunctionTool(function, settings)


def _pools(signature: Signature, given: Mapping[str, ResourcePool[Any]]) -> dict[str, ResourcePool[Any]]:
    if unknown := given.keys() - signature.resources.keys():
        raise TypeError(f"{signature.spec.name}: {sorted(unknown)[0]} is no parameter annotated with a Resource class")
    return {name: given.get(name) or ResourcePool.of(kind) for name, kind in signature.resources.items()}


async def in_thread(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Call a function in a thread of its own. If the caller is cancelled, the thread is left alone.

    Raises:
        ResourceError: no thread could be started.
    """
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    context = contextvars.copy_context()

    def finish(value: Any, error: BaseException | None) -> None:
        if not done.done():
            done.set_result((value, error))

    def work() -> None:
        value: Any = None
        raised: BaseException | None = None
        try:
            value = context.run(function, **arguments)
        except BaseException as error:
            raised = error
        with suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(finish, value, raised)

    try:
        threading.Thread(target=work, name="marl_gem-tool", daemon=True).start()
    except RuntimeError as error:
        raise ResourceError(f"no thread could be started for a tool: {error}") from error
    value, raised = await done
    if raised is not None:
        raise raised
    return value


def tool_spec(name: str, description: str, parameters: Mapping[str, Any]) -> ToolSpec:
    """A spec whose parameters are a JSON schema of an object."""
    return ToolSpec(name, description, {"type": "object", "properties": {}, **msgspec.to_builtins(parameters)})
