"""PettingZoo's and Gymnasium's envs as a `MultiAgentEnv`, observed and played in text.

    env = from_pettingzoo(connect_four_v3.env)
    env.reset(seed=7)
    env.step({"player_0": "I take the middle: [3]"})

A `ForeignEnv` translates for agents: its roles say how to write an action, it reads what agents wrote, and it
describes what they observe. A `Game` drives the other library's env.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, TypeAlias, get_args

import gymnasium

from marl_gem.convert.actions import Actions, Mask, Names
from marl_gem.convert.ansi import plain_text
from marl_gem.convert.games import AECGame, Game, GymnasiumGame, Moment, ParallelGame
from marl_gem.convert.observations import describe as in_words
from marl_gem.convert.observations import plain, require_readable
from marl_gem.convert.spaces import Content
from marl_gem.env import MultiAgentEnv
from marl_gem.errors import ConversionError, InvalidOption, MissingPackage
from marl_gem.selectors.directed import DirectedSelector
from marl_gem.types import Metadata, Observation, Role

Describe: TypeAlias = Callable[[str, Any], Observation] | Literal["render"]
Illegal: TypeAlias = Literal["end", "random"]


def from_pettingzoo(
    env: Any,
    *,
    instructions: str = "",
    actions: Names | None = None,
    describe: Describe | None = None,
    illegal: Illegal = "end",
    options: Collection[str] = (),
) -> ForeignEnv:
    """A PettingZoo env, AEC or parallel, as a `MultiAgentEnv`.

    Each agent's role says in words how to write an action: the number of a Discrete space in brackets, `[3]`,
    or its name, `[rock]`; a text as it is; everything else as JSON, `[0.5, -1]`. The first in a response that
    belongs to the space counts. Where the env gives an `action_mask`, in the observation or in the info, the
    legal actions stand in the observation and in the infos.

    Prefer to give a function that makes the env. Then every episode has a fresh env, so that it does not depend on
    the episodes before, and `fork` works: it plays the episode again in a fresh env, because many envs cannot be
    copied. An env that is given itself is reset by its own `reset`, and cannot be forked. A seed from 2**31 up is
    mapped below 2**31, since many envs take no larger one.

    Args:
        env: a function that makes one, such as `tictactoe_v3.env`, or an env.
        instructions: what the game is, for all agents.
        actions: names for the actions of a Discrete space, in order or by number.
        describe: how an observation becomes text: a function of agent and observation that gives a text or
            content parts, or "render" for the text that the env's own `render` gives (it may show more than the
            agent should see), with colours as marks: `[F]` for text on a coloured background, `(G)` for
            coloured text. Not given: numbers in rows, floats in four digits, dicts by keys.
        illegal: what follows a response without a legal action; `infos[agent]["illegal"]` says what was wrong.
            "end": the agent gets -1, the others 0, and the episode is over, as with PettingZoo's
            TerminateIllegalWrapper. "random": a legal action, drawn from the env's generator, is played instead.
        options: the names of the options that the env's `reset` takes. Others are refused; most envs would
            ignore them.

    Raises:
        ConversionError: actions or observations cannot be written as text; the message says what would help.
        InvalidOption: this is no PettingZoo env, or an option does not fit it.
    """
    try:
        from pettingzoo import AECEnv, ParallelEnv  # type: ignore[import-untyped]
    except ModuleNotFoundError as error:
        raise MissingPackage("pettingzoo", "pettingzoo", "from_pettingzoo") from error
    env, factory = _made(env)
    game: Game
    if isinstance(env, AECEnv):
        game = AECGame(env, factory)
    elif isinstance(env, ParallelEnv):
        game = ParallelGame(env, factory)
    else:
        raise InvalidOption(
            f"from_pettingzoo takes an AEC or parallel env, or what makes one, such as tictactoe_v3.env, not {env!r}"
        )
    return ForeignEnv(game, instructions, actions, describe, illegal, options)


def from_gymnasium(
    env: Any,
    *,
    instructions: str = "",
    actions: Names | None = None,
    describe: Describe | None = None,
    illegal: Illegal = "end",
    options: Collection[str] = (),
) -> ForeignEnv:
    """A Gymnasium env as a `MultiAgentEnv` with one agent, "player_0"; everything else as in `from_pettingzoo`.

    Args:
        env: a function that makes one, such as `lambda: gymnasium.make("FrozenLake-v1")`, or an env.
        instructions, actions, describe, illegal, options: as with `from_pettingzoo`.
    """
    env, factory = _made(env)
    if not isinstance(env, gymnasium.Env):
        raise InvalidOption(
            "from_gymnasium takes a gymnasium.Env, or what makes one, such as "
            f"lambda: gymnasium.make('FrozenLake-v1'), not {env!r}"
        )
    return ForeignEnv(GymnasiumGame(env, factory), instructions, actions, describe, illegal, options)


class ForeignEnv(MultiAgentEnv):
    """An env of another library; `from_pettingzoo` and `from_gymnasium` make it, and document it."""

    selector = DirectedSelector()

    def __init__(
        self,
        game: Game,
        instructions: str,
        names: Names | None,
        describe: Describe | None,
        illegal: Illegal,
        options: Collection[str],
    ) -> None:
        if illegal not in get_args(Illegal):
            raise InvalidOption(f"{game.name}: illegal is one of {get_args(Illegal)}, not {illegal!r}")
        if not (describe is None or describe == "render" or callable(describe)):
            raise InvalidOption(f'{game.name}: describe is a function of agent and observation, or "render"')
        if describe == "render" and getattr(game.env, "render_mode", None) not in ("ansi", "ascii"):
            raise ConversionError(f'{game.name} renders no text here; make it with render_mode="ansi", if it has that')
        self.scenario, self.possible_agents = game.name, game.possible_agents
        self.metadata = Metadata(turn_order=game.turn_order, joins=game.joins)
        self._game, self._instructions, self._names = game, instructions, names
        self._describe_with, self._illegal, self._options = describe, illegal, frozenset(options)
        self._actions: dict[str, Actions] = {}
        for agent in self.possible_agents:
            self._actions_of(agent)

    @property
    def possible_actions(self) -> list[str] | None:  # type: ignore[override]
        listed = [self._actions_of(agent).listed() for agent in self.possible_agents]
        if not listed or any(texts is None for texts in listed):
            return None
        return list(dict.fromkeys(text for texts in listed for text in texts or ()))

    @property
    def foreign(self) -> Any:
        """The other library's env, for instance to render it."""
        return self._game.env

    def role(self, agent: str) -> Role:
        """The game's instructions, and how to write an action."""
        what = self._instructions or f"You are {agent} in {self.scenario}."
        return Role(f"{what}\n\n{self._actions_of(agent).instructions}")

    def observe(self, agent: str) -> Observation:
        if agent in self._shown:
            return self._shown[agent]
        return self._describe(agent, self._game.observe(agent))

    def legal_actions(self, agent: str) -> list[str] | None:
        legal = self._legal.get(agent)
        return None if legal is None else list(legal)

    def close(self) -> None:
        self._game.close()

    def _reset(self, options: Mapping[str, Any]) -> None:
        if unknown := sorted(options.keys() - self._options):
            raise InvalidOption(
                f"{self.scenario} takes the reset options {sorted(self._options)}, not {unknown}; what its reset takes "
                "is named when it is converted: options=[...]"
            )
        moment = self._game.reset(self.seed, options)
        if self._game.joins:
            self._actions.clear()  # an agent of the same name may have another action space in this episode
        for agent in set(self.agents) - set(moment.agents):  # possible agents that do not take part from the start
            self.agents = tuple(other for other in self.agents if other != agent)
            self.selector.remove(agent)
            del self.returns[agent]
        self._masks: dict[str, Mask] = {}
        self._legal: dict[str, list[str] | None] = {}
        self._shown: dict[str, Observation] = {}
        self._update(moment)

    def _process_actions(self, actions: dict[str, str]) -> None:
        chosen: dict[str, Any] = {}
        illegal: dict[str, str] = {}
        for agent, text in actions.items():
            try:
                chosen[agent] = self._actions[agent].read(text, self._masks.get(agent))
            except ValueError as error:
                illegal[agent] = str(error)
        if illegal and self._illegal == "end":
            self.rewards = dict.fromkeys(illegal, -1.0)
            self.terminations = dict.fromkeys(self.agents, True)
        else:
            for agent in illegal:
                chosen[agent] = self._actions[agent].draw(self.rng, self._masks.get(agent))
                illegal[agent] += f" {self._actions[agent].write(chosen[agent])} was played instead."
            self._update(self._game.step({agent: chosen[agent] for agent in actions}))
        for agent, complaint in illegal.items():
            self.infos.setdefault(agent, {})["illegal"] = complaint

    def _update(self, moment: Moment) -> None:
        """Take over where the game is now."""
        for agent in moment.agents:
            if agent not in self.agents:
                self.add_agent(agent)
        self.selector.direct(*moment.acting)
        self.rewards = {a: reward for a, reward in moment.rewards.items() if a in self.returns}
        self.terminations = {a: ended for a, ended in moment.terminations.items() if a in self.returns}
        self.truncations = {a: ended for a, ended in moment.truncations.items() if a in self.returns}
        for agent in self.agents:
            if agent not in moment.agents and not self.truncations.get(agent):
                self.terminations[agent] = True  # some envs drop an agent without reporting its end
        self.infos = {a: _plain_info(info) for a, info in moment.infos.items() if a in self.returns}
        self._masks = {agent: _mask(moment.observations[agent], moment.infos[agent]) for agent in moment.acting}
        self._legal = {agent: self._listed(agent, moment.infos[agent]) for agent in moment.acting}
        self._shown = {agent: shown for agent, shown in self._shown.items() if agent not in moment.agents}
        self._shown |= {agent: self._describe(agent, seen) for agent, seen in moment.observations.items()}

    def _listed(self, agent: str, info: Mapping[str, Any]) -> list[str] | None:
        """The legal actions; a text env may list them itself."""
        actions, listed = self._actions_of(agent), info.get("legal_actions")
        return listed if actions.verbatim and isinstance(listed, list) else actions.listed(self._masks[agent])

    def _describe(self, agent: str, observation: Any) -> Observation:
        if callable(self._describe_with):
            description = self._describe_with(agent, observation)
            if not isinstance(description, str | list):
                raise TypeError(f"describe must give a text or a list of content parts, not {description!r}")
            return description
        if self._describe_with is None and _is_content(observation):
            return [dict(part) for part in observation]
        text = self._rendered() if self._describe_with else self._in_words(agent, observation)
        if self._masks.get(agent) is not None and (legal := self._legal.get(agent)):
            text += f"\nLegal actions: {' '.join(legal)}"
        return text

    def _rendered(self) -> str:
        rendered = self.foreign.render()
        if not isinstance(rendered, str):
            raise TypeError(
                f"render() must give a text for describe='render', not {rendered!r}; give describe=a function of "
                "agent and observation instead"
            )
        return plain_text(rendered)

    def _in_words(self, agent: str, observation: Any) -> str:
        space = self._game.observation_space(agent)  # `in` asks a space for its members, a dict for its keys
        return in_words(_without_mask(observation), _without_mask(getattr(space, "spaces", space)))

    def _actions_of(self, agent: str) -> Actions:
        """How an agent writes its actions; made when first asked for, since agents may join."""
        if agent not in self._actions:
            if self._describe_with is None:
                require_readable(self._game.observation_space(agent))
            self._actions[agent] = Actions(self._game.action_space(agent), self._names)
        return self._actions[agent]


def _made(env: Any) -> tuple[Any, Callable[[], Any] | None]:
    """An env, and the function that makes such envs if it was given."""
    if callable(env) and (isinstance(env, type) or not hasattr(env, "step")):
        return env(), env
    return env, None


def _mask(observation: Any, info: Mapping[str, Any]) -> Mask:
    if isinstance(observation, Mapping) and "action_mask" in observation:
        return observation["action_mask"]
    return info.get("action_mask")


def _without_mask(observation: Any) -> Any:
    """An observation (or its space) without the mask, which is written as legal actions."""
    if not isinstance(observation, Mapping) or "action_mask" not in observation:
        return observation
    rest = {key: part for key, part in observation.items() if key != "action_mask"}
    return rest["observation"] if rest.keys() == {"observation"} else rest


def _plain_info(info: Mapping[str, Any]) -> dict[str, Any]:
    return {str(key): plain(part) for key, part in info.items() if key != "action_mask"}


def _is_content(observation: Any) -> bool:
    return isinstance(observation, list) and observation in Content() and observation != []
