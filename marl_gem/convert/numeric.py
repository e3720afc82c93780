"""Our envs with actions and observations in numbers, for learners such as tianshou, RLlib and Stable-Baselines3.

env = to_numeric(to_aec(marl_gem.make("game:KuhnPoker-v0")))
env.reset(seed=7)
for agent in env.agent_iter():
    observation, reward, termination, truncation, info = env.last()
    mask = observation["action_mask"]
    env.step(None if termination or truncation else env.action_space(agent).sample(mask))
"""

from __future__ import annotations

import copy
import random
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pettingzoo import AECEnv, ParallelEnv  # type: ignore[import-untyped]
from pettingzoo.utils.wrappers import BaseParallelWrapper, BaseWrapper  # type: ignore[import-untyped]

from marl_gem.convert.encoders import HashedWords
from marl_gem.convert.pettingzoo import to_aec
from marl_gem.env import MultiAgentEnv
from marl_gem.errors import ConversionError, InvalidAction, InvalidOption
from marl_gem.types import Observation

Encode: TypeAlias = Callable[[str, Observation], Any]
"""From an agent and its observation to an array that always has the same shape."""

NumericObservation: TypeAlias = dict[str, NDArray[Any]]

_STEPS = 500
"""How many steps an episode that looks for actions has at most."""


def to_numeric(
    env: Any,
    actions: Sequence[str] | None = None,
    encode: Encode | None = None,
    *,
    explore: int = 50,
    key: str = "observation",
) -> Any:
    """An env in which actions are numbers and observations are arrays of a fixed size.

    Every agent's action space is Discrete(n), over the same list of n texts. Its observation space is a Dict of
    "observation", a Box, and "action_mask", an int8 array of shape (n,) that is 1 where an action is legal: as
    in PettingZoo's classic games. For an agent that is not to act the mask is 0. Where the env lists no legal
    actions the mask of an acting agent is 1. Infos are empty. An illegal action goes to the env, whose rules say
    what follows.

    The result has `numeric`, a `NumericCodec`, with the list of actions and the encoder; `numeric.player` makes
    a function of text out of what was trained, for marl_gem's own rollouts.

    Args:
        env: what `to_aec`, `to_parallel` or `to_gymnasium` gave, or an env, which `to_aec` converts then. Call
            `reset` on the result before anything else.
        actions: every action as text. Not given: the env's `possible_actions` or, if it declares none, the legal
            actions that occur in episodes of random play.
        encode: a function of agent and observation that gives an array. If it has an attribute `space`, that is
            the observations' Box; else the shape is that of the first observation and the bounds are infinite.
            Not given: `HashedWords()`, which has room for small games.
        explore: how many episodes of random play look for actions, where these are not known.
        key: the name of the entry of the Dict that holds the encoded observation.

    Returns:
        A PettingZoo AEC or parallel env, or a Gymnasium env, as the one that was given. The Gymnasium env has
        `action_masks()`, as sb3-contrib wants it.

    Raises:
        ConversionError: this cannot be converted, or the env lists no legal actions and none are given; from
            `reset`, `step` or `observe`: none of the legal actions is in the list.
        InvalidOption: an argument makes no sense.
        InvalidAction: from `step`: the action is no number of the list.
    """
    if isinstance(env, MultiAgentEnv):
        env = to_aec(env)
    marl_env = getattr(getattr(env, "unwrapped", None), "marl_env", None)
    if not isinstance(marl_env, MultiAgentEnv):
        raise ConversionError(f"to_numeric takes an env, or what to_aec, to_parallel or to_gymnasium gave, not {env!r}")
    codec = NumericCodec(_listed(marl_env, actions, explore), encode or HashedWords(), marl_env, key)
    if isinstance(env, AECEnv):
        return _NumericAEC(env, codec)
    return _NumericParallel(env, codec) if isinstance(env, ParallelEnv) else _NumericGymnasium(env, codec)


class NumericCodec:
    """The actions of an env by number, and its observations as arrays; `to_numeric` makes one.

    `actions` are the texts, in the order of their numbers. `observation_space` and `action_space` are the same for
    every agent.
    """

    def __init__(self, actions: tuple[str, ...], encode: Encode, env: MultiAgentEnv, key: str) -> None:
        self.actions = actions
        self._numbers = {action: number for number, action in enumerate(actions)}
        self._encode, self._key = encode, key
        self._unlisted: set[str] = set()
        space = getattr(encode, "space", None)
        if space is None:
            observations, _ = env.reset(seed=0)
            sample = np.asarray(encode(*next(iter(observations.items()))))
            space = spaces.Box(-np.inf, np.inf, sample.shape, np.float32)
        if not isinstance(space, spaces.Box) or key == "action_mask":
            raise InvalidOption(f"encode.space is a Box, and key is not 'action_mask'; not {space!r} and {key!r}")
        mask = spaces.Box(0, 1, (len(actions),), np.int8)
        self.observation_space = spaces.Dict({key: space, "action_mask": mask})
        self.action_space: spaces.Discrete[Any] = spaces.Discrete(len(actions))

    def encode(self, agent: str, observation: Observation, legal: Iterable[str] | None) -> NumericObservation:
        """An observation with its mask. `legal` are the legal actions, or None if every action may be tried."""
        space = self.observation_space[self._key]
        array = np.asarray(self._encode(agent, observation), space.dtype)
        if array.shape != space.shape:
            raise ConversionError(
                f"encode gave {agent!r} an array of shape {array.shape}, but its observations have {space.shape}"
            )
        return {self._key: array, "action_mask": self._mask(agent, legal)}

    def text(self, action: Any) -> str:
        """The text of an action.

        Raises:
            InvalidAction: it is no number of the list.
        """
        if not isinstance(action, int | np.integer | np.ndarray) or not self.action_space.contains(np.int64(action)):
            raise InvalidAction(f"an action is a number from 0 to {len(self.actions) - 1}, not {action!r}")
        return self.actions[int(action)]

    def player(
        self, agent: str, choose: Callable[[NumericObservation], Any]
    ) -> Callable[[Observation, Mapping[str, Any]], str]:
        """A function of observation and info that answers in text, for `others` of `to_gymnasium`, or a policy.

        Args:
            agent: in which seat it plays.
            choose: from an encoded observation with its mask to the number of an action.
        """

        def play(observation: Observation, info: Mapping[str, Any]) -> str:
            return self.text(choose(self.encode(agent, observation, info.get("legal_actions"))))

        return play

    def _mask(self, agent: str, legal: Iterable[str] | None) -> NDArray[np.int8]:
        mask = np.zeros(len(self.actions), np.int8)
        if legal is None:
            mask[:] = 1
            return mask
        unlisted = [action for action in legal if action not in self._numbers]
        mask[[self._numbers[action] for action in legal if action in self._numbers]] = 1
        if unlisted and not mask.any():
            raise ConversionError(
                f"none of the legal actions of {agent!r}, {unlisted[:5]}, is among the {len(self.actions)} that were "
                "listed; give all of them, to_numeric(env, actions=[...]), or explore more episodes"
            )
        if new := set(unlisted) - self._unlisted:
            self._unlisted |= new
            warnings.warn(
                f"legal actions of {agent!r} that were not listed cannot be chosen: {sorted(new)[:5]}; give all of "
                "them, to_numeric(env, actions=[...]), or explore more episodes",
                UserWarning,
                stacklevel=2,
            )
        return mask


class _NumericSpaces:
    """The spaces of every agent, as PettingZoo asks for them."""

    def _set_spaces(self, codec: NumericCodec) -> None:
        self.numeric = codec
        self._observation_spaces: defaultdict[str, spaces.Dict] = defaultdict(
            lambda: copy.deepcopy(codec.observation_space)
        )
        self._action_spaces: defaultdict[str, spaces.Discrete[Any]] = defaultdict(
            lambda: copy.deepcopy(codec.action_space)
        )

    def observation_space(self, agent: str) -> spaces.Dict:
        """Always the same object for the same agent."""
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Discrete[Any]:
        """Always the same object for the same agent."""
        return self._action_spaces[agent]


class _NumericAEC(_NumericSpaces, BaseWrapper):  # type: ignore[misc]
    def __init__(self, env: AECEnv, codec: NumericCodec) -> None:
        super().__init__(env)
        self._set_spaces(codec)

    @property
    def infos(self) -> dict[str, dict[str, Any]]:
        return {agent: {} for agent in self.env.agents}

    def observe(self, agent: str) -> NumericObservation:
        return self.numeric.encode(agent, self.env.observe(agent), self._legal(agent))

    def last(self, observe: bool = True) -> tuple[NumericObservation | None, float, bool, bool, dict[str, Any]]:
        _, reward, termination, truncation, _ = self.env.last(observe=False)
        observation = self.observe(self.env.agent_selection) if observe else None
        return observation, reward, termination, truncation, {}

    def step(self, action: Any) -> None:
        self.env.step(None if action is None else self.numeric.text(action))

    def _legal(self, agent: str) -> Sequence[str] | None:
        if agent not in self.unwrapped.marl_env.acting or agent not in self.env.agents:
            return ()
        legal: Sequence[str] | None = self.env.infos[agent].get("legal_actions")
        return legal


class _NumericParallel(_NumericSpaces, BaseParallelWrapper):  # type: ignore[misc]
    def __init__(self, env: ParallelEnv, codec: NumericCodec) -> None:
        super().__init__(env)
        self._set_spaces(codec)

    def reset(
        self, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, NumericObservation], dict[str, dict[str, Any]]]:
        observations, infos = self.env.reset(seed=seed, options=options)
        return self._encode(observations, infos), {agent: {} for agent in infos}

    def step(
        self, actions: Mapping[str, Any]
    ) -> tuple[
        dict[str, NumericObservation], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]
    ]:
        texts = {agent: self.numeric.text(action) for agent, action in actions.items()}
        observations, rewards, terminations, truncations, infos = self.env.step(texts)
        return (
            self._encode(observations, infos),
            rewards,
            terminations,
            truncations,
            {agent: {} for agent in infos},
        )

    def _encode(
        self, observations: Mapping[str, Observation], infos: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, NumericObservation]:
        return {
            agent: self.numeric.encode(
                agent, observation, infos[agent].get("legal_actions") if agent in self.env.agents else ()
            )
            for agent, observation in observations.items()
        }


class _NumericGymnasium(gymnasium.Wrapper[Any, Any, Any, Any]):
    def __init__(self, env: gymnasium.Env[Observation, str], codec: NumericCodec) -> None:
        super().__init__(env)
        self.numeric = codec
        self._seat: str = env.unwrapped.seat  # type: ignore[attr-defined]
        self.observation_space = copy.deepcopy(codec.observation_space)
        self.action_space = copy.deepcopy(codec.action_space)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NumericObservation, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return self._encode(observation, info, over=False), {}

    def step(self, action: Any) -> tuple[NumericObservation, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(self.numeric.text(action))
        return self._encode(observation, info, terminated or truncated), float(reward), terminated, truncated, {}

    def action_masks(self) -> NDArray[np.bool_]:
        """Which actions are legal now."""
        return self._mask

    def _encode(self, observation: Observation, info: Mapping[str, Any], over: bool) -> NumericObservation:
        encoded = self.numeric.encode(self._seat, observation, () if over else info.get("legal_actions"))
        self._mask = encoded["action_mask"].astype(bool)
        return encoded


def _listed(env: MultiAgentEnv, actions: Sequence[str] | None, explore: int) -> tuple[str, ...]:
    """The texts of all actions."""
    if actions is None:
        actions = env.possible_actions
    listed = _explored(env, explore) if actions is None else tuple(actions)
    if isinstance(actions, str) or not listed or not all(isinstance(action, str) for action in listed):
        raise InvalidOption(f"actions is a list of one text or more, not {actions!r}")
    if len(set(listed)) < len(listed):
        raise InvalidOption(f"actions={actions!r} names an action twice")
    return listed


def _explored(env: MultiAgentEnv, episodes: int) -> tuple[str, ...]:
    """Every legal action that occurs in so many episodes of random play, in natural order."""
    if not isinstance(episodes, int) or episodes < 1:
        raise InvalidOption(f"explore is a number of episodes from 1 up, not {episodes!r}")
    dice, found = random.Random(0), set[str]()
    for seed in range(episodes):
        observations, _ = env.reset(seed=seed)
        while observations and env.steps < _STEPS:
            legal = {agent: env.legal_actions(agent) for agent in observations}
            if silent := [agent for agent, texts in legal.items() if not texts]:
                raise ConversionError(
                    f"{env.scenario} lists no legal actions for {silent}; say which there are, "
                    "to_numeric(env, actions=[...])"
                )
            for texts in legal.values():
                found.update(texts or ())
            observations, *_ = env.step({agent: dice.choice(texts) for agent, texts in legal.items() if texts})
    return tuple(sorted(found, key=_natural))


def _natural(text: str) -> list[tuple[bool, int, str]]:
    """A key to sort by in which "[10]" comes after "[9]"."""
    parts = re.split(r"(\d{1,9})", text)
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]
