"""A check that plants marks in what agents say and in what is sent, and looks who is shown them."""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

from marl_gem.env import MultiAgentEnv
from marl_gem.errors import PromiseBroken
from marl_gem.testing.random_play import (
    THOROUGH,
    Actions,
    Make,
    Plan,
    Player,
    PlayFailed,
    in_one_line,
    reproduce,
    short,
)
from marl_gem.types import SentMessage
from marl_gem.wrappers.base import Wrapper

_MARK = re.compile(r"\bmark\d+mark\b", re.IGNORECASE)
STEPS_OF_FORKS = 3
"""So many steps a fork is played ahead."""


def check_messages(make: Make, plan: Plan = THOROUGH) -> str | None:
    """What is sent is shown to exactly its hearers, once."""
    found = False
    for seed in plan.seeds:
        for everywhere in (False, True):
            with closing(make()) as env:
                watch = _Watch(env, seed, _marks_in_what_is_sent(env), everywhere)
                watch.play(plan.steps)
                found = found or bool(env.message_log)
                if not env.message_log:
                    break
    return None if found else "it sends no messages"


def _marks_in_what_is_sent(env: MultiAgentEnv) -> Iterator[int]:
    """Let the env add a mark to every text that it sends; gives the numbers of marks, for others to be planted."""
    inner = env.unwrapped if isinstance(env, Wrapper) else env
    kind, numbers = type(inner), itertools.count()

    def send(self: Any, text: Any, *arguments: Any, **keywords: Any) -> None:
        marked = f"{text} mark{next(numbers)}mark" if isinstance(text, str) else text
        kind.send(self, marked, *arguments, **keywords)

    with suppress(TypeError):  # a class that cannot have a subclass, or not here
        inner.__class__ = type(kind.__name__, (kind,), {"send": send})
        inner.__class__.scenario = kind.scenario  # the base class has set it to the class's name
    return numbers


class _Watch:
    """Plays an env at random with marks, and knows which agent may have been shown which mark.

    Args:
        env: is reset.
        seed: of the episode and of the random actions.
        numbers: of the marks.
        everywhere: whether also actions that are picked from legal ones get a mark.
    """

    def __init__(self, env: MultiAgentEnv, seed: int, numbers: Iterator[int], everywhere: bool) -> None:
        self.env, self.seed, self.numbers, self.everywhere = env, seed, numbers, everywhere
        self.player = Player(seed, 0.1)
        self.history: list[Actions] = []
        self.planted: set[str] = set()  # marks of this episode
        self.hearers: dict[str, set[str]] = {}  # of each mark that was sent: who may be shown it
        self.authors: dict[str, str] = {}  # of each mark in an action
        self.pending: dict[str, dict[str, str]] = {}  # by agent: marks of messages that are new to it, and their texts
        self.shown: dict[str, set[str]] = {}  # by agent: marks that it was shown before it acted
        self.counted: list[int] = []  # the number of hearers of each message when it was counted

    def play(self, steps: int) -> None:
        """Play from the start; forks at steps 0, 1, 2, 4, ... are played ahead.

        Raises:
            PromiseBroken: a message is lost, shown twice, or shown to somebody else.
            PlayFailed: the env raised.
        """
        try:
            observations, infos = self.env.reset(seed=self.seed)
            self._look(observations, infos)
            while not self.env.done and len(self.history) < steps:
                step = len(self.history)
                if self.env.message_log and not step & (step - 1):
                    self._play_fork(observations, infos)
                observations, infos = self._step(observations, infos)
        except PromiseBroken:
            raise
        except (Exception, SystemExit) as error:
            raise PlayFailed(f"{in_one_line(error)}\n{reproduce(self.seed, self.history)}") from error

    def _play_fork(self, observations: Mapping[str, Any], infos: Mapping[str, Any]) -> None:
        with closing(self.env.fork()) as fork:
            env, self.env = self.env, fork
            ahead = copy.copy(self)
            for name in ("player", "history", "planted", "hearers", "authors", "pending", "shown", "counted"):
                setattr(ahead, name, copy.deepcopy(getattr(self, name)))
            self.env = env
            for _ in range(STEPS_OF_FORKS):
                if not fork.done:
                    observations, infos = ahead._step(observations, infos)

    def _step(self, observations: Mapping[str, Any], infos: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        actions = {}
        for agent, action in self.player.act(self.env, observations, infos).items():
            listed = bool((infos.get(agent) or {}).get("legal_actions"))
            if self.everywhere or not listed:
                mark = f"mark{next(self.numbers)}mark"
                self.planted.add(mark)
                self.authors[mark] = agent
                action = f"{action} {mark}"
            actions[agent] = action
        for agent in actions:
            self.shown.setdefault(agent, set()).update(self.pending.pop(agent, ()))
        self.history.append(actions)
        observations, *_, infos = self.env.step(actions)
        self._look(observations, infos)
        return observations, infos

    def _look(self, observations: Mapping[str, Any], infos: Mapping[str, Any]) -> None:
        """Compare what everybody is shown now with what was sent."""
        self._count(self.env.message_log)
        if not self.hearers:
            return
        for agent in self.env.agents:
            self._must_be_theirs(agent, "observe", self.env.observe(agent))
            self._must_be_theirs(agent, "role", self.env.role(agent))
        for agent, info in infos.items():
            self._must_be_theirs(agent, "info", info)
            if "final_observation" in info:
                self._must_be_new(agent, info["final_observation"])
        for agent, observation in observations.items():
            self._must_be_new(agent, observation)

    def _count(self, messages: Sequence[SentMessage]) -> None:
        """Take in messages that were sent or got more hearers."""
        latest: dict[tuple[str, str, str], int] = {}
        for index, message in enumerate(messages):
            heard_by = message.hearers[self.counted[index] :] if index < len(self.counted) else message.hearers
            marks = {mark.lower() for mark in _MARK.findall(message.text)}
            if index >= len(self.counted):
                self.counted.append(0)
                words = _MARK.sub("", message.text).strip()
                for hearer in message.hearers:
                    if (message.sender, words, hearer) in latest:
                        raise self._broken(f"{short(words)} is sent to {hearer!r} twice in a step")
                    latest[message.sender, words, hearer] = index
            self.counted[index] = len(message.hearers)
            self.planted |= marks
            for mark in marks:
                theirs = self.hearers.setdefault(mark, {message.sender, self.authors.get(mark, "")})
                theirs.update(heard_by)
            for hearer in heard_by:
                if last := _MARK.findall(message.text)[-1:]:
                    self.pending.setdefault(hearer, {})[last[0].lower()] = message.text

    def _must_be_theirs(self, agent: str, method: str, shown: Any) -> None:
        for mark in dict.fromkeys(found.lower() for found in _MARK.findall(str(shown))):
            if mark not in self.planted:
                raise self._broken(f"{method} shows {agent!r} what was said in a fork: {short(str(shown))}")
            if mark in self.hearers and agent not in self.hearers[mark]:
                sent = next(message for message in self.env.message_log if mark in message.text.lower())
                raise self._broken(
                    f"{method} shows {agent!r} {short(str(shown))}, but {short(sent.text)} of "
                    f"{sent.sender or 'the scenario'!r} was sent to {list(sent.hearers)} only"
                )

    def _must_be_new(self, agent: str, observation: Any) -> None:
        """All that is new to an agent is shown to it; by the default `observe` nothing else."""
        marks = {found.lower() for found in _MARK.findall(str(observation))}
        for mark, text in self.pending.get(agent, {}).items():
            if mark not in marks:
                raise self._broken(f"{agent!r} was sent {short(text)}, but observes {short(observation)}")
        if type(self.env).observe is MultiAgentEnv.observe and (again := marks & self.shown.get(agent, set())):
            text = next(message.text for message in self.env.message_log if min(again) in message.text.lower())
            raise self._broken(f"{agent!r} is shown {short(text)} again, after it has acted")

    def _broken(self, what: str) -> PromiseBroken:
        return PromiseBroken(f"{what}\n{reproduce(self.seed, self.history)}")
