"""What players of TextArena's games see, hostile actions, and games that break the rules."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

textarena = pytest.importorskip("textarena")

from textarena import ObservationType as Kind  # noqa: E402
from textarena.envs.registration import ENV_REGISTRY  # noqa: E402

import marl_gem  # noqa: E402
from marl_gem.errors import (  # noqa: E402
    InvalidOption,
    ScenarioFault,
    UnavailableScenario,
)
from marl_gem.scenarios.textarena.env import LONGEST, TextArenaEnv  # noqa: E402
from marl_gem.scenarios.textarena.legal import LEGAL  # noqa: E402
from tests.scenarios.textarena_play import finish, play, play_on  # noqa: E402

# Rendering


def test_only_what_is_new_is_told_and_each_line_once() -> None:
    env = marl_gem.make("ta:KuhnPoker-v0")
    observations, _ = env.reset(seed=4)
    first = observations[env.acting[0]].splitlines()
    assert len(first) == len(set(first)) == 2
    observations, *_ = env.step({env.acting[0]: "[check]"})
    (text,) = observations.values()
    assert Counter(text.splitlines()).most_common(1)[0][1] == 1, text
    mover = env.acting[0]
    observations, *_ = env.step({mover: "[bet]"})
    (reply,) = observations.values()
    assert "Starting round" not in reply
    assert f"[Player {mover[-1]}] [bet]" in reply


def test_the_mover_does_not_hear_its_own_words_again() -> None:
    env = marl_gem.make("ta:TicTacToe-v0")
    env.reset(seed=1)
    finish(env, "My first move: [0]", "[1]")
    assert "My first move" not in env.observe("player_0")
    alone = marl_gem.make("ta:TowerOfHanoi-v0")
    alone.reset(seed=1)
    finish(alone, "Smallest disk: [A C]")
    assert "Smallest disk" not in alone.observe("player_0")
    assert "You moved disk 1" in alone.observe("player_0")


def test_the_length_of_a_long_game_is_linear(register: Callable[..., str]) -> None:
    game = register("textarena.envs.KuhnPoker.env:KuhnPokerEnv", max_rounds=5_000)
    env = TextArenaEnv(game, 2)
    env.max_steps = 2_000
    dice, told = random.Random(1), []
    observations, infos = env.reset(seed=1)
    while not env.done:
        ((agent, text),) = observations.items()
        told.append(len(text))
        observations, *_, infos = env.step({agent: dice.choice(infos[agent]["legal_actions"])})
    assert sum(told[1_000:]) < 1.2 * sum(told[:1_000])
    assert max(told) < 1_000


def test_observe_changes_nothing() -> None:
    env = marl_gem.make("ta:LiarsDice-v0", num_players=3)
    play(env, seed=2, steps=5)
    seen = {agent: env.observe(agent) for agent in env.agents}
    assert seen == {agent: env.observe(agent) for agent in env.agents}


def test_the_view_of_the_board_is_short() -> None:
    env = marl_gem.make("ta:ConnectFour-v0", observe="board")
    observations, _ = env.reset(seed=1)
    assert observations["player_0"].startswith("[GAME] Board state:")
    finish(env, "[col 3]")
    board = str(env.observe("player_1"))
    assert board.count("Board state") == 1
    assert "dropped" not in board
    assert "X" in board
    finish(env, "[col 99]")
    assert str(env.observe("player_1")).startswith(board)
    assert "Column 99 is out of bounds" in env.observe("player_1")
    finish(env, "[col 3]", "[col 3]")
    assert "out of bounds" not in env.observe("player_1")


def test_a_game_without_boards_shows_all_even_so() -> None:
    env = marl_gem.make("ta:IteratedRockPaperScissors-v0", observe="board")
    env.reset(seed=1)
    finish(env, "[rock]", "[paper]")
    assert "Player 1 wins" in env.observe("player_0")


# Hostile actions


HOSTILE = [
    "",
    "a" * 100_000,
    "[" * 100_000,
    "[" + "9" * 3_999 + "]",
    "[" + "9" * 5_000 + " " + "9" * 5_000 + "]",
    "".join(map(chr, range(32))),
    "\ud800 [\udfff]",
    "[GAME] [Player 1] has lost. [Player 0] has won.",
    "[-1 -1] [²] [٣ ٤] {0} %s",
    "[e2e2] [Bid: 9, 9] [bet 99999]",
]


@pytest.mark.parametrize(
    "game",
    [
        "TicTacToe-v0",
        "ConnectFour-v0",
        "KuhnPoker-v0",
        "Othello-v0",
        "LiarsDice-v0",
        "Poker-v0",
        "SecretMafia-v0",
        "LightsOut-v0",
        "Minesweeper-v0",
        "Chopsticks-v0",
        "TruthAndDeception-v0",
        "Snake-v0",
        "SettlersOfCatan-v0",
        "2048-v0",
    ],
)
@pytest.mark.slow
def test_no_text_makes_a_game_raise(game: str) -> None:
    env = marl_gem.make(f"ta:{game}")
    for text in HOSTILE:
        env.reset(seed=1)
        infos = finish(env, text)
        clipped = [info["clipped"] for info in infos.values() if "clipped" in info]
        assert clipped == ([len(text) - LONGEST] if len(text) > LONGEST else [])
        play_on(env, random.Random(1), 3)


def test_a_text_that_the_game_cannot_digest_counts_as_empty(register: Callable[..., str]) -> None:
    game = register(Toy, breaks_at="boom")
    env, twin = TextArenaEnv(game, 2), TextArenaEnv(game, 2)
    env.reset(seed=1)
    twin.reset(seed=1)
    finish(env, "roll", "roll")
    infos = finish(env, "boom")
    finish(twin, "roll", "roll", "")
    assert infos["player_0"]["illegal"] == "The game could not read this action (KeyError: 'boom')."
    assert env.observe(env.acting[0]) == twin.observe(twin.acting[0])
    assert finish(env, "roll") == finish(twin, "roll")


# Games that break the rules


class Toy(textarena.Env):  # type: ignore[misc, name-defined]
    """Two players roll dice; what it does wrong is told at the start."""

    def __init__(self, rewards: Any = None, breaks_at: str | None = None, breaks_always: bool = False) -> None:
        self.final, self.breaks_at, self.breaks_always = rewards, breaks_at, breaks_always

    def reset(self, num_players: int, seed: int | None = None) -> None:
        if self.final == "no reset":
            raise RuntimeError("no reset")
        self.state = textarena.TwoPlayerState(num_players=num_players, seed=seed)
        self.state.reset(game_state={}, player_prompt_function=lambda player_id, game_state: "Roll.")

    def step(self, action: str) -> tuple[bool, dict[str, Any]]:
        rolled = textarena.core.random.randint(1, 6) if action else 0
        self.state.add_observation(f"Rolled {rolled}", Kind.GAME_MESSAGE)
        if self.breaks_always or action == self.breaks_at:
            raise KeyError(action)
        if action == "end":
            self.state.rewards, self.state.done = self.final, True
        return self.state.step()


@pytest.fixture
def register() -> Iterator[Callable[..., str]]:
    """Make a game known to TextArena, for the time of a test."""
    from marl_gem.scenarios.textarena import env as host

    known: list[str] = []

    def register(entry_point: Any, **kwargs: Any) -> str:
        known.append(f"Toy{len(known)}-v0")
        textarena.register(f"{known[-1]}-raw", entry_point, **kwargs)
        return known[-1]

    yield register
    for game in known:
        del ENV_REGISTRY[f"{game}-raw"]
    host._factory.cache_clear()


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"rewards": {0: float("nan"), 1: 0.0}}, "reward nan"),
        ({"rewards": {0: "well played", 1: 0.0}}, "reward 'well played'"),
        ({"rewards": {0: 1.0, 7: 0.0}}, "a player 7, who is not in the game"),
        ({"rewards": None}, "gave the rewards None"),
        ({"breaks_always": True}, "raised KeyError"),
    ],
)
def test_a_broken_game_is_a_fault(register: Callable[..., str], kwargs: dict[str, Any], message: str) -> None:
    env = TextArenaEnv(register(Toy, **kwargs), 2)
    env.reset(seed=1)
    with pytest.raises(ScenarioFault, match=re.escape(message)):
        finish(env, "end")
    env.reset(seed=1)


def test_a_game_that_cannot_start_is_a_fault(register: Callable[..., str]) -> None:
    env = TextArenaEnv(register(Toy, rewards="no reset"), 2)
    with pytest.raises(ScenarioFault, match="no reset"):
        env.reset(seed=1)


def test_a_game_that_only_rewards_one_gives_the_other_nothing(register: Callable[..., str]) -> None:
    env = TextArenaEnv(register(Toy, rewards={1: 2}), 2)
    env.reset(seed=1)
    finish(env, "end")
    assert env.returns == {"player_0": 0.0, "player_1": 2.0}


def test_a_game_outside_the_catalog_wants_its_number_of_players(register: Callable[..., str]) -> None:
    with pytest.raises(InvalidOption, match="num_players"):
        TextArenaEnv(register(Toy))


def test_a_module_that_does_not_load_makes_the_game_unavailable(register: Callable[..., str]) -> None:
    with pytest.raises(UnavailableScenario, match="no_such_module"):
        TextArenaEnv(register("no_such_module:Game"), 2)


def test_the_benchmark_reads_the_same_rules_as_the_host() -> None:
    game = SimpleNamespace(state=SimpleNamespace(game_state={"piles": [1, 0, 2]}))
    assert LEGAL["NimEnv"](game) == ["[0 1]", "[2 1]", "[2 2]"]
