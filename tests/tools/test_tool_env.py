"""Agents with tools in any scenario: whose turn it is, who sees what, limits, rewards, forks and records."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Mapping
from typing import Any, TypeVar

import pytest

import marl_gem
from marl_gem import Metadata, MultiAgentEnv, ParallelSelector, Role, SequentialSelector, ToolSpec
from marl_gem.errors import ConfigError, EpisodeOver, InvalidAction, LLMError, ResourceError, ScenarioFault
from marl_gem.policies import ScriptedPolicy
from marl_gem.rollout import Job, collect
from marl_gem.selectors.base import AgentSelector
from marl_gem.tools import Context, Image, Resource, ResourcePool, tool
from marl_gem.tools.calculator import calculator
from marl_gem.tools.calls import write_call
from marl_gem.tools.resources import submit
from marl_gem.types import Episode, Limits, from_json, to_json
from marl_gem.views import chat
from marl_gem.wrappers import RecordEpisodes, TimeLimit, ToolEnv


class Sums(MultiAgentEnv):
    """Both are asked for a sum, one after the other."""

    possible_agents = ("ann", "bob")
    selector: AgentSelector = SequentialSelector()
    metadata = Metadata(turn_order="sequential", reward_range=(0.0, 1.0))
    max_steps = 4

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        self.spoken: list[str] = []

    def observe(self, agent: str) -> str:
        return f"{agent}: what is 17 + {self.steps}? So far: {self.spoken}"

    def role(self, agent: str) -> Role:
        return Role("You add.", (ToolSpec("ring"),) if agent == "bob" else ())

    def _process_action(self, agent: str, action: str) -> None:
        self.spoken.append(action)
        self.rewards[agent] = float(action == str(17 + self.steps - 1))


class Duel(Sums):
    """Both are asked at the same time."""

    selector: AgentSelector = ParallelSelector()
    metadata = Metadata(turn_order="parallel", reward_range=(0.0, 1.0))

    def role(self, agent: str) -> Role:
        return Role()


def add(a: int, b: int) -> str:
    return write_call("calculator", {"expression": f"{a} + {b}"})


Env = TypeVar("Env", bound=MultiAgentEnv)


def messages_of(env: Any) -> list[str]:
    """All actions that the scenario got."""
    actions: list[str] = env.unwrapped.spoken
    return actions


def begun(env: Env, seed: int = 3) -> Env:
    env.reset(seed=seed)
    return env


def text_of(observation: Any) -> str:
    return observation if isinstance(observation, str) else "\n".join(part.get("text", "") for part in observation)


# Whose turn it is


def test_the_turn_stays_with_the_caller_and_the_scenario_sees_nothing() -> None:
    env = begun(ToolEnv(Sums(), calculator))
    observations, rewards, terminations, truncations, infos = env.step({"ann": f"Let me see. {add(17, 0)}"})
    assert observations == {"ann": [{"type": "tool_result", "name": "calculator", "text": "17"}]}
    assert env.acting == ("ann",) and env.observe("ann") == observations["ann"]
    assert rewards == {"ann": 0.0, "bob": 0.0} and not any((*terminations.values(), *truncations.values()))
    assert infos == {"ann": {"tool_calls": [{"name": "calculator", "error": ""}]}, "bob": {}}
    observations, rewards, *_ = env.step({"ann": "17"})
    assert rewards["ann"] == 1.0 and text_of(observations["bob"]) == "bob: what is 17 + 1? So far: ['17']"
    assert env.steps == 2 and env.env.steps == 1


def test_all_calls_of_a_response_are_answered_in_order() -> None:
    env = begun(ToolEnv(Sums(), calculator))
    call = write_call("calculator", {"expression": "1/0"})
    broken = "<tool_call>{oops</tool_call>"
    unknown = write_call("weather", {})
    observations, *_, infos = env.step({"ann": "".join([add(1, 2), call, broken, unknown])})
    texts = [part["text"] for part in observations["ann"]]
    assert texts[:2] == ["3", "Error: division by zero"]
    assert texts[2].startswith("Error: this call cannot be read: not JSON")
    assert texts[3] == "Error: there is no tool 'weather'; there are calculator"
    errors = [call["error"] for call in infos["ann"]["tool_calls"]]
    assert errors == ["", "refused", "broken call", "unknown tool"]


def test_together_calls_do_not_wait_for_each_other() -> None:
    arrived = threading.Barrier(2)

    @tool(timeout=60)
    def meet() -> str:
        arrived.wait(60)
        return "met"

    env = begun(ToolEnv(Sums(), meet, order="together"))
    observations, *_ = env.step({"ann": write_call("meet", {}) * 2})
    assert [part["text"] for part in observations["ann"]] == ["met", "met"]


def test_who_acts_waits_for_who_calls() -> None:
    env = begun(ToolEnv(Duel(), calculator))
    observations, rewards, *_ = env.step({"ann": add(17, 0), "bob": "17"})
    assert list(observations) == ["ann"] and env.acting == ("ann",) and set(rewards) == {"ann", "bob"}
    with pytest.raises(InvalidAction, match=r"exactly \['ann'\]"):
        env.step({"ann": "17", "bob": "18"})
    observations, *_ = env.step({"ann": add(1, 1)})
    assert env.acting == ("ann",) and text_of(observations["ann"]) == "2"
    observations, rewards, *_ = env.step({"ann": "17"})
    assert rewards == {"ann": 1.0, "bob": 1.0} and env.acting == ("ann", "bob")
    assert text_of(observations["bob"]) == "bob: what is 17 + 1? So far: ['17', '17']"
    assert env.metadata.turn_order == "mixed"


def test_both_may_call_at_the_same_time() -> None:
    env = begun(ToolEnv(Duel(), calculator))
    observations, *_ = env.step({"ann": add(1, 1), "bob": add(2, 2)})
    assert {agent: text_of(seen) for agent, seen in observations.items()} == {"ann": "2", "bob": "4"}


def test_some_agents_may_have_tools_and_others_not() -> None:
    env = begun(ToolEnv(Duel(), calculator, agents="ann"))
    assert [spec.name for spec in env.role("ann").tools] == ["calculator"] and env.role("bob").tools == ()
    env.step({"ann": "17", "bob": add(1, 1)})
    assert messages_of(env) == ["17", add(1, 1)]


def test_agents_may_have_different_tools() -> None:
    @tool
    def shout(word: str) -> str:
        return word.upper()

    env = begun(ToolEnv(ToolEnv(Duel(), calculator, agents="ann"), shout, agents=["bob"]))
    assert [[spec.name for spec in env.role(agent).tools] for agent in env.agents] == [["calculator"], ["shout"]]
    observations, *_ = env.step({"ann": add(1, 1), "bob": write_call("shout", {"word": "a"})})
    assert list(observations) == ["bob"] and text_of(observations["bob"]) == "A"
    observations, *_ = env.step({"bob": "17"})
    assert list(observations) == ["ann"] and text_of(observations["ann"]) == "2"


def test_calls_of_the_scenarios_own_tools_reach_it() -> None:
    env = begun(ToolEnv(Sums(), calculator))
    env.step({"ann": "17"})
    assert [spec.name for spec in env.role("bob").tools] == ["ring", "calculator"]
    env.step({"bob": write_call("ring", {})})
    assert messages_of(env)[-1] == write_call("ring", {})


def test_a_tool_with_the_name_of_a_tool_of_the_scenario() -> None:
    @tool
    def ring() -> str:
        return "ding"

    env = begun(ToolEnv(Sums(), ring))
    with pytest.raises(ScenarioFault, match="Sums gives 'bob' a tool 'ring' itself"):
        env.role("bob")


# Limits and rewards


def test_a_limit_in_a_turn() -> None:
    env = begun(ToolEnv(Sums(), calculator, calls_per_turn=2))
    env.step({"ann": add(1, 1)})
    observations, *_ = env.step({"ann": add(1, 2) + add(1, 3)})
    first, second = observations["ann"]
    assert first["text"] == "3" and second["text"].startswith("Error: no calls of tools are left in this turn")
    assert second["text"].endswith("[No calls of tools are left in this turn: act now.]")
    observations, *_ = env.step({"ann": add(1, 4)})
    assert messages_of(env) == [add(1, 4)] and list(observations) == ["bob"]
    observations, *_ = env.step({"bob": add(1, 5)})
    assert text_of(observations["bob"]) == "6"  # every turn has its own


def test_a_limit_in_an_episode_and_the_end_of_it() -> None:
    env = begun(ToolEnv(Sums(), calculator, calls_per_turn=None, calls_per_episode=2, at_limit="truncate"))
    for _ in range(2):
        env.step({"ann": add(1, 1)})
    observations, _, terminations, truncations, infos = env.step({"ann": add(1, 1)})
    assert env.done and observations == {} and truncations == {"ann": True, "bob": True}
    assert infos["ann"]["tool_calls"] == [{"name": "calculator", "error": "limit"}]
    assert "final_observation" in infos["bob"] and not any(terminations.values())
    with pytest.raises(EpisodeOver):
        env.step({"ann": "17"})
    env.reset(seed=1)
    env.step({"ann": add(1, 1)})
    assert not env.done


def test_calls_may_pay_or_cost() -> None:
    env = begun(ToolEnv(Sums(), calculator, call_reward=-0.25, error_reward=-1.0))
    _, rewards, *_ = env.step({"ann": add(1, 1) + write_call("weather", {})})
    assert rewards == {"ann": -1.25, "bob": 0.0} and env.returns == {"ann": -1.25, "bob": 0.0}
    env.step({"ann": "17"})
    assert env.returns == {"ann": -0.25, "bob": 0.0} and env.rewards["ann"] == 1.0
    assert env.metadata.reward_range == (-10.0, 1.0)
    env.reset(seed=1)
    assert env.returns == {"ann": 0.0, "bob": 0.0}


@pytest.mark.parametrize(
    "settings",
    [
        {"tools": []},
        {"tools": "no_such_tool"},
        {"tools": 7},
        {"tools": [calculator, calculator]},
        {"tools": calculator, "agents": "nobody"},
        {"tools": calculator, "format": "smoke"},
        {"tools": calculator, "format": []},
        {"tools": calculator, "order": "backwards"},
        {"tools": calculator, "at_limit": "explode"},
        {"tools": calculator, "calls_per_turn": 0},
        {"tools": calculator, "calls_per_episode": 1.5},
        {"tools": calculator, "call_reward": float("nan")},
        {"tools": calculator, "error_reward": "much"},
    ],
    ids=str,
)
def test_settings_that_cannot_be_used(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ToolEnv(Duel(), **settings)


# What tools know


def test_a_tool_knows_who_calls_in_which_env_and_draws_the_same_for_the_same_seed() -> None:
    @tool(in_thread=False)
    def look(context: Context) -> str:
        return f"{context.agent} {context.env.steps} {context.seed}"

    def play(seed: int) -> list[str]:
        env = begun(ToolEnv(Sums(), look), seed)
        return [text_of(env.step({"ann": write_call("look", {})})[0]["ann"]) for _ in range(2)]

    first, second = play(5)
    assert first.startswith("ann 0 ") and first != second
    assert play(5) == [first, second] and play(6) != [first, second]


def test_images_come_after_all_texts() -> None:
    @tool
    def draw() -> list[Any]:
        return ["a dot", Image(b"dot")]

    env = begun(ToolEnv(Sums(), [draw, calculator]))
    observations, *_ = env.step({"ann": write_call("draw", {}) + add(1, 1)})
    kinds = [part["type"] for part in observations["ann"]]
    assert kinds == ["tool_result", "tool_result", "text", "image"]


class Bell(Resource):
    """Counts how often it was rung."""

    def __init__(self) -> None:
        self.count = 0

    async def reset(self) -> None:
        self.count = 0


def bells(size: int = 4, timeout: float = 30.0) -> tuple[ResourcePool[Bell], Any]:
    pool = ResourcePool(Bell, size=size, timeout=timeout)

    @tool(resources={"bell": pool}, in_thread=False)
    def strike(bell: Bell) -> int:
        bell.count += 1
        return bell.count

    return pool, strike


def free(pool: ResourcePool[Any]) -> bool:
    for _ in range(10_000):
        submit(asyncio.sleep(0)).result()
        if pool.in_use == 0:
            return True
    return False


def strike_once(env: MultiAgentEnv) -> str:
    (agent,) = env.acting
    return text_of(env.step({agent: write_call("strike", {})})[0][agent])


def test_resources_are_given_back_at_the_end_at_a_reset_and_when_closed() -> None:
    pool, strike = bells()
    env = begun(ToolEnv(Sums(), strike))
    assert [strike_once(env), strike_once(env), pool.in_use] == ["1", "2", 1]
    while not env.done:
        env.step(dict.fromkeys(env.acting, "17"))
    assert free(pool)
    begun(env)
    assert strike_once(env) == "1"
    begun(env)
    assert free(pool) and strike_once(env) == "1"
    env.close()
    assert free(pool)


def test_resources_are_given_back_when_a_rollout_is_cut_or_fails() -> None:
    pool, strike = bells()

    def caller(fails: bool) -> ScriptedPolicy:
        def act(observation: Any, info: Any) -> str:
            if fails and not isinstance(observation, str):
                raise RuntimeError("out of ideas")
            return write_call("strike", {})

        return ScriptedPolicy(act)

    jobs = [Job(0, caller(False), limits=Limits(turns=3)), Job(1, caller(True))]
    cut, failed = collect(lambda: ToolEnv(Sums(), strike), jobs, concurrency=1)
    assert (cut.ending, cut.limit, failed.ending) == ("truncated", "turns", "error")
    assert [text_of(turn.observation) for turn in cut.turns[1:]] == ["1", "2"]
    assert text_of(failed.turns[-1].response.text) == write_call("strike", {}) and free(pool)


def test_what_a_pool_cannot_give_is_an_error_with_the_origin_tool() -> None:
    pool, strike = bells(size=1, timeout=0.05)
    with pool.lease():
        caller = ScriptedPolicy(lambda observation, info: write_call("strike", {}))
        (episode,) = collect(lambda: ToolEnv(Sums(), strike), [Job(0, caller)])
        env = begun(ToolEnv(Sums(), strike))
        with pytest.raises(ResourceError):
            env.step({"ann": write_call("strike", {})})
        with pytest.raises(EpisodeOver):
            env.step({"ann": "17"})
    assert episode.error is not None and episode.returns == {"ann": 0.0, "bob": 0.0}
    assert (episode.error.origin, episode.error.type) == ("tool", "ResourceError")


def test_a_fork_is_independent() -> None:
    pool, strike = bells()
    env = begun(ToolEnv(Sums(), strike))
    assert [strike_once(env), strike_once(env)] == ["1", "2"]
    fork = env.fork()
    assert fork.observe("ann") == env.observe("ann")
    assert [strike_once(env), strike_once(fork), strike_once(fork)] == ["3", "3", "4"]
    env.step({"ann": "17"})
    assert fork.acting == ("ann",) and env.acting == ("bob",)
    env.close()
    fork.close()
    assert free(pool)


POOL = ResourcePool(Bell, size=4)


@tool(resources={"bell": POOL})
def knock(bell: Bell) -> int:
    bell.count += 1
    return bell.count


def test_an_env_whose_tools_use_resources_can_be_pickled() -> None:
    env = begun(ToolEnv(Sums(), knock))
    env.step({"ann": write_call("knock", {})})
    other = pickle.loads(pickle.dumps(env))
    observations, *_ = other.step({"ann": write_call("knock", {})})
    assert text_of(observations["ann"]) == "2" and POOL.in_use == 2
    env.close()
    other.close()
    assert free(POOL)


def test_an_env_with_tools_can_be_pickled() -> None:
    env = begun(ToolEnv(Duel(), calculator))
    env.step({"ann": add(1, 1), "bob": "17"})
    other = pickle.loads(pickle.dumps(env))
    assert other.acting == ("ann",) and other.observe("ann") == env.observe("ann")
    assert other.step({"ann": "17"})[1] == {"ann": 1.0, "bob": 1.0}


# Failures


def test_a_failure_of_a_model_that_a_tool_asks_is_the_models() -> None:
    @tool
    async def ask() -> str:
        raise LLMError("no answer")

    caller = ScriptedPolicy(lambda observation, info: write_call("ask", {}))
    (episode,) = collect(lambda: ToolEnv(Sums(), ask), [Job(0, caller)])
    assert episode.error is not None and episode.error.origin == "llm"


def test_wrong_actions_change_nothing() -> None:
    env = begun(ToolEnv(Duel(), calculator))
    before = list(messages_of(env))
    for wrong in ({"ann": add(1, 1)}, {"ann": 7, "bob": "17"}, {}, None):
        with pytest.raises(InvalidAction):
            env.step(wrong)  # type: ignore[arg-type]
    assert messages_of(env) == before and env.acting == ("ann", "bob") and env.steps == 0


def test_a_blocking_tool_stops_no_other_episode() -> None:
    free_to_go = threading.Event()
    finished: list[int] = []

    @tool
    def wait() -> str:
        free_to_go.wait(60)
        return "done"

    def act(observation: Any, info: Any) -> str:
        if isinstance(observation, str):
            return write_call("wait", {}) if "ann" in observation and "[]" in observation else "17"
        return "17"

    def quick(observation: Any, info: Any) -> str:
        finished.append(1)
        if len(finished) == 4:
            free_to_go.set()
        return "17"

    jobs = [Job(0, ScriptedPolicy(act)), Job(1, ScriptedPolicy(quick))]
    slow, fast = collect(lambda: ToolEnv(Sums(), wait), jobs, concurrency=2)
    assert (slow.ending, len(slow.turns), len(fast.turns)) == ("truncated", 5, 4)


# Rollouts, records, views


def solver(observation: Any, info: Any) -> str:
    """Calls the calculator, and answers what it says."""
    if isinstance(observation, str):
        left, right = observation.partition("is ")[2].partition("?")[0].split(" + ")
        return add(int(left), int(right))
    return observation[0]["text"]


@pytest.mark.parametrize("make", [Sums, Duel])
def test_episodes_with_tools_are_recorded_turn_by_turn(make: Any, tmp_path: Any) -> None:
    (episode,) = collect(lambda: ToolEnv(make(), calculator), [Job(0, ScriptedPolicy(solver))])
    assert episode.error is None and sum(episode.returns.values()) == len(episode.turns) / 2
    assert episode.turns[0].info == {"tool_calls": [{"name": "calculator", "error": ""}]}
    assert episode.turns[0].reward == 0.0
    assert from_json(to_json(episode), Episode) == episode
    assert [spec.name for spec in episode.roles["ann"].tools] == ["calculator"]
    env = begun(RecordEpisodes(ToolEnv(TimeLimit(make(), 2), calculator), tmp_path))
    while not env.done:
        env.step({agent: solver(env.observe(agent), {}) for agent in env.acting})
    recorded = from_json((tmp_path / "episodes.jsonl").read_text(), Episode)
    assert recorded.turns[0].info == episode.turns[0].info and len(recorded.turns) == (8 if make is Duel else 4)


def test_the_next_prompt_holds_the_call_and_its_result() -> None:
    seen: list[Any] = []

    def act(observation: Any, info: Any) -> str:
        seen.append(observation)
        return solver(observation, info)

    (episode,) = collect(lambda: ToolEnv(Sums(), calculator), [Job(0, ScriptedPolicy(act))])
    history = [(turn.observation, turn.response) for turn in episode.turns_of("ann")[:2]]
    messages = chat(Role(), history)  # type: ignore[arg-type]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[2]["name"] == "calculator" and messages[2]["content"] == "17"


def test_tools_in_a_registered_scenario_of_two() -> None:
    env = ToolEnv(marl_gem.make("game:KuhnPoker-v0"), "calculator")
    observations, infos = env.reset(seed=3)
    (agent,) = observations
    *_, infos = env.step({agent: add(1, 1)})
    assert infos[agent]["legal_actions"] == ["[check]", "[bet]"] or infos[agent]["legal_actions"]
    env.step({agent: infos[agent]["legal_actions"][0]})
    assert env.acting != (agent,)
