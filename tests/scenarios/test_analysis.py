"""Exact analyses: how they are registered, what they say of known strategies, and perfect play of tic-tac-toe."""

from __future__ import annotations

import asyncio
import functools
import random
import re
from typing import Any

import pytest

import marl_gem
from marl_gem import registry
from marl_gem.analysis import Decision, Node, uniform
from marl_gem.errors import ConfigError, RegistryError
from marl_gem.policies import RandomPolicy
from marl_gem.rollout import Job, collect
from marl_gem.scenarios.games import kuhn_analysis
from marl_gem.scenarios.games.tictactoe_analysis import best_moves, read_board
from marl_gem.types import Role
from marl_gem.wrappers import MapObservation

KUHN, OURS, TEXTARENA = "game:KuhnPoker-v0", "game:TicTacToe-v0", "ta:TicTacToe-v0"


def information_set(text: str) -> kuhn_analysis.InformationSet:
    card, past = re.match(r"Your card: (\w)\. Moves so far: ([^.]*)\.", text).groups()
    return card, tuple(move for move in past.split(", ") if move != "nothing")


def from_table(table: kuhn_analysis.Strategy) -> Any:
    def strategy(decision: Decision) -> dict[str, float]:
        second = table[information_set(str(decision.history[-1].observation))]
        return dict(zip(decision.actions, (1 - second, second), strict=True))

    return strategy


# Registration


def test_a_scenario_without_an_analysis_gives_no_numbers() -> None:
    assert registry.analysis("tau:desk-v0") is None
    assert registry.analyse(marl_gem.make("tau:desk-v0"), uniform) == {}


def test_an_env_that_was_made_by_hand_has_no_analysis() -> None:
    class Nameless(marl_gem.MultiAgentEnv):
        possible_agents = ("a",)

    assert registry.analyse(Nameless(), uniform) == {}


@pytest.mark.usefixtures("restored_registry")
def test_an_analysis_from_outside_is_called_with_env_strategy_and_arguments() -> None:
    def analyse(env: marl_gem.MultiAgentEnv, strategy: Any, scale: float) -> Any:
        env.reset(seed=0)
        decision = Node(env).decision(env.acting[0])
        return {"first": scale * strategy(decision)[decision.actions[0]]}

    marl_gem.register("game:AnalysedOutside-v0", "marl_gem.scenarios.games.tictactoe:TicTacToe", agents=2)
    registry.register_analysis("game:AnalysedOutside-v0", analyse, description="first: a share.", scale=2)
    assert registry.analysis("game:AnalysedOutside-v0").description == "first: a share."
    assert registry.analyse(marl_gem.make("game:AnalysedOutside-v0"), uniform) == {"first": pytest.approx(2 / 9)}
    with pytest.raises(RegistryError, match="has an analysis already"):
        registry.register_analysis("game:AnalysedOutside-v0", analyse)


# Nodes of the game tree


def test_a_child_holds_what_its_agents_saw_and_leaves_its_parent_alone() -> None:
    env = marl_gem.make(OURS)
    env.reset(seed=0)
    root = Node(env)
    child = root.child({"player_0": "[1]"}).child({"player_1": "[2]"})
    first, now = child.decision("player_0").history
    assert (first.observation, first.response.text) == ("1 2 3\n4 5 6\n7 8 9", "[1]")
    assert (now.observation, now.response) == ("X O 3\n4 5 6\n7 8 9", None)
    assert child.decision("player_0").actions == tuple(f"[{square}]" for square in "3456789")
    assert child.decision("player_0").role == env.role("player_0")
    assert root.decision("player_0").actions == tuple(f"[{square}]" for square in "123456789")
    assert env.steps == 0


# Kuhn poker


def test_kuhn_of_uniform_play() -> None:
    found = registry.analyse(marl_gem.make(KUHN), uniform)
    assert found == {
        "exploitability": pytest.approx(11 / 24),
        "value/player_0": pytest.approx(1 / 8),
        "illegal": pytest.approx(0),
    }


@pytest.mark.parametrize("alpha", [0, 0.2, 1 / 3])
def test_kuhn_of_an_equilibrium(alpha: float) -> None:
    found = registry.analyse(marl_gem.make(KUHN), from_table(kuhn_analysis.equilibrium(alpha)))
    assert found["exploitability"] == pytest.approx(0, abs=1e-12)
    assert found["value/player_0"] == pytest.approx(kuhn_analysis.GAME_VALUE)


def test_kuhn_reads_any_table_back() -> None:
    rng = random.Random(3)
    table = kuhn_analysis.tabulate(lambda at: rng.random())
    read, _ = kuhn_analysis.read_strategy(marl_gem.make(KUHN), from_table(table))
    assert read == pytest.approx(table)


def test_kuhn_scales_to_the_legal_moves_and_reports_the_rest() -> None:
    def strategy(decision: Decision) -> dict[str, float]:
        if decision.agent == "player_1":
            return dict.fromkeys(decision.actions, 0.1)
        return {decision.actions[1]: 0.75}

    found = registry.analyse(marl_gem.make(KUHN), strategy)
    mixed = kuhn_analysis.tabulate(lambda at: 0.5 if len(at[1]) % 2 else 1.0)
    assert found["illegal"] == pytest.approx(0.8)
    assert found["exploitability"] == pytest.approx(kuhn_analysis.exploitability(mixed))
    assert found["value/player_0"] == pytest.approx(kuhn_analysis.value(mixed, mixed))


def test_kuhn_under_a_wrapper_asks_with_what_the_wrapper_shows() -> None:
    env = MapObservation(marl_gem.make(KUHN), lambda text: text.upper())
    seen = []

    def strategy(decision: Decision) -> dict[str, float]:
        seen.append(decision.history[-1].observation)
        return uniform(decision)

    assert registry.analyse(env, strategy)["exploitability"] == pytest.approx(11 / 24)
    assert len(seen) == 12 and all(text == text.upper() for text in seen)


# Tic-tac-toe


@functools.cache
def outcome(cells: str, mark: str) -> int:
    """1, 0 or -1 for this mark, whose turn it is: a second minimax, written on its own."""
    lines = [cells[i : i + 3] for i in (0, 3, 6)] + [cells[i::3] for i in range(3)] + [cells[::4], cells[2:7:2]]
    if "XXX" in lines or "OOO" in lines:
        return 1 if mark * 3 in lines else -1
    other = "O" if mark == "X" else "X"
    values = [-outcome(cells[:i] + mark + cells[i + 1 :], other) for i in range(9) if cells[i] == "."]
    return max(values, default=0)


def random_play_loses(cells: str, mark: str, mine: str) -> float:
    """The share of games that random play with the mark `mine` loses to perfect play."""
    lines = [cells[i : i + 3] for i in (0, 3, 6)] + [cells[i::3] for i in range(3)] + [cells[::4], cells[2:7:2]]
    if "XXX" in lines or "OOO" in lines or "." not in cells:
        return float("OX"[mine == "O"] * 3 in lines)
    other = "O" if mark == "X" else "X"
    children = [cells[:i] + mark + cells[i + 1 :] for i in range(9) if cells[i] == "."]
    if mark != mine:
        best = max(-outcome(child, other) for child in children)
        children = [child for child in children if -outcome(child, other) == best]
    return sum(random_play_loses(child, other, mine) for child in children) / len(children)


def test_what_random_play_loses_to_perfect_play() -> None:
    found = registry.analyse(marl_gem.make(OURS), uniform)
    first, second = random_play_loses("." * 9, "X", "X"), random_play_loses("." * 9, "X", "O")
    assert found == {
        "lost_to_perfect/player_0": pytest.approx(first),
        "lost_to_perfect/player_1": pytest.approx(second),
        "lost_to_perfect": pytest.approx((first + second) / 2),
    }


def test_both_scenarios_say_the_same_of_the_same_strategy() -> None:
    def first_or_last(decision: Decision) -> dict[str, float]:
        first, last = decision.actions[0], decision.actions[-1]
        return {first: 0.3, last: 0.7} if first != last else {first: 1.0}

    ours, textarena = (registry.analyse(marl_gem.make(scenario), first_or_last) for scenario in (OURS, TEXTARENA))
    assert ours == pytest.approx(textarena)
    assert 0 < ours["lost_to_perfect/player_0"] < ours["lost_to_perfect/player_1"] < 1


def test_perfect_play_loses_nothing_to_itself() -> None:
    def perfect(decision: Decision) -> dict[str, float]:
        cells = read_board(str(decision.history[-1].observation))
        best = best_moves(cells, "XO"[decision.agent == "player_1"])
        return {f"[{cells[square]}]": 1 / len(best) for square in best}

    assert registry.analyse(marl_gem.make(OURS), perfect)["lost_to_perfect"] == 0


@pytest.mark.parametrize(
    ("scenario", "options"), [(OURS, {}), (TEXTARENA, {"error_allowance": 0}), (TEXTARENA, {"error_allowance": 1})]
)
def test_illegal_answers_lose_as_the_scenario_has_it(scenario: str, options: dict[str, Any]) -> None:
    found = registry.analyse(marl_gem.make(scenario, **options), lambda decision: {})
    assert found["lost_to_perfect/player_0"] == pytest.approx(1)
    assert found["lost_to_perfect/player_1"] == pytest.approx(1)


def test_a_forgiven_illegal_answer_is_followed_by_another_try() -> None:
    def shares(strategy: Any, allowance: int) -> float:
        env = marl_gem.make(TEXTARENA, error_allowance=allowance)
        return registry.analyse(env, strategy)["lost_to_perfect/player_1"]

    def perfect(decision: Decision, weight: float = 1.0) -> dict[str, float]:
        cells = read_board(str(decision.history[-1].observation))
        return {f"[{cells[best_moves(cells, 'X')[0]]}]": weight}

    def half_illegal(decision: Decision) -> dict[str, float]:
        return perfect(decision, 0.5)

    assert 0 == shares(perfect, 1) < shares(half_illegal, 1) < shares(half_illegal, 0)


@pytest.mark.parametrize("scenario", [OURS, TEXTARENA])
@pytest.mark.parametrize("seat", ["player_0", "player_1"])
def test_the_perfect_policy_never_loses(scenario: str, seat: str) -> None:
    other = {"player_0": "player_1", "player_1": "player_0"}[seat]
    policies = {seat: registry.make_policy(scenario, "perfect"), other: RandomPolicy()}
    played = collect(lambda: marl_gem.make(scenario), [Job(seed, policies, str(seed)) for seed in range(30)])
    assert all(episode.ending == "terminated" and episode.returns[seat] >= 0 for episode in played)
    assert sum(episode.returns[seat] > 0 for episode in played) > 15


def test_the_perfect_policy_draws_its_first_move_by_its_seed() -> None:
    policy = registry.make_policy(OURS, "perfect")

    def answer(seed: int) -> str:
        agent = policy.agent("player_0", Role(), seed)
        return asyncio.run(agent.act("1 2 3\n4 5 6\n7 8 9", {})).text

    assert {answer(seed) for seed in range(200)} == {f"[{square}]" for square in range(1, 10)}
    assert all(answer(seed) == answer(seed) for seed in range(20))


def test_best_moves_of_known_positions() -> None:
    assert best_moves("XX3OO6789", "X") == (2,)
    assert best_moves("X2345O789", "X") != ()
    assert best_moves("X23456789", "O") == (4,)
    assert set(best_moves("1234X6789", "O")) == {0, 2, 6, 8}


def test_an_observation_without_a_board_is_an_error() -> None:
    with pytest.raises(ConfigError, match="there is none in 'Hello'"):
        read_board("Hello")
