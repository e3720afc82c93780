"""Who sits where, as people write it: `player_0=human`, `user=Qwen/Qwen3-1.7B@http://127.0.0.1:8000/v1,temperature=0.7`.

A seat is `AGENT=WHO[,NAME=VALUE...]`. WHO is

    random                   any legal action
    human                    a person at the terminal
    scripted:NAME            a policy that comes with the scenario
    runs/demo                what a training run made, for this seat: its folder, or one of its checkpoints
    replay:runs/eval         what sat here in a recorded run: its folder, or a file of episodes
    MODEL@URL                a model of an OpenAI-compatible server
    @URL                     the only model that the server has
    litellm:PROVIDER/MODEL   a hosted model; @URL may follow
    hf:FOLDER                a model in the layout of transformers, in this process

Models take values:

    temperature=0.7          0 takes the most likely tokens; 1 if nothing is said
    top_p=0.9                draws from the most likely tokens, which together have this probability
    max_tokens=2048          the longest answer; 1024 if nothing is said
    view=window:8            what of its history the model is shown, by a name of `marl_gem.views`; else the chat
    reasoning=keep           earlier reasoning is shown, too; else drop
    api_key_env=NAME         the environment variable that holds the key; a key itself never stands here
    price=0.15/0.6           US dollars for a million tokens read and written
    adapter=NAME             a LoRA adapter that the server has loaded
    logprobs=processed       what the server's log-probabilities are; see `marl_gem.llm.http.HTTPModel`
    strategy=react           more is made of the model, in a way that the scenario offers for this seat;
                             `marl-gem list SCENARIO` names them
    judge=MODEL@URL          who judges, where the strategy needs that: a model that takes no values here; else the
                             model judges itself

`adapter` and `logprobs` are for servers only. What a training run made takes temperature, top_p and max_tokens, which
are as in training if nothing is said, strategy and judge. Nobody else takes values.
"""

from __future__ import annotations

import copy
import difflib
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

from marl_gem import registry
from marl_gem.env import MultiAgentEnv
from marl_gem.errors import AgentError, ConfigError
from marl_gem.llm import Sampling
from marl_gem.llm.models import Connection, Models, kind_of
from marl_gem.policies import HumanPolicy, LLMPolicy, Policy, PolicyPerSeat, RandomPolicy
from marl_gem.policies.replay import ReplayPolicy
from marl_gem.views import chat, view

MAX_TOKENS = 1024
"""The longest answer of a model of which nothing else is said."""


Load: TypeAlias = Callable[[str, tuple[str, ...]], Policy]
"""Makes a policy from `WHO[,NAME=VALUE...]` for the seats that it is to hold."""


def parse_seats(seats: Sequence[str], env: MultiAgentEnv, load: Load) -> dict[str, Policy]:
    """A policy for every agent of `env`.

    Args:
        seats: assignments `agent=who`; an agent that none names is played at random.
        env: gives the agents.
        load: makes a policy from `who` and the agents that it is to be; it is called once for each `who`, however
            many seats it holds.

    Raises:
        AgentError: an assignment makes no sense, names an agent that the scenario does not have, or one that is
            seated already.
    """
    agents = tuple(env.possible_agents)
    seated: dict[str, str] = {}
    for seat in seats:
        agent, equals, text = seat.partition("=")
        if not equals or not text:
            raise AgentError(f"{seat!r} seats nobody; write agent=who, for instance {agents[0]}=human")
        if agent not in agents:
            raise AgentError(f"{env.scenario} has no agent {agent!r}; its agents are {', '.join(agents)}")
        if agent in seated:
            raise AgentError(f"two are seated as {agent!r}; one agent is one policy's seat")
        seated[agent] = text
    who = {agent: seated.get(agent, "random") for agent in agents}
    held = {text: tuple(agent for agent in agents if who[agent] == text) for text in who.values()}
    policies = {text: load(text, own) for text, own in held.items()}
    return {agent: policies[text] for agent, text in who.items()}


def options_of(seats: Sequence[str], scenario: str) -> dict[str, Any]:
    """What `make` should be given so that the trained policies in these seats see what they were trained on.

    Raises:
        AgentError, ConfigError: a seat is nobody's.
        CheckpointError: a checkpoint is missing or damaged.
    """
    options: dict[str, Any] = {}
    for seat in seats:
        name = _split(seat.partition("=")[2])[0]
        if name and _kind(name) == "run":
            from marl_gem.trainers.checkpoint import newest, read_state

            state = read_state(newest(Path(name)))
            if state["scenario"] == scenario:
                options |= state["config"].get("options", {})
    return options


def policy(
    text: str,
    scenario: str,
    human: Callable[[], HumanPolicy] = HumanPolicy,
    *,
    agents: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    models: Models | None = None,
) -> Policy:
    """The policy behind `WHO[,NAME=VALUE...]`; the top of this file tells what these may be.

    Args:
        text: who.
        scenario: the id of what is to be played.
        human: makes a policy of a person.
        agents: the seats that it is to hold; a strategy is one of a seat.
        options: what the scenario is made with; scripted policies and strategies may need to know.
        models: makes the models. Given to all seats, it sees to it that those who name the same one share it, and
            lets them share a cache.

    Raises:
        AgentError: there is no such policy.
        RegistryError: the scenario has no scripted policy of this name, or no such strategy for the seat.
        ConfigError: a value makes no sense here, or the model cannot be used as asked for.
        CheckpointError: the checkpoint is missing, damaged, or of another scenario.
        RecordError: the recorded run cannot be read.
        LLMError, MissingPackage: the model cannot be made; the message says why.
    """
    name, assignments = _split(text)
    kind = _kind(name)
    values = _read(name, assignments, _TAKES.get(kind, ()))
    if "judge" in values and "strategy" not in values:
        raise ConfigError(f"{name}: a judge has nothing to judge without a strategy, as in {name},strategy=NAME")
    models = models or Models()
    if kind == "random":
        return RandomPolicy()
    if kind == "human":
        return human()
    if kind == "scripted":
        return registry.make_policy(scenario, name.removeprefix("scripted:"), options or {})
    if kind == "replay":
        return models.once(text, lambda: ReplayPolicy(name.removeprefix("replay:")))
    if kind == "run":
        model = _trained(models.once((name, scenario), lambda: _load_run(Path(name), scenario)), values)
    else:
        model = _llm_policy(name, values, models)
    if "strategy" not in values:
        return model
    judge = _llm_policy(values["judge"], {}, models) if "judge" in values else None
    return _with_strategy(values["strategy"], model, judge, scenario, agents, options)


def _llm_policy(name: str, values: Mapping[str, Any], models: Models) -> LLMPolicy:
    llm = models.get(
        name, Connection(**{field: values[field] for field in Connection.__struct_fields__ & values.keys()})
    )
    sampling, keep = _sampling(Sampling(MAX_TOKENS), values), values.get("reasoning") == "keep"
    return LLMPolicy(llm, values.get("view", chat), sampling, keep_reasoning=keep)


def _with_strategy(
    name: str,
    model: Policy,
    judge: Policy | None,
    scenario: str,
    agents: Sequence[str],
    options: Mapping[str, Any] | None,
) -> Policy:
    """What a strategy makes of a model, in each seat apart: the same name may mean something else there."""
    if not agents:
        raise ConfigError(f"strategy={name} is one of a seat, and none was named; call policy(..., agents=[...])")
    made = {}
    for agent in agents:
        own = model.policies.get(agent, model) if isinstance(model, PolicyPerSeat) else model
        made[agent] = registry.make_strategy(scenario, agent, name, own, judge=judge, options=options)
    return made[agents[0]] if len(made) == 1 else PolicyPerSeat(f"{model.name} ({name})", made)


def _load_run(folder: Path, scenario: str) -> LLMPolicy | PolicyPerSeat:
    from marl_gem.trainers.checkpoint import load_policy

    return load_policy(folder, scenario)


def _trained(loaded: Policy, values: Mapping[str, Any]) -> Policy:
    """The same models with other sampling."""
    if isinstance(loaded, PolicyPerSeat):
        return PolicyPerSeat(loaded.name, {seat: _trained(own, values) for seat, own in loaded.policies.items()})
    if not isinstance(loaded, LLMPolicy):
        return loaded
    changed = copy.copy(loaded)
    changed.sampling = _sampling(loaded.sampling, values)
    return changed


def _sampling(default: Sampling, values: Mapping[str, Any]) -> Sampling:
    return msgspec.structs.replace(default, **{name: values[name] for name in _SAMPLING if name in values})


# WHO


def _split(text: str) -> tuple[str, list[str]]:
    """WHO, and the assignments that follow it. A comma that no assignment follows belongs to WHO."""
    name, *assignments = re.split(r",(?=\s*\w+\s*=)", text)
    return name, assignments


def _kind(name: str) -> str:
    """What a WHO is: one of `_FORMS`.

    Raises:
        AgentError: it is nobody.
        ConfigError: it ends in a value that is not set.
    """
    if name in ("random", "human"):
        return name
    before, comma, last = name.rpartition(",")
    if comma and (not last or last.strip() in VALUES):
        raise ConfigError(f"{last!r} after {before} sets nothing; write NAME=VALUE, as in {before},temperature=0.7")
    prefix, colon, rest = name.partition(":")
    if colon and prefix in ("scripted", "replay"):
        if not rest:
            raise AgentError(f"{name!r} lacks a name; write {_FORMS[prefix]}")
        return prefix
    if kind := kind_of(name):
        return kind
    if name and Path(name).is_dir():
        return "run"
    raise AgentError(_nobody(name))


_FORMS = {
    "random": "random",
    "human": "human",
    "scripted": "scripted:NAME",
    "run": "a run's folder such as runs/demo",
    "replay": "replay:FOLDER",
    "http": "MODEL@URL",
    "litellm": "litellm:PROVIDER/MODEL",
    "hf": "hf:FOLDER",
}


def _nobody(name: str) -> str:
    """That nobody is called so, and who may have been meant."""
    prefix, colon, rest = name.partition(":")
    meant = ""
    if colon and (near := difflib.get_close_matches(prefix.lower(), ["scripted", "replay", "litellm", "hf"], 1)):
        meant = f"{near[0]}:{rest}"
    elif near := difflib.get_close_matches(name.lower(), ["random", "human"], 1):
        meant = near[0]
    elif "@" in name:
        meant = name.replace("@", "@http://", 1)
    elif name.count("/") == 1 and not name.startswith((".", "/", "runs/")):
        meant = f"litellm:{name} or {name}@URL"
    hint = f" Did you mean {meant}?" if meant else ""
    return f"nobody is called {name!r}, and there is no such folder.{hint} Seat {', '.join(_FORMS.values())}"


# NAME=VALUE


def _number(low: float, high: float = math.inf, *, above: bool = False) -> Callable[[str], float]:
    def read(text: str) -> float:
        value = float(text)
        if not low <= value <= high or math.isinf(value) or (above and value == low):
            raise ValueError
        return value

    return read


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise ValueError
    return int(text)


def _price(text: str) -> tuple[float, float]:
    read, written = map(_number(0), text.split("/"))
    return read, written


def _matching(pattern: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError
        return text

    return read


def _model_name(text: str) -> str:
    if kind_of(text) is None:
        raise ValueError
    return text


class Value(NamedTuple):
    """How a value is read (ValueError refuses it), what it is, and whether it may be shown when it is refused."""

    read: Callable[[str], Any]
    meaning: str
    shown: bool = True


VALUES = {
    "temperature": Value(_number(0), "a number from 0 up"),
    "top_p": Value(_number(0, 1, above=True), "a number above 0 and up to 1"),
    "max_tokens": Value(_count, "a whole number from 1 up"),
    "view": Value(view, "a view's name"),
    "reasoning": Value(_matching("keep|drop"), "keep or drop"),
    "price": Value(_price, "two numbers from 0 up, as in 0.15/0.6"),
    "api_key_env": Value(
        _matching("[A-Z][A-Z0-9_]*"), "the name of an environment variable, as in OPENAI_API_KEY", shown=False
    ),
    "adapter": Value(_matching(".+"), "the name of an adapter"),
    "logprobs": Value(_matching("raw|processed|off"), "raw, processed or off"),
    "strategy": Value(_matching(".+"), "a strategy's name"),
    "judge": Value(_model_name, "a model, as in tiny@http://127.0.0.1:8000/v1"),
}
_SAMPLING = ("temperature", "top_p", "max_tokens")
_TRAINED = (*_SAMPLING, "strategy", "judge")
_IN_PROCESS = (*_TRAINED, "view", "reasoning")
_HOSTED = (*_IN_PROCESS, "price", "api_key_env")
_TAKES = {"run": _TRAINED, "hf": _IN_PROCESS, "litellm": _HOSTED, "http": tuple(VALUES)}


def _read(who: str, assignments: Sequence[str], takes: Collection[str]) -> dict[str, Any]:
    """The values that are set.

    Raises:
        ConfigError: one is unknown, is not for this WHO, is set twice or cannot be read. What was given as a key
            is not repeated.
    """
    values: dict[str, Any] = {}
    for assignment in assignments:
        name, _, text = (part.strip() for part in assignment.partition("="))
        if name not in takes:
            near = difflib.get_close_matches(name, takes, 1)
            hint = f". Did you mean {near[0]}?" if near else ""
            raise ConfigError(f"{who} takes no {name!r}; it takes {', '.join(takes) or 'no values'}{hint}")
        if name in values:
            raise ConfigError(f"{who}: {name} is set twice")
        value = VALUES[name]
        try:
            values[name] = value.read(text)
        except ValueError:
            shown = f", not {text!r}" if value.shown else ""
            raise ConfigError(f"{who}: {name} is {value.meaning}{shown}") from None
    return values
