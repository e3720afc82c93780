"""The help desk: its tasks, its tools, and the scripted policies of both seats."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

import marl_gem
from marl_gem import registry
from marl_gem.policies import PolicyPerSeat, ScriptedPolicy
from marl_gem.rollout import Job, collect
from marl_gem.scenarios.tau import catalog, desk
from marl_gem.scenarios.tau.desk.experts import DONE, SORRY, WHAT, WHO, DeskPolicy
from marl_gem.scenarios.tau.dialogue import STOP
from marl_gem.tools.calls import read_calls, write_call
from marl_gem.types import Episode, Role, ToolCall, to_json

DESK = "tau:desk-v0"


def play(user: str, assistant: str, count: int, split: str = "test") -> list[Episode]:
    made = {
        seat: registry.make_policy(DESK, name, {"split": split})
        for seat, name in (("user", user), ("assistant", assistant))
    }
    jobs = [Job(number, made, options={"task": number}) for number in range(count)]
    return collect(lambda: marl_gem.make(DESK, split=split), jobs)


def success(episodes: list[Episode]) -> float:
    assert not any(episode.error for episode in episodes)
    return sum(episode.returns["assistant"] for episode in episodes) / len(episodes)


# Tasks


def test_the_tasks_are_the_same_every_time_and_the_splits_are_apart() -> None:
    again, other = desk.domain(), desk.domain()
    assert again.splits == other.splits
    assert {split: len(own) for split, own in again.splits.items()} == desk.SPLITS
    worlds = {split: {to_json(task) for task in own} for split, own in again.splits.items()}
    assert len(worlds["train"]) == 2000 and not worlds["train"] & worlds["test"]


def test_every_wish_comes_granted_and_too_late() -> None:
    grades = Counter(task.grade for task in desk.domain().splits["train"])
    assert set(grades) == {"where", "cancel", "redirect", "cancel, too late", "redirect, too late"}
    late = grades["cancel, too late"] + grades["redirect, too late"]
    assert 0.28 < grades["where"] / 2000 < 0.38
    assert 0.28 < late / (2000 - grades["where"]) < 0.38


def test_a_task_is_about_its_own_world() -> None:
    domain = catalog.domain("desk")
    for number, task in enumerate(domain.splits["test"]):
        state = task.data["parcels"][task.user_id]["state"]
        goal = domain.goal("test", number)["parcels"][task.user_id]
        wanted = [action.name for action in task.actions[1:]]
        assert wanted == ([] if task.grade == "where" or "late" in task.grade else [task.grade])
        assert (wanted != []) <= (state == "packed")
        assert (task.outputs == (state,)) == (task.grade == "where")
        if task.grade == "redirect":
            assert goal["to"] != task.data["parcels"][task.user_id]["to"] and goal["to"] in task.instruction
        if task.grade == "cancel":
            assert goal["state"] == "cancelled"
        assert task.data["parcels"] == dict(domain.session(task)["parcels"].items())


def test_one_episodes_calls_are_not_seen_in_another() -> None:
    envs = [marl_gem.make(DESK, task=3) for _ in range(2)]
    for env in envs:
        env.reset(seed=0)
        env.step({"user": "Hello."})
    envs[0].step({"assistant": write_call("cancel", {"name": "Ann"})})
    seen = [env.step({"assistant": write_call("look_up", {"name": "Ann"})})[0]["assistant"][0]["text"] for env in envs]
    assert "cancelled" in seen[0] and "cancelled" not in seen[1]


# Tools


@pytest.mark.parametrize(
    ("name", "arguments", "answer"),
    [
        ("look_up", {"name": "zoe"}, "Error: nobody of that name"),
        ("cancel", {"name": ["Ann"]}, "Error: unhashable type: 'list'"),
        ("cancel", {"name": "Ann"}, "cancelled"),
        ("redirect", {"name": "Ann", "to": "Rome"}, "redirected"),
    ],
)
def test_the_tools(name: str, arguments: dict[str, Any], answer: str) -> None:
    domain = catalog.domain("desk")
    assert domain.call(domain.session(domain.splits["test"][0]), name, arguments).text == answer


# Scripts


@pytest.mark.parametrize("split", ["test", "train"])
@pytest.mark.parametrize(("user", "assistant"), [("expert", "expert"), ("oracle", "oracle"), ("oracle", "expert")])
def test_experts_solve_every_task(user: str, assistant: str, split: str) -> None:
    assert success(play(user, assistant, 200, split)) == 1.0


def test_novices_leave_room_to_learn() -> None:
    alone, both = success(play("expert", "novice", 600, "train")), success(play("novice", "novice", 600, "train"))
    assert 0.05 < both < alone < 0.3


def test_doing_nothing_does_not_get_far() -> None:
    assert success(play("expert", "transfer", 100)) == 0.0
    floors = marl_gem.make(DESK).trivial_baselines
    assert sum(floors["noop"]) / 200 < 0.7 and sum(floors["gold"]) == 200


def test_an_expert_reads_only_what_its_seat_is_shown() -> None:
    """The same answers whatever the infos say, and to whatever the other seat is."""
    customer = DeskPolicy("expert").agent("user", Role("You are Bob. You want your parcel to go to Lima."), 0)
    clerk = DeskPolicy("expert").agent("assistant", Role(""), 0)

    def said(agent: Any, heard: Any) -> str:
        return asyncio.run(agent.act(heard, {})).text

    assert "Lima" in said(customer, "Hi! How can I help you today?")
    assert "Bob" in said(customer, WHO)
    assert "Lima" in said(customer, WHAT)
    assert said(customer, DONE) == said(customer, SORRY) == STOP
    assert said(clerk, "Good morning") == WHAT
    assert said(clerk, "My parcel should go to Lima.") == WHO
    (call,) = read_calls(said(clerk, "It is Bob.")).calls
    assert call == ToolCall("look_up", {"name": "Bob"})


@pytest.mark.parametrize("text", ["", "{", "Bob", "cancel", "\ud800", "###STOP###", "<tool_call>{"])
def test_no_text_makes_a_script_fail(text: str) -> None:
    for skill in ("expert", "novice"):
        for seat in ("user", "assistant"):
            policy = PolicyPerSeat(
                "pair",
                {"user": DeskPolicy(skill), "assistant": DeskPolicy(skill), seat: ScriptedPolicy(lambda o, i: text)},
            )
            episodes = collect(lambda: marl_gem.make(DESK), [Job(seed, policy) for seed in range(20)])
            assert not any(episode.error for episode in episodes)
