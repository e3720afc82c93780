"""env.render(): a text picture for people, in every scenario."""

from __future__ import annotations

import pytest

import marl_gem
from marl_gem import MultiAgentEnv
from tests.toys import Crowd, NumberGame


def play(env: MultiAgentEnv, *actions: str) -> str:
    env.reset(seed=0)
    for action in actions:
        env.step(dict.fromkeys(env.acting, action))
    return env.render()


def test_by_default_it_shows_what_the_acting_agents_see() -> None:
    env = NumberGame()
    assert env.render() == "NumberGame, not reset yet"
    lines = play(env, "1").splitlines()
    assert lines[0] == "NumberGame, seed 0, after 1 step" and lines[1].endswith("acts next and sees")
    assert lines[-1] == "returns: a +1, b +0"


def test_agents_that_see_the_same_are_shown_together() -> None:
    env = Crowd(50)
    env.reset(seed=0)
    assert env.render().splitlines()[1:] == [
        "citizen_0, citizen_1, citizen_2 and 47 others act next and see",
        "  Yes or no?",
        "returns: all +0",
    ]
    assert "over after 1 step" in play(env, "yes") and "saw last" in env.render()


def test_a_scenario_that_raises_is_shown_as_far_as_it_goes() -> None:
    class Raises(NumberGame):
        def observe(self, agent: str) -> str:
            if self.steps:
                raise KeyError("mail")
            return "?"

    env = Raises()
    env.reset(seed=0)
    with pytest.raises(marl_gem.errors.ScenarioFault):
        env.step({env.acting[0]: "1"})
    assert "KeyError" in env.render()


@pytest.mark.parametrize(
    ("scenario", "actions", "shown"),
    [
        ("game:TicTacToe-v0", ["[5]", "[1]"], "O | 2 | 3\n--+---+--\n4 | X | 6\n--+---+--\n7 | 8 | 9\nX is next"),
        ("game:TicTacToe-v0", ["[5]", "no"], "X wins"),
        ("game:KuhnPoker-v0", ["[check]", "[bet]"], "moves: check, bet\nplayer_0 is next"),
        ("game:KuhnPoker-v0", ["[bet]", "[fold]"], "player_0 wins +1 chips"),
        (
            "game:LeducPoker-v0",
            ["[check]", "[check]"],
            "round 1: check, check\nround 2: no moves yet\nplayer_0 is next",
        ),
        ("game:Blotto-v0", [], "7 soldiers, 3 fields; both spread theirs"),
        ("game:Blotto-v0", ["[7 0 0]"], "player_1: [7 0 0]\nplayer_0 +0, player_1 +0"),
        ("tau:desk-v0", ["My parcel?"], "user: My parcel?\n\nassistant is next, after 0 of 8 actions"),
        ("tau:desk-v0", ["Hi", '<tool_call>{"name": "look_up", "arguments": {}}</tool_call>'], "look_up -> Error"),
    ],
)
def test_the_pictures_of_what_ships(scenario: str, actions: list[str], shown: str) -> None:
    env = marl_gem.make(scenario, wrappers=["time_limit=20"])
    assert shown in play(env, *actions)


def test_a_game_of_textarena_draws_its_board() -> None:
    pytest.importorskip("textarena")
    assert "---+---+---" in play(marl_gem.make("ta:TicTacToe-v0"), "[4]")
