"""The contract: one class hosts every task, for any number of agents.

    env = marl_gem.make("ta:TicTacToe-v0")
    observations, infos = env.reset(seed=7)
    while not env.done:
        actions = {agent: act(agent, observation) for agent, observation in observations.items()}
        observations, rewards, terminations, truncations, infos = env.step(actions)

This file knows no scenario. The API follows GEM (arXiv 2510.01051, appendix D.3) and PettingZoo; it differs from
GEM's in that a scenario sets its results on `self` and returns nothing.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, NoReturn, Self, TypeAlias

from marl_gem import step_results
from marl_gem.awaiting import wait_for
from marl_gem.errors import EpisodeOver, InvalidOption, SelectorError
from marl_gem.faults import FAULTS
from marl_gem.messages import Messaging
from marl_gem.selectors.base import AgentSelector
from marl_gem.step_results import RESULTS, Results, StepBuffers, as_declared, as_reward, complete
from marl_gem.step_results import Infos as Infos
from marl_gem.text_picture import text_picture
from marl_gem.types import Metadata, Observation, Role

Observations: TypeAlias = dict[str, Observation]
Step: TypeAlias = tuple[Observations, dict[str, float], dict[str, bool], dict[str, bool], Infos]


class MultiAgentEnv(Messaging):
    """One live copy of a scenario.

    An author writes a class with `possible_agents`, a `selector` (class attributes will do: each env gets a copy of
    the selector), `observe(agent)` and `_process_action(agent, action)` or, where agents act at the same time,
    `_process_actions(actions)`; and `_reset(options)` where there is state. Everything random is drawn from
    `self.rng`. This class checks actions, sums rewards, removes agents that end, advances the selector and gathers
    observations.

    Its promises; the tests of promise N are `test_promise_N_...` in tests/core/test_contract.py:

    1. `observations` holds exactly the agents that act next, `env.acting`; the other four dicts hold every agent
       that was alive when the step began. An agent that ends finds what it would have observed next in
       `infos[agent]["final_observation"]`.
    2. `observe(agent)` is pure: it changes nothing, and called twice it gives the same. What it shows one agent
       never holds another agent's private part.
    3. Actions come from exactly the acting agents; otherwise an error names the agents, and nothing has changed.
       No text raises: an illegal action is a move like any other, and `infos[agent]["illegal"]` says what was wrong.
    4. Rewards are finite floats, and `returns` their sums. A reward for an agent that has ended counts there. Where
       `awaits` is true, a scenario may also report an awaitable that gives the reward; all are awaited before the step
       goes on, and may write `infos` as well.
    5. After the end `step` raises; `reset` starts a new episode. Agents may join and leave in the middle of an
       episode; nobody is skipped and nobody acts twice.
    6. Each env has its own random generator. The same seed and the same actions give the same episode, whatever
       runs beside it, in threads or not.
    7. `fork()` gives an equal, independent copy.
    8. What is sent is shown to exactly its hearers, once: `send`, `channels` and `new_messages`.
    """

    # What an author declares

    possible_agents: Sequence[str] = ()
    """The ids of the agents that an episode starts with, each once."""

    selector: AgentSelector
    """The turn order: which agents act next."""

    max_steps: int | None = None
    """After this many steps all agents that are left are truncated; None sets no limit."""

    blocking: bool = False
    """Whether `step` and `reset` wait for something outside Python; rollouts then call them in a thread."""

    awaits: bool = False
    """Whether rewards may be awaitables that give them, such as a judge's answer; rollouts then use `step_async`."""

    tasks: int | None = None
    """The number of tasks, where an episode is about one of several: `reset` takes the option `task`, from 0."""

    grades: Sequence[str] = ()
    """The grade of each task, such as "easy"; empty where they have none."""

    possible_actions: Sequence[str] | None = None
    """Every action that can ever be legal, for any agent, where they can be listed."""

    metadata: Metadata = Metadata()
    """What the scenario declares: zero-sum, turn order, reward range."""

    # The state of the episode, for everybody to read

    scenario: str = ""
    """The id this env was made by; the class name if it was made by hand."""

    agents: tuple[str, ...] = ()
    """The agents that are alive."""

    acting: tuple[str, ...] = ()
    """The agents whose actions the next `step` takes."""

    seed: int = 0
    """The seed of this episode."""

    steps: int = 0
    """The number of steps of this episode so far."""

    returns: dict[str, float]
    """The undiscounted sum of rewards so far, of every agent that was in this episode."""

    # The results of a step: a scenario sets them in `_process_action` or `_process_actions`, where they differ from
    # the defaults

    rewards: dict[str, float]
    """The reward of each agent for this step; 0 by default."""

    terminations: dict[str, bool]
    """Whether each agent's episode comes to its natural end; False by default."""

    truncations: dict[str, bool]
    """Whether each agent's episode is cut off; False by default."""

    infos: Infos
    """More about each agent, as plain data; {} by default. `types.InfoKeys` declares the keys with a fixed meaning."""

    _rng: random.Random | None = None
    _buffers: StepBuffers
    _checked_agents: tuple[str, ...] = ()
    _state: str = "never reset"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.scenario = cls.__name__

    # What an author writes

    def observe(self, agent: str) -> Observation:
        """What is new to `agent` since it last acted: by default `new_messages`, each on a line with its sender.

        Pure: it changes nothing and draws nothing.
        """
        if self._log is None and type(self).observe is MultiAgentEnv.observe:
            raise NotImplementedError(f"{type(self).__name__} must define observe(agent), or send a text in _reset")
        return self._log.text_for(agent) if self._log else ""

    def _process_action(self, agent: str, action: str) -> None:
        """Apply the action of one agent: all that a turn-based scenario defines.

        Sets `self.rewards`, `self.terminations`, `self.truncations` and `self.infos` where they differ from the
        defaults, and returns nothing. Must never raise on what an action says.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define _process_action(agent, action) or _process_actions(actions)"
        )

    def _process_actions(self, actions: dict[str, str]) -> None:
        """Apply one action per acting agent: what a scenario defines whose agents act at the same time.

        Sets and returns what `_process_action` does. By default that is called for each acting agent, in the order
        of `acting`.
        """
        for agent in self.acting:
            returned: object = self._process_action(agent, actions[agent])  # type: ignore[func-returns-value]
            if returned is not None:
                return returned  # type: ignore[return-value]  # `step` refuses it
        return None

    def _reset(self, options: Mapping[str, Any]) -> None:
        """Prepare a new episode; `self.rng` is seeded and `self.agents` set already. Returns nothing."""
        if options:
            raise InvalidOption(f"{self.scenario} takes no reset options, but got {sorted(options)}")

    def role(self, agent: str) -> Role:
        """The instructions and tools of `agent`, which it is given before its first turn."""
        return Role()

    def legal_actions(self, agent: str) -> Sequence[str] | None:
        """Every legal action of an acting agent, or None if they cannot be listed. They are put into its info."""
        return None

    @property
    def trivial_baselines(self) -> Mapping[str, Sequence[float]]:
        """The success rates of trivial policies, which every score should be compared with; empty if unknown.

        By name of the policy: its success rate, from 0 to 1, at each of the `tasks`, in their order.
        """
        return {}

    # What an author calls

    @property
    def rng(self) -> random.Random:
        """The env's random generator, seeded at each reset; nothing here touches the global one."""
        if self._rng is None:
            self._rng = random.Random(self.seed)
        return self._rng

    def add_agent(self, agent: str) -> None:
        """Let an agent join; call it from `_reset`, `_process_action` or `_process_actions`.

        Raises:
            ScenarioFault: the id is no text, or was in this episode already.
        """
        agent = step_results.check_joining(agent, self.returns, self.scenario)
        self.returns[agent] = 0.0
        self.agents += (agent,)
        self.selector.add(agent)

    # What everybody calls

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
            ScenarioFault: the scenario's code raised or broke the contract.
            SelectorError: the turn order names no agent, or one that is not there.
        """
        self._prepare(step_results.episode_seed(seed, self.scenario))
        try:
            returned: object = self._reset(options or {})  # type: ignore[func-returns-value]
        except FAULTS as error:
            self._fault("_reset", error)
        if returned is not None:
            raise step_results.returned_something(self.scenario, "_reset", returned)
        step_results.check_nobody_left(self.terminations, self.truncations, self.scenario)
        self.infos = {agent: self.infos.get(agent, {}) for agent in self.agents}
        observations = self._observe_acting()
        self._state = "live"
        return observations, self.infos

    def step(self, actions: Mapping[str, str]) -> Step:
        """Apply the acting agents' actions.

        Args:
            actions: exactly one text for every agent in `acting`.

        Returns:
            observations of the agents that act next; rewards, terminations, truncations and infos of all agents that
            were alive when the step began; see promises 1 and 4.

        Raises:
            InvalidAction: too few, too many or non-text actions; nothing has changed.
            EpisodeOver: no episode is live.
            ScenarioFault: the scenario's code raised or broke the contract; reset starts a new episode.
            SelectorError: the turn order names no agent, or one that is not there.
            LLMError, ResourceError: a model or a process that the env needs has failed; reset starts a new episode.
        """
        alive, defaults = self._begin_step(actions)
        if self.awaits:
            wait_for(self._await_rewards())
        return self._end_step(alive, defaults)

    async def step_async(self, actions: Mapping[str, str]) -> Step:
        """`step` for callers in an event loop: rewards are awaited in it, and the others there go on meanwhile."""
        alive, defaults = self._begin_step(actions)
        if self.awaits:
            await self._await_rewards()
        return self._end_step(alive, defaults)

    def check_actions(self, actions: Mapping[str, str]) -> None:
        """Raise the InvalidAction that `step` would raise on these actions, and change nothing."""
        step_results.check_actions(actions, self.acting, self.scenario)

    def render(self) -> str:
        """A text picture of the moment, for people alone: by default what the acting agents see, else a scenario's own.

        Changes nothing, and never raises after a reset.
        """
        return text_picture(self)

    def fork(self) -> Self:
        """An equal, independent copy of this env, in the middle of its episode."""
        rng = self._rng
        shared = {} if rng is None else {id(rng): copy.copy(rng)}  # deepcopy would copy each of its 625 numbers
        return copy.deepcopy(self, shared)

    def release_resources(self) -> None:
        """Give back what this episode has taken outside Python: it is over, or is left before its end."""

    def close(self) -> None:
        """Release what the env holds outside Python. May be called twice."""

    # How a step is taken

    def _begin_step(self, actions: Mapping[str, str]) -> tuple[tuple[str, ...], Results]:
        """Let the scenario apply the actions; the agents that were alive before, and the default results."""
        if self._state != "live":
            raise EpisodeOver(f"{self.scenario}: the episode is {self._state}; call reset() to start a new one")
        self.check_actions(actions)
        alive = self.agents
        defaults = self._buffers.defaults(alive)
        self.rewards, self.terminations, self.truncations, self.infos = defaults
        self._state = "not reset after a failure"
        self.steps += 1
        if self._log is not None:
            self._log.mark_read(self.acting)
        try:
            returned: object = self._process_actions(dict(actions))  # type: ignore[func-returns-value]
        except FAULTS as error:
            self._fault("_process_actions", error)
        if returned is not None:
            by_agent = type(self)._process_actions is MultiAgentEnv._process_actions
            method = "_process_action" if by_agent else "_process_actions"
            raise step_results.returned_something(self.scenario, method, returned)
        return alive, defaults

    async def _await_rewards(self) -> None:
        try:
            self.rewards = await step_results.awaited(self.rewards)
        except FAULTS as error:
            self._fault("a reward", error)

    def _end_step(self, alive: tuple[str, ...], defaults: Results) -> Step:
        """Check what the scenario reported, and see who acts next."""
        self._check_results(alive, defaults)
        if self._log is not None:
            self._log.deliver_backlogs(self)
        self._remove_ended(alive)
        if self.agents:
            try:
                self.selector.advance()
            except FAULTS as error:
                self._fault("selector.advance", error)
            if self.selector.finished:
                self._terminate_all(alive)
        if self.agents:
            observations = self._observe_acting()
            self._state = "live"
        else:
            observations, self.acting, self._state = {}, (), "over"
        return observations, self.rewards, self.terminations, self.truncations, self.infos

    def _prepare(self, seed: int) -> None:
        """Everything is as it is at the start of an episode, before the scenario's own part."""
        if not isinstance(getattr(self, "selector", None), AgentSelector):
            raise SelectorError(f"{self.scenario} has no selector: set one, for instance SequentialSelector()")
        if self.selector is getattr(type(self), "selector", None):
            self.selector = copy.deepcopy(self.selector)  # all envs of a class share the one on the class
        self._state = "not reset after a failure"
        self.seed, self._rng, self._log, self.steps = seed, None, None, 0
        if self.possible_agents is not self._checked_agents:
            self._checked_agents = step_results.check_possible_agents(self.possible_agents, self.scenario)
        self.agents = self._checked_agents or tuple(map(str.__str__, self.possible_agents))  # of a StrEnum, too
        self.returns = dict.fromkeys(self.agents, 0.0)
        self._buffers = StepBuffers()
        self.rewards, self.terminations, self.truncations, self.infos = self._buffers.defaults(self.agents)
        self.selector.reseed(seed)
        self.selector.reset(self.agents)

    def _check_results(self, alive: Sequence[str], defaults: Results) -> None:
        """Complete what the scenario reported, check it, and add the rewards to the returns."""
        rewards, terminations, truncations, infos = defaults
        if not (
            self.rewards is rewards
            and self.terminations is terminations
            and self.truncations is truncations
            and self.infos is infos
            and len(rewards) == len(terminations) == len(truncations) == len(infos) == len(alive)
        ):
            self._complete_results(alive)
        for agent, reward in self.rewards.items():
            if type(reward) is not float or not isfinite(reward):
                self.rewards[agent] = reward = self._finite(agent, reward)
            if reward:
                self.returns[agent] += reward
        if self.max_steps is not None and self.steps >= self.max_steps:
            for agent in alive:
                if not self.terminations[agent]:
                    self.truncations[agent] = True

    def _complete_results(self, alive: Sequence[str]) -> None:
        """Add the defaults that the scenario left out, and the rewards of agents that had ended before."""
        for name in RESULTS:
            given = getattr(self, name)
            setattr(self, name, complete(name, given, alive, self.agents, self.returns, self.scenario))
            if name == "rewards":
                for agent in given.keys() - set(alive):
                    self.returns[agent] += self._finite(agent, given[agent])

    def _finite(self, agent: str, reward: Any) -> float:
        return as_reward(reward, agent, f"{self.scenario}: step {self.steps}")

    def _remove_ended(self, alive: Sequence[str]) -> None:
        """Agents that terminated or were truncated leave, with their final observation in their info."""
        terminations, truncations, infos = self.terminations, self.truncations, self.infos
        for agent in alive:
            if terminations[agent] is False and truncations[agent] is False and type(infos[agent]) is dict:
                continue
            for name, results in (("terminations", terminations), ("truncations", truncations), ("infos", infos)):
                results[agent] = as_declared(name, results[agent], self.scenario)
            if terminations[agent] or truncations[agent]:
                try:
                    infos[agent]["final_observation"] = self.observe(agent)
                except FAULTS as error:
                    self._fault("observe", error)
                self.agents = tuple(other for other in self.agents if other != agent)
                self.selector.remove(agent)
        if self.max_steps is not None and self.steps >= self.max_steps:
            self.agents = ()  # an agent that joined in the last step never acts

    def _terminate_all(self, alive: Sequence[str]) -> None:
        """The turn order has come to its end: all agents that are left terminate."""
        left = [agent for agent in alive if agent in self.agents]
        self.terminations.update(dict.fromkeys(left, True))
        self._remove_ended(left)
        self.agents = ()  # an agent that joined in the last step never acts

    def _observe_acting(self) -> Observations:
        """Ask the selector who acts next, and gather what these agents observe and may do."""
        try:
            acting = self.selector.acting
        except FAULTS as error:
            self._fault("selector.advance", error)
        if not (type(acting) is tuple and len(acting) == 1 and acting[0] in self.agents):
            who = f"{self.scenario}: {type(self.selector).__name__}"
            acting = step_results.as_acting(acting, self.agents, f"{who} names", f"after step {self.steps}")
        self.acting = acting
        observations: Observations = {}
        infos, method = self.infos, ""
        try:
            for agent in acting:
                method = "legal_actions"
                legal = self.legal_actions(agent)
                if legal is not None and agent in infos:
                    infos[agent]["legal_actions"] = list(legal)
                method = "observe"
                observations[agent] = self.observe(agent)
        except FAULTS as error:
            self._fault(method, error)
        return observations

    def _fault(self, where: str, error: BaseException) -> NoReturn:
        """The scenario's code raised: raise a fault that says where, and how to get there again."""
        step_results.raise_fault(error, where, self.scenario, self.steps, self.seed)
