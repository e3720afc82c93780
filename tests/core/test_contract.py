"""The seven promises of the contract, on small scenarios written here and on registered ones."""

from __future__ import annotations

import copy
import importlib.util
import random
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

import marl_gem
from marl_gem import AgentSelector, DirectedSelector, MultiAgentEnv, ParallelSelector, Role, SequentialSelector
from marl_gem.errors import EpisodeOver, InvalidAction, InvalidOption, ScenarioFault, SelectorError

# The scenarios


class RockPaperScissors(MultiAgentEnv):
    possible_agents = ("a", "b")
    selector = ParallelSelector()

    def observe(self, agent: str) -> str:
        return "Rock, paper or scissors?"

    def _process_actions(self, actions: dict[str, str]) -> None:
        hands = ["rock", "paper", "scissors"]
        a, b = (hands.index(actions[agent]) if actions[agent] in hands else None for agent in ("a", "b"))
        if a is None or b is None:
            self.infos = {agent: {"illegal": actions[agent] not in hands} for agent in actions}
        else:
            self.rewards = {"a": float((a - b + 1) % 3 - 1), "b": float((b - a + 1) % 3 - 1)}
        self.terminations = dict.fromkeys(self.agents, True)


class Village(MultiAgentEnv):
    """In turn each villager says `leave`, `banish NAME`, `invite NAME`, `thank NAME` or anything else."""

    possible_agents = ("ann", "bob", "cat")
    selector = SequentialSelector()

    def _reset(self, options: Mapping[str, Any]) -> None:
        self.village = options.get("village", "Hamlet")
        super()._reset({name: value for name, value in options.items() if name != "village"})
        self.heard: list[str] = []

    def role(self, agent: str) -> Role:
        return Role(f"You are {agent} of {self.village}.")

    def observe(self, agent: str) -> str:
        return f"{agent} hears: {'; '.join(self.heard)}"

    def _process_actions(self, actions: dict[str, str]) -> None:
        ((speaker, text),) = actions.items()
        self.heard.append(f"{speaker}: {text} ({self.rng.randrange(1000)})")
        verb, _, name = text.partition(" ")
        if verb == "leave":
            self.terminations[speaker] = True
        elif verb == "banish" and name in self.agents:
            self.terminations[name] = True
        elif verb == "invite" and name not in self.returns:
            self.add_agent(name)
        elif verb == "thank" and name in self.returns:
            self.rewards[name] = self.rewards.get(name, 0.0) + 0.5


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


def one_agent(**given: Any) -> MultiAgentEnv:
    """An env with one agent `a`; whatever is given replaces its methods and attributes."""
    parts = {
        "possible_agents": ("a",),
        "selector": SequentialSelector(),
        "observe": lambda self, agent: "Well?",
        "_process_actions": lambda self, actions: None,
    }
    return type("Tiny", (MultiAgentEnv,), parts | given)()


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


def state(value: Any, around: tuple[int, ...] = ()) -> Any:
    """Everything an env holds, down to its parts' parts, in a form that can be compared."""
    if id(value) in around:
        return "itself"
    around = (*around, id(value))
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, Mapping):
        return [(key, state(part, around)) for key, part in value.items()]
    if isinstance(value, list | tuple | set):
        return [type(value).__name__, *(state(part, around) for part in value)]
    if hasattr(value, "__dict__") and not callable(value):
        return [type(value).__name__, state(vars(value), around)]
    return value


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
            observations, *four = env.step({agent: choose(env, agent, dice) for agent in env.acting})
            assert all(part.keys() == set(alive) for part in four)
            _, terminations, truncations, infos = four
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
        before = state(env)
        first = [env.observe(agent) for agent in env.agents]
        assert [env.observe(agent) for agent in env.agents] == first
        assert state(env) == before
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
    env = marl_gem.make("game:KuhnPoker-v0")
    shown: dict[str, set[str]] = {}
    for seed in range(50):
        observations, _ = env.reset(seed=seed)
        shown.setdefault(env.cards, set()).add(observations["player_0"])
    assert len(shown) == 6
    assert shown["KQ"] == shown["KJ"] != shown["QJ"] == shown["QK"]


# 3. Wrong actions are refused, and nothing has changed


REFUSED = {
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
    env, (actions, complaint) = make(), REFUSED[bad]
    env.reset(seed=5)
    untouched, before = env.fork(), state(env)
    with pytest.raises(InvalidAction, match=complaint):
        env.step(actions(env.acting))
    assert state(env) == before
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


def test_promise_3_an_illegal_move_is_told_in_infos() -> None:
    env = RockPaperScissors()
    env.reset()
    *_, infos = env.step({"a": "dynamite", "b": "rock"})
    assert infos["a"]["illegal"] and not infos["b"]["illegal"]


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
def test_promise_4_what_is_no_finite_number_is_a_fault(reward: Any, departed: bool) -> None:
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
def test_promise_4_what_is_told_of_strangers_or_in_no_dict_is_a_fault(name: str, given: Any) -> None:
    env = one_agent(_process_actions=lambda self, actions: setattr(self, name, given))
    env.reset()
    with pytest.raises(ScenarioFault, match=name):
        env.step({"a": ""})


@pytest.mark.parametrize("name", ["rewards", "terminations", "truncations", "infos"])
def test_promise_4_what_is_left_out_takes_its_default(name: str) -> None:
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


def test_promise_5_who_joins_in_reset_acts_from_the_start() -> None:
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


def test_promise_5_a_newcomer_s_first_reward_counts() -> None:
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


def test_promise_5_nor_do_newcomers_keep_it_going() -> None:
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


def test_promise_6_without_a_seed_one_is_drawn_and_told() -> None:
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
        twin, before = env.fork(), state(env)
        assert finish(twin) == finish(env.fork())
        assert state(env) == before
        env.step({agent: choose(env, agent, random.Random(env.steps)) for agent in env.acting})


# Bad input, and scenarios that break


def test_a_seed_may_be_numpy_s() -> None:
    numpy = pytest.importorskip("numpy")
    env = Secrets()
    expected = env.reset(seed=7)
    assert env.reset(seed=numpy.int64(7)) == expected
    assert env.seed == 7 and type(env.seed) is int


@pytest.mark.parametrize("seed", [-1, 1.5, "7", True, [1]], ids=str)
def test_a_bad_seed_is_refused_and_the_episode_goes_on(seed: Any) -> None:
    env = Village()
    env.reset(seed=0)
    before = state(env)
    with pytest.raises(InvalidOption, match="a seed is an integer"):
        env.reset(seed=seed)
    assert state(env) == before
    env.step({"ann": "hello"})


def test_reset_options() -> None:
    env = Village()
    env.reset(options={"village": "Thorpe"})
    assert env.role("ann").instructions == "You are ann of Thorpe."
    with pytest.raises(InvalidOption, match=r"Village takes no reset options, but got \['weather'\]"):
        env.reset(options={"weather": "rain"})
    with pytest.raises(EpisodeOver):
        env.step({"ann": "hello"})


def fail(*_: Any) -> Any:
    raise KeyError("oops")


@pytest.mark.parametrize("method", ["_reset", "observe", "legal_actions"])
def test_a_scenario_that_raises_in_reset(method: str) -> None:
    env = one_agent(**{method: fail})
    with pytest.raises(ScenarioFault, match=f"Tiny: {method} raised KeyError at step 0 .* seed 3: 'oops'") as caught:
        env.reset(seed=3)
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(EpisodeOver):
        env.step({"a": ""})


@pytest.mark.parametrize("ends", [False, True])
def test_a_scenario_that_raises_in_a_step(ends: bool) -> None:
    faults = []
    for method in ("_process_actions", "observe"):
        env = one_agent(_process_actions=lambda self, actions: self.terminations.update(a=ends))
        env.reset()
        setattr(env, method, fail)
        with pytest.raises(ScenarioFault, match=f"{method} raised KeyError at step 1"):
            env.step({"a": ""})
        with pytest.raises(EpisodeOver, match="not reset after a failure"):
            env.step({"a": ""})
        delattr(env, method)
        env.reset()
        faults.append(env.step({"a": ""})[2])
    assert faults == [{"a": ends}] * 2


class Naming(AgentSelector):
    """Names `first` to begin with, and `then` ever after."""

    def __init__(self, first: Any, then: Any) -> None:
        self.first, self.then = first, then

    def reset(self, agents: Any) -> None:
        super().reset(agents)
        self.acting = self.first

    def advance(self) -> None:
        self.acting = self.then


@pytest.mark.parametrize("names", [(), ("stranger",), ("a", "a"), ("a", "stranger")], ids=str)
def test_a_selector_that_names_nobody_a_stranger_or_somebody_twice(names: tuple[str, ...]) -> None:
    with pytest.raises(SelectorError, match=r"Naming names .* after step 0.*\['a'\]"):
        one_agent(selector=Naming(names, ("a",))).reset()
    env = one_agent(selector=Naming(("a",), names))
    env.reset()
    with pytest.raises(SelectorError, match="after step 1"):
        env.step({"a": ""})
    with pytest.raises(EpisodeOver):
        env.step({"a": ""})


@pytest.mark.parametrize("names", [None, "a", 7, [["a"]]], ids=str)
def test_a_selector_that_names_in_no_tuple(names: Any) -> None:
    env = one_agent(selector=Naming(("a",), names))
    env.reset()
    with pytest.raises(SelectorError, match=r"Naming names .* after step 1"):
        env.step({"a": ""})


def test_a_selector_may_name_in_a_list_of_its_own() -> None:
    names = ["a"]
    env = one_agent(selector=Naming(("a",), names))
    env.reset()
    env.step({"a": ""})
    names.append("b")
    assert env.acting == ("a",)


def test_a_selector_that_raises_at_the_first_turn() -> None:
    class Raising(SequentialSelector):
        def advance(self) -> None:
            raise KeyError("oops")

    with pytest.raises(ScenarioFault, match=r"selector\.advance raised KeyError at step 0"):
        one_agent(selector=Raising()).reset()


def test_a_selector_that_raises_and_one_that_is_missing() -> None:
    selector = SequentialSelector()
    env = one_agent(selector=selector)
    env.reset()
    env.selector.advance = fail  # type: ignore[method-assign]
    with pytest.raises(ScenarioFault, match=r"selector\.advance raised KeyError"):
        env.step({"a": ""})
    with pytest.raises(SelectorError, match="set one"):
        one_agent(selector=None).reset()


def test_close_may_be_called_twice() -> None:
    env = RockPaperScissors()
    env.close()
    env.close()


# What an author may get wrong


@pytest.mark.parametrize("agents", [("a", "a"), "ab", (1, 2), {"a", "b"}, None], ids=str)
def test_agents_that_are_not_names_each_once(agents: Any) -> None:
    with pytest.raises(ScenarioFault, match="possible_agents are names, each once"):
        one_agent(possible_agents=agents).reset()


@pytest.mark.parametrize("how", ["terminations", "truncations"])
def test_nobody_leaves_before_the_first_turn(how: str) -> None:
    def reset(self: MultiAgentEnv, options: Mapping[str, Any]) -> None:
        getattr(self, how)["a"] = True

    with pytest.raises(ScenarioFault, match="nobody leaves before the first turn"):
        one_agent(_reset=reset).reset()


def test_who_joins_has_a_name() -> None:
    env = one_agent(_process_actions=lambda self, actions: self.add_agent(5))
    env.reset()
    with pytest.raises(ScenarioFault, match="an agent's name is text, not 5"):
        env.step({"a": ""})


def test_nobody_joins_and_leaves_in_one_step() -> None:
    def process(self: MultiAgentEnv, actions: dict[str, str]) -> None:
        self.add_agent("b")
        self.terminations["b"] = True

    env = one_agent(_process_actions=process)
    env.reset()
    with pytest.raises(ScenarioFault, match="joined in this very step"):
        env.step({"a": ""})


def test_actions_can_be_checked_beforehand() -> None:
    env = RockPaperScissors()
    env.reset(seed=1)
    before = state(env)
    env.check_actions({"a": "rock", "b": "paper"})
    for wrong in ({"a": "rock"}, {"a": "rock", "b": "paper", "c": ""}, {"a": "rock", "b": 3}, "rock"):
        with pytest.raises(InvalidAction):
            env.check_actions(wrong)  # type: ignore[arg-type]
    assert state(env) == before


@pytest.mark.parametrize(("name", "value"), [("infos", None), ("terminations", "yes"), ("truncations", 2)])
def test_what_a_scenario_reports_has_its_type(name: str, value: Any) -> None:
    env = one_agent(_process_actions=lambda self, actions: setattr(self, name, {"a": value}))
    env.reset()
    with pytest.raises(ScenarioFault, match=f"{name} must hold a .* for each agent, not {value!r}"):
        env.step({"a": ""})
    env = one_agent(_process_actions=lambda self, actions: getattr(self, name).update({"a": value}))
    env.reset()
    with pytest.raises(ScenarioFault, match=f"{name} must hold a .* for each agent, not {value!r}"):
        env.step({"a": ""})


@pytest.mark.parametrize("ended", [0, 1])
def test_a_flag_may_be_a_number(ended: int) -> None:
    def instead(self: MultiAgentEnv, actions: dict[str, str]) -> None:
        self.terminations = {"a": ended}  # type: ignore[dict-item]

    def in_place(self: MultiAgentEnv, actions: dict[str, str]) -> None:
        self.terminations["a"] = ended  # type: ignore[assignment]

    for process in (instead, in_place):
        env = one_agent(_process_actions=process)
        env.reset()
        _, _, terminations, _, _ = env.step({"a": ""})
        assert terminations == {"a": bool(ended)} and isinstance(terminations["a"], bool)
        assert env.done == bool(ended)
