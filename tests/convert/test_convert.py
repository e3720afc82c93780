"""PettingZoo and Gymnasium: their tools run on our envs, and their envs run in ours."""

from __future__ import annotations

import functools
import importlib
import json
import pickle
import random
import runpy
import subprocess
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

gymnasium = pytest.importorskip("gymnasium")
pytest.importorskip("pettingzoo")

import numpy as np  # noqa: E402
from gymnasium import spaces  # noqa: E402
from gymnasium.utils.env_checker import check_env as gymnasium_check_env  # noqa: E402
from pettingzoo import AECEnv, ParallelEnv  # noqa: E402
from pettingzoo.test import api_test, parallel_api_test, seed_test  # noqa: E402
from pettingzoo.utils import (  # noqa: E402
    OrderEnforcingWrapper,
    aec_to_parallel,
    average_total_reward,
    parallel_to_aec,
    turn_based_aec_to_parallel,
)

import marl_gem  # noqa: E402
from marl_gem import DirectedSelector, MultiAgentEnv, ParallelSelector, Role, SequentialSelector  # noqa: E402
from marl_gem.convert import (  # noqa: E402
    Content,
    FreeText,
    from_gymnasium,
    from_pettingzoo,
    to_aec,
    to_gymnasium,
    to_parallel,
)
from marl_gem.errors import (  # noqa: E402
    ConversionError,
    EpisodeOver,
    InvalidAction,
    InvalidOption,
    MissingPackage,
    ScenarioFault,
)
from marl_gem.policies import RandomPolicy, ScriptedPolicy  # noqa: E402
from marl_gem.rollout import Job, collect  # noqa: E402
from marl_gem.testing import check_env  # noqa: E402
from marl_gem.types import Metadata, to_json  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
"""PettingZoo's and Gymnasium's checks warn of spaces that are not arrays."""

ROOT = Path(__file__).parents[2]
TAXI = max(id for id in gymnasium.registry if id.startswith("Taxi-v"))

# Our scenarios


class RockPaperScissors(MultiAgentEnv):
    """Three rounds, everybody at once. After the second, whoever has said "paper" is out of it."""

    possible_agents = ("a_0", "b_0")
    selector = ParallelSelector()
    metadata = Metadata(zero_sum=True, turn_order="parallel")
    hands = ("rock", "paper", "scissors")

    def _reset(self, options: Mapping[str, Any]) -> None:
        self.rounds = options.get("rounds", 3)
        super()._reset({name: value for name, value in options.items() if name != "rounds"})
        self.last: dict[str, str] = {}

    def role(self, agent: str) -> Role:
        return Role(f"You are {agent}. Say rock, paper or scissors.")

    def observe(self, agent: str) -> str:
        return f"Round {self.steps}. Last: {self.last}"

    def legal_actions(self, agent: str) -> list[str]:
        return list(self.hands)

    def _process_actions(self, actions: dict[str, str]) -> None:
        self.last = actions
        if len(actions) == 2 and set(actions.values()) <= set(self.hands):
            a, b = (self.hands.index(actions[agent]) for agent in self.possible_agents)
            self.rewards = {"a_0": float((a - b + 1) % 3 - 1), "b_0": float((b - a + 1) % 3 - 1)}
        for agent, said in actions.items():
            self.infos[agent]["said"] = said
            self.terminations[agent] = self.steps == self.rounds or (self.steps == 2 and said == "paper")


class Village(MultiAgentEnv):
    """In turn each villager says `leave`, `banish NAME`, `invite NAME`, `thank NAME` or anything else."""

    possible_agents = ("ann", "bob", "cat")
    selector = SequentialSelector()
    metadata = Metadata(turn_order="sequential", joins=True)
    max_steps = 40

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        self.heard: list[str] = []

    def observe(self, agent: str) -> str:
        return f"{agent} hears: {'; '.join(self.heard)}"

    def legal_actions(self, agent: str) -> list[str]:
        named = [f"{verb} {name}" for verb in ("banish", "invite", "thank") for name in ("ann", "bob", "dan", "eve")]
        return [*named, "leave", "hello", "hello", "hello"]

    def _process_actions(self, actions: dict[str, str]) -> None:
        ((speaker, text),) = actions.items()
        self.heard.append(f"{speaker}: {text} ({self.rng.randrange(1000)})")
        verb, _, name = text.partition(" ")
        if verb == "leave":
            self.terminations[speaker] = True
        elif verb == "banish" and name in self.agents:
            self.truncations[name] = True
        elif verb == "invite" and name not in self.returns:
            self.add_agent(name)
        elif verb == "thank" and name in self.returns:
            self.rewards[name] = self.rewards.get(name, 0.0) + 0.25


class Debate(MultiAgentEnv):
    """A host asks, two guests answer at once, and so twice; content parts; a bow after somebody has ended."""

    possible_agents = ("host_0", "guest_0", "guest_1")
    selector = DirectedSelector()

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        self.said = ""

    def observe(self, agent: str) -> list[dict[str, Any]]:
        return [{"type": "text", "text": self.said}, {"type": "image", "data": self.steps}]

    def _process_actions(self, actions: dict[str, str]) -> None:
        self.said = " | ".join(f"{agent}: {text}" for agent, text in actions.items())
        self.rewards = {agent: float(len(text)) for agent, text in actions.items()}
        if self.steps % 2:
            self.selector.direct("guest_0", "guest_1")
        else:
            self.selector.direct("host_0")
        if self.steps == 3:
            self.terminations["host_0"] = True
        if self.steps == 4:
            self.rewards["host_0"] = 10.0  # it has ended before
            self.terminations |= dict.fromkeys(("guest_0", "guest_1"), True)


class Quiz(MultiAgentEnv):
    """One agent; three questions."""

    possible_agents = ("pupil_0",)
    selector = SequentialSelector()
    metadata = Metadata(turn_order="sequential")

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        self.numbers = [self.rng.randrange(10) for _ in range(4)]

    def role(self, agent: str) -> Role:
        return Role("Double the number.")

    def observe(self, agent: str) -> str:
        return str(self.numbers[self.steps])

    def _process_actions(self, actions: dict[str, str]) -> None:
        right = actions["pupil_0"] == str(2 * self.numbers[self.steps - 1])
        self.rewards["pupil_0"], self.infos["pupil_0"]["right"] = float(right), right
        self.terminations["pupil_0"] = self.steps == 3


HERE: dict[str, Callable[[], MultiAgentEnv]] = {
    "RockPaperScissors": RockPaperScissors,
    "Village": Village,
    "Debate": Debate,
    "Quiz": Quiz,
}
REGISTERED = {scenario.id: scenario for scenario in marl_gem.list() if not scenario.unavailable}
QUICK_SEEDS = {"ta:Sudoku-v0-hard": 6}
"""Where a reset may take many seconds: a seed with which it does not."""


def make(name: str) -> MultiAgentEnv:
    try:
        env = HERE[name]() if name in HERE else marl_gem.make(name)
    except MissingPackage as error:
        pytest.skip(str(error))
    if name in QUICK_SEEDS:
        reset = env.reset
        env.reset = lambda seed=None, options=None: reset(QUICK_SEEDS[name], options)  # type: ignore[method-assign]
    return env


every_scenario = pytest.mark.parametrize("name", [*HERE, *REGISTERED])


def choose(env: MultiAgentEnv, agent: str, dice: random.Random) -> str:
    return dice.choice([*(env.legal_actions(agent) or ["[0]", "[1 2]", "Well."]), "hello"])


# Spaces


STRANGE_TEXTS = ["", "x" * 1_000_000, "\ud800", "a\x00b", "日本 🦊 \U0010ffff", "\n\t\r"]


@pytest.mark.parametrize("text", STRANGE_TEXTS)
def test_a_space_of_text_holds_any_text(text: str) -> None:
    space = FreeText()
    assert text in space and text in Content()
    assert space.from_jsonable(json.loads(json.dumps(space.to_jsonable([text])))) == [text]


@pytest.mark.parametrize("thing", [None, 7, b"bytes", ["a"], {"a": 1}, np.zeros(3)])
def test_a_space_of_text_holds_nothing_else(thing: Any) -> None:
    assert thing not in FreeText() and thing not in Content()


def test_content_is_text_or_parts() -> None:
    parts = [{"type": "text", "text": "Look:"}, {"type": "image", "data": "..."}]
    assert parts in Content() and [] in Content() and parts not in FreeText()
    assert [{"text": "no type"}] not in Content() and [*parts, "text"] not in Content()
    assert Content().from_jsonable(json.loads(json.dumps(Content().to_jsonable([parts, "text"])))) == [parts, "text"]


def test_samples_repeat_under_a_seed_vary_and_can_be_written_to_a_file() -> None:
    first, second = FreeText(seed=1), FreeText()
    second.seed(1)
    texts = [first.sample() for _ in range(200)]
    assert texts == [second.sample() for _ in range(200)] != [FreeText(seed=2).sample() for _ in range(200)]
    assert len(set(texts)) > 150 and all(text in first for text in texts)
    assert "" in texts and any(not text.isascii() for text in texts) and max(map(len, texts)) > 40
    "".join(texts).encode("utf-8")


def test_samples_of_a_mask_or_of_what_is_legal() -> None:
    space = FreeText(["[1]", "[2]"], seed=3)
    assert {space.sample() for _ in range(50)} == {"[1]", "[2]"}
    assert {space.sample(mask=["x", "y", "z"]) for _ in range(50)} == {"x", "y", "z"}
    for mask in ([], "xyz", np.array([0, 1])):
        with pytest.raises(ValueError):
            space.sample(mask=mask)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="probabilit"):
        space.sample(probability=np.array([0.5, 0.5]))  # type: ignore[arg-type]


def test_spaces_are_equal_by_kind_and_can_be_pickled() -> None:
    assert FreeText() == FreeText(["[1]"], seed=7) != Content()
    assert repr(FreeText()) == "FreeText()" and repr(Content()) == "Content()"
    space = FreeText(seed=5)
    copy = pickle.loads(pickle.dumps(space))
    assert copy == space and copy.sample() == space.sample()


# Their checks, on all our scenarios


@every_scenario
def test_pettingzoo_s_checks_of_an_aec_env(name: str) -> None:
    api_test(to_aec(make(name)), num_cycles=5)
    seed_test(lambda: to_aec(make(name)), num_cycles=5)


@every_scenario
def test_pettingzoo_s_checks_of_a_parallel_env_or_a_way_out(name: str) -> None:
    env = make(name)
    if env.metadata.turn_order == "parallel" or len(env.possible_agents) == 1:
        parallel_api_test(to_parallel(env), num_cycles=10)
        first, second = (parallel_episode(to_parallel(make(name)), seed=11) for _ in range(2))
        assert first == second
    else:
        with pytest.raises(ConversionError, match="to_aec"):
            to_parallel(env).reset(seed=0)


@pytest.mark.parametrize("name", ["RockPaperScissors", "game:KuhnPoker-v0", "Village"])
def test_another_seed_is_another_episode(name: str) -> None:
    assert len({repr(aec_episode(to_aec(make(name)), seed=seed)) for seed in range(5)}) > 2


ONE_AGENT = ["Quiz", *(id for id, scenario in REGISTERED.items() if scenario.agents[0] == 1)]


@pytest.mark.parametrize("name", ONE_AGENT)
def test_gymnasium_s_checks(name: str) -> None:
    gymnasium_check_env(to_gymnasium(make(name)))


@pytest.mark.parametrize("name", ["RockPaperScissors", "game:KuhnPoker-v0", "Debate"])
def test_gymnasium_s_checks_with_others_in_their_seats(name: str) -> None:
    env = make(name)
    seat, *rest = env.possible_agents
    others = dict.fromkeys(rest, lambda observation, info: info.get("legal_actions", ["hm"])[0])
    gymnasium_check_env(to_gymnasium(env, seat=seat, others=others))


def aec_episode(env: AECEnv, seed: int) -> list[Any]:
    """All that happens when legal moves are sampled, whatever an agent is shown included."""
    env.reset(seed=seed)
    record: list[Any] = []
    for agent in env.agent_iter(300):
        env.action_space(agent).seed(len(record) + seed)
        last = env.last()
        action = None if last[2] or last[3] else env.action_space(agent).sample()
        record.append((agent, *last, action))
        env.step(action)
    return record


def parallel_episode(env: ParallelEnv, seed: int) -> list[Any]:
    record: list[Any] = [env.reset(seed=seed)]
    while env.agents and len(record) < 60:
        for number, agent in enumerate(env.agents):
            env.action_space(agent).seed(100 * len(record) + number + seed)
        actions = {agent: env.action_space(agent).sample() for agent in env.agents}
        record.append((actions, env.step(actions), list(env.agents)))
    return record


# To AEC


def test_agents_that_act_together_are_asked_one_after_the_other() -> None:
    env = to_aec(RockPaperScissors())
    env.reset(seed=0)
    assert isinstance(env, AECEnv) and env.metadata["name"] == "RockPaperScissors"
    before = [env.observe(agent) for agent in env.agents]
    assert env.agent_selection == "a_0"
    env.step("rock")
    assert env.agent_selection == "b_0" and env.marl_env.steps == 0
    assert env.last()[0] == before[1]  # it has not heard what the other has said
    env.step("paper")
    assert env.marl_env.steps == 1 and env.rewards == {"a_0": -1.0, "b_0": 1.0}
    assert env.last() == ("Round 1. Last: {'a_0': 'rock', 'b_0': 'paper'}", -1.0, False, False, env.infos["a_0"])
    assert env.infos["b_0"] == {"said": "paper", "legal_actions": ["rock", "paper", "scissors"]}


def test_rewards_come_once_to_each_and_add_up() -> None:
    env = to_aec(RockPaperScissors())
    env.reset(seed=0)
    won = dict.fromkeys(env.agents, 0.0)
    says = {"a_0": deque(["rock", "rock", "rock"]), "b_0": deque(["paper", "scissors", "paper"])}
    for agent in env.agent_iter():
        _, reward, termination, truncation, _ = env.last()
        won[agent] += reward
        env.step(None if termination or truncation else says[agent].popleft())
    assert won == {"a_0": -1.0, "b_0": 1.0} == env.returns


def test_who_ends_takes_one_last_step_which_is_none() -> None:
    env = to_aec(RockPaperScissors())
    env.reset(seed=0)
    for said in ("rock", "rock", "rock", "paper"):
        env.step(said)
    assert env.agents == ["a_0", "b_0"] and env.agent_selection == "b_0"  # who has ended comes first
    observation, reward, termination, truncation, info = env.last()
    assert (reward, termination, truncation) == (1.0, True, False)
    assert observation == info["final_observation"] == env.observe("b_0")
    with pytest.raises(InvalidAction, match="step it with None"):
        env.step("rock")
    env.step(None)
    assert env.agents == ["a_0"] == list(env.rewards) == list(env.infos) and env.agent_selection == "a_0"
    assert env.last()[1] == -1.0
    env.step("rock")
    env.step(None)
    assert env.agents == []
    with pytest.raises(EpisodeOver, match=r"reset\(\)"):
        env.step("rock")


def test_who_joins_is_there_with_all_that_belongs_to_it() -> None:
    env = to_aec(Village())
    env.reset(seed=0)
    env.step("invite dan")
    assert env.agents == ["ann", "bob", "cat", "dan"] == env.possible_agents
    assert env.rewards["dan"] == 0.0 and env.infos["dan"] == {} and not env.terminations["dan"]
    env.step("thank dan")
    env.step("banish bob")
    assert env.agent_selection == "bob" and env.last()[2:4] == (False, True)
    env.step(None)
    assert env.agent_selection == "dan"
    observation, reward, *_, info = env.last()
    assert "bob: thank dan" in observation and reward == 0.25 and "banish ann" in info["legal_actions"]
    env.reset(seed=0)
    assert env.agents == ["ann", "bob", "cat"]


def test_who_joins_where_all_act_at_once_knows_what_is_legal() -> None:
    class Party(RockPaperScissors):
        def _process_actions(self, actions: dict[str, str]) -> None:
            super()._process_actions(actions)
            if self.steps == 1:
                self.add_agent("c_0")

    env = to_parallel(Party())
    env.reset(seed=0)
    observations, rewards, terminations, truncations, infos = env.step({"a_0": "rock", "b_0": "rock"})
    for part in (observations, rewards, terminations, truncations, infos):
        assert list(part) == ["a_0", "b_0", "c_0"] == env.agents
    assert infos["c_0"] == {"legal_actions": ["rock", "paper", "scissors"]}
    assert env.action_space("c_0").sample() in RockPaperScissors.hands


def test_a_reward_after_the_end_counts_in_returns() -> None:
    env = to_aec(Debate())
    env.reset(seed=0)
    assert env.agent_selection == "host_0"
    for said in ("a", "b", "c", "d"):
        env.step(said)
    assert env.agent_selection == "host_0" and env.last()[2]
    env.step(None)
    env.step("e")
    env.step("f")
    assert env.returns == {"host_0": 12.0, "guest_0": 2.0, "guest_1": 2.0}


@pytest.mark.parametrize("action", [None, 7, b"rock", ["rock"], np.int64(3)])
def test_what_is_not_text_is_refused_and_nothing_has_changed(action: Any) -> None:
    aec, parallel, solo = to_aec(RockPaperScissors()), to_parallel(RockPaperScissors()), to_gymnasium(Quiz())
    aec.reset(seed=1)
    aec.step("rock")
    before = aec.last()
    with pytest.raises(InvalidAction, match="'b_0' must be text"):
        aec.step(action)
    assert aec.last() == before and aec.agent_selection == "b_0"
    aec.step("paper")
    assert aec.rewards == {"a_0": -1.0, "b_0": 1.0}
    parallel.reset(seed=1)
    with pytest.raises(InvalidAction, match="'b_0' must be text"):
        parallel.step({"a_0": "rock", "b_0": action})
    assert parallel.step({"a_0": "rock", "b_0": "paper"})[1] == {"a_0": -1.0, "b_0": 1.0}
    first, _ = solo.reset(seed=1)
    with pytest.raises(InvalidAction, match="'pupil_0' must be text"):
        solo.step(action)
    assert solo.step(str(2 * int(first)))[1] == 1.0  # type: ignore[arg-type]


def test_before_the_first_reset_there_is_no_episode() -> None:
    with pytest.raises(EpisodeOver, match="reset"):
        to_aec(Quiz()).step("7")
    with pytest.raises(EpisodeOver, match="reset"):
        to_parallel(Quiz()).step({"pupil_0": "7"})
    with pytest.raises(EpisodeOver, match="reset"):
        to_gymnasium(Quiz()).step("7")


def test_out_of_turn_one_is_told_who_is_there() -> None:
    aec = to_aec(Quiz())
    with pytest.raises(EpisodeOver, match="call reset"):
        aec.last()
    with pytest.raises(EpisodeOver, match="'pupil_0' is not there; the agents are \\[\\]"):
        aec.observe("pupil_0")
    aec.reset(seed=1)
    with pytest.raises(EpisodeOver, match="'teacher' is not there; the agents are"):
        aec.observe("teacher")


@pytest.mark.parametrize("convert", [to_aec, to_parallel, to_gymnasium])
@pytest.mark.parametrize("thing", ["game:KuhnPoker-v0", Quiz, None], ids=str)
def test_only_envs_are_converted(convert: Any, thing: Any) -> None:
    with pytest.raises(ConversionError, match=r"make one, for instance with marl_gem\.make"):
        convert(thing)


def test_options_go_to_the_env_and_unknown_ones_are_refused() -> None:
    env = to_aec(RockPaperScissors())
    env.reset(seed=0, options={"rounds": 1})
    env.step("rock")
    env.step("paper")
    assert all(env.terminations.values())
    with pytest.raises(InvalidOption, match="round"):
        env.reset(options={"round": 1})
    for seed in (-1, "seven"):
        with pytest.raises(InvalidOption, match="seed"):
            env.reset(seed=seed)


def test_seeding_the_first_reset_seeds_all_episodes() -> None:
    def seeds(env: Any, reset: Callable[..., Any]) -> list[int]:
        reset(seed=np.int64(5))
        drawn = [env.marl_env.seed]
        for _ in range(3):
            reset()
            drawn.append(env.marl_env.seed)
        return drawn

    for convert in (to_aec, to_parallel, to_gymnasium):
        first, second = convert(Quiz()), convert(Quiz())
        assert seeds(first, first.reset) == seeds(second, second.reset)
        assert len(set(seeds(first, first.reset))) == 4


def test_the_transcript_is_what_render_gives() -> None:
    env = to_aec(RockPaperScissors())
    env.reset(seed=0, options={"rounds": 1})
    assert env.render() == "[a_0 sees] Round 0. Last: {}\n[b_0 sees] Round 0. Last: {}"
    env.step("rock")
    env.step("scissors")
    assert env.render().splitlines()[-1] == "[the end] a_0: 1, b_0: -1"
    assert "[a_0 says] rock" in env.render() and "[b_0 says] scissors" in env.render()
    env.reset(seed=0)
    assert "says" not in env.render()


def test_roles_and_close_are_passed_on() -> None:
    closed = []

    class Door(Quiz):
        def close(self) -> None:
            closed.append(self)

    for convert in (to_aec, to_parallel, to_gymnasium):
        env = convert(Door())
        assert (env.role() if convert is to_gymnasium else env.role("pupil_0")).instructions == "Double the number."
        env.close()
    assert len(closed) == 3


def test_content_parts_are_observations() -> None:
    env = to_aec(Debate())
    env.reset(seed=0)
    env.step("Well?")
    observation = env.last()[0]
    assert observation == [{"type": "text", "text": "host_0: Well?"}, {"type": "image", "data": 1}]
    assert env.observation_space("guest_0").contains(observation)
    assert json.loads(json.dumps(observation)) == observation
    assert "[guest_0 sees] host_0: Well?\n[image]" in env.render()


def test_their_tools_run_on_our_envs() -> None:
    api_test(OrderEnforcingWrapper(to_aec(make("game:KuhnPoker-v0"))), num_cycles=5)
    parallel_api_test(aec_to_parallel(to_aec(RockPaperScissors())), num_cycles=5)
    api_test(parallel_to_aec(to_parallel(RockPaperScissors())), num_cycles=5)
    turns = turn_based_aec_to_parallel(to_aec(make("game:KuhnPoker-v0")))
    turns.reset(seed=0)
    turns.step({"player_0": "[bet]", "player_1": "[fold]"})
    _, rewards, *_ = turns.step({"player_0": "[bet]", "player_1": "[fold]"})
    assert rewards == {"player_0": 1.0, "player_1": -1.0}
    assert average_total_reward(to_aec(make("game:KuhnPoker-v0")), max_episodes=3, max_steps=100) == 0.0


# To parallel


def test_a_parallel_env_gives_five_dicts_of_all_that_were_alive() -> None:
    env = to_parallel(RockPaperScissors())
    observations, infos = env.reset(seed=0)
    assert isinstance(env, ParallelEnv) and list(observations) == list(infos) == env.agents == ["a_0", "b_0"]
    env.step({"a_0": "rock", "b_0": "rock"})
    observations, _, terminations, truncations, infos = env.step({"a_0": "rock", "b_0": "paper"})
    assert terminations == {"a_0": False, "b_0": True} and env.agents == ["a_0"] and not any(truncations.values())
    assert observations["b_0"] == infos["b_0"]["final_observation"] and observations.keys() == {"a_0", "b_0"}
    with pytest.raises(InvalidAction, match="b_0"):
        env.step({"a_0": "rock", "b_0": "paper"})
    assert list(env.step({"a_0": "rock"})[0]) == ["a_0"] and env.agents == []
    with pytest.raises(EpisodeOver, match="reset"):
        env.step({})


def test_an_env_that_does_not_say_that_it_takes_turns_is_found_out() -> None:
    class Undeclared(RockPaperScissors):
        metadata = Metadata()
        selector = SequentialSelector()

    with pytest.raises(ConversionError, match=r"now \['a_0'\] act.*to_aec"):
        to_parallel(Undeclared()).reset(seed=0)
    with pytest.raises(ConversionError, match=r"turn order is sequential.*to_aec"):
        to_parallel(Village())


# To Gymnasium


def test_one_agent_as_a_gymnasium_env() -> None:
    env = to_gymnasium(Quiz())
    observation, info = env.reset(seed=4)
    assert isinstance(env, gymnasium.Env) and info == {}
    total, ended = 0.0, False
    while not ended:
        observation, reward, ended, truncated, info = env.step(str(2 * int(observation)))  # type: ignore[arg-type]
        total += float(reward)
        assert info["right"] and not truncated
    assert total == 3.0 and observation == info["final_observation"]
    with pytest.raises(EpisodeOver, match="reset"):
        env.step("7")


def test_the_others_play_until_the_seat_is_to_act_again() -> None:
    asked = []

    def second(observation: Any, info: Mapping[str, Any]) -> str:
        asked.append((observation, info["legal_actions"]))
        return "[fold]" if "bet" in observation else "[check]"

    env = to_gymnasium(make("game:KuhnPoker-v0"), seat="player_0", others={"player_1": second})
    _, info = env.reset(seed=0)
    assert info["legal_actions"] == ["[check]", "[bet]"]
    _, reward, terminated, _, _ = env.step("[bet]")
    assert (reward, terminated) == (1.0, True) and "bet" in asked[0][0] and asked[0][1] == ["[fold]", "[call]"]
    env = to_gymnasium(make("game:KuhnPoker-v0"), seat="player_1", others={"player_0": lambda o, i: "[bet]"})
    observation, info = env.reset(seed=0)
    assert "bet" in observation and info["legal_actions"] == ["[fold]", "[call]"]
    assert env.step("[fold]")[1:3] == (-1.0, True)


def test_rewards_before_the_first_turn_and_after_the_end_belong_to_the_seat() -> None:
    others = dict.fromkeys(("ann", "cat"), lambda observation, info: "thank bob")
    env = to_gymnasium(Village(), seat="bob", others=others)
    env.reset(seed=0)
    assert env.step("hello")[1] == 0.75  # ann thanked it before, cat and ann did since
    _, reward, terminated, truncated, _ = env.step("leave")
    assert terminated and not truncated and reward == 0.25 * 35 and env.marl_env.done
    assert reward + 0.75 == env.returns["bob"]


def test_a_seat_that_ends_before_its_first_turn_is_told_so_by_the_first_step() -> None:
    others = dict.fromkeys(("ann", "cat"), lambda observation, info: "banish bob")
    env = to_gymnasium(Village(), seat="bob", others=others)
    observation, info = env.reset(seed=0)
    assert observation == info["final_observation"]
    assert env.step("anything")[:4] == (observation, 0.0, False, True)
    with pytest.raises(EpisodeOver):
        env.step("anything")


def test_seats_and_others_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConversionError, match="seat="):
        to_gymnasium(RockPaperScissors())
    with pytest.raises(ConversionError, match=r"no agent 'c'.*'a_0'"):
        to_gymnasium(RockPaperScissors(), seat="c")
    with pytest.raises(ConversionError, match=r"nobody plays \['b_0'\]"):
        to_gymnasium(RockPaperScissors(), seat="a_0")
    env = to_gymnasium(Village(), "ann", dict.fromkeys(("bob", "cat"), lambda o, i: "invite dan"))
    env.reset(seed=0)
    with pytest.raises(ConversionError, match=r"nobody plays \['dan'\]"):
        env.step("hello")
    with pytest.raises(EpisodeOver):
        env.step("hello")


def test_many_at_once_in_gymnasium_s_vector_env() -> None:
    envs = gymnasium.vector.SyncVectorEnv([lambda: to_gymnasium(Quiz())] * 3)
    observations, _ = envs.reset(seed=3)
    _, rewards, *_ = envs.step([str(2 * int(observation)) for observation in observations])
    assert list(rewards) == [1.0, 1.0, 1.0] and len(set(observations)) > 1


# From PettingZoo: the same episodes as played natively


def zoo(module: str, kind: str = "env", **options: Any) -> Callable[[], Any]:
    """What makes one of PettingZoo's own; the test is skipped where a package for it is missing."""

    def factory() -> Any:
        loaded = pytest.importorskip(module, exc_type=ImportError)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return getattr(loaded, kind)(**options)

    return factory


NATIVE = {
    "tictactoe": zoo("pettingzoo.classic.tictactoe_v3"),
    "connect four": zoo("pettingzoo.classic.connect_four_v3"),
    "rps": zoo("pettingzoo.classic.rps_v2"),
    "rps, parallel": zoo("pettingzoo.classic.rps_v2", "parallel_env"),
    "leduc": zoo("pettingzoo.classic.leduc_holdem_v4"),
    "texas": zoo("pettingzoo.classic.texas_holdem_v4", num_players=3),
    "texas, no limit": zoo("pettingzoo.classic.texas_holdem_no_limit_v6"),
    "chess": zoo("pettingzoo.classic.chess_v6"),
    "go": zoo("pettingzoo.classic.go_v5", board_size=5),
    "hanabi": zoo("pettingzoo.classic.hanabi_v5"),
    "zombies": zoo("pettingzoo.butterfly.knights_archers_zombies_v11", max_cycles=200, spawn_delay=3),
    "zombies, parallel": zoo(
        "pettingzoo.butterfly.knights_archers_zombies_v11",
        "parallel_env",
        max_cycles=250,
        spawn_delay=3,
        max_zombies=30,
    ),
    "spread": zoo("mpe2.simple_spread_v3"),
    "spread, parallel": zoo("mpe2.simple_spread_v3", "parallel_env"),
    "adversary, continuous": zoo("mpe2.simple_adversary_v3", continuous_actions=True),
    "world, parallel": zoo("mpe2.simple_world_comm_v3", "parallel_env"),
    "newcomers": zoo("pettingzoo.test.example_envs.generated_agents_env_v0"),
    "newcomers, parallel": zoo("pettingzoo.test.example_envs.generated_agents_parallel_v0", "parallel_env"),
}
STEPS = {"newcomers, parallel": 60}
"""This one never ends."""


def sampled(env: MultiAgentEnv, agent: str, dice: random.Random) -> str:
    """A legal action as text: one that is listed, or five numbers."""
    return dice.choice(env.legal_actions(agent) or [json.dumps([round(dice.random(), 3) for _ in range(5)])])


def as_action(text: str) -> Any:
    value = json.loads(text)
    return value[0] if isinstance(value[0], int) else np.array(value, dtype=np.float32)


def native_returns(env: Any, seed: int, turns: deque[tuple[str, str]]) -> tuple[dict[str, float], dict[str, Any]]:
    """Play these turns on PettingZoo's own; what every agent was given, and how it ended."""
    totals: dict[str, float] = {}
    endings: dict[str, Any] = {}
    if isinstance(env, ParallelEnv):
        env.reset(seed=seed)
        while turns:
            actions = {agent: as_action(turns.popleft()[1]) for agent in list(env.agents)}
            _, rewards, terminations, truncations, _ = env.step(actions)
            for agent, reward in rewards.items():
                totals[agent] = totals.get(agent, 0.0) + reward
                if terminations[agent] or truncations[agent]:
                    endings[agent] = (terminations[agent], truncations[agent])
        return totals, endings
    env.reset(seed=seed)
    for agent in env.agent_iter():
        _, reward, terminated, truncated, _ = env.last()
        totals[agent] = totals.get(agent, 0.0) + reward
        if terminated or truncated:
            endings[agent] = (terminated, truncated)
            env.step(None)
        elif turns:
            mover, text = turns.popleft()
            assert mover == agent
            env.step(as_action(text))
        else:
            break
    return totals, endings


@pytest.mark.parametrize(
    ("name", "seed"), [(name, seed) for name in NATIVE for seed in (0, 1) if (name, seed) != ("chess", 1)]
)
def test_returns_are_those_of_the_same_actions_played_natively(name: str, seed: int) -> None:
    env, dice, turns = from_pettingzoo(NATIVE[name]), random.Random(seed), deque[tuple[str, str]]()
    endings: dict[str, Any] = {}
    env.reset(seed=seed)
    while not env.done and env.steps < STEPS.get(name, 5000):
        actions = {agent: sampled(env, agent, dice) for agent in env.acting}
        turns.extend(actions.items())
        _, _, terminations, truncations, _ = env.step(actions)
        endings |= {a: (terminations[a], truncations[a]) for a in terminations if terminations[a] or truncations[a]}
    assert env.done or name in STEPS
    totals, native_endings = native_returns(NATIVE[name](), seed, turns)
    assert not turns and endings == native_endings
    assert {a: total for a, total in totals.items() if total} == pytest.approx(
        {a: total for a, total in env.returns.items() if total}
    )
    assert env.returns.keys() >= totals.keys()


def test_an_illegal_action_ends_as_with_pettingzoo_s_own_wrapper() -> None:
    make_native = NATIVE["tictactoe"]
    native = make_native()
    native.reset(seed=0)
    won = dict.fromkeys(native.agents, 0.0)
    moves = deque([4, 4])
    for agent in native.agent_iter():
        _, reward, terminated, truncated, _ = native.last()
        won[agent] += reward
        native.step(None if terminated or truncated else moves.popleft())
    env = from_pettingzoo(make_native)
    env.reset(seed=0)
    env.step({"player_1": "[4]"})
    _, rewards, terminations, _, infos = env.step({"player_2": "I go there too: [4]"})
    assert rewards == {"player_1": 0.0, "player_2": -1.0} == env.returns == won
    assert all(terminations.values()) and env.done
    assert infos["player_2"]["illegal"] == "[4] is not legal now" and "illegal" not in infos["player_1"]


def test_an_illegal_action_can_be_replaced_by_a_random_one() -> None:
    def episode(seed: int) -> list[str]:
        env = from_pettingzoo(NATIVE["connect four"], illegal="random")
        env.reset(seed=seed)
        told = []
        while not env.done:
            mover = env.acting[0]
            *_, infos = env.step({mover: "No idea."})
            told.append(infos[mover]["illegal"])
        return told

    told = episode(1)
    assert len(told) > 6 and told == episode(1) != episode(2)
    assert "'No idea.' holds no action" in told[0] and told[0].endswith("was played instead.")


def test_where_all_act_only_those_who_break_the_rules_are_punished() -> None:
    env = from_pettingzoo(NATIVE["rps, parallel"])
    env.reset(seed=0)
    _, rewards, terminations, _, infos = env.step({"player_0": "[1]", "player_1": "[3]"})
    assert rewards == {"player_0": 0.0, "player_1": -1.0} and all(terminations.values())
    assert "'[3]' holds no action" in infos["player_1"]["illegal"]
    env = from_pettingzoo(NATIVE["rps, parallel"], illegal="random")
    env.reset(seed=0)
    env.step({"player_0": "[1]", "player_1": "[3]"})
    assert env.steps == 1 and not env.done


# What an agent is told, and what it may write


class Echo(gymnasium.Env[Any, Any]):
    """Takes any action of a space, shows any observation of another, and remembers what it was given."""

    def __init__(self, action_space: Any, shown: Any = 0, observation_space: Any = None, info: Any = None) -> None:
        self.action_space, self.shown, self.info = action_space, shown, info or {}
        self.observation_space = observation_space or spaces.Discrete(5)
        self.given: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.shown, self.info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        self.given.append(action)
        return self.shown, 0.0, False, False, self.info


def given(space: Any, text: str, **options: Any) -> Any:
    """What an env with this action space is given if an agent writes `text`; None if that is illegal."""
    echo = Echo(space)
    env = from_gymnasium(echo, **options)
    env.reset(seed=0)
    *_, infos = env.step({"player_0": text})
    assert env.done == bool(infos["player_0"].get("illegal")) == (not echo.given)
    return echo.given[0] if echo.given else None


BOX = spaces.Box(np.float32([-1, 0]), np.float32([1, 10]))
CAR = spaces.Dict({"steer": spaces.Box(-1, 1, (), np.float32), "gear": spaces.Discrete(5, start=1), "say": FreeText()})
PAIR = spaces.Tuple((spaces.Discrete(3), spaces.MultiBinary(2)))


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
        (spaces.MultiDiscrete([[2, 2], [2, 2]]), "[[0, 1], [1, 0]]", [[0, 1], [1, 0]]),
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


def limited(env: MultiAgentEnv, max_steps: int) -> MultiAgentEnv:
    env.max_steps = max_steps
    return env


BOARD = np.zeros((2, 3, 2), np.int8)
BOARD[0, 1, 0] = BOARD[1, 2, 1] = 1
CROWDED = np.zeros((2, 2, 12), np.int8)
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
        (BOARD, "planes 0 to 1 in one picture, . for none:\n. 0 .\n. . 1"),
        (np.stack([np.eye(3), np.zeros((3, 3))]), "planes 0 to 1 in one picture, . for none:\n0 . .\n. 0 .\n. . 0"),
        (CROWDED, "plane 4:\n0 1\n0 0\nall 0: planes 0-3 5-11"),
        ({"observation": np.array([1, 2]), "action_mask": np.array([0, 1])}, "1 2\nLegal actions: [1]"),
        (({"a": 1, "b": 2}, 3), "(1):\na: 1\nb: 2\n(2): 3"),
        ({"flag": np.bool_(True)}, "flag: yes"),
        ([{"type": "text", "text": "x"}], [{"type": "text", "text": "x"}]),
        (np.zeros((0,)), ""),
        (np.array(7), "7"),
    ],
)
def test_observations_are_told_in_rows_and_words(shown: Any, text: Any) -> None:
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


@pytest.mark.parametrize("space", [spaces.Graph(BOX, None), spaces.Dict({"a": spaces.OneOf([BOX, BOX])})], ids=repr)
def test_actions_that_cannot_be_written_are_refused(space: Any) -> None:
    with pytest.raises(ConversionError, match="cannot be written as text"):
        from_gymnasium(Echo(space))


def test_describe_gives_the_whole_observation() -> None:
    def describe(agent: str, seen: Any) -> list[dict[str, Any]]:
        return [{"type": "text", "text": f"{agent}: {seen['observation'].sum()}"}, {"type": "image", "data": ""}]

    env = from_pettingzoo(NATIVE["tictactoe"], describe=describe)
    observations, _ = env.reset(seed=0)
    assert observations["player_1"][0] == {"type": "text", "text": "player_1: 0"}
    env = from_pettingzoo(NATIVE["tictactoe"], describe=lambda agent, seen: 7)  # type: ignore[arg-type,return-value]
    with pytest.raises(ScenarioFault, match="describe must give a text"):
        env.reset(seed=0)


def test_an_env_that_renders_text_can_be_described_so() -> None:
    env = from_gymnasium(lambda: gymnasium.make("FrozenLake-v1", render_mode="ansi"), describe="render")
    observations, _ = env.reset(seed=0)
    assert "SFFF" in observations["player_0"].replace("\x1b[41mS\x1b[0m", "S")
    env = from_pettingzoo(zoo("pettingzoo.classic.chess_v6", render_mode="ansi"), describe="render")
    observations, _ = env.reset(seed=0)
    assert "R N B Q K B N R\nLegal actions: [" in observations["player_0"]
    with pytest.raises(ConversionError, match='render_mode="ansi"'):
        from_pettingzoo(NATIVE["tictactoe"], describe="render")


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
    heard = []

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


# Seeds, copies, agents that come and go


SEVERAL = ["leduc", "texas", "zombies", "zombies, parallel", "adversary, continuous", "connect four", "go"]


def text_episode(env: MultiAgentEnv, seed: int, steps: int = 40) -> Iterator[Any]:
    dice = random.Random(seed)
    yield env.reset(seed=seed)
    while not env.done and env.steps < steps:
        actions = {agent: sampled(env, agent, dice) for agent in env.acting}
        yield actions, env.step(actions), env.acting


@pytest.mark.parametrize("name", SEVERAL)
def test_32_copies_side_by_side_play_as_each_alone(name: str) -> None:
    beside = [text_episode(from_pettingzoo(NATIVE[name]), seed % 4, steps=12) for seed in range(32)]
    together: list[list[Any]] = [[] for _ in beside]
    live = list(range(32))
    while live:
        for number in list(live):
            try:
                together[number].append(next(beside[number]))
            except StopIteration:
                live.remove(number)
    alone = [list(text_episode(from_pettingzoo(NATIVE[name]), seed, steps=12)) for seed in range(4)]
    assert together == [alone[seed % 4] for seed in range(32)]
    assert len({repr(episode) for episode in alone}) > 1


@pytest.mark.parametrize("name", SEVERAL)
def test_a_fork_is_equal_and_goes_its_own_way(name: str) -> None:
    env = from_pettingzoo(NATIVE[name])
    env.reset(seed=5)
    env.step({agent: (env.legal_actions(agent) or ["[0, 0, 1, 0, 0]"])[0] for agent in env.acting})
    fork, other = env.fork(), env.fork()
    assert [fork.observe(agent) for agent in fork.acting] == [env.observe(agent) for agent in env.acting]
    dice = random.Random(1)
    other.step(dict.fromkeys(other.acting, "No."))
    while not env.done and env.steps < 30:
        actions = {agent: sampled(env, agent, dice) for agent in env.acting}
        assert env.step(actions) == fork.step(actions)
    assert fork.returns == env.returns


def test_a_fork_needs_a_factory_and_an_env_that_repeats_itself() -> None:
    env = from_pettingzoo(NATIVE["tictactoe"]())
    env.reset(seed=0)
    with pytest.raises(ConversionError, match="a function that makes a fresh one"):
        env.fork()

    class Forgetful(Echo):
        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            return random.SystemRandom().random(), {}

    env = from_gymnasium(lambda: Forgetful(spaces.Discrete(2)))
    env.fork().reset(seed=0)  # before an episode there is nothing to repeat
    env.reset(seed=0)
    with pytest.raises(ConversionError, match="has not played the same episode again"):
        env.fork()


def test_with_a_factory_no_episode_depends_on_what_was_before() -> None:
    class Leaky(Echo):
        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            return len(self.given), {}  # of all episodes

    space = spaces.Discrete(2)
    shown = []
    for env in (from_gymnasium(lambda: Leaky(space)), from_gymnasium(Leaky(space))):
        env.reset(seed=0)
        env.step({"player_0": "[1]"})
        shown.append(env.reset(seed=0)[0]["player_0"])
    assert shown == ["0", "1"]
    same = Leaky(space)
    env = from_gymnasium(lambda: same)
    env.reset(seed=0)
    with pytest.raises(ScenarioFault, match="must make a fresh env at every call"):
        env.reset(seed=0)


def test_agents_come_and_go_with_the_foreign_env() -> None:
    env = from_pettingzoo(NATIVE["newcomers"])
    assert env.possible_agents == () and env.metadata.joins
    list(text_episode(env, seed=1, steps=600))
    assert len(env.returns) > 10 and set(env.agents) == set(env.foreign.agents) < set(env.returns)
    names = set(env.returns)
    env.reset(seed=2)
    assert len(env.agents) == 5 and names > set(env.returns)


class Lobby(ParallelEnv):  # type: ignore[misc]
    """Two of three possible agents are there at the start; the third comes, one leaves without a word."""

    metadata = {"name": "lobby"}  # noqa: RUF012
    possible_agents = ["a", "b", "c"]  # noqa: RUF012

    def observation_space(self, agent: str) -> Any:
        return spaces.Discrete(9)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = ["a", "b"]
        return dict.fromkeys(self.agents, 0), {}

    def step(self, actions: dict[str, int]) -> Any:
        self.agents = ["b", "c"]
        there = {*actions, "b", "c"}
        return (
            dict.fromkeys(there, 1),
            dict.fromkeys(there, 1),
            dict.fromkeys(actions, False),
            {"b": "c" in actions},
            {agent: {} for agent in there},
        )


def test_possible_agents_need_not_be_there_at_the_start_nor_say_goodbye() -> None:
    env = from_pettingzoo(Lobby())
    _, infos = env.reset(seed=0)
    assert env.agents == ("a", "b") == tuple(infos) and env.possible_agents == ("a", "b", "c")
    observations, _, terminations, _, _ = env.step({"a": "[0]", "b": "[1]"})
    assert terminations == {"a": True, "b": False} and tuple(observations) == ("b", "c") == env.acting
    _, _, terminations, truncations, _ = env.step({"b": "[0]", "c": "[1]"})
    assert truncations == {"b": True, "c": False} and env.agents == ("c",) and not any(terminations.values())
    assert env.returns == {"a": 1.0, "b": 2.0, "c": 2.0}


# From Gymnasium


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("id", ["FrozenLake-v1", "CartPole-v1", "Blackjack-v1", TAXI, "MountainCarContinuous-v0"])
def test_a_gymnasium_env_plays_the_same_episode_in_text(id: str, seed: int) -> None:
    env, native, dice = from_gymnasium(lambda: gymnasium.make(id)), gymnasium.make(id), random.Random(seed)
    assert env.scenario == id and env.possible_agents == ("player_0",)
    env.reset(seed=seed)
    native.reset(seed=seed)
    total, ended = 0.0, (False, False)
    while not env.done:
        text = dice.choice(env.legal_actions("player_0") or [json.dumps([dice.uniform(-1, 1)])])
        _, rewards, terminations, truncations, _ = env.step({"player_0": text})
        _, reward, *ended, _ = native.step(
            as_action(text) if "." not in text else np.array(json.loads(text), np.float32)
        )
        assert rewards["player_0"] == reward
        total += float(reward)
    assert env.returns["player_0"] == total
    assert (terminations["player_0"], truncations["player_0"]) == tuple(ended)


def test_taxi_tells_which_moves_have_an_effect() -> None:
    env = from_gymnasium(lambda: gymnasium.make(TAXI), actions=["south", "north", "east", "west", "get", "drop"])
    observations, infos = env.reset(seed=0)
    legal = infos["player_0"]["legal_actions"]
    assert set(legal) < {"[south]", "[north]", "[east]", "[west]", "[get]", "[drop]"}
    assert observations["player_0"].endswith(f"Legal actions: {' '.join(legal)}")


# The promises of the contract


@pytest.mark.parametrize("name", ["connect four", "rps, parallel", "leduc", "FrozenLake-v1", "Blackjack-v1"])
def test_a_foreign_env_keeps_our_promises(name: str) -> None:
    if name in NATIVE:
        make: Callable[[], MultiAgentEnv] = functools.partial(from_pettingzoo, NATIVE[name])
    else:
        make = functools.partial(from_gymnasium, functools.partial(gymnasium.make, name))
    check_env(make).raise_if_failed()


# There and back


@pytest.mark.parametrize("name", [name for name in [*HERE, *REGISTERED] if name != "Debate"])
def test_to_pettingzoo_and_back_is_the_same_episode(name: str) -> None:
    env = make(name)
    parallel = env.metadata.turn_order == "parallel"
    back = from_pettingzoo(lambda: (to_parallel if parallel else to_aec)(make(name)))
    assert same_episode(env, back, seed=QUICK_SEEDS.get(name, 3), steps=15)


@pytest.mark.parametrize("name", ["RockPaperScissors", "Debate"])
def test_to_aec_and_back_gives_the_same_returns_where_agents_act_together(name: str) -> None:
    env, back, dice = make(name), from_pettingzoo(lambda: to_aec(make(name))), random.Random(2)
    env.reset(seed=1)
    back.reset(seed=1)
    while not env.done:
        actions = {agent: choose(env, agent, dice) for agent in env.acting}
        for agent, action in actions.items():
            assert back.acting == (agent,) and back.observe(agent) == env.observe(agent)
            back.step({agent: action})
        env.step(actions)
    late = 10.0 if name == "Debate" else 0.0  # a reward after the end, which PettingZoo has no place for
    assert back.done and sum(back.returns.values()) + late == sum(env.returns.values())


@pytest.mark.parametrize("name", ONE_AGENT)
def test_to_gymnasium_and_back_is_the_same_episode(name: str) -> None:
    env = make(name)
    back = from_gymnasium(lambda: to_gymnasium(make(name)))
    ours = dict.fromkeys(env.possible_agents, "player_0")
    assert same_episode(env, back, seed=QUICK_SEEDS.get(name, 3), steps=15, names=ours)


def same_episode(
    env: MultiAgentEnv, back: MultiAgentEnv, seed: int, steps: int, names: Mapping[str, str] | None = None
) -> bool:
    """Play both with the same actions and compare all that happens; `names` are the agents' in the second."""
    names = names or {}

    def renamed(record: Mapping[str, Any]) -> dict[str, Any]:
        return {names.get(agent, agent): value for agent, value in record.items()}

    dice = random.Random(seed)
    expected, got = env.reset(seed=seed), back.reset(seed=seed)
    assert [renamed(part) for part in expected] == list(got)
    given = dict.fromkeys(env.returns, 0.0)  # unlike `returns` without what comes after an agent has ended
    while not env.done and env.steps < steps:
        actions = {agent: choose(env, agent, dice) for agent in env.acting}
        step = env.step(actions)
        assert [renamed(part) for part in step] == list(back.step(renamed(actions)))
        assert renamed(dict.fromkeys(env.acting)) == dict.fromkeys(back.acting)
        for agent, reward in step[1].items():
            given[agent] = given.get(agent, 0.0) + reward
    return env.done == back.done and renamed(given | dict.fromkeys(set(env.agents) - set(given), 0.0)) == back.returns


# With the rest of marl_gem


def test_a_pettingzoo_game_is_registered_and_rolled_out_like_any_other() -> None:
    marl_gem.register("zoo:TestConnectFour-v0", lambda: from_pettingzoo(NATIVE["connect four"]), agents=2)
    first_column = ScriptedPolicy(lambda observation, info: info["legal_actions"][0])
    jobs = [Job(seed, {"player_0": RandomPolicy(), "player_1": first_column}) for seed in range(20)]
    episodes = collect(lambda: marl_gem.make("zoo:TestConnectFour-v0"), jobs)
    assert all(episode.error is None and episode.ending == "terminated" for episode in episodes)
    assert all(sum(episode.returns.values()) == 0 for episode in episodes)
    assert {episode.returns["player_0"] for episode in episodes} == {-1.0, 1.0}
    assert episodes[0].scenario == "zoo:TestConnectFour-v0" and to_json(episodes[0])


@pytest.mark.parametrize(
    ("missing", "use"),
    [
        ("pettingzoo", "from marl_gem.convert import to_aec"),
        ("pettingzoo", "from marl_gem.convert import from_pettingzoo; from_pettingzoo(print)"),
        ("gymnasium", "from marl_gem.convert import from_gymnasium"),
        ("gymnasium", "marl_gem.convert.FreeText()"),
    ],
)
def test_a_missing_package_is_named_with_what_installs_it(missing: str, use: str) -> None:
    code = f"""
import sys; sys.modules[{missing!r}] = None
import marl_gem, marl_gem.convert
try:
    {use}
except marl_gem.errors.MissingPackage as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert repr(missing) in done.stdout and "pip install 'marl-gem[pettingzoo]'" in done.stdout


def test_unknown_names_are_no_part_of_convert() -> None:
    module = importlib.import_module("marl_gem.convert")
    with pytest.raises(AttributeError, match="to_gym"):
        _ = module.to_gym
    assert all(hasattr(module, name) for name in module.__all__)


def test_the_example_plays(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pettingzoo.classic.connect_four_v3", exc_type=ImportError)
    runpy.run_path(str(ROOT / "examples" / "pettingzoo_in_text.py"), run_name="__main__")
    assert "wins" in capsys.readouterr().out
