"""Our envs as PettingZoo's."""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

gymnasium = pytest.importorskip("gymnasium")
pytest.importorskip("pettingzoo")

import numpy as np  # noqa: E402
from pettingzoo import AECEnv, ParallelEnv  # noqa: E402
from pettingzoo.test import api_test, parallel_api_test  # noqa: E402
from pettingzoo.utils import (  # noqa: E402
    BaseWrapper,
    OrderEnforcingWrapper,
    aec_to_parallel,
    average_total_reward,
    parallel_to_aec,
    turn_based_aec_to_parallel,
)

from marl_gem import SequentialSelector  # noqa: E402
from marl_gem.convert import to_aec, to_gymnasium, to_parallel  # noqa: E402
from marl_gem.errors import ConversionError, EpisodeOver, InvalidAction, InvalidOption  # noqa: E402
from marl_gem.types import Metadata  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
"""PettingZoo's and Gymnasium's checks warn of spaces that are not arrays."""
from tests.convert.envs import Debate, Quiz, RockPaperScissors, Village, aec_episode, make  # noqa: E402


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


class Sticky(BaseWrapper):  # type: ignore[misc]
    """What SuperSuit's sticky actions do: sometimes repeat the agent's last action, and observe after every step."""

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        super().reset(seed=seed, options=options)
        self.dice, self.before = random.Random(seed), dict[str, Any]()

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            action = None
        else:
            action = self.before.get(agent, action) if self.dice.random() < 0.25 else action
            self.before[agent] = action
        super().step(action)
        self.seen_last = self.observe(self.agent_selection)


@pytest.mark.parametrize("name", ["RockPaperScissors", "Debate", "Village", "Quiz", "game:KuhnPoker-v0"])
def test_a_wrapper_may_observe_after_the_last_step(name: str) -> None:
    env = Sticky(to_aec(make(name)))
    for seed in range(50):
        record = aec_episode(env, seed)
        assert env.agents == [] and record
        final = {agent: last[0] for agent, *last in record if last[2] or last[3]}
        assert final and {agent: env.observe(agent) for agent in final} == final
        assert env.seen_last == env.observe(env.agent_selection)


def test_supersuit_s_sticky_actions_play_to_the_end() -> None:
    supersuit = pytest.importorskip("supersuit", reason="make test-numeric has it")
    for seed in range(50):
        env = supersuit.sticky_actions_v0(to_aec(make("game:KuhnPoker-v0")), 0.25)
        assert aec_episode(env, seed) and env.agents == []


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


def test_an_agent_outside_the_episode_is_an_error_that_names_the_agents() -> None:
    aec = to_aec(Quiz())
    with pytest.raises(EpisodeOver, match="call reset"):
        aec.last()
    with pytest.raises(EpisodeOver, match=r"'pupil_0' has not taken part .* the agents are \[\]. .* call reset"):
        aec.observe("pupil_0")
    aec.reset(seed=1)
    with pytest.raises(EpisodeOver, match="'teacher' has not taken part in this episode; the agents are"):
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


def test_render_is_the_picture_of_the_env() -> None:
    for convert in (to_aec, to_parallel):
        env: Any = convert(RockPaperScissors())
        env.reset(seed=0, options={"rounds": 1})
        assert env.render_mode == "ansi" and env.render() == env.marl_env.render()
        assert "Round 0" in env.render()


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
    assert "guest_0 and guest_1 act next and see\n  host_0: Well?\n  [image]" in env.render()


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
        selector = SequentialSelector()  # type: ignore[assignment]

    with pytest.raises(ConversionError, match=r"now \['a_0'\] act.*to_aec"):
        to_parallel(Undeclared()).reset(seed=0)
    with pytest.raises(ConversionError, match=r"turn order is sequential.*to_aec"):
        to_parallel(Village())
