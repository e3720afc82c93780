"""What both seats of a TAU dialogue earn, and the reasons that infos give."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from marl_gem.errors import LLMError, ScenarioFault
from marl_gem.policies import ScriptedPolicy
from marl_gem.rollout import Job, collect
from marl_gem.scenarios.tau.dialogue import STOP, Dialogue
from marl_gem.scenarios.tau.domain import Task
from marl_gem.scenarios.tau.env import OPENING, TauEnv
from marl_gem.scenarios.tau.judge import Judge
from marl_gem.scenarios.tau.reward import Fidelity, measure_fidelity
from marl_gem.tools.calls import write_call
from marl_gem.types import ToolCall
from tests.tau.small_shop import (
    CANCEL,
    PRICE,
    TASKS,
    TRANSFER,
    begun,
    make,
    play,
    shop,
)
from tests.toys import ScriptedLLM

# What it earns, and why it does not


@pytest.mark.parametrize(
    ("texts", "failure", "differences", "missing"),
    [
        ((CANCEL, PRICE), "", [], []),
        ((CANCEL, "It costs 1250.50."), "", [], []),
        ((PRICE, "ok", CANCEL, "Done."), "", [], []),
        ((PRICE,), "data", ["orders W1"], []),
        ((CANCEL, "Done."), "outputs", [], ["1250.50"]),
        ((CANCEL, "It is 1250,", "ok", ".50"), "outputs", [], ["1250.50"]),
        (("Hello",), "data and outputs", ["orders W1"], ["1250.50"]),
        ((CANCEL, write_call("cancel", {"order_id": "W2"}), PRICE), "data", ["orders W2"], []),
        ((CANCEL, write_call("write_note", {"order_id": "W1", "text": ""}), PRICE), "", [], []),
    ],
)
def test_the_infos_say_why_a_reward_is_zero(
    texts: tuple[str, ...], failure: str, differences: list[str], missing: list[str]
) -> None:
    env = begun()
    infos = play(env, *texts, STOP)
    assert env.returns == dict.fromkeys(("user", "assistant"), float(not failure))
    for info in infos.values():
        assert info["success"] is (not failure) and info["failure"] == failure
        assert info["differences"] == differences and info["missing_outputs"] == missing


@pytest.mark.parametrize(
    ("transfer", "task", "reward", "failure"),
    [
        ("official", 1, 1.0, ""),
        ("official", 2, 1.0, ""),
        ("official", 0, 0.0, "data and outputs"),
        ("strict", 1, 1.0, ""),
        ("strict", 2, 0.0, "handed over"),
    ],
)
def test_what_handing_over_earns(transfer: str, task: int, reward: float, failure: str) -> None:
    env = begun(transfer=transfer, task=task)
    infos = play(env, TRANSFER)
    assert env.returns == {"user": reward, "assistant": reward}
    assert infos["assistant"]["failure"] == failure and infos["assistant"]["ended"] == "handed over"


def test_the_floors() -> None:
    some, every = (0.0, 1.0, 1.0), (1.0, 1.0, 1.0)
    assert make(task=None).trivial_baselines == {
        "noop": some,
        "transfer": some,
        "gold-without-words": some,
        "gold": every,
    }
    assert sum(make(task=None, transfer="strict").trivial_baselines["transfer"]) == 1
    train = make(task=None, split="train").trivial_baselines
    assert {name: sum(own) for name, own in train.items()} == {
        "noop": 0, "transfer": 0, "gold-without-words": 0, "gold": len(train["gold"])
    }  # fmt: skip


def test_the_opening_says_no_output() -> None:
    """It is the same whoever assists, and no message of the assistant's."""
    env = TauEnv(shop(tasks=(Task("mei", "You are Mei.", (), ("how can i help",)),)))
    env.reset(seed=0)
    infos = play(env, "Hello", "Good morning.", STOP)
    assert infos["assistant"]["missing_outputs"] == ["how can i help"] and env.returns["assistant"] == 0.0


# What the user earns


def told(*user: str, end: str = "stopped", task: Task = TASKS[0], assistant: str = "Sure.") -> Dialogue:
    messages = [("assistant", OPENING)]
    for text in user:
        messages += [("user", text), ("assistant", assistant)]
    messages = messages[:-1]
    env = make()
    verdict = env.domain.judge("test", 0, env.domain.session(), ())
    return Dialogue(task, tuple(messages), verdict, end)  # type: ignore[arg-type]


LONG = Task(
    "yusuf_1",
    "You are Yusuf Rossi in 19122. You received your order #W2378156 and wish to exchange the keyboard for one that "
    "clicks. Your email is yusuf.rossi@example.com.",
    (
        ToolCall("find_user", {"first_name": "Yusuf", "last_name": "Rossi", "zip": "19122", "why": "no"}),
        ToolCall("exchange", {"order_id": "#W2378156", "items": ["1151293680"], "payment": "paypal_1"}),
    ),
)


@pytest.mark.parametrize(
    ("dialogue", "expected"),
    [
        (told("I am Yusuf Rossi, 19122.", "It is W2378156, the keyboard.", STOP, task=LONG), (1, 1, 1, 1)),
        (told("Yusuf Rossi, 19122, order W2378156, mail yusuf.rossi@example.com.", STOP, task=LONG), (1, 1, 1, 1)),
        (told("I am YUSUF ROSSI from 19122.", STOP, task=LONG), (1, 3 / 4, 1, 1)),
        (told("Yusuf Rossi, 19123, #W2378156", STOP, task=LONG), (1 / 2, 3 / 4, 1, 1)),
        (told("Yusuf Rossi, 19122, #W2378156, me@here.org", STOP, task=LONG), (2 / 3, 1, 1, 1)),
        (told("Rossi, Yusuf", "1,151,293,680 then", task=LONG, assistant="Item 1151293680?"), (1, 1 / 2, 1, 1)),
        (told("It is 19123.", "19123, as I said.", STOP, task=LONG), (0, 0, 1, 1)),
        (told("Yusuf Rossi in 19122 you received your order W2378156 and wish", task=LONG), (1, 1, 1, 1)),
        (told("Yusuf Rossi in 19122 you received your order W2378156 and wish to", task=LONG), (1, 1, 0, 1)),
        (told(LONG.instruction, STOP, task=LONG), (1, 1, 0, 1)),
        (told("Hi.", f"{LONG.instruction} {STOP}", task=LONG), (1, 1, 1 / 2, 1)),
        (told("I am Yusuf Rossi, 19122, W2378156.", end="cut off", task=LONG), (1, 1, 1, 0)),
        (told("I am Yusuf Rossi, 19122, W2378156.", end="handed over", task=LONG), (1, 1, 1, 1)),
        (told(STOP, task=LONG), (1, 0, 1, 1)),
        (told(STOP, task=TASKS[2]), (1, 0, 1, 1)),
        (told("Hello", STOP, task=TASKS[2]), (1, 1, 1, 1)),
        (told("It is 815, not 4711.", STOP, task=Task("a", "Your number is 815.")), (1 / 2, 1, 1, 1)),
        (told("a" * 200_000 + "@" * 200_000 + "1" * 200_000, STOP, task=LONG), (0, 0, 1, 1)),
    ],
)
def test_fidelity_to_the_instruction(dialogue: Dialogue, expected: tuple[float, ...]) -> None:
    assert measure_fidelity(dialogue) == pytest.approx(Fidelity(*expected))


def test_fidelity_is_the_users_alone() -> None:
    env = begun(user_reward="fidelity")
    infos = play(env, "Sure.", "I am Mei, and W1 has to go.", "No.", STOP)
    assert env.returns == {"user": 1.0, "assistant": 0.0}
    assert infos["user"]["success"] is False
    env = begun(user_reward="fidelity")
    play(env, CANCEL, PRICE, STOP)
    assert env.returns == {"user": 0.0, "assistant": 1.0}


def test_any_function_of_the_dialogue_will_do() -> None:
    seen: list[Dialogue] = []

    def short(dialogue: Dialogue) -> float:
        seen.append(dialogue)
        return -float(len(dialogue.messages))

    env = begun(user_reward=short)
    assert env.metadata.reward_range is None
    play(env, CANCEL, PRICE, STOP)
    assert env.returns == {"user": -4.0, "assistant": 1.0}
    assert seen[0].messages == (("assistant", OPENING), ("user", "Hello"), ("assistant", PRICE), ("user", STOP))
    assert (seen[0].task, seen[0].end, seen[0].verdict.reward) == (TASKS[0], "stopped", 1.0)


@pytest.mark.parametrize("reward", [lambda dialogue: math.nan, lambda dialogue: 1 / 0, lambda dialogue: "good"])
def test_one_that_fails_is_a_fault_not_a_zero(reward: Callable[[Dialogue], Any]) -> None:
    env = begun(user_reward=reward)
    with pytest.raises(ScenarioFault):
        play(env, STOP, STOP)


def judge_saying(text: str) -> ScriptedLLM:
    """A model that gives the same answer every time."""
    return ScriptedLLM(default=text, name="judge-model")


@pytest.mark.parametrize(
    ("answer", "reward"), [("7", 0.7), ("10", 1.0), ("Score: 0.", 0.0), ("8/10", 0.8), ("**3**", 0.3), ("7.5", 0.75)]
)
def test_a_model_may_judge(answer: str, reward: float) -> None:
    model = judge_saying(answer)
    env = begun(user_reward=Judge(model))
    assert env.awaits and not env.blocking
    play(env, CANCEL, PRICE, STOP)
    assert env.returns == {"user": pytest.approx(reward), "assistant": 1.0}
    asked = str(model.prompts[0][0]["content"])
    assert json.dumps(TASKS[0].instruction) in asked
    assert f'{{"speaker": "assistant", "text": "{PRICE}"}}' in asked


@pytest.mark.parametrize("answer", ["", "good", "11", "-1", "gpt4"])
def test_a_judge_that_gives_no_number_is_a_fault_of_its_model(answer: str) -> None:
    env = begun(user_reward=Judge(judge_saying(answer)))
    with pytest.raises(LLMError, match="judge-model should judge a user from 0 to 10"):
        play(env, "Bye.", STOP)


def test_a_judge_serves_many_episodes_at_once_and_within_a_running_loop() -> None:
    judge = Judge(judge_saying("5"))
    seating = {"user": ScriptedPolicy(["Hello", STOP]), "assistant": ScriptedPolicy(["Bye."])}
    jobs = [Job(seed, seating) for seed in range(40)]
    episodes = collect(lambda: make(user_reward=judge), jobs, concurrency=20)
    assert [episode.returns["user"] for episode in episodes] == [0.5] * 40

    (failed,) = collect(lambda: make(user_reward=Judge(judge_saying("good"))), jobs[:1])
    assert failed.error and (failed.error.origin, failed.error.agent) == ("llm", None)

    async def in_a_notebook() -> float:
        env = begun(user_reward=judge)
        play(env, "Bye.", STOP)
        return env.fork().returns["user"]

    assert asyncio.run(in_a_notebook()) == 0.5
