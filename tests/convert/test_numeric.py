"""Our envs with actions by number and observations as arrays."""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping
from typing import Any

import pytest

gymnasium = pytest.importorskip("gymnasium")
pytest.importorskip("pettingzoo")

import numpy as np  # noqa: E402
from gymnasium import spaces  # noqa: E402
from gymnasium.utils.env_checker import check_env as gymnasium_check_env  # noqa: E402
from pettingzoo.test import api_test, parallel_api_test, seed_test  # noqa: E402
from pettingzoo.utils import OrderEnforcingWrapper  # noqa: E402

import marl_gem  # noqa: E402
from marl_gem import MultiAgentEnv, SequentialSelector  # noqa: E402
from marl_gem.convert import (  # noqa: E402
    HashedWords,
    TextBytes,
    from_pettingzoo,
    to_aec,
    to_gymnasium,
    to_numeric,
    to_parallel,
)
from marl_gem.errors import ConversionError, InvalidAction, InvalidOption  # noqa: E402
from marl_gem.policies import RandomPolicy, ScriptedPolicy  # noqa: E402
from marl_gem.rollout import Job, collect  # noqa: E402
from marl_gem.wrappers import TimeLimit  # noqa: E402
from tests.convert.envs import NATIVE, Debate, Quiz, RockPaperScissors, Village, make  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:gymnasium")
"""Gymnasium's checks warn of wrapped envs."""

GAMES = ["game:KuhnPoker-v0", "game:TicTacToe-v0", "RockPaperScissors", "ta:TicTacToe-v0"]
KUHN = ("[check]", "[bet]", "[fold]", "[call]")


def random_others(env: MultiAgentEnv, seat: str) -> dict[str, Any]:
    dice = random.Random(0)
    rest = [agent for agent in env.possible_agents if agent != seat]
    return dict.fromkeys(rest, lambda observation, info: dice.choice(info["legal_actions"]))


def numeric_gymnasium(name: str) -> Any:
    env = make(name)
    return to_numeric(to_gymnasium(env, env.possible_agents[0], random_others(env, env.possible_agents[0])))


# Other libraries' checks


@pytest.mark.parametrize("name", [*GAMES, "Village"])
def test_pettingzoo_s_checks_of_a_numeric_aec_env(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of what Village's agents that join may do
        api_test(to_numeric(to_aec(make(name))), num_cycles=200)
        seed_test(lambda: to_numeric(make(name)), num_cycles=20)


def test_pettingzoo_s_checks_of_a_numeric_parallel_env() -> None:
    parallel_api_test(to_numeric(to_parallel(RockPaperScissors())), num_cycles=200)


@pytest.mark.parametrize("name", ["game:KuhnPoker-v0", "RockPaperScissors", "game:TicTacToe-v0"])
def test_gymnasium_s_checks_of_a_numeric_env(name: str) -> None:
    env = make(name)
    seat, *rest = env.possible_agents
    others = dict.fromkeys(rest, lambda observation, info: info["legal_actions"][0])
    gymnasium_check_env(to_numeric(to_gymnasium(env, seat, others)))


@pytest.mark.parametrize("shared_memory", [True, False])
def test_many_run_in_processes_with_shared_memory(shared_memory: bool) -> None:
    def one() -> Any:
        return numeric_gymnasium("game:TicTacToe-v0")

    envs = gymnasium.vector.AsyncVectorEnv([one] * 2, shared_memory=shared_memory)
    try:
        observations, infos = envs.reset(seed=5)
        dice = random.Random(0)
        ended = 0
        for _ in range(40):
            masks = observations["action_mask"]
            actions = [dice.choice(np.flatnonzero(mask).tolist() or [0]) for mask in masks]
            observations, _, terminations, _, infos = envs.step(np.array(actions))
            assert observations["observation"].shape == (2, 256) and infos == {}
            ended += int(terminations.sum())
        assert ended > 4
    finally:
        envs.close()


# Numbers stand for texts, masks for legal actions


@pytest.mark.parametrize("name", GAMES)
def test_an_episode_in_numbers_is_the_episode_in_text(name: str) -> None:
    numeric, text = to_numeric(make(name), explore=200), to_aec(make(name))
    for seed in range(5):
        numeric.reset(seed=seed)
        text.reset(seed=seed)
        dice = random.Random(seed)
        for agent in numeric.agent_iter():
            assert agent == text.agent_selection
            observation, *outcome, info = numeric.last()
            seen, *expected, their_info = text.last()
            assert outcome == expected and info == {}
            assert numeric.observation_space(agent).contains(observation)
            mask = observation["action_mask"]
            if outcome[1] or outcome[2]:
                assert not mask.any()
                numeric.step(None)
                text.step(None)
                continue
            legal = [numeric.numeric.actions[number] for number in np.flatnonzero(mask)]
            assert sorted(legal) == sorted(their_info["legal_actions"])
            assert (observation["observation"] == HashedWords()(agent, seen)).all()
            action = dice.choice(np.flatnonzero(mask).tolist())
            numeric.step(np.int64(action) if seed % 2 else action)
            text.step(numeric.numeric.actions[action])
        assert numeric.returns == text.returns


def test_agents_that_are_not_to_act_have_no_legal_action() -> None:
    env = to_numeric(marl_gem.make("game:KuhnPoker-v0"))
    env.reset(seed=0)
    assert env.numeric.actions == KUHN
    assert env.observe("player_0")["action_mask"].tolist() == [1, 1, 0, 0]
    assert env.observe("player_1")["action_mask"].tolist() == [0, 0, 0, 0]
    env.step(1)
    assert env.observe("player_0")["action_mask"].tolist() == [0, 0, 0, 0]
    assert env.observe("player_1")["action_mask"].tolist() == [0, 0, 1, 1]
    assert env.infos == {"player_0": {}, "player_1": {}}


def test_an_illegal_number_goes_to_the_env_and_one_outside_the_list_is_refused() -> None:
    env = to_numeric(marl_gem.make("game:KuhnPoker-v0"))
    env.reset(seed=0)
    for wrong in (4, -1, "bet", None, 1.0, np.array([1, 2])):
        with pytest.raises(InvalidAction):
            env.step(wrong)
    env.step(3)  # to call where there is no bet forfeits the hand
    assert env.terminations == {"player_0": True, "player_1": True} and env.rewards["player_0"] == -1.0


def test_a_parallel_env_in_numbers() -> None:
    env = to_numeric(to_parallel(RockPaperScissors()))
    observations, infos = env.reset(seed=0)
    assert env.numeric.actions == ("paper", "rock", "scissors") and infos == {"a_0": {}, "b_0": {}}
    assert observations["a_0"]["action_mask"].tolist() == [1, 1, 1]
    _, rewards, *_ = env.step({"a_0": 0, "b_0": np.int64(1)})
    assert rewards == {"a_0": 1.0, "b_0": -1.0}
    observations, _, terminations, _, infos = env.step({"a_0": 0, "b_0": 1})  # who says paper now is out
    assert terminations == {"a_0": True, "b_0": False} and infos == {"a_0": {}, "b_0": {}}
    assert observations["a_0"]["action_mask"].tolist() == [0, 0, 0]
    assert observations["b_0"]["action_mask"].tolist() == [1, 1, 1]


def test_a_gymnasium_env_in_numbers_has_masks_of_its_own() -> None:
    env = numeric_gymnasium("game:TicTacToe-v0")
    observation, info = env.reset(seed=0)
    assert info == {} and env.action_masks().all() and env.action_masks().dtype == bool
    observation, reward, terminated, truncated, info = env.step(4)
    assert (reward, terminated, truncated, info) == (0.0, False, False, {})
    assert (env.action_masks() == observation["action_mask"].astype(bool)).all()
    assert env.action_masks().sum() == 7 and not env.action_masks()[4]
    assert env.unwrapped.returns == {"player_0": 0.0, "player_1": 0.0}


# Which actions there are


def test_actions_are_declared_given_or_found_by_random_play() -> None:
    assert to_numeric(marl_gem.make("game:TicTacToe-v0")).numeric.actions == tuple(f"[{n}]" for n in range(1, 10))
    wrapped = to_numeric(TimeLimit(marl_gem.make("game:KuhnPoker-v0"), 9))
    assert wrapped.numeric.actions == KUHN
    given = to_numeric(marl_gem.make("game:KuhnPoker-v0"), actions=KUHN[::-1])
    assert given.numeric.actions == KUHN[::-1]
    assert to_numeric(RockPaperScissors()).numeric.actions == ("paper", "rock", "scissors")
    foreign = to_numeric(from_pettingzoo(NATIVE["connect four"]))
    assert foreign.numeric.actions == tuple(f"[{n}]" for n in range(7))


def test_found_actions_are_in_natural_order() -> None:
    class Doors(Quiz):
        def legal_actions(self, agent: str) -> list[str]:
            return [f"[{n}]" for n in (10, 9, 100)]

    assert to_numeric(Doors()).numeric.actions == ("[9]", "[10]", "[100]")


def test_without_listed_actions_they_must_be_given_and_all_may_be_tried() -> None:
    with pytest.raises(ConversionError, match=r"lists no legal actions for \['pupil_0'\].*actions=\[\.\.\.\]"):
        to_numeric(Quiz())
    env = to_numeric(to_gymnasium(Quiz()), actions=[str(n) for n in range(30)])
    env.reset(seed=0)
    assert env.action_masks().all() and len(env.action_masks()) == 30


def test_legal_actions_outside_the_list_are_a_warning_and_an_error_if_none_is_left() -> None:
    env = to_numeric(marl_gem.make("game:KuhnPoker-v0"), actions=["[check]", "[call]"])
    env.reset(seed=0)
    with pytest.warns(UserWarning, match=r"'player_0' that were not listed cannot be chosen: \['\[bet\]'\]"):
        assert env.observe("player_0")["action_mask"].tolist() == [1, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert env.observe("player_0")["action_mask"].tolist() == [1, 0]  # the same warning comes once
    env = to_numeric(marl_gem.make("game:KuhnPoker-v0"), actions=["[call]"])
    env.reset(seed=0)
    with pytest.raises(ConversionError, match=r"none of the legal actions of 'player_0'.*explore more"):
        env.observe("player_0")


# Observations


def test_words_are_hashed_by_where_they_stand() -> None:
    encode = HashedWords(64)
    assert encode.space == spaces.Box(0.0, 1.0, (64,), np.float32)
    board = encode("a", "X . .\n. O .")
    assert board.dtype == np.float32 and set(np.unique(board)) == {0.0, 1.0} and 4 <= board.sum() <= 6
    assert (board == encode("b", "X . .\n. O .")).all()
    assert not (board == encode("a", "X . .\n. . O")).all() and not (board == encode("a", "X . . . O .")).all()
    assert not encode("a", "").any()
    assert (encode("a", [{"type": "text", "text": "X"}]) == encode("a", "X")).all()


def test_bytes_are_those_of_the_end_of_the_text() -> None:
    encode = TextBytes(4)
    assert (encode("a", "ab") * 255).round().tolist() == [97, 98, 0, 0]
    assert (encode("a", "abcdef") * 255).round().tolist() == [99, 100, 101, 102]
    assert encode("a", "\ud800日本").shape == (4,) and encode.space.contains(encode("a", "日本"))


def test_an_encoder_of_one_s_own() -> None:
    def cards(agent: str, observation: Any) -> list[float]:
        return [float(card in observation) for card in ("J.", "Q.", "K.")]

    env = to_numeric(marl_gem.make("game:KuhnPoker-v0"), encode=cards, key="observations")
    env.reset(seed=0)
    assert env.observation_space("player_0")["observations"] == spaces.Box(-np.inf, np.inf, (3,), np.float32)
    assert env.observe("player_0")["observations"].sum() == 1.0
    sizes = iter([2, 3])
    env = to_numeric(marl_gem.make("game:KuhnPoker-v0"), encode=lambda agent, observation: np.zeros(next(sizes)))
    env.reset(seed=0)
    with pytest.raises(ConversionError, match=r"shape \(3,\), but its observations have \(2,\)"):
        env.observe("player_0")


# Back in text


def test_what_was_trained_on_numbers_plays_as_a_policy_in_text() -> None:
    env = to_numeric(marl_gem.make("game:TicTacToe-v0"))
    masks = []

    def first_legal(observation: Mapping[str, Any]) -> Any:
        masks.append(observation["action_mask"])
        return observation["action_mask"].argmax()

    policy = ScriptedPolicy(env.numeric.player("player_0", first_legal), "first legal")
    seating: dict[str, Any] = {"player_0": policy, "player_1": RandomPolicy()}
    episodes = collect(lambda: marl_gem.make("game:TicTacToe-v0"), [Job(seed, seating) for seed in range(5)])
    assert all(episode.error is None for episode in episodes) and masks[0].sum() == 9
    assert all(episode.turns[0].response.text == "[1]" for episode in episodes)


@pytest.mark.parametrize(
    ("options", "error", "complaint"),
    [
        ({"actions": "rock"}, InvalidOption, "a list of one text or more"),
        ({"actions": []}, InvalidOption, "a list of one text or more"),
        ({"actions": [1, 2]}, InvalidOption, "a list of one text or more"),
        ({"actions": ["a", "a"]}, InvalidOption, "twice"),
        ({"explore": 0}, InvalidOption, "from 1 up, not 0"),
        ({"key": "action_mask"}, InvalidOption, "key is not 'action_mask'"),
    ],
)
def test_options_that_make_no_sense(options: Any, error: type[Exception], complaint: str) -> None:
    with pytest.raises(error, match=complaint):
        to_numeric(RockPaperScissors(), **options)


@pytest.mark.parametrize("thing", [None, 7, "game:KuhnPoker-v0", RockPaperScissors, spaces.Discrete(3)], ids=repr)
def test_only_envs_of_ours_are_converted(thing: Any) -> None:
    with pytest.raises(ConversionError, match="to_numeric takes an env"):
        to_numeric(thing)
    with pytest.raises(ConversionError, match="to_numeric takes an env"):
        to_numeric(NATIVE["tictactoe"]())


@pytest.mark.parametrize("size", [0, -1, 2.5])
def test_encoders_have_a_size(size: Any) -> None:
    for encoder in (HashedWords, TextBytes):
        with pytest.raises(InvalidOption, match="from 1 up"):
            encoder(size)


def test_a_wrapped_conversion_is_converted_and_roles_stay_at_hand() -> None:
    env = to_numeric(OrderEnforcingWrapper(to_aec(marl_gem.make("game:KuhnPoker-v0"))))
    env.reset(seed=1)
    assert "poker" in env.unwrapped.role("player_0").instructions.lower() and env.observe("player_0")


class Host(MultiAgentEnv):
    """Two agents in turn; only one has listed actions."""

    possible_agents = ("a", "b")
    selector = SequentialSelector()
    max_steps = 4

    def observe(self, agent: str) -> str:
        return "Well?"

    def legal_actions(self, agent: str) -> list[str] | None:
        return ["yes", "no"] if agent == "a" else None

    def _process_actions(self, actions: dict[str, str]) -> None:
        self.infos = {agent: {"said": text} for agent, text in actions.items()}


def test_an_agent_without_listed_actions_may_try_all() -> None:
    with pytest.raises(ConversionError, match=r"for \['b'\]"):
        to_numeric(Host())
    env = to_numeric(Host(), actions=["no", "perhaps", "yes"])
    env.reset(seed=0)
    assert env.observe("a")["action_mask"].tolist() == [1, 0, 1]
    env.step(0)
    assert env.observe("b")["action_mask"].tolist() == [1, 1, 1]


def test_agents_that_join_have_spaces_too() -> None:
    env = to_numeric(Village(), actions=["invite dan", "leave", "banish ann"])
    env.reset(seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        env.step(0)
        assert "dan" in env.agents and env.action_space("dan") is env.action_space("dan")
        assert env.observation_space("dan").contains(env.observe("dan"))


def test_a_debate_without_listed_actions_takes_given_ones() -> None:
    env = to_numeric(Debate(), actions=["yes", "no"])
    env.reset(seed=0)
    for _ in env.agent_iter():
        _, _, termination, truncation, _ = env.last()
        env.step(None if termination or truncation else 1)
    assert env.agents == []
