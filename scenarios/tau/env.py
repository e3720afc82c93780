"""The dialogue: a customer who wants something, and an assistant who has tools and a policy.

Both are agents. The user opens, says one message at a time, and ends the dialogue with the stop token. The
assistant answers with a message to the user or with calls of tools, which are answered to it alone while the
turn stays with it. Source: tau-bench (arXiv 2406.12045), whose user is hidden in the environment; GEM
(arXiv 2510.01051, appendix D.3) takes it out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from marl_gem.env import MultiAgentEnv
from marl_gem.errors import InvalidOption
from marl_gem.scenarios.tau.domain import Domain, Task, Verdict
from marl_gem.scenarios.tau.reward import USER_REWARDS, Dialogue, UserReward
from marl_gem.selectors.directed import DirectedSelector
from marl_gem.tools.calls import BrokenCall, read_calls
from marl_gem.types import ContentPart, Facts, Observation, Role, ToolCall

STOP = "###STOP###"
OPENING = "Hi! How can I help you today?"
USER, ASSISTANT = "user", "assistant"

_USER_ROLE = """\
You are a customer who writes to a company's support desk. What you want, and all you know:

{instruction}

- Write one short message at a time, as a customer would, in your own words.
- Tell only what the conversation needs next; do not give everything away at once.
- Say nothing that is not in the text above. If you are asked for something that is not, say that you do not know it.
- Stay with what you want until it is settled. When it is, or cannot be, answer with {stop} and nothing else.
"""


class TauEnv(MultiAgentEnv):
    """One dialogue about one task.

    Rewards come at the end. The assistant's is the official one: 1 if the data is as the task's own calls
    leave it and every output was told to the user, else 0; `infos` say why it is 0. The user's is chosen.

    Args:
        domain: the data, the tools, the policy, the tasks.
        split: which tasks.
        task: the number of a task; without one each episode draws its own. `reset(options={"task": 3})` too.
        max_actions: after so many calls and messages of the assistant the episode is cut off, with reward 0.
        calls: of several calls in one response the "first" counts, as in the official code, or "all" do in order.
        transfer: handing over to a human ends the episode. "official" scores it as any other end; "strict" gives 0
            unless the task's own calls hand over as well.
        user_reward: "task" (the assistant's reward), "fidelity" (to the instruction), or a function of a `Dialogue`.
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
    ) -> None:
        _check_choice("split", split, sorted(domain.splits))
        _check_choice("calls", calls, ["first", "all"])
        _check_choice("transfer", transfer, ["official", "strict"])
        if not isinstance(max_actions, int) or max_actions < 1:
            raise InvalidOption(f"max_actions is a whole number from 1 up, not {max_actions!r}")
        if isinstance(user_reward, str):
            _check_choice("user_reward", user_reward, sorted(USER_REWARDS))
        self.domain, self.split, self.max_actions = domain, split, max_actions
        self.calls, self.transfer = calls, transfer
        self._fixed_task = None if task is None else self._check_task(task)
        self._user_reward = USER_REWARDS[user_reward] if isinstance(user_reward, str) else user_reward
        self.blocking = bool(getattr(self._user_reward, "blocking", False))
        self.facts = Facts(turn_order="sequential", reward_range=(0.0, 1.0) if isinstance(user_reward, str) else None)

    @property
    def tasks(self) -> int:
        """How many tasks there are; `reset(options={"task": n})` plays one of them."""
        return len(self.domain.splits[self.split])

    @property
    def task(self) -> Task:
        """What this episode is about."""
        return self.domain.splits[self.split][self.task_index]

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset({name: value for name, value in options.items() if name != "task"})
        chosen = options.get("task", self._fixed_task)
        self.task_index = self.rng.randrange(self.tasks) if chosen is None else self._check_task(chosen)
        self.session = self.domain.session()
        self.actions = 0
        self.dialogue: list[tuple[str, str]] = [(ASSISTANT, OPENING)]
        self._seen: dict[str, Observation] = {USER: OPENING, ASSISTANT: ""}
        self.infos = {agent: {"task": self.task_index} for agent in self.agents}
        self.selector.direct(USER)

    def role(self, agent: str) -> Role:
        if agent == USER:
            return Role(_USER_ROLE.format(instruction=self.task.instruction, stop=STOP))
        return Role(self.domain.policy, self.domain.specs)

    def observe(self, agent: str) -> Observation:
        return self._seen[agent]

    def _process_actions(self, actions: dict[str, str]) -> None:
        ((agent, text),) = actions.items()
        for info in self.infos.values():
            info["task"] = self.task_index
        if agent == USER:
            self._hear_user(text)
        elif calls := read_calls(text).calls:
            self._hear_calls(calls)
        else:
            self._hear_assistant(text)

    def _hear_user(self, text: str) -> None:
        self.dialogue.append((USER, text))
        self._seen[ASSISTANT] = text.replace(STOP, "").strip() if STOP in text else text
        if STOP in text:
            self._end("the user ended it")
        else:
            self._turn_to_assistant()

    def _hear_assistant(self, text: str) -> None:
        self.actions += 1
        self.dialogue.append((ASSISTANT, text))
        if STOP in text:
            self.infos[ASSISTANT]["ignored"] = f"{STOP} is the user's to say"
        self._seen[USER] = text.replace(STOP, "")
        self.selector.direct(USER)

    def _hear_calls(self, calls: Sequence[ToolCall | BrokenCall]) -> None:
        counted = calls[: 1 if self.calls == "first" else self.max_actions - self.actions]
        results: list[ContentPart] = []
        notes = []
        for call in counted:
            self.actions += 1
            name, answer, note = self._answer(call)
            results.append({"type": "tool_result", "name": name, "text": answer})
            notes += [note] if note else []
            if name in self.domain.terminating:
                break
        self._seen[ASSISTANT] = results
        info = self.infos[ASSISTANT]
        info["calls"] = [result["name"] for result in results]
        if len(results) < len(calls):
            info["ignored"] = f"{len(calls) - len(results)} of {len(calls)} calls"
        if notes:
            info["notes"] = notes
        if results[-1]["name"] in self.domain.terminating:
            self._end("the assistant handed over to a human", handed_over=True)
        else:
            self._turn_to_assistant()

    def _answer(self, call: ToolCall | BrokenCall) -> tuple[str, str, str]:
        """The tool's name, what it answers, and a note."""
        if isinstance(call, BrokenCall):
            return "", f"Error: {call.reason}", "the call could not be read"
        outcome = self.domain.call(self.session, call.name, call.arguments)
        return call.name, outcome.text, outcome.note

    def _turn_to_assistant(self) -> None:
        if self.actions < self.max_actions:
            self.selector.direct(ASSISTANT)
            return
        self.truncations = dict.fromkeys(self.agents, True)
        self._score(Verdict(0.0, [], []), f"the assistant used up its {self.max_actions} actions")

    def _end(self, how: str, handed_over: bool = False) -> None:
        said = [text for speaker, text in self.dialogue[1:] if speaker == ASSISTANT]
        verdict = self.domain.judge(self.split, self.task_index, self.session, said)
        if handed_over and self.transfer == "strict" and not self._should_hand_over():
            verdict, how = verdict._replace(reward=0.0), f"{how}, which the task does not"
        self.terminations = dict.fromkeys(self.agents, True)
        self._score(verdict, how)

    def _should_hand_over(self) -> bool:
        return any(action.name in self.domain.terminating for action in self.task.actions)

    def _score(self, verdict: Verdict, how: str) -> None:
        """Give both their rewards, and say why."""
        dialogue = Dialogue(self.task, tuple(self.dialogue), verdict, self.dialogue[-1][1].strip() == STOP)
        self.rewards = {ASSISTANT: verdict.reward, USER: float(self._user_reward(dialogue))}
        for agent in self.agents:
            self.infos[agent] |= {
                "success": verdict.reward == 1.0,
                "ended": how,
                "differences": [f"{table} {key}" for table, key in verdict.differences],
                "missing_outputs": list(verdict.missing),
            }

    def _check_task(self, task: Any) -> int:
        if not isinstance(task, int) or isinstance(task, bool) or not 0 <= task < self.tasks:
            raise InvalidOption(f"{self.domain.name} has the {self.split} tasks 0 to {self.tasks - 1}, not {task!r}")
        return task


def _check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    if value not in choices:
        raise InvalidOption(f"{name} is one of {', '.join(choices)}, not {value!r}")
