"""Scenarios as records: ids, options and wrappers as plain data, and what one look at an env gives."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import msgspec
import pytest

import marl_gem
from marl_gem import MultiAgentEnv, registry
from marl_gem.errors import ConfigError, InvalidOption, RegistryError, ScenarioFault, UnknownScenario
from marl_gem.rollout import Job, collect
from marl_gem.specs import ScenarioSpec, WrapperSpec
from marl_gem.types import Metadata
from tests.policy_texts import KUHN
from tests.toys import NumberGame, OneAnswer, RockPaperScissors, always

LIMIT = WrapperSpec("time_limit", {"max_steps": 1})


@pytest.mark.parametrize(
    ("source", "spec"),
    [
        (KUHN, ScenarioSpec(KUHN)),
        ({"id": KUHN}, ScenarioSpec(KUHN)),
        ({"id": KUHN, "options": {"max_steps": 9}}, ScenarioSpec(KUHN, {"max_steps": 9})),
        ({"id": KUHN, "wrappers": ["time_limit=1"]}, ScenarioSpec(KUHN, {}, (LIMIT,))),
        (
            {"id": KUHN, "wrappers": [{"name": "time_limit", "values": {"max_steps": 1}}]},
            ScenarioSpec(KUHN, {}, (LIMIT,)),
        ),
        (ScenarioSpec(KUHN, {"a": 1}, (LIMIT,)), ScenarioSpec(KUHN, {"a": 1}, (LIMIT,))),
    ],
    ids=str,
)
def test_whatever_names_a_scenario(source: Any, spec: ScenarioSpec) -> None:
    assert ScenarioSpec.parse(source) == spec
    assert ScenarioSpec.parse(json.loads(json.dumps(spec.to_data()))) == spec
    assert spec.nameable and msgspec.convert({"scenario": spec}, dict[str, ScenarioSpec]) == {"scenario": spec}


def test_options_and_wrappers_are_added() -> None:
    base = ScenarioSpec.parse(KUHN, {"a": 1, "b": 2}, ["time_limit=1"])
    more = ScenarioSpec.parse(base, {"b": 3}, ["reward_scale=2"])
    assert more.options == {"a": 1, "b": 3} and base.options == {"a": 1, "b": 2}
    assert [wrapper.name for wrapper in more.wrappers] == ["time_limit", "reward_scale"]
    assert base.with_options({"c": 4}).options == {"a": 1, "b": 2, "c": 4}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"id": KUHN, "option": {}}, "a table with id, options and wrappers: .*option"),
        ({"options": {}}, "missing required field `id`"),
        ({"id": KUHN, "options": 3}, "options"),
        ({"id": KUHN, "wrappers": "time_limit=1"}, r"scenario.wrappers is a list, as in \['time_limit=20'\]"),
        (7, "a scenario is an id, a table or a callable that makes an env, not 7"),
    ],
    ids=str,
)
def test_what_is_no_scenario(source: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ScenarioSpec.parse(source)


def test_an_env_within_its_wrappers() -> None:
    spec = ScenarioSpec.parse(KUHN, wrappers=["time_limit=1", "parse_action"])
    for env in (spec.make(), marl_gem.make(KUHN, wrappers=["time_limit=1", "parse_action"])):
        assert env.scenario == KUHN and env.max_steps == 1
        _, infos = env.reset(seed=1)
        assert infos["player_0"]["legal_actions"][0].startswith(r"\boxed{")
        env.step({"player_0": r"\boxed{[check]}"})
        assert env.done


def test_making_envs_can_be_sent_to_another_process() -> None:
    spec = ScenarioSpec.parse(KUHN, {"max_steps": 3}, ["time_limit=1"])
    assert pickle.loads(pickle.dumps(spec.make))().max_steps == 1


def test_a_callable_from_python() -> None:
    spec = ScenarioSpec.parse(NumberGame, wrappers=["time_limit=3"])
    assert (spec.id, spec.nameable) == ("NumberGame", False)
    (episode,) = collect(spec.make, [Job(0, always("1"))])
    assert (episode.scenario, len(episode.turns)) == ("NumberGame", 3)
    assert ScenarioSpec.parse(lambda: NumberGame()).inspect().scenario == "NumberGame"
    with pytest.raises(ConfigError, match="options are for scenarios that have an id"):
        ScenarioSpec.parse(NumberGame, {"length": 3})


def test_what_one_look_gives() -> None:
    info = ScenarioSpec.parse(RockPaperScissors).inspect()
    assert (info.agents, info.tasks, info.joins, info.zero_sum) == (("a", "b"), None, False, True)
    assert ScenarioSpec.parse("tau:desk-v0", {"split": "test"}).inspect().tasks == 200
    limited = ScenarioSpec.parse(RockPaperScissors, wrappers=["time_limit=1"]).inspect()
    assert not limited.zero_sum and limited.metadata.zero_sum is None, "the wrapped env is looked at"


def test_the_env_is_closed_after_the_look() -> None:
    closed = []

    class Closes(OneAnswer):
        metadata = Metadata(joins=True)

        def close(self) -> None:
            closed.append(True)

    assert ScenarioSpec.parse(Closes).inspect().joins and closed == [True]


@pytest.mark.parametrize("shares", [[0.5], [0.5, 1.5], 3, [0.5, 0.5, 0.5]], ids=str)
def test_trivial_baselines_are_one_share_for_each_task(shares: Any) -> None:
    class Wrong(OneAnswer):
        tasks = 2

        @property
        def trivial_baselines(self) -> dict[str, Any]:
            return {"guessing": shares}

    with pytest.raises(ScenarioFault, match=r"trivial_baselines\['guessing'\] must hold a share .* there are 2"):
        ScenarioSpec.parse(Wrong).inspect()


# Code of one's own


GAME = """
from marl_gem import MultiAgentEnv, SequentialSelector

class Game(MultiAgentEnv):
    possible_agents = ("a",)
    selector = SequentialSelector()

    def __init__(self, rounds: int = 2):
        self.rounds = rounds

    def observe(self, agent):
        return "?"

    def _process_actions(self, actions):
        self.terminations["a"] = self.steps >= self.rounds

class NoEnv:
    pass

number = 7
"""


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "games").mkdir()
    (tmp_path / "games" / "own.py").write_text(GAME)
    (tmp_path / "games" / "broken.py").write_text("import json\n1/0\n")
    (tmp_path / "games" / "lacking.py").write_text("import no_such_package_at_all\n")
    return tmp_path


@pytest.mark.parametrize("id", ["games/own.py:Game", "{folder}/games/own.py:Game"])
def test_a_class_in_a_file(code: Path, id: str) -> None:
    spec = ScenarioSpec.parse(id.format(folder=code), {"rounds": 3}, ["time_limit=2"])
    env = spec.make()
    assert isinstance(env, MultiAgentEnv) and env.scenario == spec.id
    env.reset()
    env.step({"a": ""})
    env.step({"a": ""})
    assert env.done and type(spec.make().unwrapped) is type(env.unwrapped), "the file is imported once"  # type: ignore[attr-defined]
    assert pickle.loads(pickle.dumps(spec.make))().scenario == spec.id


def test_a_class_in_a_module() -> None:
    id = "tests.toys:NumberGame"
    assert type(marl_gem.make(id)) is NumberGame and marl_gem.make(id).scenario == id


@pytest.mark.parametrize(
    ("id", "kind", "message"),
    [
        ("games/own.py:Gam", RegistryError, "games/own.py has no class 'Gam'"),
        ("games/own.py:number", RegistryError, "games/own.py has no class 'number'"),
        ("games/own.py:NoEnv", RegistryError, "makes a NoEnv, not a MultiAgentEnv"),
        ("games/broken.py:Game", RegistryError, "games/broken.py cannot be imported: ZeroDivisionError"),
        ("games/lacking.py:Game", RegistryError, "No module named 'no_such_package_at_all'"),
        ("games/none.py:Game", UnknownScenario, "there is no file games/none.py"),
        ("games.none:Game", UnknownScenario, "Nor is there a module 'games.none' in"),
        ("games/own.py", UnknownScenario, "There is no scenario"),
        ("games/own.py:", UnknownScenario, "There is no scenario"),
    ],
)
def test_code_that_is_no_scenario(code: Path, id: str, kind: type[RegistryError], message: str) -> None:
    with pytest.raises(kind, match=message):
        marl_gem.make(id)


def test_the_options_of_a_class(code: Path) -> None:
    assert registry.options("games/own.py:Game") == {"rounds": 2}
    with pytest.raises(InvalidOption, match=r"'turns'\. It takes: rounds, max_steps"):
        marl_gem.make("games/own.py:Game", turns=3)


def test_ids_from_records_import_nothing(code: Path) -> None:
    with pytest.raises(UnknownScenario):
        registry.get("games/broken.py:Game")
