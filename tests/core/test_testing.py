"""The conformance checks: sound scenarios pass them all, and each broken one fails the check of what it breaks."""

from __future__ import annotations

import copy
import functools
import importlib
import json
import random
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import marl_gem
from marl_gem import MultiAgentEnv, ParallelSelector, Role, SequentialSelector, ToolSpec
from marl_gem.cli.check import check, playthrough
from marl_gem.errors import ConfigError, InvalidOption, MarlGemError, PromiseBroken, UnavailableScenario
from marl_gem.testing import CHECKS, Outcome, Plan, Report, check_env, check_purity, check_seeding
from marl_gem.types import Metadata

BRIEF = Plan(seeds=(0, 1), steps=30, copies=8, seconds=0.5)
HERE = [name for name in CHECKS if name != "processes"]  # which takes a second, and has tests of its own


def failures(make: Callable[[], MultiAgentEnv], plan: Plan = BRIEF) -> dict[str, str]:
    """The checks that fail, with what they have seen."""
    return {outcome.check: outcome.told for outcome in check_env(make, plan, only=HERE).failed}


# Scenarios that keep their promises


class Rolls(MultiAgentEnv):
    """Two agents add up dice in turn; after three rounds the higher sum wins."""

    possible_agents = ("a", "b")
    selector = SequentialSelector()
    metadata = Metadata(zero_sum=True, turn_order="sequential", reward_range=(-1.0, 1.0))

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        self.sums = dict.fromkeys(self.possible_agents, 0)

    def role(self, agent: str) -> Role:
        return Role(f"You are {agent}. Say [roll] or [stay].")

    def observe(self, agent: str) -> str:
        return f"Your sum is {self.sums[agent]}."

    def legal_actions(self, agent: str) -> list[str] | None:
        return ["[roll]", "[stay]"]

    def _process_actions(self, actions: dict[str, str]) -> None:
        for agent, text in actions.items():
            if "[roll]" in text:
                self.sums[agent] += self.rng.randint(1, 6)
            elif "[stay]" not in text:
                self.infos[agent]["illegal"] = "Say [roll] or [stay]."
        if self.steps == 6:
            lead = self.sums["a"] - self.sums["b"]
            sign = float((lead > 0) - (lead < 0))
            self.rewards = {"a": sign, "b": -sign}
            self.terminations = dict.fromkeys(self.agents, True)


class Talk(Rolls):
    """Rolls without a list of legal actions."""

    def legal_actions(self, agent: str) -> list[str] | None:
        return None


class Together(Rolls):
    """All roll at the same time, and are shown their sum as content parts."""

    selector = ParallelSelector()
    metadata = Metadata(zero_sum=True, turn_order="parallel")

    def observe(self, agent: str) -> Any:
        image = {"type": "image", "image": "data:..."}
        return [{"type": "text", "text": f"Your sum is {self.sums[agent]}."}, image]


class Club(MultiAgentEnv):
    """Everybody who speaks brings a guest, and the third time leaves; late thanks go to the founder."""

    possible_agents = ("founder",)
    selector = SequentialSelector()
    metadata = Metadata(turn_order="sequential", joins=True)
    max_steps = 12

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        self.spoken: dict[str, int] = {}

    def observe(self, agent: str) -> str:
        return f"{self.spoken}"

    def _process_actions(self, actions: dict[str, str]) -> None:
        ((agent, _),) = actions.items()
        self.spoken[agent] = self.spoken.get(agent, 0) + 1
        self.add_agent(f"guest {self.steps}")
        self.rewards = {"founder": 0.5, f"guest {self.steps}": 1.0}
        self.terminations = {agent: self.spoken[agent] == 3}


class Desk(MultiAgentEnv):
    """One agent with two tools, which the scenario answers itself."""

    possible_agents = ("clerk",)
    selector = SequentialSelector()
    max_steps = 10
    used: tuple[str, ...] = ()

    def role(self, agent: str) -> Role:
        number = {"type": "object", "properties": {"number": {"type": "integer"}, "unit": {"enum": ["kg"]}}}
        return Role("Weigh things.", (ToolSpec("weigh", parameters=number), ToolSpec("stop")))

    def observe(self, agent: str) -> str:
        return "Next, please."

    def _process_actions(self, actions: dict[str, str]) -> None:
        if found := re.search(r"<tool_call>(.*)</tool_call>", actions["clerk"]):
            try:
                call = json.loads(found[1])
                self.used += (call["name"], *map(str, call["arguments"]))
            except (ValueError, RecursionError, TypeError, KeyError) as error:
                self.infos["clerk"]["illegal"] = type(error).__name__


@pytest.mark.parametrize("make", [Rolls, Talk, Together, Club, Desk])
def test_a_sound_scenario_passes(make: Callable[[], MultiAgentEnv]) -> None:
    report = check_env(make, only=HERE)
    report.raise_if_failed()
    skipped = {outcome.check for outcome in report.outcomes if outcome.status == "skipped"}
    assert skipped == (set() if make in (Rolls, Together) else {"legal_actions"})


def test_random_play_calls_the_tools_of_a_role_with_fitting_arguments() -> None:
    clerks: list[Desk] = []

    def make() -> Desk:
        clerks.append(Desk())
        return clerks[-1]

    assert check_env(make, only=["plays"]).ok
    assert {name for clerk in clerks for name in clerk.used} == {"weigh", "number", "unit", "stop"}


# Scenarios that break one


BROKEN: list[Any] = []


def breaks(check: str, seen: str, *also: str) -> Callable[[type[MultiAgentEnv]], type[MultiAgentEnv]]:
    """The class breaks what `check` (and `also` other checks) looks at, which says what it has `seen`."""

    def note(scenario: type[MultiAgentEnv]) -> type[MultiAgentEnv]:
        BROKEN.append(pytest.param(scenario, check, seen, {check, *also}, id=f"{check}-{scenario.__name__}"))
        return scenario

    return note


@breaks("plays", "ScenarioFault: RaisesNow.* raised ZeroDivisionError.*\nseed 0, step 3, after the actions {'a': .*}$")
class RaisesNow(Rolls):
    def _process_actions(self, actions: dict[str, str]) -> None:
        super()._process_actions(actions)
        if self.steps == 3:
            self.sums["a"] //= 0


@breaks("plays", "reward nan")
class RewardsNothingThatCounts(Rolls):
    def _process_actions(self, actions: dict[str, str]) -> None:
        self.rewards["a"] = float("nan")


@breaks("seeding", "Python's global generator changed|goes another way")
class DrawsGlobally(Rolls):
    def _process_actions(self, actions: dict[str, str]) -> None:
        super()._process_actions(actions)
        self.sums["a"] += random.randrange(100)


@breaks("seeding", "Python's global generator changed while the env played")
class SeedsGlobally(Rolls):
    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        random.seed(self.seed)


@breaks("seeding", "played again from the same seed.*'Your sum is")
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


@breaks("dicts", "rewards should tell of \\['a', 'b'\\], but is {'a': 0.0}")
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


@breaks("dicts", r"\['b'\] came back after their part had ended")
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


@breaks("observations", "what 'a' is shown is a NoneType, neither text nor a list", "records")
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


@breaks("lasting", r"infos told here were .*\[1\].*, and have become .*\[1, 2.*\nseed 0, step 1")
class TellsItsOwnList(Rolls):
    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        self.log: list[int] = []

    def _process_actions(self, actions: dict[str, str]) -> None:
        super()._process_actions(actions)
        self.log.append(self.steps)
        self.infos["a"]["log"] = self.log


@breaks("lasting", "observations told here were .*, and have become")
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


@breaks("records", "not plain data: \\{3\\} is a set")
class TellsSets(Rolls):
    def _process_actions(self, actions: dict[str, str]) -> None:
        super()._process_actions(actions)
        self.infos["a"]["dice"] = {3}


@breaks("records", "is a tuple")
class TellsTuples(Rolls):
    def role(self, agent: str) -> Role:
        return Role(tools=(ToolSpec("roll", parameters={"type": "object", "required": ()}),))


@breaks("purity", "observe draws from env.rng")
class DrawsWhenLookedAt(Rolls):
    def observe(self, agent: str) -> str:
        self.rng.random()
        return super().observe(agent)


@breaks(
    "purity", "observe\\('b'\\) is 'You have 1 new messages' at first and 'You have 0 new messages' when asked again"
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


@breaks("isolation", "beside 7 copies that take turns", "forking")
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


@breaks("reset", "reset\\(options={'no such option': 1}\\) was taken")
class TakesAnyOption(Rolls):
    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset({})


@breaks("reset", "without a seed gives the seed 0 twice")
class HasOneSeed(Rolls):
    def reset(self, seed: int | None = 0, options: Any = None) -> Any:
        return super().reset(seed, options)


@breaks("lifecycle", "after the end was taken instead of raising EpisodeOver")
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


@breaks("wrong_actions", "step\\({}\\) was taken instead of raising InvalidAction")
class FillsIn(Rolls):
    def step(self, actions: Any) -> Any:
        return super().step({**dict.fromkeys(self.acting, ""), **actions} if isinstance(actions, dict) else actions)


@breaks("wrong_actions", "step\\({}\\) raised KeyError: 'a' instead of InvalidAction")
class ReadsBeforeItLooks(Rolls):
    def step(self, actions: Any) -> Any:
        for agent in self.acting:
            actions[agent].strip()
        return super().step(actions)


@breaks("wrong_actions", "wrong actions, though refused, changed something: at step")
class ChangesBeforeItLooks(Rolls):
    def step(self, actions: Any) -> Any:
        if self.acting:
            self.rng.random()
        return super().step(actions)


@breaks("hostile_actions", "digits that are no numbers raised ScenarioFault.*ValueError")
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


@breaks("hostile_actions", "an empty text raised SystemExit: 1")
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


@breaks("hostile_actions", "a text made for slow patterns took longer than 0.5 seconds")
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


@breaks("legal_actions", "played '\\[jump\\]', which is listed as legal, and was told: Say \\[roll\\]")
class ListsWhatIsIllegal(Rolls):
    def legal_actions(self, agent: str) -> list[str]:
        return ["[roll]", "[jump]"]


@breaks("ending", "goes on after 300 steps of random play; set max_steps")
class NeverEnds(Rolls):
    def _process_actions(self, actions: dict[str, str]) -> None:
        if self.steps < 5:
            super()._process_actions(actions)


@breaks("metadata", "its metadata says that returns sum to zero, but they are {'a': 1.0, 'b': 1.0}")
class RewardsBoth(Rolls):
    def _process_actions(self, actions: dict[str, str]) -> None:
        super()._process_actions(actions)
        if any(self.terminations.values()):
            self.rewards = dict.fromkeys(self.agents, 1.0)


@breaks("metadata", "its metadata says that rewards are from -1.0 to 1.0, but 'a' got 2.0")
class RewardsTooMuch(Rolls):
    def _process_actions(self, actions: dict[str, str]) -> None:
        super()._process_actions(actions)
        self.rewards = {"a": 2.0, "b": -2.0}


@breaks("metadata", "its metadata says that one acts at a time, but acting are \\('a', 'b'\\)")
class ActsTogether(Rolls):
    selector = ParallelSelector()


@breaks("metadata", "its metadata says that all act together, but acting are \\('a',\\)")
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


# Other processes


SETS = """
from marl_gem import MultiAgentEnv, SequentialSelector

class Sets(MultiAgentEnv):
    possible_agents = ("a",)
    selector = SequentialSelector()
    max_steps = 3

    def observe(self, agent):
        return " ".join({"any", "order", "may", "come", "of", "this"})

    def _process_actions(self, actions):
        pass

class Sorted(Sets):
    def observe(self, agent):
        return "always the same"

class Broken(Sets):
    def observe(self, agent):
        raise KeyError("oops")
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of a user's, in a folder from which Python is started."""
    (tmp_path / "scenarios_with_sets.py").write_text(SETS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return importlib.import_module("scenarios_with_sets")


def test_what_depends_on_hashes_differs_between_processes(module: Any) -> None:
    report = check_env(module.Sets, BRIEF)
    assert [outcome.check for outcome in report.failed] == ["processes"]
    assert "with another PYTHONHASHSEED (the order of sets?) the episode goes another way" in report.failed[0].told
    assert check_env(module.Sorted, BRIEF, only=["processes"]).outcomes[0].status == "ok"
    assert "KeyError" in check_env(module.Broken, BRIEF, only=["processes"]).failed[0].told


def test_what_cannot_be_sent_to_another_process_is_skipped() -> None:
    (outcome,) = check_env(lambda: Rolls(), BRIEF, only=["processes"]).outcomes
    assert outcome.status == "skipped" and "let it be a function or class of a module" in outcome.told


# The report


def test_a_check_is_a_function_of_its_own() -> None:
    assert check_purity(Rolls) is None
    with pytest.raises(PromiseBroken, match=r"observe draws from env\.rng"):
        check_purity(DrawsWhenLookedAt)
    state = random.getstate()
    with pytest.raises(PromiseBroken):
        check_seeding(DrawsGlobally)
    assert random.getstate() == state


def test_the_report_reads_like_a_test_run() -> None:
    report = check_env(lambda: RewardsBoth(), BRIEF, only=["plays", "rewards", "metadata", "processes"])
    lines = str(report).splitlines()
    assert lines[0] == "RewardsBoth"
    assert lines[1] == "ok       plays            Random play raises nothing."
    assert lines[3].startswith("FAILED   metadata         What Metadata and the registration declare is so.")
    assert lines[4] == "         its metadata says that returns sum to zero, but they are {'a': 1.0, 'b': 1.0}"
    assert lines[5].startswith("         seed 0, step 6, after the actions {'a': ")
    assert re.fullmatch(r"2 ok, 1 FAILED, 1 skipped in \d+\.\d s", lines[-1])
    with pytest.raises(PromiseBroken, match="RewardsBoth breaks its promises\nFAILED   metadata"):
        report.raise_if_failed()
    assert not report.ok
    Report("nothing", (Outcome("plays", "ok"),)).raise_if_failed()


def test_what_cannot_be_played_is_told_once() -> None:
    report = check_env(RewardsNothingThatCounts, BRIEF, only=HERE)
    skipped = [outcome for outcome in report.outcomes if outcome.status == "skipped"]
    assert len(skipped) > 10
    assert {outcome.told for outcome in skipped} == {"it cannot be played: see plays"}


def test_an_unknown_check_and_an_env_that_cannot_be_made() -> None:
    with pytest.raises(ConfigError, match="there is no check 'purty'; choose from plays, seeding"):
        check_env(Rolls, only=["purty"])
    env = Rolls()
    for wrong in (env, lambda: env, lambda: "an env"):
        with pytest.raises(ConfigError, match="make"):
            check_env(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption):
        check_env(functools.partial(marl_gem.make, "game:KuhnPoker-v0", players=7))


# Every scenario that is registered

QUICK = Plan(seeds=(43,), steps=12, copies=3)  # seeds with which the puzzles that may take seconds to make do not


@pytest.mark.parametrize("id", [scenario.id for scenario in marl_gem.list() if not scenario.unavailable])
def test_every_registered_scenario_keeps_its_promises(id: str) -> None:
    check_env(functools.partial(marl_gem.make, id), QUICK, only=HERE).raise_if_failed()


# The command line

app = typer.Typer()
app.command()(check)
app.command()(playthrough)


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, arguments)


def test_the_command_passes_and_fails(module: Any) -> None:
    passed = run("check", "game:KuhnPoker-v0", "--seed", "3")
    assert passed.exit_code == 0
    assert "ok       plays            Random play raises nothing." in passed.output
    assert "20 ok in " in passed.output
    failed = run("check", "scenarios_with_sets:Sets", "--only", "processes", "--only", "plays")
    assert failed.exit_code == 1
    assert "FAILED   processes" in failed.output
    assert "1 ok, 1 FAILED in " in failed.output


def test_the_command_makes_the_env_with_options() -> None:
    assert run("check", "game:KuhnPoker-v0", "-o", "max_steps=1", "--only", "plays").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (["check", "game:KunPoker-v0"], MarlGemError, "Did you mean 'game:KuhnPoker-v0'"),
        (["check", "no_such_module:Env"], MarlGemError, "Nor is there a module 'no_such_module' in"),
        (["check", "scenarios_with_sets:Nothing"], MarlGemError, "has no class 'Nothing'"),
        (
            ["check", "scenarios_with_sets:Sets", "-o", "size=3"],
            InvalidOption,
            "got an unexpected keyword argument 'size'. It takes: max_steps",
        ),
        (["check", "game:KuhnPoker-v0", "-o", "size=3"], InvalidOption, "It takes: max_steps"),
        (["check", "collections:Counter"], MarlGemError, "makes a Counter, not a MultiAgentEnv"),
        (["check", "game:KuhnPoker-v0", "--only", "fun"], ConfigError, "there is no check 'fun'"),
        (["check", "ta:ScorableGames-v0"], UnavailableScenario, "cannot work here"),
        (["playthrough", "nothing"], MarlGemError, "there is no family 'nothing'"),
    ],
)
def test_wrong_usage_is_told(module: Any, arguments: list[str], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_playthroughs_go_to_the_terminal_a_file_or_a_folder(tmp_path: Path) -> None:
    shown = run("playthrough", "game:KuhnPoker-v0", "--seed", "5").output
    run("playthrough", "game:KuhnPoker-v0", "--seed", "5", "--out", str(tmp_path / "kuhn.txt"))
    run("playthrough", "game", "--seed", "5", "--out", str(tmp_path / "all"))
    assert shown.startswith("# What happened")
    assert (tmp_path / "kuhn.txt").read_text("utf-8") == shown
    assert (tmp_path / "all" / "game" / "KuhnPoker-v0.txt").read_text("utf-8") == shown
    with pytest.raises(MarlGemError, match="do not go into one file"):
        CliRunner().invoke(app, ["playthrough", "game", "--out", "all.txt"], catch_exceptions=False)
