"""Small scenarios, policies and models for tests.

Scenarios   NumberGame            two agents in turn; a number is its writer's reward
            SimultaneousNumbers   the same, both at once
            OneAnswer             one agent, one answer; a number is its reward, "yes" is a success
            RockPaperScissors     two agents at once, one round, zero-sum
            Village               agents join and leave in the middle of an episode
            Crowd                 any number of agents at once, one round
            Chat                  two agents hear what the other one says
            one_agent             an env with one agent, made of parts
            full_state            all that an env holds, to be compared
Policies    always                the same text every time
            Delayed               answers after some seconds
            Failing               raises, or returns what is no Response
Models      ScriptedLLM           answers from a script, and records what it was asked

`tests/slow_game.py` has a scenario for runs that are killed, `tests/fake_server.py` a model behind HTTP.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from marl_gem import AgentSelector, MultiAgentEnv, ParallelSelector, Response, Role, SequentialSelector, ToolSpec
from marl_gem.errors import ContextTooLong
from marl_gem.llm import Sampling
from marl_gem.policies import ScriptedPolicy
from marl_gem.types import Message, Metadata, Observation

# Scenarios


class NumberGame(MultiAgentEnv):
    """Agents act in turn, `length` steps in all. A number is the reward of its writer; "break" raises."""

    possible_agents: Sequence[str] = ("a", "b")
    selector: AgentSelector = SequentialSelector()
    length = 4

    def observe(self, agent: str) -> Observation:
        return f"step {self.steps}"

    def role(self, agent: str) -> Role:
        return Role(f"You are {agent}.")

    def legal_actions(self, agent: str) -> list[str] | None:
        return ["1", "2", "3"]

    def _process_actions(self, actions: dict[str, str]) -> None:
        for agent, text in actions.items():
            if text == "break":
                raise RuntimeError("broken")
            self.rewards[agent] = float(text) if text.isdigit() else 0.0
            self.infos[agent]["read"] = text
        self.terminations = dict.fromkeys(self.agents, self.steps >= self.length)


class SimultaneousNumbers(NumberGame):
    """The number game with both agents acting at once."""

    selector = ParallelSelector()


class OneAnswer(MultiAgentEnv):
    """One agent answers once.

    A number is its reward; "yes" is a success, other words are failures; "?" is illegal; "again" goes on;
    "break" raises. A subclass that sets `tasks` has that many tasks.
    """

    possible_agents = ("solver",)
    selector = SequentialSelector()
    tasks: int | None = None

    def _reset(self, options: Mapping[str, Any]) -> None:
        self.task = options.get("task", "none")

    def observe(self, agent: str) -> str:
        return f"task {self.task}"

    def _process_actions(self, actions: dict[str, str]) -> None:
        ((agent, text),) = actions.items()
        if text == "break":
            raise RuntimeError("broken")
        self.rewards[agent] = float(text) if text.lstrip("-").isdigit() else 0.0
        self.infos[agent] = {"illegal": text} if text == "?" else {"success": text == "yes"} if text.isalpha() else {}
        self.terminations[agent] = text != "again"


class RockPaperScissors(MultiAgentEnv):
    """Two agents show a hand at once; one round. What is no hand is illegal, and pays nobody."""

    possible_agents = ("a", "b")
    selector = ParallelSelector()
    metadata = Metadata(zero_sum=True, turn_order="parallel")
    hands = ("rock", "paper", "scissors")

    def observe(self, agent: str) -> str:
        return "Rock, paper or scissors?"

    def _process_actions(self, actions: dict[str, str]) -> None:
        illegal = {agent: text for agent, text in actions.items() if text not in self.hands}
        if illegal:
            self.infos = {agent: {"illegal": f"{text!r} is no hand"} for agent, text in illegal.items()}
        else:
            a, b = (self.hands.index(actions[agent]) for agent in self.possible_agents)
            self.rewards = {"a": float((a - b + 1) % 3 - 1), "b": float((b - a + 1) % 3 - 1)}
        self.terminations = dict.fromkeys(self.agents, True)


class Crowd(MultiAgentEnv):
    """Citizens vote at once, one round; a vote for the answer that chance has drawn pays 1.

    Args:
        agents: how many there are.
    """

    selector = ParallelSelector()
    metadata = Metadata(turn_order="parallel")

    def __init__(self, agents: int = 2) -> None:
        self.possible_agents = tuple(f"citizen_{index}" for index in range(agents))

    def observe(self, agent: str) -> str:
        return "Yes or no?"

    def legal_actions(self, agent: str) -> list[str]:
        return ["yes", "no"]

    def _process_actions(self, actions: dict[str, str]) -> None:
        answer = self.rng.choice(["yes", "no"])
        self.rewards = {agent: float(text == answer) for agent, text in actions.items()}
        self.terminations = dict.fromkeys(self.agents, True)


class Village(MultiAgentEnv):
    """Villagers act in turn and hear everything; they join and leave.

    Actions: `leave`, `banish NAME`, `invite NAME`, `thank NAME` (a reward of 0.5 for NAME), or any other text.
    The option `village` names it. A subclass may set another reward for thanks, and that who is banished is truncated.
    """

    possible_agents = ("ann", "bob", "cat")
    selector = SequentialSelector()
    metadata = Metadata(turn_order="sequential", joins=True)
    thanks = 0.5
    truncates = False

    def _reset(self, options: Mapping[str, Any]) -> None:
        self.village = options.get("village", "Hamlet")
        super()._reset({name: value for name, value in options.items() if name != "village"})
        self.heard: list[str] = []

    def role(self, agent: str) -> Role:
        return Role(f"You are {agent} of {self.village}.")

    def observe(self, agent: str) -> str:
        return f"{agent} hears: {'; '.join(self.heard)}"

    def _process_actions(self, actions: dict[str, str]) -> None:
        ((speaker, text),) = actions.items()
        self.heard.append(f"{speaker}: {text} ({self.rng.randrange(1000)})")
        verb, _, name = text.partition(" ")
        if verb == "leave":
            self.terminations[speaker] = True
        elif verb == "banish" and name in self.agents:
            (self.truncations if self.truncates else self.terminations)[name] = True
        elif verb == "invite" and name not in self.returns:
            self.add_agent(name)
        elif verb == "thank" and name in self.returns:
            self.rewards[name] = self.rewards.get(name, 0.0) + self.thanks


class Chat(MultiAgentEnv):
    """Two agents say anything, three times each; each hears what the other one said. Every turn is worth 1."""

    possible_agents = ("a", "b")
    selector = SequentialSelector()

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        self.heard = f"hello {self.rng.randrange(10**6)}"

    def observe(self, agent: str) -> Observation:
        return self.heard

    def _process_actions(self, actions: dict[str, str]) -> None:
        (self.heard,) = actions.values()
        self.rewards = dict.fromkeys(actions, 1.0)
        if self.steps == 6:
            self.terminations = dict.fromkeys(self.agents, True)


def one_agent(**parts: Any) -> MultiAgentEnv:
    """An env with one agent `a` that does nothing; `parts` replace its methods and attributes."""
    defaults = {
        "possible_agents": ("a",),
        "selector": SequentialSelector(),
        "observe": lambda self, agent: "Well?",
        "_process_actions": lambda self, actions: None,
    }
    env: MultiAgentEnv = type("Tiny", (MultiAgentEnv,), defaults | parts)()
    return env


def full_state(value: Any, around: tuple[int, ...] = ()) -> Any:
    """Everything an env holds, down to its parts' parts, in a form that can be compared."""
    if id(value) in around:
        return "itself"
    around = (*around, id(value))
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, Mapping):
        return [(key, full_state(part, around)) for key, part in value.items()]
    if isinstance(value, list | tuple | set):
        return [type(value).__name__, *(full_state(part, around) for part in value)]
    if hasattr(value, "__dict__") and not callable(value):
        return [type(value).__name__, full_state(vars(value), around)]
    return value


# Policies


def always(text: str, name: str = "") -> ScriptedPolicy:
    """A policy that gives the same answer every time; its name is the text by default."""
    return ScriptedPolicy(lambda observation, info: text, name or text)


class Delayed:
    """Answers `text` after as many seconds as `seconds` gives for the agent's id."""

    name = "delayed"

    def __init__(self, seconds: Callable[[str], float], text: str = "1") -> None:
        self.seconds, self.text = seconds, text

    def agent(self, agent_id: str, role: Role, seed: int) -> Delayed:
        return Delayed(lambda _: self.seconds(agent_id), self.text)

    async def act(self, observation: Any, info: Any) -> Response:
        await asyncio.sleep(self.seconds(""))
        return Response(self.text)


class Failing:
    """Raises the exception it is given; anything else it returns in place of a Response."""

    name = "failing"

    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome

    def agent(self, agent_id: str, role: Role, seed: int) -> Failing:
        return self

    async def act(self, observation: Any, info: Any) -> Any:
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


# Models


class Request(NamedTuple):
    """What a model was asked."""

    messages: list[Message]
    sampling: Sampling
    seed: int
    tools: tuple[ToolSpec, ...]


Answer = str | Response | BaseException


class ScriptedLLM:
    """A language model that answers from a script, and records every request in `requests`.

    Args:
        answers: given one after the other: texts, responses, or exceptions to raise. Afterwards every answer is
            `default`.
        default: the answer when the script is over, or a function that makes it from the messages.
        name: goes into records.
        max_messages: a longer prompt raises ContextTooLong; only its seed is recorded, in `seeds`.
    """

    def __init__(
        self,
        *answers: Answer,
        default: Answer | Callable[[Sequence[Message]], Answer] = "ok",
        name: str = "scripted",
        max_messages: int = 1000,
    ) -> None:
        self.answers, self.default, self.name, self.max_messages = list(answers), default, name, max_messages
        self.requests: list[Request] = []
        self.seeds: list[int] = []

    @property
    def prompts(self) -> list[list[Message]]:
        """The messages of every request."""
        return [request.messages for request in self.requests]

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, seed: int, tools: Sequence[ToolSpec] = ()
    ) -> Response:
        await asyncio.sleep(0)
        self.seeds.append(seed)
        if len(messages) > self.max_messages:
            raise ContextTooLong(f"{len(messages)} messages do not fit")
        self.requests.append(Request(list(messages), sampling, seed, tuple(tools)))
        answer = self.answers.pop(0) if self.answers else self.default
        if callable(answer):
            answer = answer(messages)
        if isinstance(answer, BaseException):
            raise answer
        return answer if isinstance(answer, Response) else Response(answer)


class ThreeTurns(MultiAgentEnv):
    """One agent answers three times; for benchmarks."""

    possible_agents = ("player",)
    selector = SequentialSelector()
    max_steps = 3

    def observe(self, agent: str) -> str:
        return "Well?"

    def _process_actions(self, actions: dict[str, str]) -> None:
        self.rewards["player"] = 1.0
