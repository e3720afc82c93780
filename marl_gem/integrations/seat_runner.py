"""Episodes in which some seats are somebody else's to answer, and the others ours.

    runner = SeatRunner("game:TicTacToe-v0", others={"player_1": "random"}, tokenizer=tokenizer)
    episodes = runner.play_sync(generate, [Start(seed) for seed in range(64)])
    for sample in samples(episodes, runner.seats): ...

There are two directions of control. Either the other side gives a function that answers (`SeatRunner.play`), or it
steps each episode itself (`stepped.SteppedEpisode`).
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from marl_gem.errors import AgentError, ConfigError
from marl_gem.integrations.outside_model import Generate, OutsideModel, Tokenizer
from marl_gem.llm import Sampling
from marl_gem.llm.models import Models
from marl_gem.policies import LLMPolicy, Policy
from marl_gem.rollout import Job, stream
from marl_gem.seeding import derive_seed
from marl_gem.specs import PolicySpec, ScenarioSpec, load_policy
from marl_gem.specs.scenario import ScenarioSource
from marl_gem.types import Episode, Limits
from marl_gem.views import AnyView, chat

Other: TypeAlias = str | PolicySpec | Policy
"""Who holds a seat of ours: the text of a `PolicySpec`, the spec, or the policy."""


class Start(NamedTuple):
    """How an episode starts. Episodes with the same seed and options start from the same state.

    Among those, `repeat` gives the policies in our seats other random choices.
    """

    seed: int
    options: Mapping[str, Any] = {}
    repeat: int = 0

    def to_text(self) -> str:
        """The start state as JSON, without `repeat`: a prompt for trainers whose data are texts."""
        return json.dumps({"seed": self.seed, **({"options": dict(self.options)} if self.options else {})})

    @classmethod
    def from_text(cls, text: str, repeat: int = 0) -> Start:
        """Read what `to_text` wrote, or a bare seed.

        Raises:
            ConfigError: it is something else.
        """
        try:
            data = json.loads(text)
            data = data if isinstance(data, dict) else {"seed": data}
            seed, options = data["seed"], data.get("options", {})
        except (ValueError, KeyError) as error:
            raise ConfigError(f"a start is a seed or Start(seed, options).to_text(), not {text!r:.200}") from error
        if type(seed) is not int or seed < 0 or not isinstance(options, dict):
            raise ConfigError(f"a start is a seed or Start(seed, options).to_text(), not {text!r:.200}")
        return cls(seed, options, repeat)


class SeatRunner:
    """A scenario, whose seats are the other side's and whose are ours.

    Args:
        scenario: an id such as "ta:TicTacToe-v0", a table, a spec, or a callable that makes an env.
        seats: those that the other side answers; by default all that `others` does not name.
        others: who holds each of our seats; a list of several is a pool, from which each episode draws. A seat that is
            named nowhere is played at random.
        tokenizer: that of the other side's model, to give it prompts in tokens; None where it tokenizes by itself.
        view: how a seat's history becomes its prompt. With `chat` all turns of a seat are one sequence.
        sampling: what requests carry; whether it is followed is the other side's affair.
        limits: what cuts an episode short.
        context: the greatest number of tokens of prompt and answer together, if known.
        concurrency: how many episodes are played at once.
        template_options: variables of the chat template, such as {"enable_thinking": False}.

    Raises:
        RegistryError, MissingPackage: the scenario cannot be made.
        AgentError: it has no such agent, an agent is both sides', or there is no such policy.
    """

    def __init__(
        self,
        scenario: ScenarioSource,
        seats: Sequence[str] = (),
        others: Mapping[str, Other | Sequence[Other]] | None = None,
        *,
        tokenizer: Tokenizer | None = None,
        view: AnyView = chat,
        sampling: Sampling | None = None,
        limits: Limits | None = None,
        context: int | None = None,
        concurrency: int = 64,
        template_options: dict[str, Any] | None = None,
    ) -> None:
        self.spec = ScenarioSpec.parse(scenario)
        self.info = self.spec.inspect()
        others = dict(others or {})
        self.seats = tuple(seats) or tuple(agent for agent in self.info.agents if agent not in others)
        self._check_seats(others)
        self._tokenizer, self._context, self._template_options = tokenizer, context, template_options
        self._view, self._sampling = view, sampling or Sampling(max_tokens=None)
        self._limits, self._concurrency = limits or Limits(), concurrency
        models = Models()
        self._others: dict[str, list[Policy]] = {}
        for agent in dict.fromkeys([*self.info.agents, *others]):
            if agent not in self.seats:
                given = others.get(agent, "random")
                pool = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
                self._others[agent] = [self._load(policy, agent, models) for policy in pool]

    async def play(self, generate: Generate | Mapping[str, Generate], starts: Iterable[Start]) -> list[Episode]:
        """Play an episode from each start, and return them in this order.

        Episodes go on while others wait, and the requests of all that wait are answered together. One that fails has
        its error in its record.

        Args:
            generate: answers all seats of the other side, or a function for each of them.
            starts: how the episodes start.
        """
        functions = generate if isinstance(generate, Mapping) else dict.fromkeys(self.seats, generate)
        if missing := [seat for seat in self.seats if seat not in functions]:
            raise AgentError(f"nobody answers {', '.join(missing)}: generate must name every seat of {self.seats}")
        policies = {function: self.policy(function) for function in functions.values()}
        answering = {seat: policies[functions[seat]] for seat in self.seats}
        jobs = [self.job(start, answering, str(index)) for index, start in enumerate(starts)]
        played = {
            e.id: e async for e in stream(self.spec.make, jobs, concurrency=min(self._concurrency, len(jobs) or 1))
        }
        return [played[job.id] for job in jobs]

    def play_sync(self, generate: Generate | Mapping[str, Generate], starts: Iterable[Start]) -> list[Episode]:
        """`play` for callers without an event loop. `generate` runs in the caller's thread."""
        return asyncio.run(self.play(generate, starts))

    def policy(self, generate: Generate, max_batch: int | None = None) -> LLMPolicy:
        """The policy that answers by this function."""
        model = OutsideModel(
            generate,
            self._tokenizer,
            max_batch=max_batch,
            context=self._context,
            template_options=self._template_options,
        )
        return LLMPolicy(model, self._view, self._sampling, keep_reasoning=True)

    def job(self, start: Start, answering: Mapping[str, Policy], name: str = "") -> Job:
        """The job of an episode, with these policies in the other side's seats."""
        seating = dict(answering)
        for agent, pool in self._others.items():
            draw = random.Random(derive_seed(start.seed, start.repeat, agent))
            seating[agent] = pool[draw.randrange(len(pool))] if len(pool) > 1 else pool[0]
        return Job(start.seed, seating, name, dict(start.options), start.repeat, self._limits)

    def _load(self, policy: Other, agent: str, models: Models) -> Policy:
        if isinstance(policy, (str, PolicySpec)):
            return load_policy(policy, self.spec, agents=(agent,), models=models)
        return policy

    def _check_seats(self, others: Mapping[str, object]) -> None:
        both = [agent for agent in self.seats if agent in others]
        if both:
            raise AgentError(f"{both[0]!r} is named in seats and in others; a seat is answered by one side")
        known = set(self.info.agents)
        if not self.info.joins and (unknown := [a for a in (*self.seats, *others) if a not in known]):
            agents = ", ".join(self.info.agents)
            raise AgentError(f"{self.info.scenario} has no agent {unknown[0]!r}; its agents are {agents}")
        if not self.seats:
            raise AgentError(f"no seat of {self.info.scenario} is left for the other side; others names all of them")
