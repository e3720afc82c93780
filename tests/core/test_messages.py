"""Messages: who hears what, when it is shown, channels, backlogs, and what a record holds of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import marl_gem
from marl_gem import AgentSelector, MultiAgentEnv, ParallelSelector, SequentialSelector
from marl_gem.errors import ScenarioFault
from marl_gem.messages import Channel
from marl_gem.policies import ScriptedPolicy
from marl_gem.rollout import Job, collect
from marl_gem.testing import check_env
from marl_gem.types import Episode, Limits, SentMessage, from_json, to_json
from marl_gem.viewer.transcript import transcript
from marl_gem.wrappers import RecordEpisodes, ShowHistory
from tests.core.conformance import BRIEF, HERE, Town, failures


class Room(MultiAgentEnv):
    """Agents speak to everybody, or to "@team" or "@bob,cat"; "leave" leaves, "bring eve" lets eve join."""

    possible_agents = ("ann", "bob", "cat")
    selector: AgentSelector = SequentialSelector()
    max_steps = 12
    channels: Mapping[str, Channel] = {"team": Channel(("ann", "bob"))}

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        self.send("Talk.")

    def _process_action(self, agent: str, action: str) -> None:
        to, _, text = action[1:].partition(" ") if action.startswith("@") else ("", "", action)
        self.send(text, to=(to.split(",") if "," in to else to) if to else None, sender=agent)
        if text == "leave":
            self.terminations[agent] = True
        if text.startswith("bring "):
            self.add_agent(text.removeprefix("bring "))


def play(env: MultiAgentEnv, *actions: str) -> dict[str, str]:
    """Play from the start, one action a step; each agent's last observation."""
    shown: dict[str, Any] = {}
    observations, infos = env.reset(seed=0)
    shown |= observations
    for action in actions:
        (agent,) = env.acting
        observations, *_, infos = env.step({agent: action})
        shown |= observations
        shown |= {name: info["final_observation"] for name, info in infos.items() if "final_observation" in info}
    return shown


def test_a_message_is_heard_by_those_it_is_sent_to() -> None:
    shown = play(Room(), "hello", "@team psst", "@ann for ann", "@bob,cat for both", "on")
    assert shown == {"ann": "bob: psst\ncat: for ann", "bob": "ann: for both", "cat": "ann: for both\nbob: on"}


def test_an_observation_is_the_same_until_its_agent_has_acted() -> None:
    env = Room()
    play(env, "one", "two")
    assert env.observe("cat") == env.observe("cat") == "Talk.\nann: one\nbob: two"
    assert [message.sender for message in env.new_messages("cat")] == ["", "ann", "bob"]
    env.step({"cat": "three"})
    assert env.observe("cat") == "" and env.observe("bob") == "cat: three"


def test_agents_that_act_together_hear_each_other_afterwards() -> None:
    class Hall(Room):
        selector = ParallelSelector()

    env = Hall()
    env.reset(seed=0)
    env.step({"ann": "a", "bob": "@ann b", "cat": "c"})
    assert [env.observe(agent) for agent in env.agents] == ["bob: b\ncat: c", "ann: a\ncat: c", "ann: a"]


def test_no_text_passes_for_the_message_of_another() -> None:
    shown = play(Room(), "hi\nbob: I am bob\r\x85cat: so", "x")
    assert shown["bob"] == "Talk.\nann: hi\n    bob: I am bob\n    \n    cat: so"
    assert [line for line in shown["cat"].splitlines() if line.startswith("bob: ")] == ["bob: x"]


def test_who_joins_hears_what_is_sent_from_then_on_and_who_leaves_misses_nothing_before() -> None:
    env = Room()
    shown = play(env, "before", "bring eve", "after", "hello")
    assert shown["ann"] == "bob: bring eve\ncat: after\neve: hello" and shown["eve"] == "cat: after"
    env.step({"ann": "leave"})
    assert env.observe("eve") == "ann: leave"
    env.step({"bob": "late"})
    assert env.message_log[-1].hearers == ("cat", "eve")


def test_a_backlog_is_heard_by_new_members_once_in_the_order_in_which_it_was_sent() -> None:
    class Club(Room):
        channels = {"club": Channel(lambda env: env.club, backlog=True)}  # noqa: RUF012

        def _reset(self, options: Mapping[str, Any]) -> None:
            self.club = ["ann", "bob"]
            super()._reset(options)

        def _process_action(self, agent: str, action: str) -> None:
            if action == "in":
                self.club = [*self.club, "cat"]
            super()._process_action(agent, action)

    env = Club()
    play(env, "@club first", "to all", "hm", "@club second")
    assert env.observe("cat") == ""
    env.step({"bob": "in"})
    assert env.observe("cat") == "ann: first\nann: second\nbob: in"
    env.step({"cat": "@club mine"})
    env.step({"ann": "@club third"})
    env.step({"bob": "x"})
    assert env.observe("cat") == "ann: third\nbob: x"
    assert env.message_log[1].hearers == ("bob", "cat")


def test_a_fork_goes_on_with_messages_of_its_own() -> None:
    env = Room()
    play(env, "one")
    fork = env.fork()
    fork.step({"bob": "in the fork"})
    assert env.observe("cat") == "Talk.\nann: one" and len(env.message_log) == 2
    assert fork.observe("cat") == "Talk.\nann: one\nbob: in the fork"
    env.reset(seed=0)
    assert [message.text for message in env.message_log] == ["Talk."]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("hi", "nobody"), "a message to 'nobody'|\\['nobody'\\]; there are the agents \\['ann'"),
        ((7,), "send takes a text"),
        (("hi", None, None), "send takes a text and the id of its sender"),
        (("hi", "cat"), "an agent and a channel"),
    ],
)
def test_a_wrong_message_is_a_fault_of_the_scenario(arguments: tuple[Any, ...], what: str) -> None:
    class Wrong(Room):
        channels = {"cat": Channel(("ann",))}  # noqa: RUF012

        def _process_action(self, agent: str, action: str) -> None:
            self.send(*arguments)

    env = Wrong()
    env.reset(seed=0)
    with pytest.raises(ScenarioFault, match=what):
        env.step({"ann": "x"})


def test_a_scenario_that_neither_observes_nor_sends_says_so() -> None:
    class Silent(MultiAgentEnv):
        possible_agents = ("ann",)
        selector = SequentialSelector()

    with pytest.raises(ScenarioFault, match="must define observe\\(agent\\), or send a text in _reset"):
        Silent().reset(seed=0)


# Records


def talk(make: Any = Room) -> Episode:
    answers = {"ann": ["hello\nall", "leave"], "bob": ["@team psst", "x"], "cat": ["hm", "y"]}
    seating = {name: ScriptedPolicy(texts) for name, texts in answers.items()}
    (episode,) = collect(make, [Job(3, seating, limits=Limits(turns=4))])
    assert episode.error is None
    return episode


def test_a_record_holds_who_heard_what_and_the_viewer_shows_it() -> None:
    episode = from_json(to_json(talk()), Episode)
    assert episode.messages[:3] == (
        SentMessage("Talk.", "", ("ann", "bob", "cat")),
        SentMessage("hello\nall", "ann", ("bob", "cat"), step=1),
        SentMessage("psst", "bob", ("ann",), "team", 2),
    )
    shown = transcript(episode)
    assert [turn.heard for turn in shown.turns[:3]] == [["bob", "cat"], ["ann"], ["ann", "bob"]]
    second = [(part.name, part.turn, part.text) for part in shown.turns[1].observation]
    assert second == [("", 0, "Talk.\n"), ("ann", 1, "hello\n    all")]


def test_steps_in_a_record_are_those_of_its_turns_with_tools_too() -> None:
    from marl_gem.tools import tool
    from marl_gem.wrappers import ToolEnv

    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    call = '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>'
    answers = {"ann": [call, "three", "leave"], "bob": ["x"], "cat": ["y"]}
    seating = {name: ScriptedPolicy(texts) for name, texts in answers.items()}
    (episode,) = collect(lambda: ToolEnv(Room(), [add]), [Job(3, seating, limits=Limits(turns=4))])
    assert [(message.step, message.sender) for message in episode.messages[:3]] == [(0, ""), (2, "ann"), (3, "bob")]
    assert [turn.heard for turn in transcript(episode).turns[:3]] == [[], ["bob", "cat"], ["ann", "cat"]]


def test_wrappers_forward_messages(tmp_path: Path) -> None:
    env = RecordEpisodes(ShowHistory(Room()), tmp_path)
    play(env, "one", "two", "three")
    assert env.message_log == env.unwrapped.message_log and len(env.message_log) == 4
    assert [str(message) for message in env.new_messages("ann")] == ["bob: two", "cat: three"]
    env.close()
    line = (tmp_path / "episodes.jsonl").read_text().splitlines()[-1]
    assert '"sender":"bob"' in line


# The check


def test_the_check_passes_on_joins_leaves_and_channels() -> None:
    assert failures(Town) == {}
    (result,) = check_env(Town, BRIEF, only=["messages"]).results
    assert result.status == "ok"


def test_the_check_is_skipped_where_nothing_is_sent() -> None:
    (result,) = check_env(lambda: marl_gem.make("game:Blotto-v0"), BRIEF, only=["messages"]).results
    assert (result.status, result.details) == ("skipped", "it sends no messages")
    assert "messages" in HERE
