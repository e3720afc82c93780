"""The seven promises of the contract, on toy scenarios and on registered ones.

The promises are numbered in the docstring of `MultiAgentEnv`; the tests of promise N are called `test_promise_N_...`,
and all of them are in this file.
"""

from __future__ import annotations

import copy
import importlib.util
import random
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

import marl_gem
from marl_gem import DirectedSelector, MultiAgentEnv, ParallelSelector, SequentialSelector
from marl_gem.errors import EpisodeOver, InvalidAction, ScenarioFault
from tests.core.conformance import Town
from tests.toys import RockPaperScissors, Village, full_state, one_agent

# The scenarios


class Secrets(MultiAgentEnv):
    """Each agent knows a number of its own; after three rounds the highest wins."""

    possible_agents = ("x", "y")
    selector = SequentialSelector()

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        self.secrets = {agent: self.rng.randrange(10**9) for agent in self.agents}

    def observe(self, agent: str) -> str:
        return f"Your number is {self.secrets[agent]}."

    def legal_actions(self, agent: str) -> list[str]:
        return ["pass", "wave"]

    def _process_actions(self, actions: dict[str, str]) -> None:
        if self.steps == 6:
            winner = max(self.secrets, key=self.secrets.__getitem__)
            self.rewards = {agent: 1.0 if agent == winner else -1.0 for agent in self.agents}
            self.terminations = dict.fromkeys(self.agents, True)


def registered(id: str) -> Callable[[], MultiAgentEnv]:
    return lambda: marl_gem.make(id)


HAS_TEXTARENA = importlib.util.find_spec("textarena") is not None
ENVS = {
    "rock-paper-scissors": RockPaperScissors,
    "village": lambda: limited(Village(), 12),
    "secrets": Secrets,
    "game:KuhnPoker-v0": registered("game:KuhnPoker-v0"),
    "ta:TicTacToe-v0": registered("ta:TicTacToe-v0"),
}
every_env = pytest.mark.parametrize(
    "make",
    [
        pytest.param(make, id=name, marks=pytest.mark.skipif(name[:3] == "ta:" and not HAS_TEXTARENA, reason="extra"))
        for name, make in ENVS.items()
    ],
)


def limited(env: MultiAgentEnv, max_steps: int) -> MultiAgentEnv:
    env.max_steps = max_steps
    return env


def choose(env: MultiAgentEnv, agent: str, dice: random.Random) -> str:
    """Something that the scenario understands, mostly."""
    named = [f"{verb} {name}" for verb in ("banish", "invite", "thank") for name in ("ann", "bob", "dan", "eve")]
    words = ["rock", "paper", "scissors", "", "\ud800 nonsense"]
    return dice.choice([*(env.legal_actions(agent) or [*named, "leave"]), *words])


def play(env: MultiAgentEnv, seed: int) -> list[Any]:
    """All that happens in an episode."""
    dice = random.Random(seed)
    record: list[Any] = [copy.deepcopy(env.reset(seed=seed))]
    while not env.done:
        actions = {agent: choose(env, agent, dice) for agent in env.acting}
        record.append((actions, copy.deepcopy(env.step(actions)), env.acting))
    return [*record, env.returns]


# 1. Observations of exactly those who act next, four dicts of all that were alive


@every_env
def test_promise_1_who_is_in_the_five_dicts(make: Callable[[], MultiAgentEnv]) -> None:
    env = make()
    for seed in range(20):
        dice = random.Random(seed)
        observations, infos = env.reset(seed=seed)
        assert infos.keys() == set(env.agents) == set(env.possible_agents)
        while not env.done:
            assert tuple(observations) == env.acting != ()
            assert set(env.acting) <= set(env.agents)
            alive = env.agents
            step = env.step({agent: choose(env, agent, dice) for agent in env.acting})
            observations, rewards, terminations, truncations, infos = step
            assert rewards.keys() == terminations.keys() == truncations.keys() == infos.keys() == set(alive)
            for agent in alive:
                ended = terminations[agent] or truncations[agent]
                assert ended == (agent not in env.agents) == ("final_observation" in infos[agent])
        assert observations == {} and env.acting == ()


def test_promise_1_an_agent_that_ends_is_shown_what_it_would_have_seen() -> None:
    env = Village()
    env.reset(seed=0)
    *_, infos = env.step({"ann": "banish cat"})
    assert infos["cat"] == {"final_observation": env.observe("cat")}
    assert env.observe("cat").startswith("cat hears: ann: banish cat")


# 2. observe is pure and keeps secrets


@every_env
def test_promise_2_observe_is_pure(make: Callable[[], MultiAgentEnv]) -> None:
    env, dice = make(), random.Random(3)
    env.reset(seed=3)
    while not env.done:
        before = full_state(env)
        first = [env.observe(agent) for agent in env.agents]
        assert [env.observe(agent) for agent in env.agents] == first
        assert full_state(env) == before
        env.step({agent: choose(env, agent, dice) for agent in env.acting})


def test_promise_2_nobody_is_shown_the_other_s_secret() -> None:
    env = Secrets()
    observations, _ = env.reset(seed=1)
    while not env.done:
        ((agent, shown),) = observations.items()
        other = {"x": "y", "y": "x"}[agent]
        assert str(env.secrets[agent]) in shown and str(env.secrets[other]) not in shown
        observations, *_ = env.step({agent: "pass"})


def test_promise_2_a_kuhn_player_sees_the_same_whatever_the_other_holds() -> None:
    env: Any = marl_gem.make("game:KuhnPoker-v0")
    shown: dict[str, set[str]] = {}
    for seed in range(50):
        observations, _ = env.reset(seed=seed)
        shown.setdefault(env.cards, set()).add(observations["player_0"])
    assert len(shown) == 6
    assert shown["KQ"] == shown["KJ"] != shown["QJ"] == shown["QK"]


# 3. Wrong actions are refused, and nothing has changed


REFUSED: dict[str, tuple[Callable[[tuple[str, ...]], Any], str]] = {
    "the wrong agent": (lambda acting: {"nobody": "hello"}, "nobody"),
    "one too many": (lambda acting: dict.fromkeys([*acting, "nobody"], "hello"), "nobody"),
    "nobody at all": (lambda acting: {}, "missing"),
    "a number": (lambda acting: dict.fromkeys(acting, 7), "must be text"),
    "None": (lambda acting: dict.fromkeys(acting), "must be text"),
    "bytes": (lambda acting: dict.fromkeys(acting, b"hello"), "must be text"),
    "a list": (lambda acting: [(agent, "hello") for agent in acting], "must be a dict"),
    "a text": (lambda acting: "hello", "must be a dict"),
}


@every_env
@pytest.mark.parametrize("bad", REFUSED)
def test_promise_3_wrong_actions_change_nothing(make: Callable[[], MultiAgentEnv], bad: str) -> None:
    env: MultiAgentEnv = make()
    actions, complaint = REFUSED[bad]
    env.reset(seed=5)
    untouched, before = env.fork(), full_state(env)
    with pytest.raises(InvalidAction, match=complaint):
        env.step(actions(env.acting))
    assert full_state(env) == before
    assert finish(env) == finish(untouched)


def finish(env: MultiAgentEnv) -> list[Any]:
    """Play the rest of an episode."""
    dice, record = random.Random(9), []
    while not env.done:
        record.append(copy.deepcopy(env.step({agent: choose(env, agent, dice) for agent in env.acting})))
    return record


def test_promise_3_the_error_names_the_agents() -> None:
    env = Village()
    env.reset(seed=0)
    with pytest.raises(InvalidAction, match=r"Village.*exactly \['ann'\]; missing \['ann'\], not acting now \['bob'\]"):
        env.step({"bob": "hello"})


@every_env
@pytest.mark.parametrize(
    "text", ["", "\x00", "\ud800", "[" * 5000, "🃏" * 100, "[bet] [check]", "9" * 4000, "{} %s \\"]
)
def test_promise_3_no_text_raises(make: Callable[[], MultiAgentEnv], text: str) -> None:
    env = make()
    env.reset(seed=2)
    while not env.done:
        env.step(dict.fromkeys(env.acting, text))


def test_promise_3_infos_say_what_was_illegal() -> None:
    env = RockPaperScissors()
    env.reset()
    *_, infos = env.step({"a": "dynamite", "b": "rock"})
    assert infos["a"]["illegal"] == "'dynamite' is no hand" and "illegal" not in infos["b"]


# 4. Rewards are finite, and none is lost


@every_env
def test_promise_4_rewards_are_floats_and_returns_their_sums(make: Callable[[], MultiAgentEnv]) -> None:
    env, dice = make(), random.Random(4)
    for seed in range(20):
        env.reset(seed=seed)
        sums: dict[str, float] = {}
        late = False
        while not env.done:
            gone = env.returns.keys() - set(env.agents)
            before = {agent: env.returns[agent] for agent in gone}
            _, rewards, *_ = env.step({agent: choose(env, agent, dice) for agent in env.acting})
            assert all(type(reward) is float for reward in rewards.values())
            for agent, reward in rewards.items():
                sums[agent] = sums.get(agent, 0.0) + reward
            late = late or any(env.returns[agent] != before[agent] for agent in gone)
        if not late:
            assert {agent: env.returns[agent] for agent in sums} == pytest.approx(sums)


def test_promise_4_a_late_reward_counts_in_returns() -> None:
    env = Village()
    env.reset(seed=0)
    env.step({"ann": "leave"})
    _, rewards, *_ = env.step({"bob": "thank ann"})
    assert rewards == {"bob": 0.0, "cat": 0.0}
    assert env.returns == {"ann": 0.5, "bob": 0.0, "cat": 0.0}


@pytest.mark.parametrize(
    "reward", [float("nan"), float("inf"), -float("inf"), "1", None, [1.0], 1j, 10**400], ids=lambda r: str(r)[:5]
)
@pytest.mark.parametrize("departed", [False, True])
def test_promise_4_a_reward_that_is_no_finite_number_is_a_fault(reward: Any, departed: bool) -> None:
    def process(self: MultiAgentEnv, actions: dict[str, str]) -> None:
        if departed and self.steps == 1:
            self.terminations["b"] = True
        else:
            self.rewards["b"] = reward

    env = one_agent(possible_agents=("a", "b"), selector=ParallelSelector(), _process_actions=process)
    env.reset()
    if departed:
        env.step({"a": "", "b": ""})
    with pytest.raises(ScenarioFault, match="'b' the reward"):
        env.step(dict.fromkeys(env.acting, ""))
    with pytest.raises(EpisodeOver, match="reset"):
        env.step(dict.fromkeys(env.acting, ""))


def test_promise_4_whole_numbers_become_floats() -> None:
    env = one_agent(_process_actions=lambda self, actions: self.rewards.update(a=3))
    env.reset()
    _, rewards, *_ = env.step({"a": ""})
    assert type(rewards["a"]) is float and rewards == {"a": 3.0}


@pytest.mark.parametrize("name", ["rewards", "terminations", "truncations", "infos"])
@pytest.mark.parametrize("given", [{"stranger": 1.0}, None, 3.0], ids=str)
def test_promise_4_results_for_unknown_agents_or_in_no_dict_are_a_fault(name: str, given: Any) -> None:
    env = one_agent(_process_actions=lambda self, actions: setattr(self, name, given))
    env.reset()
    with pytest.raises(ScenarioFault, match=name):
        env.step({"a": ""})


@pytest.mark.parametrize("name", ["rewards", "terminations", "truncations", "infos"])
def test_promise_4_missing_results_get_their_defaults(name: str) -> None:
    env = one_agent(_process_actions=lambda self, actions: setattr(self, name, {}))
    env.reset()
    assert env.step({"a": ""})[1:] == ({"a": 0.0}, {"a": False}, {"a": False}, {"a": {}})


# 5. After the end step raises; agents join and leave


@every_env
def test_promise_5_after_the_end_step_raises_and_reset_starts_anew(make: Callable[[], MultiAgentEnv]) -> None:
    env = make()
    with pytest.raises(EpisodeOver, match=r"never reset; call reset\(\)"):
        env.step({})
    first = play(env, 6)
    with pytest.raises(EpisodeOver, match=r"over; call reset\(\)"):
        env.step({})
    assert env.done
    assert play(env, 6) == first


def test_promise_5_nobody_is_skipped_and_nobody_acts_twice() -> None:
    env = Village()
    env.reset(seed=0)
    spoken = []
    for text in ["invite dan", "banish ann", "hello", "leave", "hello", "banish bob"]:
        (speaker,) = env.acting
        spoken.append(speaker)
        env.step({speaker: text})
    assert spoken == ["ann", "bob", "cat", "dan", "bob", "cat"]
    assert env.agents == env.acting == ("cat",)


def test_promise_5_an_agent_that_joins_in_reset_acts_from_the_start() -> None:
    def reset(self: MultiAgentEnv, options: Mapping[str, Any]) -> None:
        self.add_agent("b")

    acting = {}
    for selector in (SequentialSelector(), ParallelSelector(), DirectedSelector()):
        for present in ((), ("a",)):
            env = one_agent(possible_agents=present, selector=selector, _reset=reset)
            observations, infos = env.reset()
            assert infos.keys() == {*present, "b"} and tuple(observations) == env.acting
            acting[type(selector).__name__, present] = env.acting
    assert acting == {
        ("SequentialSelector", ()): ("b",),
        ("SequentialSelector", ("a",)): ("a",),
        ("ParallelSelector", ()): ("b",),
        ("ParallelSelector", ("a",)): ("a", "b"),
        ("DirectedSelector", ()): ("b",),
        ("DirectedSelector", ("a",)): ("a",),
    }


def test_promise_5_a_reward_in_the_step_of_joining_counts() -> None:
    def process(self: MultiAgentEnv, actions: dict[str, str]) -> None:
        if self.steps == 1:
            self.add_agent("b")
            self.rewards["b"] = 2.0

    env = one_agent(_process_actions=process)
    env.reset()
    _, rewards, *_ = env.step({"a": ""})
    assert rewards == {"a": 0.0} and env.returns == {"a": 0.0, "b": 2.0} and env.acting == ("b",)


def test_promise_5_joining_twice_is_a_fault() -> None:
    env = one_agent(_process_actions=lambda self, actions: self.add_agent("a"))
    env.reset()
    with pytest.raises(ScenarioFault, match="'a' joins twice"):
        env.step({"a": ""})


def test_promise_5_a_game_that_never_ends_is_truncated() -> None:
    env = one_agent(possible_agents=("a", "b"))
    env.max_steps = 5
    env.reset()
    while not env.done:
        _, _, terminations, truncations, infos = env.step(dict.fromkeys(env.acting, ""))
    assert env.steps == 5
    assert terminations == {"a": False, "b": False} and truncations == {"a": True, "b": True}
    assert infos["a"] == {"final_observation": "Well?"}


def test_promise_5_agents_that_join_do_not_keep_an_episode_going_beyond_max_steps() -> None:
    def process(self: MultiAgentEnv, actions: dict[str, str]) -> None:
        self.add_agent(f"guest {self.steps}")
        self.terminations = dict.fromkeys(actions, True)

    env = one_agent(_process_actions=process, max_steps=3)
    env.reset()
    while not env.done:
        env.step(dict.fromkeys(env.acting, ""))
    assert env.steps == 3


def test_promise_5_an_end_at_the_limit_is_no_truncation() -> None:
    env = limited(RockPaperScissors(), 1)
    env.reset()
    _, rewards, terminations, truncations, _ = env.step({"a": "rock", "b": "scissors"})
    assert rewards == {"a": 1.0, "b": -1.0}
    assert all(terminations.values()) and not any(truncations.values())


# 6. The seed is all


@every_env
def test_promise_6_same_seed_same_episode(make: Callable[[], MultiAgentEnv]) -> None:
    env = make()
    once = [play(env, seed) for seed in range(5)]
    random.seed(0)
    again = [play(make(), seed) for seed in reversed(range(5))]
    assert once == again[::-1]


@every_env
def test_promise_6_whatever_runs_beside_it(make: Callable[[], MultiAgentEnv]) -> None:
    expected = {seed: play(make(), seed) for seed in range(8)}
    results: dict[int, list[Any]] = {}
    threads = [threading.Thread(target=lambda s=seed: results.update({s: play(make(), s)})) for seed in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == expected


@every_env
def test_promise_6_the_global_generator_is_left_alone(make: Callable[[], MultiAgentEnv]) -> None:
    play(make(), 1)
    before = random.getstate()
    play(make(), 1)
    assert random.getstate() == before


def test_promise_6_without_a_seed_a_seed_is_drawn_and_kept_in_env_seed() -> None:
    env = Secrets()
    seeds = {(env.reset(), env.seed)[1] for _ in range(5)}
    assert len(seeds) == 5
    secrets = env.secrets
    env.reset(seed=env.seed)
    assert env.secrets == secrets


# 7. fork


@every_env
def test_promise_7_a_fork_is_equal_and_independent(make: Callable[[], MultiAgentEnv]) -> None:
    env = make()
    env.reset(seed=8)
    while not env.done:
        fork, before = env.fork(), full_state(env)
        assert finish(fork) == finish(env.fork())
        assert full_state(env) == before
        env.step({agent: choose(env, agent, random.Random(env.steps)) for agent in env.acting})


# Promise 8: messages


def test_promise_8_what_is_sent_is_shown_once_to_exactly_its_hearers() -> None:
    env = Town()
    shown: dict[str, list[str]] = {agent: [] for agent in (*Town.possible_agents, "eve")}
    observations, infos = env.reset(seed=1)
    while not env.done:
        assert observations == {agent: env.observe(agent) for agent in env.acting}
        for agent in env.acting:
            shown[agent] += observations[agent].splitlines()
        observations, *_, infos = env.step({agent: f"{agent} in step {env.steps + 1}" for agent in env.acting})
        for agent, info in infos.items():
            shown[agent] += info.get("final_observation", "").splitlines()
    heard = {agent: [str(message) for message in env.message_log if agent in message.hearers] for agent in shown}
    assert {agent: sorted(lines) for agent, lines in shown.items()} == {
        agent: sorted(lines) for agent, lines in heard.items()
    }
    assert all(len(lines) == len(set(lines)) > 3 for lines in shown.values())


# The list of promises


def test_every_promise_of_the_contract_has_tests() -> None:
    numbers = re.findall(r"^    (\d+)\. ", MultiAgentEnv.__doc__ or "", re.M)
    tested = {found[1] for name in globals() if (found := re.match(r"test_promise_(\d+)_", name))}
    assert numbers == [str(number) for number in range(1, 9)] and tested == set(numbers)
