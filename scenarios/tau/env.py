"""The dialogue of a user and an assistant. The assistant has tools and a policy.

Both are agents. The user acts first, sends one message at a time, and ends the dialogue with the stop token. The
assistant answers with a message to the user or with tool calls. Only the assistant sees the results of its calls, and
it acts again after them. Source: tau-bench (arXiv 2406.12045), where the user is a part of the environment; GEM
(arXiv 2510.01051, appendix D.3) makes it an agent.

An agent's message always reaches the other agent as text. The stop token counts only in the user's messages, and the
tags that chat templates put around tool results are changed in messages, so that a message cannot imitate a result.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from marl_gem.env import MultiAgentEnv
from marl_gem.errors import InvalidOption
from marl_gem.scenarios.tau.dialogue import STOP, Dialogue, End, UserReward
from marl_gem.scenarios.tau.domain import Domain, Task
from marl_gem.scenarios.tau.reward import USER_REWARDS, failure, fidelity, measure_fidelity, reward_named
from marl_gem.selectors.directed import DirectedSelector
from marl_gem.tools.calls import BrokenCall, read_calls
from marl_gem.types import ContentPart, Metadata, Observation, Role, ToolCall

OPENING = "Hi! How can I help you today?"
USER, ASSISTANT = "user", "assistant"

_TOOLS_TAG = re.compile(r"<(/?)tool_response>")
"""The tags around a tool result where a chat template or a back end sends it with the role "user"."""

RESPOND = "respond"
"""The official code's name of the action that sends a message to the user."""

_NOT_CARRIED_OUT = "Error: not carried out, as only one call at a time is"


class TauEnv(MultiAgentEnv):
    """One dialogue about one task.

    Rewards come at the end. The assistant's is the official one: 1 if the data equals the data after the task's
    reference calls and every output was said to the user, else 0. The option `user_reward` chooses the user's.

    The last info of both agents has `success`, `failure` (the kind, see `reward.failure`), `ended` (how the dialogue
    ended), `differences` (the records that differ from the goal) and `missing_outputs`. Other infos may have `calls`
    (the names of the tools that were called), `several` (the rule for several calls in one response), `ignored` (what
    had no effect), `illegal` (the error in a call), `notes` (where the official code would raise), and always `task`
    (the task's number, for scripts). Models see no infos.

    Args:
        domain: the data, the tools, the policy and the tasks.
        split: the split that tasks are drawn from.
        task: the number of a task, from 0, which is also its id; every episode has it, and `tasks` is None. None: each
            episode draws its own. `reset(options={"task": 3})` sets it for one episode.
        max_actions: the most calls and messages of the assistant, and the most calls of the user where the domain has
            user tools; then the episode is truncated, with reward 0.
        calls: of several calls in one response, "first" carries out the first, as the official code does, and "all"
            carries out all in order.
        transfer: a transfer to a human ends the episode. "official": it is scored as any other end. "strict": its
            reward is 0 unless the task's reference calls transfer too.
        user_reward: "task" (the assistant's reward), "fidelity" (to the instruction; `fidelity` in the user's last
            info has its parts), "judge:MODEL" with a model as `llm.models` reads it, or a function of a `Dialogue`,
            such as a `judge.Judge`; it may be asynchronous, and is then awaited. A function that blocks says so with
            an attribute `blocking`.
        official: the rules of published scores; for those of the seats see `official_seats.py`. The user has the
            official simulator's prompt if the import found it. A call that cannot be read ends the dialogue with
            reward 0, as the official code raises there. The content of a call named `respond` is sent to the user.
            Requires calls="first", transfer="official" and a domain that is not corrected.

    Raises:
        InvalidOption: a value is not allowed.
        ConfigError, LLMError, MissingPackage: the judge's model cannot be made.
    """

    possible_agents = (USER, ASSISTANT)
    selector = DirectedSelector()

    def __init__(
        self,
        domain: Domain,
        split: str = "test",
        task: int | None = None,
        max_actions: int = 30,
        calls: Literal["first", "all"] = "first",
        transfer: Literal["official", "strict"] = "official",
        user_reward: str | UserReward = "task",
        official: bool = False,
    ) -> None:
        _check_choice("split", split, sorted(domain.splits))
        _check_choice("calls", calls, ["first", "all"])
        _check_choice("transfer", transfer, ["official", "strict"])
        if not isinstance(max_actions, int) or isinstance(max_actions, bool) or max_actions < 1:
            raise InvalidOption(f"max_actions is a whole number from 1 up, not {max_actions!r}")
        if not isinstance(official, bool):
            raise InvalidOption(f"official is true or false, not {official!r}")
        if official and (calls != "first" or transfer != "official" or domain.corrected):
            raise InvalidOption("official=true goes with calls=first, transfer=official and corrected=false alone")
        self.domain, self.split, self.max_actions, self.official = domain, split, max_actions, official
        self.calls, self.transfer = calls, transfer
        self._fixed_task = None if task is None else self._check_task(task)
        self.tasks = len(domain.splits[split]) if task is None else None
        grades = [each.grade for each in domain.splits[split]] if task is None else []
        self.grades = tuple(grades) if all(grades) else ()
        self._user_reward = user_reward if callable(user_reward) else reward_named(user_reward)
        self.blocking = bool(getattr(self._user_reward, "blocking", False))
        self.awaits = self._user_reward not in USER_REWARDS.values()
        self.metadata = Metadata(turn_order="sequential", reward_range=None if callable(user_reward) else (0.0, 1.0))

    @property
    def task(self) -> Task:
        """The task of this episode."""
        return self.domain.splits[self.split][self.task_index]

    @property
    def _count(self) -> int:
        return len(self.domain.splits[self.split])

    @property
    def trivial_baselines(self) -> dict[str, tuple[float, ...]]:
        """The rewards of trivial policies by task, see `Domain.trivial_baselines`; empty if one task is set."""
        return {} if self.tasks is None else self.domain.trivial_baselines(self.split, strict=self.transfer == "strict")

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset({name: value for name, value in options.items() if name != "task"})
        chosen = options.get("task", self._fixed_task)
        self.task_index = self.rng.randrange(self._count) if chosen is None else self._check_task(chosen)
        self.session = self.domain.session(self.task)
        self.used = {USER: 0, ASSISTANT: 0}
        self.dialogue: list[tuple[str, str]] = [(ASSISTANT, OPENING)]
        self._seen: dict[str, Observation] = {USER: OPENING, ASSISTANT: ""}
        self._tell_task()
        self.selector.direct(USER)

    def role(self, agent: str) -> Role:
        if agent == USER:
            template = (self.official and self.domain.official_user_role) or self.domain.user_role
            text = template.replace("{stop}", STOP).replace("{instruction}", self.task.instruction)
            return Role(text, self.domain.user_specs)
        return Role(self.domain.policy, self.domain.specs)

    def observe(self, agent: str) -> Observation:
        return self._seen[agent]

    def render(self) -> str:
        """The task, the messages, and who acts next, with the results of its calls if it made any."""
        messages = [f"{speaker}: {text}" for speaker, text in self.dialogue]
        lines = [f"task {self.task_index} of {self.domain.name}: {self.task.instruction}", "", *messages, ""]
        counts = f"{self.used[ASSISTANT]} of {self.max_actions} actions of the {ASSISTANT}"
        if not self.acting:
            return "\n".join([*lines, f"over after {counts}"])
        (agent,) = self.acting
        seen = self._seen[agent]
        results = [f"{part['name']} -> {part['text']}" for part in seen] if isinstance(seen, list) else []
        return "\n".join([*lines, *results, f"{agent} is next, after {counts}"])

    def _process_actions(self, actions: dict[str, str]) -> None:
        ((agent, text),) = actions.items()
        self._tell_task()
        has_tools = agent == ASSISTANT or self.domain.user_tools
        words, calls = read_calls(text) if has_tools else (text, [])
        if self.official and agent == ASSISTANT and calls:
            self._hear_official_call(words, calls)
        elif calls:
            self._hear_calls(agent, words, calls)
        elif agent == USER:
            self._hear_user(text)
        else:
            self._hear_assistant(text)

    def _tell_task(self) -> None:
        for agent in self.agents:
            self.infos.setdefault(agent, {})["task"] = self.task_index

    # What agents say

    def _hear_user(self, text: str) -> None:
        self.dialogue.append((USER, text))
        self._seen[ASSISTANT] = _heard(text)
        if STOP in text:
            self._end("stopped")
        else:
            self._give_turn(ASSISTANT)

    def _hear_assistant(self, text: str) -> None:
        self.used[ASSISTANT] += 1
        self.dialogue.append((ASSISTANT, text))
        if STOP in text:
            self.infos[ASSISTANT]["ignored"] = f"{STOP}, which is the user's to say"
        self._seen[USER] = _heard(text)
        self.selector.direct(USER)  # also after the last action: the user may still end the dialogue

    def _hear_calls(self, agent: str, words: str, calls: Sequence[ToolCall | BrokenCall]) -> None:
        """Carry out calls and show their results to the caller; text beside calls reaches no agent."""
        room = 1 if self.calls == "first" else self.max_actions - self.used[agent]
        results: list[ContentPart] = []
        info = self.infos[agent]
        info["calls"] = []
        if len(calls) > 1:
            info["several"] = self.calls
        for call in calls[:room]:
            self.used[agent] += 1
            results.append(self._answer(agent, call))
            info["calls"].append(results[-1]["name"])
            if self._hands_over(agent, call):
                break
        ignored = calls[len(results) :]
        if ignored or words:
            beside = ["what was said beside a call"] if words else []
            info["ignored"] = ", ".join([f"{len(ignored)} of {len(calls)} calls"] * bool(ignored) + beside)
        results += [_result(_name(call), _NOT_CARRIED_OUT) for call in ignored]  # chat APIs insist on an answer to each
        self._seen[agent] = results
        if self._hands_over(agent, call):
            self._end("handed over")
        else:
            self._give_turn(agent)

    def _hear_official_call(self, words: str, calls: Sequence[ToolCall | BrokenCall]) -> None:
        """Carry out the first call under the official rules.

        The content of `respond` is sent to the user, and a call that cannot be read ends the dialogue.
        """
        first = calls[0]
        info = self.infos[ASSISTANT]
        if isinstance(first, ToolCall) and first.name != RESPOND:
            self._hear_calls(ASSISTANT, words, calls)
            return
        content = first.arguments.get("content") if isinstance(first, ToolCall) else None
        if isinstance(content, str):
            info["calls"] = [RESPOND]
            self._hear_assistant(content)
            return
        reason = first.reason if isinstance(first, BrokenCall) else f"{RESPOND} takes a text as content"
        info["illegal"] = f"a call at which the official code breaks off: {reason}"
        self.used[ASSISTANT] += 1
        self._end("broken call")

    def _answer(self, agent: str, call: ToolCall | BrokenCall) -> ContentPart:
        info = self.infos[agent]
        if isinstance(call, BrokenCall):
            info["illegal"] = f"a call that cannot be read: {call.reason}"
            return _result("", f"Error: {call.reason}")
        tools = self.domain.user_tools if agent == USER else self.domain.tools
        if call.name not in tools:
            info["illegal"] = f"there is no tool {call.name!r}"
        elif call.arguments.keys() != set(tools[call.name].parameters):
            info["illegal"] = f"{call.name} takes the arguments {', '.join(tools[call.name].parameters) or 'none'}"
        outcome = self.domain.call(self.session, call.name, call.arguments, by_user=agent == USER)
        if outcome.note:
            info.setdefault("notes", []).append(outcome.note)
        return _result(call.name, outcome.text)

    def _hands_over(self, agent: str, call: ToolCall | BrokenCall) -> bool:
        """Whether a call ends the episode: only the assistant's do, even with an error, as in the official code."""
        return agent == ASSISTANT and _name(call) in self.domain.terminating

    def _give_turn(self, agent: str) -> None:
        if self.used[agent] < self.max_actions:
            self.selector.direct(agent)
        else:
            self._end("cut off")

    # The end

    def _end(self, end: End) -> None:
        """Set rewards, flags and infos of both agents."""
        messages = [text for speaker, text in self.dialogue[1:] if speaker == ASSISTANT]
        verdict = self.domain.judge(self.split, self.task_index, self.session, messages)
        why = failure(verdict, end, self.transfer == "official" or self.domain.hands_over(self.task))
        if why:
            verdict = verdict._replace(reward=0.0)
        dialogue = Dialogue(self.task, tuple(self.dialogue), verdict, end)
        rewards: dict[str, Any] = {ASSISTANT: verdict.reward, USER: self._user_reward(dialogue)}
        self.rewards = rewards  # the user's may be an awaitable
        flags = self.truncations if end == "cut off" else self.terminations
        flags.update(dict.fromkeys(self.agents, True))
        for agent in self.agents:
            self.infos[agent] |= {
                "success": not why,
                "failure": why,
                "ended": end,
                "differences": [f"{table} {key}" for table, key in verdict.differences],
                "missing_outputs": list(verdict.missing),
            }
        if self._user_reward is fidelity:
            self.infos[USER]["fidelity"] = measure_fidelity(dialogue)._asdict()

    def _check_task(self, task: Any) -> int:
        if not isinstance(task, int) or isinstance(task, bool) or not 0 <= task < self._count:
            raise InvalidOption(f"{self.domain.name} has the {self.split} tasks 0 to {self._count - 1}, not {task!r}")
        return task


def _heard(text: str) -> str:
    """A message as the other agent observes it: without the stop token and without the tags of tool results.

    A space replaces the token, so that the rest cannot form a new one.
    """
    if STOP in text:
        text = text.replace(STOP, " ").strip()
    return _TOOLS_TAG.sub(r"<\1tool response>", text)


def _result(name: str, text: str) -> ContentPart:
    return {"type": "tool_result", "name": name, "text": text}


def _name(call: ToolCall | BrokenCall) -> str:
    return call.name if isinstance(call, ToolCall) else ""


def _check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    if value not in choices:
        raise InvalidOption(f"{name} is one of {', '.join(choices)}, not {value!r}")
