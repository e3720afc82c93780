"""The contract: one class hosts every task, for any number of agents.

    env = marl_gem.make("ta:TicTacToe-v0")
    observations, infos = env.reset(seed=7)
    while not env.done:
        actions = {agent: act(agent, observation) for agent, observation in observations.items()}
        observations, rewards, terminations, truncations, infos = env.step(actions)

This file knows no scenario. The API follows GEM (arXiv 2510.01051, appendix D.3) and PettingZoo.
"""

from __future__ import annotations

import contextlib
import copy
import numbers
import random
from collections.abc import Coroutine, Mapping, Sequence
from math import isfinite
from typing import Any, NoReturn, Self, TypeAlias

from marl_gem.errors import EpisodeOver, InvalidAction, InvalidOption, ScenarioFault, SelectorError
from marl_gem.seeding import as_seed
from marl_gem.selectors.base import AgentSelector
from marl_gem.types import Metadata, Observation, Role

Observations: TypeAlias = dict[str, Observation]
Infos: TypeAlias = dict[str, dict[str, Any]]
Step: TypeAlias = tuple[Observations, dict[str, float], dict[str, bool], dict[str, bool], Infos]


class MultiAgentEnv:
    """One live copy of a scenario.

    An author gives `possible_agents` and a `selector` (class attributes will do: each env gets a selector
    of its own), `observe` and `_process_actions`, and, where there is state, `_reset`. Everything random
    is drawn from `self.rng`. `_process_actions` sets what is not the default in `self.rewards` (0),
    `self.terminations` and `self.truncations` (False) and `self.infos` ({}); this class checks actions,
    credits rewards, retires agents, moves the selector on and gathers observations.

    Promises, each held by a test: `step` returns observations of exactly the agents in `acting`, and four
    dicts with every agent that was alive when the step began; `observe` is pure; a wrong set of actions
    changes nothing; rewards are finite; the same seed and actions give the same episode whatever runs
    beside it; `fork` gives an equal, independent copy.
    """

    possible_agents: Sequence[str] = ()
    """The agents that an episode starts with."""

    selector: AgentSelector
    """Who acts next."""

    max_steps: int | None = None
    """After this many steps whoever is left is truncated; None sets no limit."""

    blocking: bool = False
    """Whether `step` and `reset` wait for something outside Python; rollouts then give them a thread."""

    tasks: int | None = None
    """How many tasks there are, where an episode is about one of several: `reset` takes the option `task`, from 0."""

    possible_actions: Sequence[str] | None = None
    """Every action that can ever be legal, for any agent, where they can be listed."""

    metadata: Metadata = Metadata()
    """What the scenario declares of itself: zero-sum, turn order, reward range."""

    scenario: str = ""
    """The id this env was made by; the class name if it was made by hand."""

    agents: tuple[str, ...] = ()
    """The agents that are alive."""

    acting: tuple[str, ...] = ()
    """The agents whose actions the next `step` takes."""

    seed: int = 0
    """The seed of this episode."""

    steps: int = 0
    """How many steps this episode has taken."""

    returns: dict[str, float]
    """Each agent's undiscounted sum of rewards so far."""

    rewards: dict[str, float]
    terminations: dict[str, bool]
    truncations: dict[str, bool]
    infos: Infos

    _rng: random.Random | None = None
    _blank: tuple[dict[str, float], dict[str, bool], dict[str, bool], Infos]
    _blank_of: tuple[str, ...] | None = None
    _known_agents: Sequence[str] = ()
    _zeros: dict[str, float]
    _falses: dict[str, bool]
    _state: str = "never reset"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.scenario = cls.__name__

    # What an author writes

    def observe(self, agent: str) -> Observation:
        """What is new to `agent` since it last acted. Pure: it changes nothing and draws nothing."""
        raise NotImplementedError(f"{type(self).__name__} must define observe(agent)")

    def _process_action(self, agent: str, action: str) -> None:
        """Apply the action of one agent: all that a turn-based scenario defines.

        Sets rewards, terminations, truncations and infos and returns nothing, as `_process_actions` does.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define _process_action(agent, action) or _process_actions(actions)"
        )

    def _process_actions(self, actions: dict[str, str]) -> None:
        """Apply one action per acting agent; a scenario whose agents act at the same time defines this.

        By default `_process_action` is called for each acting agent, in the order of `acting`. It sets
        `self.rewards`, `self.terminations`, `self.truncations` and `self.infos` and returns nothing; it must never
        raise on what an action says.
        """
        for agent in self.acting:
            returned: object = self._process_action(agent, actions[agent])  # type: ignore[func-returns-value]
            if returned is not None:
                return returned  # type: ignore[return-value]  # `step` refuses it
        return None

    def _reset(self, options: Mapping[str, Any]) -> None:
        """Prepare a new episode; `self.rng` is seeded and `self.agents` set already."""
        if options:
            raise InvalidOption(f"{self.scenario} takes no reset options, but got {sorted(options)}")

    def role(self, agent: str) -> Role:
        """What `agent` is told before its first turn."""
        return Role()

    def legal_actions(self, agent: str) -> Sequence[str] | None:
        """Every legal action of an acting agent, if they can be listed. They stand in its info."""
        return None

    def add_agent(self, agent: str) -> None:
        """An agent joins; call it from `_reset` or `_process_actions`."""
        if not isinstance(agent, str):
            raise ScenarioFault(f"{self.scenario}: an agent's name is text, not {agent!r}")
        if agent in self.returns:
            raise ScenarioFault(f"{self.scenario}: agent {agent!r} joins twice; every agent joins once an episode")
        self.returns[agent] = 0.0
        self.agents += (agent,)
        self.selector.add(agent)

    # What everybody calls

    @property
    def rng(self) -> random.Random:
        """The env's own generator, seeded at each reset; nothing here touches the global one."""
        if self._rng is None:  # made when it is asked for: 2.5 KB, and longer than all the rest of a reset
            self._rng = random.Random(self.seed)
        return self._rng

    @property
    def trivial_baselines(self) -> Mapping[str, Sequence[float]]:
        """What playing without wit comes to, which every score should be seen beside; none if nothing is known.

        For each such way of playing, by name: the share of tries, from 0 to 1, that succeed at each of the `tasks`,
        in their order. So whoever has played some of the tasks knows the floors of these.
        """
        return {}

    @property
    def done(self) -> bool:
        """Whether the episode is over: no agent is left."""
        return not self.agents

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Observations, Infos]:
        """Start a new episode.

        Args:
            seed: fixes everything random in the episode; without one a fresh one is drawn, see `env.seed`.
            options: what the scenario takes for one episode.

        Returns:
            The observations of the acting agents, and the infos of all agents.

        Raises:
            InvalidOption: the seed is not a non-negative integer, or an option is unknown.
            ScenarioFault: the scenario's code raised.
            SelectorError: the turn order names nobody or a stranger.
        """
        given, seed = seed, random.SystemRandom().getrandbits(32) if seed is None else as_seed(seed)
        if seed is None:
            raise InvalidOption(f"{self.scenario}: a seed is an integer from 0 up, not {given!r}")
        if not isinstance(getattr(self, "selector", None), AgentSelector):
            raise SelectorError(f"{self.scenario} has no selector: set one, for instance SequentialSelector()")
        if self.selector is getattr(type(self), "selector", None):  # not vars(self), which slows all attributes down
            self.selector = copy.deepcopy(self.selector)  # what stands on the class is shared by all its envs
        self._state = "not reset after a failure"
        self.seed, self._rng, self.steps = seed, None, 0
        if self.possible_agents is not self._known_agents:
            self._check_agents()
        self.agents = tuple(self.possible_agents)
        self.returns = dict.fromkeys(self.agents, 0.0)
        self._clear(self.agents)
        self.selector.reseed(seed)
        self.selector.reset(self.agents)
        try:
            returned: object = self._reset(options or {})  # type: ignore[func-returns-value]
        except Exception as error:
            self._fault("_reset", error)
        if returned is not None:
            self._refuse_returned("_reset", returned, "Set state that observe(agent) reads, and self.infos")
        if any(self.terminations.values()) or any(self.truncations.values()):
            raise ScenarioFault(f"{self.scenario}: _reset ends an agent's part; nobody leaves before the first turn")
        self.infos = {agent: self.infos.get(agent, {}) for agent in self.agents}
        observations = self._hand_over()
        self._state = "live"
        return observations, self.infos

    def step(self, actions: Mapping[str, str]) -> Step:
        """Apply the acting agents' actions.

        Args:
            actions: exactly one text for every agent in `acting`.

        Returns:
            observations of the agents that act next; rewards, terminations, truncations and infos of all
            agents that were alive when the step began. An agent that ended finds what it would have seen
            last in `infos[agent]["final_observation"]`. A reward for an agent that had ended before
            counts in `returns` alone.

        Raises:
            InvalidAction: too few, too many or non-text actions; nothing has changed.
            EpisodeOver: no episode is live.
            ScenarioFault: the scenario's code raised or broke the contract; reset starts anew.
            SelectorError: the turn order names nobody or a stranger.
        """
        if self._state != "live":
            raise EpisodeOver(f"{self.scenario}: the episode is {self._state}; call reset() to start a new one")
        self.check_actions(actions)
        alive = self.agents
        self._clear(alive)
        self._state = "not reset after a failure"
        self.steps += 1
        try:
            returned: object = self._process_actions(dict(actions))  # type: ignore[func-returns-value]
        except Exception as error:
            self._fault("_process_actions", error)
        if returned is not None:
            by_agent = type(self)._process_actions is MultiAgentEnv._process_actions
            self._refuse_returned(
                "_process_action" if by_agent else "_process_actions",
                returned,
                "Set self.rewards, self.terminations, self.truncations and self.infos",
            )
        self._credit(alive)
        self._retire(alive)
        if self.agents:
            try:
                self.selector.advance()
            except Exception as error:
                self._fault("selector.advance", error)
            if self.selector.finished:
                self._conclude(alive)
        if self.agents:
            observations = self._hand_over()
            self._state = "live"
        else:
            observations, self.acting, self._state = {}, (), "over"
        return observations, self.rewards, self.terminations, self.truncations, self.infos

    def check_actions(self, actions: Mapping[str, str]) -> None:
        """Raise what `step` would raise of these actions, and change nothing.

        Raises:
            InvalidAction: they are not exactly one text for every agent in `acting`.
        """
        if not isinstance(actions, (dict, Mapping)):
            raise InvalidAction(
                f"{self.scenario}: actions must be a dict of agent to text, not {type(actions).__name__}"
            )
        if tuple(actions) != self.acting and actions.keys() != set(self.acting):  # mostly they come in order
            missing = [agent for agent in self.acting if agent not in actions]
            extra = [agent for agent in actions if agent not in self.acting]
            raise InvalidAction(
                f"{self.scenario}: actions must come from exactly {list(self.acting)}; "
                f"missing {missing}, not acting now {extra}. See env.acting"
            )
        for agent, action in actions.items():
            if not isinstance(action, str):
                raise InvalidAction(f"{self.scenario}: the action of {agent!r} must be text, not {action!r}")

    def fork(self) -> Self:
        """An equal, independent copy of this env, in the middle of its episode."""
        rng = self._rng
        return copy.deepcopy(
            self, {} if rng is None else {id(rng): copy.copy(rng)}
        )  # deepcopy takes 1 ms for its state

    def close(self) -> None:
        """Release what the env holds outside Python. May be called twice."""

    # The life of a step

    def _check_agents(self) -> None:
        agents = self.possible_agents
        in_order = isinstance(agents, Sequence) and not isinstance(agents, str)  # a set has another order in every run
        if not in_order or not all(isinstance(agent, str) for agent in agents) or len(set(agents)) != len(agents):
            raise ScenarioFault(f"{self.scenario}: possible_agents are names, each once, in a tuple, not {agents!r}")
        self._known_agents = agents if isinstance(agents, tuple) else ()  # a list may change

    def _clear(self, alive: tuple[str, ...]) -> None:
        if alive is not self._blank_of:
            self._blank_of, self._zeros, self._falses = alive, dict.fromkeys(alive, 0.0), dict.fromkeys(alive, False)
        self.rewards = self._zeros.copy()  # a copy takes a third of the time that a new dict does
        self.terminations = self._falses.copy()
        self.truncations = self._falses.copy()
        infos: Infos = {}
        for agent in alive:  # a comprehension would take twice as long
            infos[agent] = {}
        self.infos = infos
        self._blank = (self.rewards, self.terminations, self.truncations, self.infos)

    def _credit(self, alive: Sequence[str]) -> None:
        """Check what the scenario reported, and sum up the rewards."""
        rewards, terminations, truncations, infos = self._blank
        untouched = (
            self.rewards is rewards
            and self.terminations is terminations
            and self.truncations is truncations
            and self.infos is infos
            and len(rewards) == len(terminations) == len(truncations) == len(infos) == len(alive)
        )  # what was changed in place has its keys still; looking at this alone saves a tenth of a small game's step
        if not untouched:
            self._complete(alive)
        for agent, reward in self.rewards.items():
            if type(reward) is not float or not isfinite(reward):
                self.rewards[agent] = reward = self._finite(agent, reward)
            if reward:
                self.returns[agent] += reward
        if self.max_steps is not None and self.steps >= self.max_steps:
            for agent in alive:
                if not self.terminations[agent]:
                    self.truncations[agent] = True

    def _complete(self, alive: Sequence[str]) -> None:
        """Fill in what the scenario left out, and take up rewards for agents that ended before."""
        defaults: dict[str, Any] = {"rewards": float, "terminations": bool, "truncations": bool, "infos": dict}
        for name, default in defaults.items():
            given = getattr(self, name)
            if not isinstance(given, Mapping):
                raise ScenarioFault(f"{self.scenario}: {name} must be a dict, not {given!r}")
            strangers = [agent for agent in given if agent not in self.returns]
            if strangers:
                raise ScenarioFault(f"{self.scenario}: {name} for {strangers}, who never were in this episode")
            if default is bool and any(given[agent] for agent in given.keys() & set(self.agents) - set(alive)):
                raise ScenarioFault(f"{self.scenario}: {name} of an agent that joined in this very step: {given}")
            if name == "rewards":
                for agent in given.keys() - set(alive):
                    self.returns[agent] += self._finite(agent, given[agent])
            setattr(self, name, {a: self._typed(name, given[a], default) if a in given else default() for a in alive})

    def _typed(self, name: str, value: Any, kind: type) -> Any:
        """A value as the contract has it: a flag may be any that equals True or False, such as NumPy's."""
        if kind is float or isinstance(value, kind):
            return value
        if kind is bool:
            with contextlib.suppress(TypeError, ValueError):  # of what has no truth, such as an array
                if value == bool(value):
                    return bool(value)
        raise ScenarioFault(f"{self.scenario}: {name} must hold a {kind.__name__} for each agent, not {value!r}")

    def _finite(self, agent: str, reward: Any) -> float:
        if isinstance(reward, (int, float, numbers.Real)):
            with contextlib.suppress(OverflowError):  # of whole numbers that no float can hold
                if isfinite(reward):
                    return float(reward)
        raise ScenarioFault(
            f"{self.scenario}: step {self.steps} gave {agent!r} the reward {reward!r}; rewards are finite numbers"
        )

    def _retire(self, alive: Sequence[str]) -> None:
        terminations, truncations, infos = self.terminations, self.truncations, self.infos
        for agent in alive:
            if terminations[agent] is False and truncations[agent] is False and type(infos[agent]) is dict:
                continue  # mostly
            terminations[agent] = self._typed("terminations", terminations[agent], bool)
            truncations[agent] = self._typed("truncations", truncations[agent], bool)
            infos[agent] = self._typed("infos", infos[agent], dict)
            if terminations[agent] or truncations[agent]:
                try:
                    self.infos[agent]["final_observation"] = self.observe(agent)
                except Exception as error:
                    self._fault("observe", error)
                self.agents = tuple(other for other in self.agents if other != agent)
                self.selector.remove(agent)
        if self.max_steps is not None and self.steps >= self.max_steps:
            self.agents = ()  # whoever joined in the last step never acts

    def _conclude(self, alive: Sequence[str]) -> None:
        """The turn order has come to its end: so has everybody's part who is left."""
        staying = [agent for agent in alive if agent in self.agents]
        self.terminations.update(dict.fromkeys(staying, True))
        self._retire(staying)
        self.agents = ()  # whoever joined in the last step never acts

    def _hand_over(self) -> Observations:
        """Give the turn to whom the selector names."""
        try:
            acting = self.selector.acting
        except Exception as error:
            self._fault("selector.advance", error)
        if not (type(acting) is tuple and len(acting) == 1 and acting[0] in self.agents):  # mostly it is
            acting = self._check_acting(acting)
        self.acting = acting
        observations: Observations = {}
        infos, where = self.infos, ""
        try:
            for agent in acting:
                where = "legal_actions"
                legal = self.legal_actions(agent)
                if legal is not None and agent in infos:
                    infos[agent]["legal_actions"] = list(legal)
                where = "observe"
                observations[agent] = self.observe(agent)
        except Exception as error:
            self._fault(where, error)
        return observations

    def _check_acting(self, named: object) -> tuple[str, ...]:
        """Whom the selector names, if it names agents; a turn order of somebody's own may give anything."""
        acting = tuple(named) if isinstance(named, tuple | list) else ()
        if not acting or any(agent not in self.agents for agent in acting) or len(set(acting)) != len(acting):
            raise SelectorError(
                f"{self.scenario}: {type(self.selector).__name__} names "
                f"{list(named) if isinstance(named, tuple) else repr(named)} after step {self.steps}; "
                f"it must name one or more of {list(self.agents)}, each once"
            )
        return acting

    def _refuse_returned(self, method: str, returned: object, instead: str) -> NoReturn:
        """A method that sets attributes returned something as well, which nobody would read."""
        if isinstance(returned, Coroutine):
            returned.close()
            instead = "It must not be a coroutine function"
        raise ScenarioFault(
            f"{self.scenario}: {method} returned a {type(returned).__name__}, which is not used. {instead}; "
            "return nothing. Observations come from observe(agent)"
        )

    def _fault(self, where: str, error: Exception) -> NoReturn:
        """The scenario's code raised: make it a fault that says where and how to see it again."""
        if isinstance(error, (InvalidOption, SelectorError)):
            raise error
        raise ScenarioFault(
            f"{self.scenario}: {where} raised {type(error).__name__} at step {self.steps} of the episode with "
            f"seed {self.seed}: {error}"
        ) from error
