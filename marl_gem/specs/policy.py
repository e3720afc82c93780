"""Who plays, as people write it: `human`, `Qwen/Qwen3-1.7B@http://127.0.0.1:8000/v1,temperature=0.7`.

The text is `WHO[,NAME=VALUE...]`. WHO is

    random                   any legal action
    human                    a person at the terminal
    scripted:NAME            a policy that comes with the scenario
    runs/demo                what a training run made: its folder, or the folder of one of its checkpoints
    runs/demo@120            the run's checkpoint after 120 updates
    runs/desk:user           one policy of a run that trained several, by its name; also runs/desk@120:user
    replay:runs/eval         the answers of a recorded run: its folder, or a file of episodes
    MODEL@URL                a model of an OpenAI-compatible server
    @URL                     the only model that the server has
    litellm:PROVIDER/MODEL   a hosted model; @URL may follow
    hf:FOLDER                a model in the layout of transformers, in this process

Models take values:

    temperature=0.7          0 takes the most likely tokens; default 1
    top_p=0.9                draws from the most likely tokens, which together have this probability; default 1
    max_tokens=2048          the longest answer; default 1024
    strategy=react           makes more of the model, in a way that the scenario offers for this agent;
                             `marl-gem list SCENARIO` names them
    judge=MODEL@URL          the model that judges, where the strategy needs a judge; default is the model itself
    view=window:8            what of its history the model is shown, by a name of `marl_gem.views`; default chat
    reasoning=keep           earlier reasoning is shown, too; default drop
    price=0.15/0.6           US dollars for a million tokens read and written
    api_key_env=NAME         the environment variable that holds the key; the key itself must not stand here
    connect_timeout=5        seconds to wait for a connection; default 10
    read_timeout=60          seconds to wait for the next bytes of a reply, so for the longest answer; default 600
    timeout=120              seconds that a call may take; default 900, of hosted models 600
    wait=600                 seconds that an unreachable server is waited for; default that of --wait, or 60
    adapter=NAME             a LoRA adapter that the server has loaded
    logprobs=processed       what the server's log-probabilities are; see `marl_gem.llm.http.HTTPModel`

`adapter`, `logprobs`, `connect_timeout` and `read_timeout` are for servers only; `price`, `api_key_env`, `timeout` and
`wait` for servers and hosted models. The judge is waited for as the model is. A training run takes temperature, top_p
and max_tokens (default as in training), strategy and judge. Nothing else takes values.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Literal, Self, TypeAlias, cast

import msgspec

from marl_gem.errors import AgentError, ConfigError
from marl_gem.llm.models import ModelSpec, kind_of
from marl_gem.llm.secrets import hide_in_urls
from marl_gem.specs.values import VALUES, WAITS, read_values, write_values

Kind: TypeAlias = Literal["random", "human", "scripted", "replay", "run", "http", "litellm", "hf"]

_FORMS: dict[Kind, str] = {
    "random": "random",
    "human": "human",
    "scripted": "scripted:NAME",
    "run": "a run's folder such as runs/demo, runs/demo@120 or runs/demo:POLICY",
    "replay": "replay:FOLDER",
    "http": "MODEL@URL",
    "litellm": "litellm:PROVIDER/MODEL",
    "hf": "hf:FOLDER",
}


class PolicySpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """A policy by name, with its values; None where a value is not set. See the top of this file.

    `name` is that of the script or the model, or the path of the run, of what is replayed or of the model's folder.
    `url` is the server's, for models. `checkpoint` is the number of updates after which a run wrote it, and
    `learner` the name of one of the policies that learned in it; without a name, each seat has the policy that it
    trained.
    """

    kind: Kind
    name: str = ""
    url: str = ""
    checkpoint: int | None = None
    learner: str = ""
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    strategy: str | None = None
    judge: ModelSpec | None = None
    view: str | None = None
    reasoning: Literal["keep", "drop"] | None = None
    price: tuple[float, float] | None = None
    api_key_env: str | None = None
    connect_timeout: float | None = None
    read_timeout: float | None = None
    timeout: float | None = None
    wait: float | None = None
    adapter: str | None = None
    logprobs: Literal["raw", "processed", "off"] | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """The spec that a text gives. A run is known by its folder, which must be there.

        Raises:
            AgentError: there is no such policy; the message suggests what may have been meant.
            ConfigError: a value is unknown, is not for this policy or cannot be read; a URL holds a secret.
        """
        who, *assignments = _split(text)
        base = _read_who(who)
        values = read_values(who, base.kind, assignments)
        if "judge" in values and "strategy" not in values:
            raise ConfigError(f"{who}: a judge needs a strategy to judge in, as in {who},strategy=NAME,judge=MODEL@URL")
        return cls(base.kind, base.name, base.url, base.checkpoint, base.learner, **values)

    def without_waits(self) -> Self:
        """The same policy without time-outs and wait, which change no answer: a run may be resumed with others."""
        return msgspec.structs.replace(self, **dict.fromkeys(WAITS))

    def __str__(self) -> str:
        """The text from which `parse` gives it back, the same for equal specs."""
        return ",".join([self.who, *write_values({name: getattr(self, name) for name in VALUES})])

    @property
    def who(self) -> str:
        """The text without values."""
        if self.kind in ("random", "human"):
            return self.kind
        if self.kind in ("scripted", "replay"):
            return f"{self.kind}:{self.name}"
        if self.kind == "run":
            updates = "" if self.checkpoint is None else f"@{self.checkpoint}"
            return f"{self.name}{updates}{':' if self.learner else ''}{self.learner}"
        return str(self.model)

    @property
    def model(self) -> ModelSpec:
        """The model of the kinds http, litellm and hf.

        Raises:
            ConfigError: it is of another kind.
        """
        if self.kind in ("http", "litellm", "hf"):
            return ModelSpec(self.kind, self.name, self.url)
        raise ConfigError(f"{self.who} is no model; a model is {', '.join(_FORMS[k] for k in _MODEL_KINDS)}")


_MODEL_KINDS: tuple[Kind, ...] = ("http", "litellm", "hf")
_RESERVED = ("random", "human", "scripted", "replay", "litellm", "hf")
RANDOM = PolicySpec("random")
"""The policy of every agent for which none is named."""


def is_learner_name(text: str) -> bool:
    """Whether a training seat's text is a name for a policy that learns, and not a `PolicySpec`'s text.

    Such a name is of small letters, digits, - and _, begins with a letter, and is no word that `PolicySpec` knows. So a
    run's folder in the working directory is written `./NAME`.
    """
    return re.fullmatch(r"[a-z][a-z0-9_-]*", text) is not None and text not in _RESERVED


def _split(text: str) -> list[str]:
    """WHO, and the assignments that follow it. A comma that no assignment follows belongs to WHO."""
    return re.split(r",(?=\s*\w+\s*=)", text)


def _read_who(who: str) -> PolicySpec:
    """The spec of a text without values."""
    if who in ("random", "human"):
        return PolicySpec(cast(Kind, who))
    before, comma, last = who.rpartition(",")
    if comma and (not last or last.strip() in VALUES):
        shown = hide_in_urls(before)
        raise ConfigError(f"{last!r} after {shown} sets nothing; write NAME=VALUE, as in {shown},temperature=0.7")
    prefix, colon, rest = who.partition(":")
    if colon and prefix in ("scripted", "replay"):
        kind = cast(Kind, prefix)
        if not rest:
            raise AgentError(f"{who!r} lacks a name; write {_FORMS[kind]}")
        return PolicySpec(kind, rest)
    if kind_of(who):
        model = ModelSpec.parse(who)
        return PolicySpec(model.kind, model.name, model.url)
    if who and Path(who).is_dir():  # also a folder with an @ or a : in its name
        return PolicySpec("run", who)
    run, colon, learner = who.rpartition(":")
    if not (colon and is_learner_name(learner)):
        run, learner = who, ""
    if run and Path(run).is_dir():
        return PolicySpec("run", run, learner=learner)
    before, _, updates = run.rpartition("@")
    if before and re.fullmatch("[0-9]{1,12}", updates) and Path(before).is_dir():
        return PolicySpec("run", before, checkpoint=int(updates), learner=learner)
    raise AgentError(_unknown(who))


def _unknown(who: str) -> str:
    """A message that there is no such policy, with what may have been meant."""
    prefix, colon, rest = who.partition(":")
    meant = ""
    if colon and (near := difflib.get_close_matches(prefix.lower(), ["scripted", "replay", "litellm", "hf"], 1)):
        meant = f"{near[0]}:{rest}"
    elif near := difflib.get_close_matches(who.lower(), ["random", "human"], 1):
        meant = near[0]
    elif re.fullmatch(".+@[^@]*[^@0-9][^@]*", who):
        meant = who.replace("@", "@http://", 1)
    elif who.count("/") == 1 and not who.startswith((".", "/", "runs/")) and "@" not in who:
        meant = f"litellm:{who} or {who}@URL"
    hint = f" Did you mean {hide_in_urls(meant)}?" if meant else ""
    forms = ", ".join(_FORMS.values())
    return f"there is no policy {hide_in_urls(who)!r}, and no such folder.{hint} Write one of: {forms}"
