"""How agents write actions of other libraries' spaces, and what is read from a text."""

from __future__ import annotations

from typing import Any

import pytest

gymnasium = pytest.importorskip("gymnasium")
pytest.importorskip("pettingzoo")

import numpy as np  # noqa: E402
from gymnasium import spaces  # noqa: E402

from marl_gem.convert import FreeText, from_gymnasium, from_pettingzoo  # noqa: E402
from marl_gem.errors import ConversionError, InvalidOption  # noqa: E402
from marl_gem.policies import RandomPolicy  # noqa: E402
from marl_gem.rollout import Job, collect  # noqa: E402
from marl_gem.types import to_json  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
"""PettingZoo's and Gymnasium's checks warn of spaces that are not arrays."""
from tests.convert.envs import BOX, CAR, NATIVE, PAIR, STRANGE_TEXTS, TAXI, Echo, given, limited  # noqa: E402


@pytest.mark.parametrize(
    ("space", "text", "action"),
    [
        (spaces.Discrete(4), "[3]", 3),
        (spaces.Discrete(4), " 3\n", 3),
        (spaces.Discrete(4), "I think [ 2 ] is best, better than [1].", 2),
        (spaces.Discrete(4), "[see above] [9] hm, [1]", 1),
        (spaces.Discrete(4, start=-2), "[-2]", -2),
        (spaces.Discrete(4), "3 it is", None),
        (spaces.Discrete(4), "[4]", None),
        (spaces.Discrete(4), "[٣]", None),
        (spaces.Discrete(4), "[1.0]", None),
        (spaces.MultiDiscrete([3, 5]), "[2, 4]", [2, 4]),
        (spaces.MultiDiscrete([3, 5]), "First [1], then [0, 3].", [0, 3]),
        (spaces.MultiDiscrete([3, 5]), "[3, 0]", None),
        (spaces.MultiDiscrete([3, 5]), "[1.0, 2]", None),
        (spaces.MultiDiscrete([3, 5]), "[true, 2]", None),
        (spaces.MultiDiscrete(np.array([[2, 2], [2, 2]])), "[[0, 1], [1, 0]]", [[0, 1], [1, 0]]),
        (spaces.MultiBinary(3), "[1, 0, true]", [1, 0, 1]),
        (spaces.MultiBinary(3), "[1, 0, 2]", None),
        (BOX, "[-1, 10]", [-1, 10]),
        (BOX, "Left a little: [-0.25, 1e0]", [-0.25, 1]),
        (BOX, "[0, 10.1]", None),
        (BOX, "[NaN, 1]", None),
        (BOX, "[1e999, 1]", None),
        (BOX, '["0", 1]', None),
        (BOX, "[0, 1, 2]", None),
        (BOX, "[[0, 1]]", None),
        (spaces.Box(-np.inf, np.inf, (1,), np.float32), "[1e300]", None),
        (spaces.Box(-np.inf, np.inf, (1,), np.float32), "-7.5", [-7.5]),
        (spaces.Box(0, 255, (2,), np.uint8), "[0, 255]", [0, 255]),
        (spaces.Box(0, 255, (2,), np.uint8), "[0, 256]", None),
        (spaces.Box(0, 255, (2,), np.uint8), f"[0, {10**30}]", None),
        (spaces.Box(0, 1, (), np.float64), "0.5", 0.5),
        (spaces.Text(5, charset="abc"), "abc", "abc"),
        (spaces.Text(5, charset="abc"), "abd", None),
        (spaces.Text(5, charset="abc"), "abcabc", None),
        (FreeText(), "[anything] at all", "[anything] at all"),
        (PAIR, "[2, [0, 1]]", (2, np.array([0, 1]))),
        (PAIR, "[2, [0, 1], 0]", None),
        (CAR, 'I turn: {"gear": 5, "steer": -0.5, "say": "\\u00e9"}', {"steer": -0.5, "gear": 5, "say": "é"}),
        (CAR, '{"gear": 5, "steer": -0.5}', None),
        (CAR, '{"gear": 0, "steer": 0, "say": ""}', None),
        (spaces.Sequence(spaces.Discrete(3)), "[0, 2, 2]", (0, 2, 2)),
        (spaces.Sequence(spaces.Discrete(3)), "[3]", None),
    ],
)
def test_what_an_agent_writes_is_read_as_an_action_of_the_space(space: Any, text: str, action: Any) -> None:
    read = given(space, text)
    assert (read is None) == (action is None)
    if action is not None:
        assert space.contains(read)
        np.testing.assert_equal(read, np.array(action, space.dtype) if isinstance(action, list) else action)


@pytest.mark.parametrize(
    ("space", "options", "instructions"),
    [
        (spaces.Discrete(4), {}, "Write your action in brackets: a whole number from 0 to 3, such as [0]."),
        (spaces.Discrete(2), {"actions": ["stay", "go"]}, "Write your action in brackets: [stay] or [go]."),
        (spaces.Discrete(9), {"actions": {4: "middle"}}, "a whole number from 0 to 8, such as [0], or [middle]."),
        (spaces.MultiDiscrete([3, 5]), {}, "a list of 2 whole numbers: from 0 to 2, from 0 to 4"),
        (spaces.MultiBinary((2, 3)), {}, "a list of 2 lists of 3 numbers, each 0 or 1"),
        (BOX, {}, "a list of 2 numbers: from -1 to 1, from 0 to 10"),
        (spaces.Box(-np.inf, 3, (2,), np.float32), {}, "a list of 2 numbers up to 3"),
        (CAR, {}, '"gear": a whole number from 1 to 5, "say": a text, "steer": a number from -1 to 1'),
        (PAIR, {}, "a list of 2 parts, (1) a whole number from 0 to 2, (2) a list of 2 numbers, each 0 or 1"),
        (FreeText(), {}, "Your answer, as it is, is your action"),
        (spaces.Text(5, charset="abc"), {}, "a text of 1 to 5 of the characters abc"),
        (spaces.Sequence(spaces.Discrete(3)), {}, "a list of any length, each part a whole number from 0 to 2"),
    ],
)
def test_a_role_tells_how_to_write_an_action(space: Any, options: Any, instructions: str) -> None:
    told = from_gymnasium(Echo(space), instructions="Drive well.", **options).role("player_0").instructions
    assert told.startswith("Drive well.\n\n") and instructions in told
    if "For instance: " in told:
        assert given(space, told.partition("For instance: ")[2]) is not None


def test_actions_may_have_names() -> None:
    for text, action in {"[Paper]": 1, "scissors": 2, "[ SCISSORS ]": 2, "[0]": 0, "[stone]": None}.items():
        assert given(spaces.Discrete(3), text, actions=["rock", "paper", "scissors"]) == action
    assert given(spaces.Discrete(3, start=5), "[go  on]", actions={6: "go on"}) == 6
    env = from_pettingzoo(NATIVE["rps"], actions=["rock", "paper", "scissors"])
    _, infos = env.reset(seed=0)
    assert infos["player_0"]["legal_actions"] == ["[rock]", "[paper]", "[scissors]"]


@pytest.mark.parametrize(
    ("space", "names"),
    [
        (spaces.Discrete(3), ["rock", "paper"]),
        (spaces.Discrete(3), ["rock", "Rock", "paper"]),
        (spaces.Discrete(3), {3: "well"}),
        (spaces.Discrete(3), {0: "1"}),
        (spaces.Discrete(3), {0: " "}),
        (spaces.Discrete(3), {0: "[a]"}),
        (BOX, ["left", "right"]),
    ],
)
def test_names_that_do_not_fit_are_refused(space: Any, names: Any) -> None:
    with pytest.raises(InvalidOption, match=r"name|actions"):
        from_gymnasium(Echo(space), actions=names)


HOSTILE = [
    *STRANGE_TEXTS,
    "[",
    "]",
    "[" * 90_000,
    "{" * 90_000,
    '{"a":' * 18_000,
    "[0," * 30_000,
    "[" + "9" * 90_000 + "]",
    "9" * 90_000,
    "[ " * 45_000,
    "[" + " " * 90_000,
    "[-0]" * 20_000 + "[]",
    "[null]",
    "{}",
    "nan",
    '"\\ud800"',
    "[1e400, -1e400]",
]


@pytest.mark.parametrize("space", [spaces.Discrete(3, start=7), BOX, CAR, PAIR, spaces.MultiBinary(2)], ids=repr)
@pytest.mark.parametrize("illegal", ["end", "random"])
def test_hostile_texts_are_illegal_and_never_raise(space: Any, illegal: Any) -> None:
    for text in HOSTILE:
        echo = Echo(space)
        env = from_gymnasium(echo, illegal=illegal)
        env.reset(seed=0)
        _, rewards, _, _, infos = env.step({"player_0": text})
        assert infos["player_0"]["illegal"] and env.done == (illegal == "end") == (rewards["player_0"] == -1.0)
        assert len(infos["player_0"]["illegal"]) < 1_500
        assert space.contains(echo.given[0]) if illegal == "random" else not echo.given


def test_what_was_played_instead_is_told_and_can_be_played() -> None:
    env = from_gymnasium(Echo(CAR), illegal="random")
    env.reset(seed=3)
    *_, infos = env.step({"player_0": "brmm"})
    written = infos["player_0"]["illegal"].partition('." ')[2] or infos["player_0"]["illegal"]
    assert given(CAR, written[written.rindex('{"gear"') :]) is not None


@pytest.mark.parametrize(
    ("mask", "space", "legal"),
    [
        (np.array([0, 1, 1], np.int8), spaces.Discrete(3), ["[1]", "[2]"]),
        ([True, False, False], spaces.Discrete(3, start=5), ["[5]"]),
        (np.zeros(3, np.int8), spaces.Discrete(3), ["[0]", "[1]", "[2]"]),
        ((np.array([1, 0]), np.array([0, 1, 1])), spaces.MultiDiscrete([2, 3]), ["[0, 1]", "[0, 2]"]),
        (None, spaces.MultiBinary(2), ["[0, 0]", "[0, 1]", "[1, 0]", "[1, 1]"]),
        (None, spaces.Discrete(1001), None),
        (None, spaces.Discrete(10**12), None),
        (None, spaces.MultiDiscrete([10**9, 10**9]), None),
        (None, BOX, None),
    ],
)
def test_masks_in_infos_become_legal_actions(mask: Any, space: Any, legal: list[str] | None) -> None:
    env = from_gymnasium(Echo(space, info={} if mask is None else {"action_mask": mask, "lives": np.int64(3)}))
    _, infos = env.reset(seed=0)
    assert infos["player_0"].get("legal_actions") == legal
    assert "action_mask" not in infos["player_0"]
    if mask is not None:
        assert infos["player_0"]["lives"] == 3 and f"Legal actions: {' '.join(legal or [])}" in str(
            env.observe("player_0")
        )
        *_, infos = env.step({"player_0": "[0]" if isinstance(space, spaces.Discrete) else "[1, 1]"})
        assert bool(infos["player_0"].get("illegal")) == ("[0]" not in (legal or []))


def test_infos_are_plain_data_the_same_in_every_run() -> None:
    info = {"a": np.float32(0.5), "b": (1, 2), "c": object(), "d": float("nan"), 5: {"e": np.arange(3)}, "f": "\ud800"}
    (episode,) = collect(
        lambda: limited(from_gymnasium(Echo(spaces.Discrete(2), info=info)), 2), [Job(0, RandomPolicy())]
    )
    assert episode.error is None and to_json(episode)
    assert episode.turns[0].info == {
        **{"a": 0.5, "b": [1, 2], "c": "<object>", "d": "nan", "5": {"e": [0, 1, 2]}, "f": "\ud800"},
        "legal_actions": ["[0]", "[1]"],
    }


@pytest.mark.parametrize("space", [spaces.Graph(BOX, None), spaces.Dict({"a": spaces.OneOf([BOX, BOX])})], ids=repr)
def test_actions_that_cannot_be_written_are_refused(space: Any) -> None:
    with pytest.raises(ConversionError, match="cannot be written as text"):
        from_gymnasium(Echo(space))


def test_what_is_no_env_or_no_option_is_refused() -> None:
    with pytest.raises(InvalidOption, match="from_gymnasium takes"):
        from_gymnasium(NATIVE["tictactoe"])
    with pytest.raises(InvalidOption, match="from_pettingzoo takes"):
        from_pettingzoo(gymnasium.make(TAXI))
    with pytest.raises(InvalidOption, match=r"such as tictactoe_v3\.env, not 'tictactoe_v3'"):
        from_pettingzoo("tictactoe_v3")
    with pytest.raises(InvalidOption, match=r"such as lambda: gymnasium\.make"):
        from_gymnasium("FrozenLake-v1")
    with pytest.raises(InvalidOption, match="illegal"):
        from_pettingzoo(NATIVE["tictactoe"], illegal="lose")  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="describe"):
        from_pettingzoo(NATIVE["tictactoe"], describe="rgb")  # type: ignore[arg-type]


def test_options_and_close_are_passed_on_and_the_env_is_at_hand() -> None:
    heard: list[Any] = []

    class Listening(Echo):
        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            heard.append((seed, options))
            return super().reset(seed=seed, options=options)

        def close(self) -> None:
            heard.append("closed")

    echo = Listening(spaces.Discrete(2))
    env = from_gymnasium(echo, options=["level"])
    with pytest.raises(InvalidOption, match=r"\['level'\], not \['levle'\]"):
        env.reset(seed=3, options={"levle": 2})
    env.reset(seed=3, options={"level": 2})
    env.reset(seed=2**40)
    assert heard[0] == (3, {"level": 2}) and heard[1][0] < 2**31 and heard[1][1] is None
    env.close()
    env.close()
    assert heard.count("closed") == 1 and env.foreign is echo
