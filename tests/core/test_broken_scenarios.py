"""Each broken scenario fails the conformance check of the promise that it breaks, and no other."""

from __future__ import annotations

import copy
import json
import random
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

import marl_gem
from marl_gem import MultiAgentEnv, ParallelSelector, Role, ToolSpec
from marl_gem.errors import InvalidOption
from marl_gem.types import Metadata
from tests.core.conformance import (
    HERE,
    Club,
    Desk,
    DrawsGlobally,
    DrawsWhenLookedAt,
    RewardsBoth,
    RewardsNothingThatCounts,
    Rolls,
    Talk,
    Town,
    failures,
)

# Scenarios that break one


BROKEN: list[Any] = []


def breaks(check: str, seen: str, *also: str) -> Callable[[type[MultiAgentEnv]], type[MultiAgentEnv]]:
    """Add a class to BROKEN: `check` must fail on it with a message that matches `seen`; the checks `also` fail too."""

    def add(scenario: type[MultiAgentEnv]) -> type[MultiAgentEnv]:
        BROKEN.append(pytest.param(scenario, check, seen, {check, *also}, id=f"{check}-{scenario.__name__}"))
        return scenario

    return add


@breaks("plays", "ScenarioFault: RaisesNow.* raised ZeroDivisionError.*\nseed 0, step 3, after the actions {'a': .*}$")
class RaisesNow(Rolls):
    def _process_actions(self, actions: dict[str, str]) -> None:
        super()._process_actions(actions)
        if self.steps == 3:
            self.sums["a"] //= 0


breaks("plays", "reward nan")(RewardsNothingThatCounts)


breaks("seeding", "Python's global generator changed|the episode differs")(DrawsGlobally)


@breaks("seeding", "Python's global generator changed while the env played")
class SeedsGlobally(Rolls):
    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        random.seed(self.seed)


@breaks("seeding", "played again with the same seed.*'Your sum is")
class DrawsFromTheSystem(Rolls):
    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        self.sums["a"] = random.SystemRandom().randrange(10**9)


@breaks("seeding", "leaves env.seed at 7")
class ForgetsItsSeed(Rolls):
    def reset(self, *args: Any, **kwargs: Any) -> Any:
        answer = super().reset(*args, **kwargs)
        self.seed = self.seed and 7 if self.seed < 10**6 else self.seed
        return answer


@breaks("dicts", "rewards must hold \\['a', 'b'\\], but is {'a': 0.0}", "records")
class LeavesOneOut(Rolls):
    def step(self, actions: Any) -> Any:
        observations, rewards, *rest = super().step(actions)
        return observations, {agent: rewards[agent] for agent in list(rewards)[:1]}, *rest


@breaks("dicts", "observations are {'a': .*'b': .*, but env.acting is \\('a',\\)", "records")
class ShowsAll(Rolls):
    def reset(self, *args: Any, **kwargs: Any) -> Any:
        _, infos = super().reset(*args, **kwargs)
        return {agent: self.observe(agent) for agent in self.agents}, infos


@breaks("dicts", "the info of 'a', who has ended, is {}")
class EndsWithoutAWord(Rolls):
    def step(self, actions: Any) -> Any:
        answer = super().step(actions)
        for info in answer[4].values():
            info.pop("final_observation", None)
        return answer


@breaks("dicts", "terminations and truncations are True or False, but 'a' has \\[0, False\\]")
class EndsByNumbers(Rolls):
    def step(self, actions: Any) -> Any:
        observations, rewards, terminations, truncations, infos = super().step(actions)
        return observations, rewards, {agent: int(ended) for agent, ended in terminations.items()}, truncations, infos


@breaks("dicts", "'b' has ended, but is alive")
class SaysThatTheLivingHaveEnded(Rolls):
    def step(self, actions: Any) -> Any:
        answer = super().step(actions)
        answer[2]["b"] = True
        return answer


@breaks("dicts", r"\['b'\] came back after they had terminated or been truncated")
class Resurrects(Talk):
    metadata = Metadata()

    def _process_actions(self, actions: dict[str, str]) -> None:
        super()._process_actions(actions)
        if self.steps == 1:
            self.terminations["b"] = True
        elif self.steps == 2:
            self.agents += ("b",)
            self.selector.add("b")


@breaks("infos", "Expected `bool`, got `str` - at `\\$.success`. marl_gem.types.InfoKeys declares the types")
class SucceedsInText(Rolls):
    def _process_actions(self, actions: dict[str, str]) -> None:
        super()._process_actions(actions)
        if any(self.terminations.values()):
            self.infos = {agent: {"success": "yes"} for agent in self.agents}


@breaks("infos", "Expected `str`, got `bool` - at `\\$.illegal`")
class MarksIllegalActionsWithAFlag(Rolls):
    def _process_actions(self, actions: dict[str, str]) -> None:
        super()._process_actions(actions)
        for agent, info in self.infos.items():
            info["illegal"] = agent in actions and "[" not in actions[agent]


@breaks("observations", "the observation of 'a' is a NoneType, neither text nor a list", "records")
class ShowsNothing(Rolls):
    def observe(self, agent: str) -> Any:
        return None


@breaks("observations", "a text part without its 'text'")
class ShowsEmptyParts(Rolls):
    def observe(self, agent: str) -> Any:
        return [{"type": "text"}]


@breaks("observations", "which is no content part")
class ShowsLines(Rolls):
    def observe(self, agent: str) -> Any:
        return [{"type": "text", "text": "first"}, {"line": "second"}]


@breaks("lasting", r"infos returned here were .*\[1\].*, and have changed to .*\[1, 2.*\nseed 0, step 1")
class TellsItsOwnList(Rolls):
    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        self.log: list[int] = []

    def _process_actions(self, actions: dict[str, str]) -> None:
        super()._process_actions(actions)
        self.log.append(self.steps)
        self.infos["a"]["log"] = self.log


@breaks("lasting", "observations returned here were .*, and have changed to")
class ShowsItsOwnParts(Rolls):
    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        self.parts = [{"type": "text", "text": "Say [roll] or [stay]."}]

    def observe(self, agent: str) -> Any:
        return self.parts

    def _process_actions(self, actions: dict[str, str]) -> None:
        super()._process_actions(actions)
        self.parts.append({"type": "text", "text": "Again!"})


@breaks("roles", "role\\('a'\\) is a str, not a Role", "records")
class TellsTextForARole(Rolls):
    def role(self, agent: str) -> Any:
        return "You roll dice."


@breaks("roles", "was Role\\(instructions='You are a. 0', tools=\\(\\)\\) at first and is now")
class ChangesRoles(Rolls):
    def role(self, agent: str) -> Role:
        return Role(f"You are {agent}. {self.steps}")


@breaks("roles", "one with the tools \\['roll', 'roll'\\]")
class NamesAToolTwice(Rolls):
    def role(self, agent: str) -> Role:
        return Role(tools=(ToolSpec("roll"), ToolSpec("roll")))


@breaks("rewards", "the reward of 'a' is 0; rewards are finite floats")
class RewardsWholeNumbers(Rolls):
    def step(self, actions: Any) -> Any:
        observations, rewards, *rest = super().step(actions)
        return observations, {agent: int(reward) for agent, reward in rewards.items()}, *rest


@breaks("rewards", "the return of 'a' is 0.25, but its rewards sum to 0.0")
class CountsMoreThanItGives(Rolls):
    def _process_actions(self, actions: dict[str, str]) -> None:
        super()._process_actions(actions)
        if self.steps == 1:
            self.returns = {"a": 0.25, "b": -0.25}


@breaks("records", r"not plain data: info\['dice'\] is a set")
class TellsSets(Rolls):
    def _process_actions(self, actions: dict[str, str]) -> None:
        super()._process_actions(actions)
        self.infos["a"]["dice"] = {3}


@breaks("records", "is a tuple")
class TellsTuples(Rolls):
    def role(self, agent: str) -> Role:
        return Role(tools=(ToolSpec("roll", parameters={"type": "object", "required": ()}),))


breaks("purity", "observe draws from env.rng", "render")(DrawsWhenLookedAt)


@breaks(
    "purity", "observe\\('b'\\) is 'You have 1 new messages' at first and 'You have 0 new messages' when called again"
)
class ForgetsWhatItShowed(Rolls):
    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        self.mail = dict.fromkeys(self.possible_agents, 1)

    def observe(self, agent: str) -> str:
        new, self.mail[agent] = self.mail[agent], 0
        return f"You have {new} new messages"


@breaks(
    "purity",
    "role changes something; called between steps: at step 1 observations are 'asked . times'|for 'b' instead of",
    "forking",
)
class CountsWhoAsks(Rolls):
    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        self.asked = 0

    def role(self, agent: str) -> Role:
        self.asked += 1
        return super().role(agent)

    def observe(self, agent: str) -> str:
        return f"asked {self.asked} times"


@breaks("purity", "observe\\('b'\\) raised KeyError: 'b'")
class KnowsOnlyTheMover(Rolls):
    def observe(self, agent: str) -> str:
        return {mover: super(KnowsOnlyTheMover, self).observe(mover) for mover in self.selector.acting or "ab"}[agent]

    def _process_actions(self, actions: dict[str, str]) -> None:
        super()._process_actions(actions)
        if self.steps == 6:
            self.selector.acting = ()  # whoever ends is shown something


@breaks("render", r"render\(\) raised KeyError: 'board'")
class DrawsWhatIsNotThere(Rolls):
    def render(self) -> str:
        return str({}["board"])


@breaks("render", r"render\(\) gives text, not \['a', 'b'\]")
class DrawsAList(Rolls):
    def render(self) -> str:
        return list(self.possible_agents)  # type: ignore[return-value]


@breaks("render", "render changes something; called between steps")
class MovesWhenDrawn(Rolls):
    def render(self) -> str:
        self.sums["a"] += 1
        return ""


@breaks("isolation", "beside 7 copies that are stepped in turn", "forking")
class SharesItsState(Rolls):
    sums: dict[str, int] = {}  # noqa: RUF012 - this is what is wrong with it

    def _reset(self, options: Mapping[str, Any]) -> None:
        MultiAgentEnv._reset(self, options)
        self.sums.update(a=0, b=0)


@breaks("isolation", "beside 7 copies in other threads, an episode differs")
class ThinksInAModule(Rolls):
    def _process_actions(self, actions: dict[str, str]) -> None:
        SCRATCH[:] = [self.rng.randrange(10**6)]
        time.sleep(0.0005)
        self.sums[next(iter(actions))] += SCRATCH[0]
        super()._process_actions(actions)


SCRATCH: list[int] = []


@breaks("forking", "a fork is not independent")
class ForksItself(Rolls):
    def fork(self) -> Any:
        return copy.copy(self)


@breaks("forking", "a fork made at step . differs: at step . ")
class ForksWithNewDice(Rolls):
    def fork(self) -> Any:
        twin = super().fork()
        twin.rng.seed(5)
        return twin


@breaks("forking", "fork\\(\\) or playing the fork raised TypeError: cannot pickle '_thread.lock' object")
class CannotBeCopied(Rolls):
    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        self.lock = threading.Lock()


@breaks("reset", "reset after one step, the episode differs: at step 0 observations")
class GoesOnWhereItWas(Rolls):
    def __init__(self) -> None:
        self.sums = dict.fromkeys(self.possible_agents, 0)

    def _reset(self, options: Mapping[str, Any]) -> None:
        if options:
            raise InvalidOption("none, please")


@breaks("reset", "reset\\(options={'no such option': 1}\\) was accepted")
class TakesAnyOption(Rolls):
    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset({})


@breaks("reset", "without a seed gives the seed 0 twice")
class HasOneSeed(Rolls):
    def reset(self, seed: int | None = 0, options: Any = None) -> Any:
        return super().reset(seed, options)


@breaks("lifecycle", "after the end was accepted instead of raising EpisodeOver")
class GoesOnAfterTheEnd(Rolls):
    def step(self, actions: Any) -> Any:
        return ({}, {}, {}, {}, {}) if self.steps and self.done else super().step(actions)


@breaks("lifecycle", "close\\(\\) twice raised RuntimeError: closed already")
class ClosesOnce(Rolls):
    closed = False

    def close(self) -> None:
        if self.closed:
            raise RuntimeError("closed already")
        self.closed = True


@breaks("wrong_actions", "step\\({}\\) was accepted instead of raising InvalidAction")
class FillsIn(Rolls):
    def step(self, actions: Any) -> Any:
        return super().step({**dict.fromkeys(self.acting, ""), **actions} if isinstance(actions, dict) else actions)


@breaks("wrong_actions", "step\\({}\\) raised KeyError: 'a' instead of InvalidAction")
class ReadsBeforeItLooks(Rolls):
    def step(self, actions: Any) -> Any:
        for agent in self.acting:
            actions[agent].strip()
        return super().step(actions)


@breaks("wrong_actions", "wrong actions were refused, but changed something: at step")
class ChangesBeforeItLooks(Rolls):
    def step(self, actions: Any) -> Any:
        if self.acting:
            self.rng.random()
        return super().step(actions)


@breaks("hostile_actions", "digits that int\\(\\) may refuse raised ScenarioFault.*ValueError")
class ReadsDigits(Rolls):
    def _process_actions(self, actions: dict[str, str]) -> None:
        super()._process_actions(actions)
        for text in actions.values():
            [int(letter) for letter in text if letter.isdigit()]


@breaks("hostile_actions", "format strings raised ScenarioFault")
class FillsInTemplates(Rolls):
    def _process_actions(self, actions: dict[str, str]) -> None:
        super()._process_actions(actions)
        for agent, text in actions.items():
            self.infos[agent]["said"] = text.format() if "agent" in text else text[:20]


@breaks("hostile_actions", "an empty text raised ScenarioFault: .*SystemExit")
class Exits(Rolls):
    def _process_actions(self, actions: dict[str, str]) -> None:
        super()._process_actions(actions)
        if "" in actions.values():
            sys.exit(1)


@breaks("hostile_actions", "brackets without end raised ScenarioFault.*RecursionError")
class ReadsJson(Desk):
    def _process_actions(self, actions: dict[str, str]) -> None:
        if found := re.search(r"<tool_call>(.*)</tool_call>", actions["clerk"]):
            try:
                json.loads(found[1])
            except ValueError:
                self.infos["clerk"]["illegal"] = "this is no JSON"


@breaks("hostile_actions", "a text that slow patterns match slowly took longer than 0.5 seconds")
class ReadsSlowly(Rolls):
    def _process_actions(self, actions: dict[str, str]) -> None:
        super()._process_actions(actions)
        for text in actions.values():
            re.fullmatch(r"(a+)+b", text[:100] if len(text) < 100_000 else "")


@breaks("legal_actions", "a list with '\\[roll\\]' more than once")
class ListsTwice(Rolls):
    def legal_actions(self, agent: str) -> list[str]:
        return ["[roll]", "[stay]", "[roll]"]


@breaks("legal_actions", "empty, though the agent is to act; give None")
class ListsNothing(Rolls):
    def legal_actions(self, agent: str) -> list[str]:
        return []


@breaks("legal_actions", "played '\\[jump\\]', which is listed as legal, and its info says: Say \\[roll\\]")
class ListsWhatIsIllegal(Rolls):
    def legal_actions(self, agent: str) -> list[str]:
        return ["[roll]", "[jump]"]


@breaks("ending", "goes on after 300 steps of random play; set max_steps")
class NeverEnds(Rolls):
    def _process_actions(self, actions: dict[str, str]) -> None:
        if self.steps < 5:
            super()._process_actions(actions)


breaks("metadata", "its metadata says that returns sum to zero, but they are {'a': 1.0, 'b': 1.0}")(RewardsBoth)


@breaks("metadata", "its metadata says that rewards are from -1.0 to 1.0, but 'a' got 2.0")
class RewardsTooMuch(Rolls):
    def _process_actions(self, actions: dict[str, str]) -> None:
        super()._process_actions(actions)
        self.rewards = {"a": 2.0, "b": -2.0}


@breaks("metadata", "its metadata says that one agent acts at a time, but acting are \\('a', 'b'\\)")
class ActsTogether(Rolls):
    selector = ParallelSelector()


@breaks("metadata", "its metadata says that all agents act at the same time, but acting are \\('a',\\)")
class ActsInTurn(Rolls):
    metadata = Metadata(turn_order="parallel")


@breaks("metadata", "joined, but its metadata does not say joins=True")
class LetsPeopleIn(Club):
    metadata = Metadata()


@breaks("metadata", "game:KuhnPoker-v0 is registered for 2 to 2 agents, but has 1")
class IsNotWhatIsRegistered(Desk):
    scenario = "game:KuhnPoker-v0"

    def __init_subclass__(cls) -> None:
        pass


IsNotWhatIsRegistered.scenario = "game:KuhnPoker-v0"


@breaks("messages", "observe shows '.*was sent to \\[.*\\] only\nseed 0")
class ShowsAllMessages(Town):
    def observe(self, agent: str) -> str:
        return "\n".join(map(str, self.message_log))


@pytest.mark.parametrize(("make", "check", "seen", "expected"), BROKEN)
def test_a_broken_scenario_fails_its_check_and_no_other(
    make: type[MultiAgentEnv], check: str, seen: str, expected: set[str]
) -> None:
    found = failures(make)
    assert found.keys() == expected
    assert re.search(seen, found[check], re.S)


def test_every_check_is_broken_by_something() -> None:
    assert {param.values[1] for param in BROKEN} == set(HERE)
    assert len(BROKEN) >= 40


def test_what_a_check_saw_can_be_seen_again() -> None:
    seen = failures(RaisesNow)["plays"]
    seed = int(re.search(r"seed (\d+), step", seen)[1])  # type: ignore[index]
    history = eval(f"[{seen.rpartition('after the actions ')[2]}]")
    env = RaisesNow()
    env.reset(seed=seed)
    with pytest.raises(marl_gem.errors.ScenarioFault):
        for actions in history:
            env.step(actions)
