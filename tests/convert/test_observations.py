"""Other libraries' observations as text."""

from __future__ import annotations

import re
from typing import Any

import pytest

gymnasium = pytest.importorskip("gymnasium")
pytest.importorskip("pettingzoo")

import numpy as np  # noqa: E402
from gymnasium import spaces  # noqa: E402

from marl_gem.convert import from_gymnasium, from_pettingzoo  # noqa: E402
from marl_gem.errors import ConversionError, ScenarioFault  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
"""PettingZoo's and Gymnasium's checks warn of spaces that are not arrays."""
from tests.convert.envs import NATIVE, TAXI, Echo, zoo  # noqa: E402

BOARD = np.zeros((2, 3, 2), np.int8)


CROWDED = np.zeros((2, 2, 12), np.int8)
BOARD[0, 1, 0] = BOARD[1, 2, 1] = 1
CROWDED[0, 1, 4] = 1


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (3, "3"),
        (np.int64(3), "3"),
        ("as it is \ud800", "as it is \ud800"),
        ((12, 7, 0), "12 7 0"),
        (0.123456, "0.1235"),
        (np.array([0.5, -0.0, 123456.0], np.float32), "0.5 0 1.235e+05"),
        (np.array([[1, 10], [100, 2]]), "  1  10\n100   2"),
        (np.eye(2, dtype=bool), "1 0\n0 1"),
        (
            np.eye(20, dtype=np.int8)[3] + 2 * np.eye(20, dtype=np.int8)[7],
            "20 numbers, 0 to 19; 1 at 3; 2 at 7; else 0",
        ),
        (np.r_[np.zeros(20), np.ones(5)], "25 numbers, 0 to 24; 1 at 20-24; else 0"),
        ({"speed": 2.5, "grid": np.eye(2)}, "speed: 2.5\ngrid:\n1 0\n0 1"),
        (BOARD, "plane 0:\n0 1 0\n0 0 0\nplane 1:\n0 0 0\n0 0 1"),
        (
            np.stack([np.eye(2), np.zeros((2, 2)), np.ones((2, 2))]),
            "plane 0:\n1 0\n0 1\nplane 1:\n0 0\n0 0\nplane 2:\n1 1\n1 1",
        ),
        (CROWDED, "plane 4:\n0 1\n0 0\nall 0: planes 0-3 5-11"),
        ({"observation": np.array([1, 2]), "action_mask": np.array([0, 1])}, "1 2\nLegal actions: [1]"),
        (({"a": 1, "b": 2}, 3), "(1):\na: 1\nb: 2\n(2): 3"),
        ({"flag": np.bool_(True)}, "flag: yes"),
        ([{"type": "text", "text": "x"}], [{"type": "text", "text": "x"}]),
        (np.zeros((0,)), ""),
        (np.array(7), "7"),
    ],
)
def test_observations_are_rows_and_words(shown: Any, text: Any) -> None:
    env = from_gymnasium(Echo(spaces.Discrete(2), shown))
    observations, _ = env.reset(seed=0)
    assert observations["player_0"] == text and type(observations["player_0"]) is type(text)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(0, 255, (84, 84), np.uint8),
        spaces.Box(0, 255, (210, 160, 3), np.uint8),
        spaces.Dict({"camera": spaces.Box(0, 255, (64, 64, 3), np.uint8), "speed": spaces.Discrete(3)}),
        spaces.Box(0, 1, (200, 200), np.float32),
    ],
)
def test_pictures_are_refused_unless_somebody_describes_them(space: Any) -> None:
    with pytest.raises(ConversionError, match="describe="):
        from_gymnasium(Echo(spaces.Discrete(2), observation_space=space))
    picture = Echo(spaces.Discrete(2), space.sample(), space)
    env = from_gymnasium(picture, describe=lambda agent, seen: f"{agent} sees a landscape.")
    assert env.reset(seed=0)[0] == {"player_0": "player_0 sees a landscape."}


def test_describe_gives_the_whole_observation() -> None:
    def describe(agent: str, seen: Any) -> list[dict[str, Any]]:
        return [{"type": "text", "text": f"{agent}: {seen['observation'].sum()}"}, {"type": "image", "data": ""}]

    env = from_pettingzoo(NATIVE["tictactoe"], describe=describe)
    observations, _ = env.reset(seed=0)
    assert observations["player_1"][0] == {"type": "text", "text": "player_1: 0"}
    env = from_pettingzoo(NATIVE["tictactoe"], describe=lambda agent, seen: 7)  # type: ignore[arg-type,return-value]
    with pytest.raises(ScenarioFault, match="describe must give a text"):
        env.reset(seed=0)


BOARDS = spaces.Box(0, 1, (2, 3, 2), np.int8)


PLANES = spaces.Box(0, 1, (2, 4, 3), bool)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("space", "shown", "text"),
    [
        (BOARDS, BOARD, ". A .\n. . B"),
        (BOARDS, np.zeros_like(BOARD), ". . .\n. . ."),
        (BOARDS, np.ones_like(BOARD), "AB AB AB\nAB AB AB"),
        (spaces.MultiBinary((2, 3, 2)), BOARD + (BOARD[..., ::-1] * [1, 0]).astype(np.int8), " .  A  .\n .  . AB"),
        (PLANES, np.stack([np.eye(2, 4, dtype=bool)] * 3, -1), "ABC . . .\n. ABC . ."),
    ],
)
def test_a_board_of_0_and_1_is_one_picture_with_a_letter_for_each_plane(space: Any, shown: Any, text: str) -> None:
    env = from_gymnasium(Echo(spaces.Discrete(2), shown, space))
    heading, _, picture = env.reset(seed=0)[0]["player_0"].partition("\n")
    assert heading.startswith("A is plane 0, B is plane 1, ") and heading.endswith(". is none:")
    assert [row.split() for row in picture.splitlines()] == [row.split() for row in text.splitlines()]


def test_a_board_inside_a_dict_is_one_picture_too() -> None:
    space = spaces.Dict({"observation": BOARDS, "action_mask": spaces.Box(0, 1, (2,), np.int8)})
    env = from_gymnasium(Echo(spaces.Discrete(2), {"observation": BOARD, "action_mask": np.ones(2, np.int8)}, space))
    shown = env.reset(seed=0)[0]["player_0"]
    assert shown == "A is plane 0, B is plane 1, . is none:\n. A .\n. . B\nLegal actions: [0] [1]"


def test_planes_keep_one_form_whatever_they_hold() -> None:
    """As in pursuit: counts from 0 to 30 in three planes, of which each observation may hold any."""
    space = spaces.Box(0, 30, (7, 7, 3), np.float32)
    dice = np.random.default_rng(0)
    forms = set()
    for density in (0, 0.01, 0.02, 0.5, 1):
        for top in (2, 31):
            planes = np.where(dice.random((7, 7, 3)) < density, dice.integers(1, top, (7, 7, 3)), 0)
            shown = from_gymnasium(Echo(spaces.Discrete(2), planes.astype(np.float32), space)).reset(seed=0)[0]
            forms.add(re.sub(r"[0-9]+", "N", re.sub(" +", " ", str(shown["player_0"]).replace("\n ", "\n"))))
    row = " ".join("N" * 7)
    assert forms == {"\n".join("\n".join(["plane N:", *[row] * 7]) for _ in range(3))}


def test_an_env_that_renders_text_can_be_described_so() -> None:
    env = from_gymnasium(lambda: gymnasium.make("FrozenLake-v1", render_mode="ansi"), describe="render")
    observations, _ = env.reset(seed=0)
    assert observations["player_0"] == "\n[S]FFF\nFHFH\nFFFH\nHFFG\nMarks: [S] on red"
    observations = env.step({"player_0": "[2]"})[0]
    assert "[F]" in observations["player_0"] or "[S]" in observations["player_0"]
    env = from_pettingzoo(zoo("pettingzoo.classic.chess_v6", render_mode="ansi"), describe="render")
    observations, _ = env.reset(seed=0)
    assert "R N B Q K B N R\nLegal actions: [" in observations["player_0"]
    with pytest.raises(ConversionError, match='render_mode="ansi"'):
        from_pettingzoo(NATIVE["tictactoe"], describe="render")


def test_colours_that_taxi_marks_things_with_become_plain_marks() -> None:
    env = from_gymnasium(lambda: gymnasium.make(TAXI, render_mode="ansi"), describe="render")
    for seed in range(30):
        shown = env.reset(seed=seed)[0]["player_0"]
        row, column, passenger, destination = env.foreign.unwrapped.decode(env.foreign.unwrapped.s)
        assert "\x1b" not in shown
        *lines, marks, legal = shown.splitlines()
        letters = "RGYB"
        assert marks.startswith("Marks: ") and "on yellow" in marks and legal.startswith("Legal actions: ")
        assert [number for number, line in enumerate(lines) if "[" in line] == [row + 1]
        here = (row, column) == env.foreign.unwrapped.locs[passenger]
        assert (f"[{letters[passenger]}] in blue on yellow" if here else f"({letters[passenger]}) in blue") in marks
        there = (row, column) == env.foreign.unwrapped.locs[destination]
        assert ("in magenta on yellow" if there else f"({letters[destination]}) in magenta") in marks


class Screen(Echo):
    """Renders what it is given."""

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012
    render_mode = "ansi"
    shows: Any = ""

    def render(self) -> Any:
        return self.shows


@pytest.mark.parametrize(
    ("rendered", "text"),
    [
        ("no colour [1]\n", "no colour [1]\n"),
        ("\x1b[2J\x1b[1;1Ha\x1b[1mb\x1b[0mc\x1b]0;title\x07", "abc"),
        ("\x1b[7mab\ncd\x1b[27m!\n", "[ab]\n[cd]!\nMarks: [ab] reversed, [cd] reversed"),
        ("\x1b[38;5;196ma\x1b[39m\x1b[48;2;1;2;255mb\x1b[m", "(a)[b]\nMarks: (a) in colour 196, [b] on #0102ff"),
        ("\x1b[31m \x1b[0m\x1b[91mx\x1b[0m", " (x)\nMarks: (x) in bright red"),
        ("\x1b[38m\x1b[48;5mx", "[x]\nMarks: [x] in colour  on colour "),
    ],
)
def test_terminal_colours_become_plain_marks(rendered: str, text: str) -> None:
    env = from_gymnasium(Screen(spaces.Discrete(2)), describe="render")
    env.foreign.shows = rendered
    assert env.reset(seed=0)[0]["player_0"] == text


@pytest.mark.parametrize("rendered", [None, [["a"]], np.zeros(3)], ids=["None", "list", "array"])
def test_a_render_that_gives_no_text_is_a_fault_and_not_an_observation(rendered: Any) -> None:
    env = from_gymnasium(Screen(spaces.Discrete(2)), describe="render")
    env.foreign.shows = rendered
    with pytest.raises(ScenarioFault, match=r"render\(\) must give a text .* give describe=a function"):
        env.reset(seed=0)
