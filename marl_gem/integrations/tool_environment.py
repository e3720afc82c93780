"""A scenario as a class whose methods are tools: for TRL's `environment_factory`, and trainers that take such classes.

    Environment = tool_environment(SeatRunner("tau:desk-v0", others={"user": "scripted:expert"}))
    trainer = GRPOTrainer(model, args=config, train_dataset=data, environment_factory=Environment, ...)

The data set's rows have a column `start` with texts of `Start.to_text`. The model's chat template must take tools.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from marl_gem.errors import ConfigError
from marl_gem.faults import close_env
from marl_gem.integrations.seat_runner import SeatRunner, Start
from marl_gem.integrations.stepped import LoopThread, Question, SteppedEpisode
from marl_gem.tools.calls import write_call
from marl_gem.types import ToolSpec

OVER = "The episode is over."
_TYPES = {"string": str, "integer": int, "number": float, "boolean": bool, "array": list, "object": dict}


class ToolEnvironment:
    """One seat, one episode at a time. `tool_environment` makes subclasses with a method for each of the role's tools.

    Public methods but `reset` and `get_reward` are the model's tools, with their docstrings as descriptions.
    """

    _runner: SeatRunner

    def __init__(self) -> None:
        self._loop: LoopThread | None = None
        self._episode: SteppedEpisode | None = None
        self._reward = 0.0

    def reset(self, start: str = "0", **_: Any) -> str:
        """Begin an episode; what the agent is told and what it observes first."""
        self._leave()
        self._reward = 0.0
        self._loop = LoopThread()
        self._episode = self._loop.begin(self._runner, Start.from_text(start))
        question = self._loop.call(self._episode.question(self._runner.seats[0]))
        if question is None:
            return OVER
        first = question.request.messages[0]
        instructions = [str(first["content"])] if first["role"] == "system" else []
        return "\n\n".join([*instructions, question.text])

    def get_reward(self) -> float:
        """The seat's return; 0 for an episode that the model left before its end."""
        if self._loop is not None and self._episode is not None and self._episode.done:
            self._reward = self._loop.call(self._episode.result()).returns[self._runner.seats[0]]
        self._leave()
        return self._reward

    def act(self, action: str) -> str:
        """Take your turn.

        Args:
            action: What you do or say, exactly as the instructions ask for it.

        Returns:
            What you observe next.
        """
        return self._act(action)

    def _act(self, action: str) -> str:
        if self._loop is None or self._episode is None or self._episode.done:
            return OVER
        question: Question | None = self._loop.call(self._episode.step(self._runner.seats[0], action))
        return OVER if question is None else question.text

    def _leave(self) -> None:
        if self._loop is not None:
            self._loop.close()
        self._loop = self._episode = None


def tool_environment(runner: SeatRunner) -> type[ToolEnvironment]:
    """The class for a scenario: `act` for the seat's actions, and a method for each tool of its role.

    Args:
        runner: has one seat; `others` holds the rest.

    Raises:
        ConfigError: it has several, or a tool's name cannot be that of a method.
    """
    if len(runner.seats) != 1:
        raise ConfigError(f"such a class has one agent, not {', '.join(runner.seats)}; name the other seats in others")
    env = runner.spec.make()
    try:
        env.reset(seed=0)
        tools = env.role(runner.seats[0]).tools
    finally:
        close_env(env)
    methods: dict[str, Any] = {"_runner": runner}
    for tool in tools:
        if not tool.name.isidentifier() or tool.name.startswith("_") or hasattr(ToolEnvironment, tool.name):
            raise ConfigError(f"the tool {tool.name!r} cannot be a method beside act, reset and get_reward")
        methods[tool.name] = _method(tool)
    return type("ScenarioEnvironment", (ToolEnvironment,), methods)


def _method(tool: ToolSpec) -> Callable[..., str]:
    """A method with the tool's parameters as its signature, from which its JSON schema can be read again."""
    properties: dict[str, Any] = tool.parameters.get("properties", {})
    required = tool.parameters.get("required", ())

    def call(self: ToolEnvironment, **arguments: Any) -> str:
        return self._act(write_call(tool.name, {name: v for name, v in arguments.items() if v is not None}))

    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    lines = [" ".join(tool.description.split()) or tool.name, "", "Args:"]
    for name in sorted(properties, key=lambda name: name not in required):
        kind = _TYPES.get(str(properties[name].get("type")), str)
        default = inspect.Parameter.empty if name in required else None
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind))
        call.__annotations__[name] = kind
        lines.append(f"    {name}: {' '.join(str(properties[name].get('description', name)).split())}")
    call.__annotations__ = {p.name: p.annotation for p in parameters[1:]} | {"return": str}
    call.__name__, call.__qualname__ = tool.name, f"ScenarioEnvironment.{tool.name}"
    call.__doc__ = "\n".join([*lines, "", "Returns:", "    The tool's answer."])
    call.__signature__ = inspect.Signature(parameters, return_annotation=str)  # type: ignore[attr-defined]
    return call
