"""Werewolf: its rules, who hears what, and the scripted player."""

from __future__ import annotations

from typing import Any

import pytest

import marl_gem
from marl_gem import registry
from marl_gem.errors import InvalidOption
from marl_gem.policies import RandomPolicy
from marl_gem.rollout import Job, collect
from marl_gem.scenarios.games.werewolf import Werewolf
from marl_gem.types import Episode, Response, Role

WEREWOLF = "game:Werewolf-v0"


def begin(**options: Any) -> Werewolf:
    """A game whose wolves are player_0 and player_1 and whose seer is player_2."""
    env = Werewolf(**options)
    env.reset(seed=0)
    env.wolves, env.seer = ["player_0", "player_1"], "player_2"
    env.selector.groups |= {"wolves": env.wolves, "seer": [env.seer]}
    env.selector.acting = tuple(env.wolves)
    env.acting = tuple(env.wolves)
    return env


def test_a_night_and_a_day() -> None:
    env = begin(players=6)
    env.step({"player_0": "Let us take [player_5].", "player_1": "[player_5]"})
    assert env.message_log[-1].hearers == ("player_0",) and env.acting == ("player_2",)
    observations, *_, infos = env.step({"player_2": "[player_1]"})
    assert "You see that player_1 is a wolf." in env.observe("player_2")
    assert "Let us take" in env.observe("player_1") and "[player_5]" not in env.observe("player_3")
    assert "player_5 was killed in the night; it was no wolf." in infos["player_5"]["final_observation"]
    for agent in env.agents:
        observations, *_ = env.step({agent: f"I am {agent}."})
    assert all("player_4: I am player_4." in text for agent, text in observations.items() if agent != "player_4")
    votes = dict.fromkeys(env.acting, "[player_1]") | {"player_1": "[player_2]"}
    *_, infos = env.step(votes)
    assert env.agents == ("player_0", "player_2", "player_3", "player_4") and env.selector.phase == "night"
    assert "player_1 is hanged; it was a wolf." in env.observe("player_3")


def test_the_winning_side_shares_one_also_with_the_dead() -> None:
    env = begin(players=5)
    env.step({"player_0": "[player_4]", "player_1": "[player_4]"})
    env.step({"player_2": "[player_3]"})
    assert env.done and env.returns == pytest.approx(
        {"player_0": 0.5, "player_1": 0.5, "player_2": -1 / 3, "player_3": -1 / 3, "player_4": -1 / 3}
    )
    assert "The wolves won. The wolves were player_0 and player_1." in str(env.message_log[-1])


@pytest.mark.parametrize("text", ["player_4", "[player_0]", "[nobody]", "", "[player_99]"])
def test_who_may_not_be_named_is_illegal_and_somebody_dies(text: str) -> None:
    env = begin()
    *_, infos = env.step({"player_0": text, "player_1": text})
    assert "names none of" in infos["player_0"]["illegal"] and env.victim in env.agents[2:]


@pytest.mark.parametrize("options", [{"players": 3}, {"players": 6, "wolves": 3}, {"rounds": 0}])
def test_sizes_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match="Werewolf takes 4 to 20 players"):
        marl_gem.make(WEREWOLF, **options)


class BySide:
    """A policy for the wolves and another for the others."""

    name = "by side"

    def __init__(self, wolves: Any, village: Any) -> None:
        self.wolves, self.village = wolves, village

    def agent(self, agent_id: str, role: Role, seed: int) -> Any:
        return (self.wolves if "You are a wolf" in role.instructions else self.village).agent(agent_id, role, seed)

    async def act(self, observation: Any, info: Any) -> Response:
        raise NotImplementedError


def wolves_won(episode: Episode) -> bool:
    return any(value > 0 for agent, value in episode.returns.items() if episode.tags[agent]["team"] == "wolves")


def test_the_scripted_player_is_better_than_random_on_both_sides() -> None:
    rule, random = registry.make_policy(WEREWOLF, "rule"), RandomPolicy()
    jobs = range(60)
    rates = [
        sum(wolves_won(episode) for episode in collect(Werewolf, [Job(seed, BySide(*sides)) for seed in jobs])) / 60
        for sides in ((random, random), (rule, random), (random, rule))
    ]
    assert rates[1] > 0.9 and rates[2] < 0.5 < 0.7 < rates[0]
