"""Checks of what `reset` and `step` return: the five dicts, observations, roles, rewards, records, legal actions."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import msgspec

from marl_gem import registry
from marl_gem.env import MultiAgentEnv
from marl_gem.errors import PromiseBroken, RecordError, UnknownScenario
from marl_gem.policies import Agent, Info
from marl_gem.rollout import Job, play_episode
from marl_gem.specs import ScenarioSpec
from marl_gem.testing.random_play import (
    THOROUGH,
    Make,
    Moment,
    Plan,
    PlayFailed,
    as_data,
    moments,
    play_randomly,
    random_action,
    reproduce,
    short,
)
from marl_gem.types import Episode, InfoKeys, Metadata, Observation, Response, Role, ToolSpec, Turn, from_json, to_json

# The five dicts


def check_dicts(make: Make, plan: Plan = THOROUGH) -> None:
    """Observations hold the agents that act next, the other four dicts those that were alive before."""
    left: set[str] = set()
    for env, now in moments(make, plan):
        left = left if now.step else set()
        _check_acting(env, now)
        four = {"rewards": now.rewards, "terminations": now.terminations, "truncations": now.truncations}
        for name, results in {"infos": now.infos, **(four if now.step else {})}.items():
            if not isinstance(results, dict) or set(results) != set(now.alive):
                raise now.broken(f"{name} must hold {list(now.alive)}, but is {short(results)}")
        for agent in now.alive:
            _check_end(env, now, agent)
        if left & set(env.agents):
            raise now.broken(f"{sorted(left & set(env.agents))} came back after they had terminated or been truncated")
        left |= set(now.alive) - set(env.agents)
        if env.steps != now.step:
            raise now.broken(f"env.steps is {env.steps} after {now.step} steps")


def _check_acting(env: MultiAgentEnv, now: Moment) -> None:
    if not isinstance(now.observations, dict) or set(now.observations) != set(env.acting):
        raise now.broken(f"observations are {short(now.observations)}, but env.acting is {env.acting}")
    if not set(env.acting) <= set(env.agents) or len(set(env.acting)) != len(env.acting):
        raise now.broken(f"env.acting is {env.acting}, but alive are {env.agents}")
    if env.done != (not env.agents) or env.done == bool(env.acting):
        raise now.broken(f"env.done is {env.done} while alive are {env.agents} and acting {env.acting}")


def _check_end(env: MultiAgentEnv, now: Moment, agent: str) -> None:
    """Flags, infos and env.agents agree on whether an agent has ended."""
    info = now.infos[agent]
    if not isinstance(info, dict):
        raise now.broken(f"the info of {agent!r} must be a dict, not {short(info)}")
    flags = [part[agent] for part in (now.terminations, now.truncations) if now.step]
    if not all(type(flag) is bool for flag in flags):
        raise now.broken(f"terminations and truncations are True or False, but {agent!r} has {flags}")
    gone = agent not in env.agents
    if any(flags) != gone:
        raise now.broken(f"{agent!r} has {'' if any(flags) else 'not '}ended, but is {'not ' if gone else ''}alive")
    if gone != ("final_observation" in info):
        raise now.broken(f"the info of {agent!r}, who has {'' if gone else 'not '}ended, is {short(info)}")


def check_infos(make: Make, plan: Plan = THOROUGH) -> None:
    """What the scenario writes into infos has the types that `marl_gem.types.InfoKeys` declares."""
    written_by_the_env = ("legal_actions", "final_observation")  # other checks look at these
    for _, now in moments(make, plan):
        for agent, info in now.infos.items():
            try:
                msgspec.convert({key: info[key] for key in info if key not in written_by_the_env}, InfoKeys)
            except msgspec.ValidationError as error:
                raise now.broken(
                    f"the info of {agent!r} is {short(info)}: {error}. marl_gem.types.InfoKeys declares the types"
                ) from error


# Observations and roles


def check_observations(make: Make, plan: Plan = THOROUGH) -> None:
    """Observations are text or lists of content parts."""
    for _, now in moments(make, plan):
        last = {agent: info["final_observation"] for agent, info in now.infos.items() if "final_observation" in info}
        for agent, observation in [*now.observations.items(), *last.items()]:
            if wrong := _no_observation(observation):
                raise now.broken(f"the observation of {agent!r} is {wrong}")


def _no_observation(observation: Observation) -> str:
    """What is wrong with an observation; empty if nothing is."""
    if isinstance(observation, str):
        return ""
    if not isinstance(observation, list):
        return f"a {type(observation).__name__}, neither text nor a list of content parts"
    for part in observation:
        if not isinstance(part, dict) or not isinstance(part.get("type"), str):
            return f"a list with {short(part)}, which is no content part: a dict with a 'type'"
        if part["type"] == "text" and not isinstance(part.get("text"), str):
            return f"a list with {short(part)}, a text part without its 'text'"
    return "" if observation else "an empty list"


def check_lasting(make: Make, plan: Plan = THOROUGH) -> None:
    """What `reset` and `step` returned does not change later."""
    for seed in plan.seeds:
        with closing(make()) as env:
            returned = [(now, as_data(_returned(now))) for now in play_randomly(env, seed, plan.steps)]
        for now, then in returned:
            for name, part in _returned(now).items():
                if as_data(part) != then[name]:
                    raise now.broken(
                        f"{name} returned here were {short(then[name])}, and have changed to {short(part)} since; "
                        "return a copy of what will change"
                    )


def _returned(now: Moment) -> dict[str, Any]:
    return {"observations": now.observations, "infos": now.infos, "rewards": now.rewards}


def check_roles(make: Make, plan: Plan = THOROUGH) -> None:
    """A role is a Role, names each tool once, and stays the same throughout the episode."""
    roles: dict[str, Role] = {}
    for env, now in moments(make, plan):
        roles = roles if now.step else {}
        for agent in env.agents:
            role = env.role(agent)
            if agent not in roles and (wrong := _no_role(role)):
                raise now.broken(f"role({agent!r}) is {wrong}")
            if role != roles.setdefault(agent, role):
                raise now.broken(f"role({agent!r}) was {short(roles[agent])} at first and is now {short(role)}")


def _no_role(role: Role) -> str:
    if not isinstance(role, Role):
        return f"a {type(role).__name__}, not a Role"
    if not isinstance(role.instructions, str) or not all(isinstance(tool, ToolSpec) for tool in role.tools):
        return f"{short(role)}; instructions are text, tools are ToolSpecs"
    names = [tool.name for tool in role.tools]
    if not all(names) or len(set(names)) != len(names):
        return f"one with the tools {names}; each needs a name of its own"
    schemas = [tool.parameters for tool in role.tools if tool.parameters]
    wrong = [schema for schema in schemas if not isinstance(schema, dict) or schema.get("type") != "object"]
    return f"one with the parameters {short(wrong[0])}; they are a JSON schema of type 'object'" if wrong else ""


# Rewards and metadata


def check_rewards(make: Make, plan: Plan = THOROUGH) -> None:
    """Rewards are finite floats, and returns are their sums."""
    before: dict[str, float] = {}
    for env, now in moments(make, plan):
        if not now.step and any(env.returns.values()):
            raise now.broken(f"returns are {env.returns} before anybody has acted")
        for agent, reward in now.rewards.items():
            if type(reward) is not float or not math.isfinite(reward):
                raise now.broken(f"the reward of {agent!r} is {reward!r}; rewards are finite floats")
            expected = before.get(agent, 0.0) + reward
            found = env.returns.get(agent, math.nan)
            if not math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-9):
                raise now.broken(f"the return of {agent!r} is {found}, but its rewards sum to {expected}")
        before = dict(env.returns)


def check_metadata(make: Make, plan: Plan = THOROUGH) -> None:
    """What Metadata and the registration declare is true."""
    ScenarioSpec.parse(make).inspect()
    before: dict[str, float] = {}
    for env, now in moments(make, plan):
        if not now.step:
            _check_registration(env, now)
            before = dict(env.returns)
        _check_metadata_of(env, now, env.metadata)
        if env.metadata.reward_range and now.step:
            low, high = env.metadata.reward_range
            late = {agent: total - before.get(agent, 0.0) for agent, total in env.returns.items()}
            for agent, reward in {**late, **now.rewards}.items():
                if not low - 1e-9 <= reward <= high + 1e-9:
                    raise now.broken(
                        f"its metadata says that rewards are from {low} to {high}, but {agent!r} got {reward}"
                    )
            before = dict(env.returns)


def _check_registration(env: MultiAgentEnv, now: Moment) -> None:
    with contextlib.suppress(UnknownScenario):
        if ":" in env.scenario:
            registered = registry.get(env.scenario)
            low, high = registered.agents
            if not low <= len(env.possible_agents) <= high:
                raise now.broken(
                    f"{env.scenario} is registered for {low} to {high} agents, but has {len(env.possible_agents)}"
                )
            if registered.turn_order not in (None, env.metadata.turn_order):
                raise now.broken(
                    f"{env.scenario} is registered with the turn order {registered.turn_order!r}, but its metadata "
                    f"says {env.metadata.turn_order!r}"
                )


def _check_metadata_of(env: MultiAgentEnv, now: Moment, metadata: Metadata) -> None:
    strangers = [agent for agent in env.agents if agent not in env.possible_agents]
    if strangers and not metadata.joins:
        raise now.broken(f"{strangers} joined, but its metadata does not say joins=True")
    if metadata.turn_order == "sequential" and len(env.acting) > 1:
        raise now.broken(f"its metadata says that one agent acts at a time, but acting are {env.acting}")
    if metadata.turn_order == "parallel" and set(env.acting) != set(env.agents):
        raise now.broken(
            f"its metadata says that all agents act at the same time, but acting are {env.acting} of {env.agents}"
        )
    if metadata.zero_sum and env.done and abs(sum(env.returns.values())) > 1e-6:
        raise now.broken(f"its metadata says that returns sum to zero, but they are {env.returns}")


# Records


def check_records(make: Make, plan: Plan = THOROUGH) -> None:
    """Roles, turns and episodes go to JSON and come back equal."""
    for env, now in moments(make, plan):
        turns = [Turn(agent, "", Response(""), info=info) for agent, info in now.infos.items()]
        roles = [role for role in map(env.role, env.agents) if isinstance(role, Role)]
        for record in [*turns, *roles]:
            if wrong := _not_plain(record):
                raise now.broken(wrong)
    for seed in plan.seeds:
        with closing(make()) as env:
            env.max_steps = min(env.max_steps or plan.steps, plan.steps)
            episode = _rollout(env, seed)
        history = [{turn.agent: turn.response.text} for turn in episode.turns]
        if episode.error:
            raise PlayFailed(
                f"a rollout failed: {episode.error.type}: {episode.error.message}\n{reproduce(seed, history)}"
            )
        if wrong := _not_plain(episode):
            raise PromiseBroken(f"{wrong}\n{reproduce(seed, history)}")


def _not_plain(record: msgspec.Struct) -> str:
    """Why a record cannot be written and read back; empty if it can."""
    try:
        back = from_json(to_json(record), type(record))
    except RecordError as error:
        return str(error)
    return "" if back == record else f"{short(record)} comes back from JSON as {short(back)}"


class _RandomPolicy:
    name = "random"

    def agent(self, agent_id: str, role: Role, seed: int) -> Agent:
        return _RandomAgent(role, seed)


class _RandomAgent:
    def __init__(self, role: Role, seed: int) -> None:
        self._role, self._rng = role, random.Random(seed)

    async def act(self, observation: Observation, info: Info) -> Response:
        return Response(random_action(self._rng, self._role, observation, info))


def _rollout(env: MultiAgentEnv, seed: int) -> Episode:
    """Play an episode with `marl_gem.rollout`, in another thread: an event loop may be running in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, play_episode(env, Job(seed, _RandomPolicy()))).result()


# Legal actions


def check_legal_actions(make: Make, plan: Plan = THOROUGH) -> str | None:
    """Legal actions are texts, each listed once, and none is reported as illegal."""
    any_listed = False
    listed: dict[str, list[str]] = {}
    for env, now in moments(make, plan, noise=0):
        for agent in now.actions.keys() & listed.keys():
            if complaint := now.infos[agent].get("illegal"):
                text = now.actions[agent]
                raise now.broken(
                    f"{agent!r} played {short(text)}, which is listed as legal, and its info says: {complaint}"
                )
        listed = {}
        for agent in env.acting:
            legal = env.legal_actions(agent)
            if legal is None:
                continue
            if wrong := _no_list(legal):
                raise now.broken(f"legal_actions({agent!r}) is {wrong}")
            listed[agent] = list(legal)
            if agent in now.infos and now.infos[agent].get("legal_actions") != listed[agent]:
                found = now.infos[agent].get("legal_actions")
                raise now.broken(f"the info of {agent!r} lists {short(found)}, legal_actions {short(listed[agent])}")
        any_listed = any_listed or bool(listed)
    return None if any_listed else "the scenario lists no legal actions"


def _no_list(legal: Sequence[Any]) -> str:
    if isinstance(legal, str) or not isinstance(legal, Sequence):
        return f"{short(legal)}, not a list of texts"
    if not legal:
        return "empty, though the agent is to act; give None where nothing can be listed"
    if wrong := [action for action in legal if not isinstance(action, str) or not action.strip()]:
        return f"a list with {short(wrong[0])}; an action is a text that is not empty"
    twice = [action for action in set(legal) if legal.count(action) > 1]
    return f"a list with {short(min(twice))} more than once" if twice else ""
