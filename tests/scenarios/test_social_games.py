"""Public goods, the prisoner's dilemma and signalling: their rules, scripted players and exact analyses."""

from __future__ import annotations

from math import log2
from typing import Any

import pytest

import marl_gem
from marl_gem import registry
from marl_gem.analysis import Decision, uniform
from marl_gem.errors import InvalidOption
from marl_gem.policies import Policy, RandomPolicy, ScriptedPolicy
from marl_gem.rollout import Job, collect
from marl_gem.scenarios.games.negotiation import Negotiation, best_joint
from marl_gem.scenarios.games.prisoners_dilemma import mean_rewards
from marl_gem.testing import Plan, check_env
from marl_gem.types import Episode

GOODS, DILEMMA, SIGNALS = "game:PublicGoods-v0", "game:PrisonersDilemma-v0", "game:Signalling-v0"
NEGOTIATION = "game:Negotiation-v0"


@pytest.mark.parametrize(("game", "options"), [(GOODS, {"talk": True}), (DILEMMA, {"talk": True})])
def test_with_talk_a_game_keeps_its_promises(game: str, options: dict[str, Any]) -> None:
    checks = ["plays", "purity", "forking", "legal_actions", "messages", "metadata", "hostile_actions"]
    check_env(lambda: marl_gem.make(game, **options), Plan((0, 1), 20, 2), only=checks).raise_if_failed()


@pytest.mark.parametrize(
    ("game", "options"),
    [(GOODS, {"players": 1}), (DILEMMA, {"discount": 1.0}), (SIGNALS, {"states": 9}), (NEGOTIATION, {"turns": 1})],
)
def test_options_that_make_no_sense(game: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match=" takes "):
        marl_gem.make(game, **options)


# Public goods


def test_a_round_of_public_goods() -> None:
    env = marl_gem.make(GOODS, players=2, rounds=2, factor=1.5)
    env.reset(seed=0)
    _, rewards, _, _, infos = env.step({"player_0": "I [give 10].", "player_1": "[give 11]"})
    assert rewards == {"player_0": 0.75, "player_1": 1.75} and "illegal" in infos["player_1"]
    assert env.observe("player_0") == (
        "Round 1, gifts: player_0 10, player_1 0. Everybody gets 7.50.\nRound 2 of 2. How much do you give?"
    )
    env.step(dict.fromkeys(env.agents, "[give 10]"))
    assert env.done and env.returns == {"player_0": 2.25, "player_1": 3.25}


def test_what_is_said_before_a_round_is_heard_by_all() -> None:
    env = marl_gem.make(GOODS, players=3, talk=True)
    env.reset(seed=0)
    env.step({agent: f"I am {agent}." for agent in env.agents})
    assert env.observe("player_1").splitlines()[:2] == ["player_0: I am player_0.", "player_2: I am player_2."]


def test_the_analysis_of_public_goods_is_its_closed_form() -> None:
    env = marl_gem.make(GOODS, players=4, factor=2.0)
    assert registry.analyse(env, lambda decision: {"[give 10]": 1.0}) == {
        "gift": 1.0,
        "value": 2.0,
        "exploitability": 0.5,
        "illegal": 0.0,
    }
    assert registry.analyse(env, lambda decision: {"[give 0]": 0.5}) == {
        "gift": 0.0,
        "value": 1.0,
        "exploitability": 0.0,
        "illegal": 0.5,
    }
    assert registry.analyse(env, uniform)["value"] == pytest.approx(1.5)


def test_conditional_givers_earn_more_than_random_ones() -> None:
    def mean(policy: Any) -> float:
        episodes = collect(lambda: marl_gem.make(GOODS), [Job(seed, policy) for seed in range(5)])
        return sum(sum(episode.returns.values()) for episode in episodes) / 5

    assert mean(registry.make_policy(GOODS, "conditional")) == 4 * 5 * 2 > mean(RandomPolicy()) + 5


def test_fifty_agents_over_a_hundred_rounds_with_talk() -> None:
    env = marl_gem.make(GOODS, players=50, rounds=100, talk=True)
    env.reset(seed=0)
    while not env.done:
        env.step(dict.fromkeys(env.acting, "I shall [give 5] this time."))
    assert env.steps == 200 and len(env.message_log) == 5100


# The prisoner's dilemma


def always(move: str) -> ScriptedPolicy:
    return ScriptedPolicy(lambda observation, info: move, move)


def rewards_of(episode: Episode, agent: str) -> list[float]:
    return [turn.reward for turn in episode.turns_of(agent)]


def test_tit_for_tat() -> None:
    rule = registry.make_policy(DILEMMA, "tit_for_tat")
    jobs = [Job(seed, {"player_0": rule, "player_1": always("I [defect].")}) for seed in range(3)]
    for episode in collect(lambda: marl_gem.make(DILEMMA), jobs):
        rounds = len(rewards_of(episode, "player_0"))
        assert rewards_of(episode, "player_0") == [-3.0] + [-2.0] * (rounds - 1)
        assert rewards_of(episode, "player_1") == [0.0] + [-2.0] * (rounds - 1)
    (episode,) = collect(lambda: marl_gem.make(DILEMMA), [Job(1, rule)])
    assert set(rewards_of(episode, "player_0")) == {-1.0}


def test_another_round_follows_with_the_probability_of_the_discount() -> None:
    jobs = [Job(seed, always("[defect]")) for seed in range(100)]
    episodes = collect(lambda: marl_gem.make(DILEMMA, discount=0.8), jobs)
    assert sum(len(episode.turns) / 2 for episode in episodes) / 100 == pytest.approx(5, abs=1.5)


def test_what_is_neither_move_is_illegal_and_counts_as_defection() -> None:
    env = marl_gem.make(DILEMMA)
    env.reset(seed=1)
    _, rewards, _, _, infos = env.step({"player_0": "[cooperate] or [defect]", "player_1": "hm"})
    assert rewards == {"player_0": -3.0, "player_1": 0.0} and "illegal" in infos["player_1"]


ALL_C, ALL_D, TFT = [1.0] * 5, [0.0] * 5, [1.0, 1.0, 0.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (ALL_C, ALL_C, (-1.0, -1.0)),
        (ALL_D, ALL_D, (-2.0, -2.0)),
        (TFT, TFT, (-1.0, -1.0)),
        (ALL_C, ALL_D, (-3.0, 0.0)),
        (TFT, ALL_D, (0.04 * -3 + 0.96 * -2, 0.96 * -2)),
        ([0.0, *TFT[1:]], TFT, (-3 * 0.96 / 1.96, -3 / 1.96)),  # they take turns
        ([0.5] * 5, [0.5] * 5, (-1.5, -1.5)),
    ],
)
def test_exact_values_of_memory_one_strategies(
    first: list[float], second: list[float], expected: tuple[float, float]
) -> None:
    assert mean_rewards(first, second, 0.96) == pytest.approx(expected)
    assert mean_rewards(second, first, 0.96) == pytest.approx(expected[::-1])


def test_the_analysis_reads_memory_one_strategies_from_policies() -> None:
    def tit_for_tat(decision: Decision) -> dict[str, float]:
        return {"[defect]": 1.0} if "the other defected" in str(decision.history[-1]) else {"[cooperate]": 0.9}

    found = registry.analyse(marl_gem.make(DILEMMA), tit_for_tat)
    value = mean_rewards([0.9, 0.9, 0, 0.9, 0], [0.9, 0.9, 0, 0.9, 0], 0.96)[0]
    assert found == pytest.approx(
        {"value/player_0": value, "value/player_1": value, "cooperation": 0.9, "illegal": 0.1}
    )
    once = registry.analyse(marl_gem.make(DILEMMA, discount=0.0), uniform)
    assert once["value/player_0"] == pytest.approx(-1.5)


# Signalling


def test_a_game_of_signals() -> None:
    env = marl_gem.make(SIGNALS)
    observations, _ = env.reset(seed=3)
    assert observations["sender"].startswith("You see ")
    assert env.step({"sender": "I say [di]."})[0] == {"receiver": "sender: [di]"}
    env.step({"receiver": env.state})  # type: ignore[attr-defined]
    assert env.returns == {"sender": 1.0, "receiver": 1.0}


@pytest.mark.parametrize("answers", [("red",), ("[ba]", "[ba]")])
def test_what_is_no_signal_and_no_state_is_illegal(answers: tuple[str, ...]) -> None:
    env = marl_gem.make(SIGNALS)
    env.reset(seed=3)
    for answer in answers:
        (agent,) = env.acting
        *_, infos = env.step({agent: answer})
    assert env.done and "illegal" in infos[agent] and set(env.returns.values()) == {0.0}


def test_a_code_always_wins_and_chance_is_one_in_n() -> None:
    jobs = [Job(seed, registry.make_policy(SIGNALS, "code")) for seed in range(20)]
    assert all(episode.returns["sender"] == 1.0 for episode in collect(lambda: marl_gem.make(SIGNALS, states=8), jobs))
    for states in (2, 3, 8):
        found = registry.analyse(marl_gem.make(SIGNALS, states=states), uniform)
        assert found == pytest.approx({"success": 1 / states, "information": 0.0, "illegal": 0.0}, abs=1e-9)


def test_the_analysis_of_a_code_and_of_partial_pooling() -> None:
    def code(decision: Decision) -> dict[str, float]:
        words = ("red", "green", "blue") if decision.agent == "sender" else ("[ba]", "[di]", "[ku]")
        text = str(decision.history[-1].observation)
        return {decision.actions[next(i for i, word in enumerate(words) if word in text)]: 1.0}

    def pooling(decision: Decision) -> dict[str, float]:
        return {answer if answer != "[ku]" else "[di]": p for answer, p in code(decision).items()}

    found = registry.analyse(marl_gem.make(SIGNALS), code)
    assert found == pytest.approx({"success": 1.0, "information": log2(3), "illegal": 0.0})
    assert registry.analyse(marl_gem.make(SIGNALS), pooling)["success"] == pytest.approx(2 / 3)


# Negotiation


def test_a_deal_divides_what_was_proposed() -> None:
    env = Negotiation()
    env.reset(seed=0)
    env.counts, env.values = (2, 1, 3), {"player_0": (1, 5, 1), "player_1": (2, 0, 2)}
    *_, infos = env.step({"player_0": "[deal]"})
    assert "neither a possible proposal nor a deal" in infos["player_0"]["illegal"]
    env.step({"player_1": "I want [2 0 3], hats are yours."})
    assert env.observe("player_0").endswith("player_1: I want [2 0 3], hats are yours.")
    *_, infos = env.step({"player_0": "[3 0 0]"})
    assert "illegal" in infos["player_0"]
    env.step({"player_1": "Well?"})
    env.step({"player_0": "Good. [deal]"})
    assert env.returns == {"player_0": 0.5, "player_1": 1.0} and best_joint(env.counts, env.values) == 1.5


def test_without_a_deal_both_get_nothing() -> None:
    env = Negotiation(turns=2)
    env.reset(seed=0)
    env.step({"player_0": "[0 0 0]"})
    env.step({"player_1": "No."})
    assert env.done and set(env.returns.values()) == {0.0}


def test_everything_is_worth_ten_to_both_who_value_it_differently() -> None:
    env = Negotiation()
    for seed in range(20):
        env.reset(seed=seed)
        first, second = env.values.values()
        worth = [sum(a * b for a, b in zip(values, env.counts, strict=True)) for values in (first, second)]
        assert worth == [10, 10] and first != second


def test_the_scripted_negotiator_earns_more_than_a_random_one() -> None:
    rule = registry.make_policy(NEGOTIATION, "rule")
    seatings: dict[str, Policy | dict[str, Policy]] = {
        "random": RandomPolicy(),
        "rule": {"player_0": rule, "player_1": RandomPolicy()},
        "both": rule,
    }
    earned = {}
    for name, seats in seatings.items():
        episodes = collect(Negotiation, [Job(seed, seats) for seed in range(30)])
        earned[name] = sum(episode.returns["player_0"] for episode in episodes) / 30
    assert earned["rule"] > earned["both"] > 0.4 > earned["random"]
