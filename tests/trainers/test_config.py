"""Configurations: what they may say, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from marl_gem.errors import ConfigError, RegistryError
from marl_gem.overrides import apply_overrides
from marl_gem.runs.configuration import differences
from marl_gem.trainers.config import parse, read, recipes
from marl_gem.trainers.run import TrainingRun
from marl_gem.trainers.schedule import SHARED_POLICY, TrainingPhase, learner_seats, training_phases
from tests.trainers.support import DESK, KUHN, SMALL_DESK, SMALL_KUHN, desk, kuhn


class TestConfiguration:
    def test_every_recipe_that_ships_can_be_parsed(self) -> None:
        assert {"kuhn", "tictactoe"} <= set(recipes())
        for name in recipes():
            assert parse(read(name), name).title

    @pytest.mark.parametrize(
        ("assignment", "complaint"),
        [
            ("training.updats=5", "unknown field `updats`"),
            ("training.updates=-1", r"training.updates"),
            ("training.updates=many", r"training.updates"),
            ("algorithm.options.group_by=seat", "algorithm.options of .rebn.: Invalid enum value .seat."),
            ("policy.view=windw", "chat, latest, bare"),
            ("policy.temperature=0", "policy.temperature"),
            ("seed.x=1", "unknown field|not a section|Expected `int`"),
            ("self_play", "sets nothing"),
        ],
    )
    def test_nonsense_is_told_by_name(self, assignment: str, complaint: str) -> None:
        with pytest.raises(ConfigError, match=complaint):
            kuhn(assignment)

    @pytest.mark.parametrize(
        ("values", "complaint"),
        [
            ({}, "name what is trained on"),
            ({"wrappers": ["time_limit=3"]}, "name what is trained on"),
            ({"scenario": 5}, "scenario is an id such as .* or a table, not 5"),
            ({"scenario": []}, r"or a table, not \[\]"),
            ({"scenario": {"id": KUHN, "options": 3}, "options": {}}, "scenario.options is a table of options"),
            ({"scenario": {"id": KUHN, "wrappers": "x"}, "wrappers": []}, "scenario.wrappers is a list of wrappers"),
            ({"scenarios": [{"id": KUHN}], "options": {}}, r"with \[\[scenarios\]\], options cannot stand beside"),
            ({"scenarios": [{"id": KUHN}], "scenario": KUHN}, "scenario cannot stand beside"),
            ({"scenario": KUHN, "updates": 3}, "unknown field `updates`. Did you mean training.updates"),
            ({"scenario": KUHN, "trainin": {}}, "Did you mean training[?]"),
            ({"scenario": KUHN, "training": {"algorithm": "rloo"}}, "Did you mean algorithm[?]"),
            ({"scenario": KUHN, "policy": {"layer": 1}}, "Did you mean layers[?]"),
            ({"scenario": KUHN, "training": {"learning_rate": float("inf")}}, "training.learning_rate is a finite"),
            ({"scenario": KUHN, "evaluation": {"opponents": ["human"]}}, "opponents: 'human' cannot hold a seat"),
        ],
    )
    def test_what_a_file_may_not_say(self, values: dict[str, Any], complaint: str) -> None:
        with pytest.raises(ConfigError, match=complaint):
            parse(values, "test")

    def test_wrappers_beside_a_scenarios_table_stand_around_those_in_it(self) -> None:
        table = {"id": KUHN, "wrappers": ["time_limit=5"], "options": {"max_steps": 4}}
        config = parse({"scenario": table, "wrappers": ["reward_scale=2"], "options": {"max_steps": 3}}, "test")
        assert config.scenarios[0].wrappers == ("time_limit=5", "reward_scale=2")
        assert config.scenarios[0].options == {"max_steps": 3}

    @pytest.mark.parametrize("name", ["cuda:99", "nonsense", "meta"])
    def test_a_device_that_is_not_there_is_an_error_that_says_what_to_choose(self, name: str, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=f"device: '{name}'.*[Cc]hoose cpu"):
            TrainingRun.start(tmp_path / "run", kuhn(f"device={name}"))
        assert not (tmp_path / "run").exists()

    @pytest.mark.parametrize(
        ("assignment", "complaint"),
        [
            ("seats.plyer_0=one", "seats: .* has no agent 'plyer_0'; its agents are player_0, player_1"),
            ("imitation.seats.plyer_0=random", "imitation.seats: .* has no agent 'plyer_0'; its agents are player_0"),
            (
                "scenarios=[{id='game:KuhnPoker-v0'}, {id='game:TicTacToe-v0', weight=0.01}]",
                "none would be of game:Tic",
            ),
        ],
    )
    def test_what_would_silently_count_for_nothing_is_an_error(
        self, assignment: str, complaint: str, tmp_path: Path
    ) -> None:
        values = {name: value for name, value in SMALL_KUHN.items() if name != "scenario"}
        values |= {"scenarios": [{"id": KUHN}, {"id": "game:TicTacToe-v0"}]}
        with pytest.raises(ConfigError, match=complaint):
            TrainingRun.start(tmp_path / "run", parse(apply_overrides(values, [assignment]), "test"))

    def test_differences_are_listed(self) -> None:
        before, after = (msgspec.to_builtins(config) for config in (kuhn(), kuhn("training.episodes=32", "seed=4")))
        assert differences(before, after) == [
            "seed was 0 and would be 4",
            "training.episodes was 16 and would be 32",
        ]

    def test_a_missing_or_broken_file_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="no file"):
            read(str(tmp_path / "none.toml"))
        (tmp_path / "broken.toml").write_text("scenario = ")
        with pytest.raises(ConfigError, match="not TOML"):
            read(str(tmp_path / "broken.toml"))


class TestSeats:
    def test_one_policy_holds_all_seats_if_nothing_is_said(self) -> None:
        (phase,) = training_phases(parse({"scenario": KUHN}, "test"), [("player_0", "player_1")])
        assert phase.seatings == ({"player_0": SHARED_POLICY, "player_1": SHARED_POLICY},)
        assert (phase.start, phase.end) == (0, 100)
        assert learner_seats([phase]) == {SHARED_POLICY: ({"player_0", "player_1"},)}

    def test_phases_change_hands_and_keep_what_they_do_not_name(self) -> None:
        first, second = training_phases(desk(), [("user", "assistant")])
        assert first == TrainingPhase(0, 2, ({"user": "scripted:expert", "assistant": "assistant"},))
        assert second == TrainingPhase(2, 5, ({"user": "user", "assistant": "assistant"},))
        assert first.learning(0) == {"assistant": "assistant"}
        assert learner_seats([first, second]) == {"assistant": ({"assistant"},), "user": ({"user"},)}

    @pytest.mark.parametrize(
        ("assignment", "complaint"),
        [
            ("imitation.seats.user=user", "imitation.seats.user is a policy such as scripted:NAME, not 'user'"),
            ("phases=[{start = 5, seats = {}}]", "before the last of the 5 updates"),
            ("phases=[{start = 3, seats = {}}, {start = 3, seats = {}}]", "one after the other"),
            ("phases=[{start = 0, seats = {}}]", "phases"),
            ("seats={}", "name in `seats` who holds them first"),
            ("phases=[{start = 9, seats = {}}]", r"not at 9; set phases along with training.updates"),
            ("policy.tokens=letters", "policy.tokens"),
            ("policy.heads=3", "policy.width is a multiple of policy.heads, not 16 for 3"),
            ("seats.user=human", "'human' cannot hold a seat in training"),
        ],
    )
    def test_nonsense_is_told(self, assignment: str, complaint: str) -> None:
        with pytest.raises(ConfigError, match=complaint):
            desk(assignment)

    @pytest.mark.parametrize(
        ("assignment", "error", "complaint"),
        [
            ("seats.manager=boss", ConfigError, "no agent 'manager'; its agents are user, assistant"),
            ('seats={assistant = "assistant"}', ConfigError, "nobody holds the seat of 'user'"),
            ('seats={user = "random", assistant = "scripted:expert"}', ConfigError, "nobody learns from update 0"),
            ("seats.user=scripted:expret", RegistryError, "Did you mean 'expert'"),
            ("imitation.seats.user=scripted:nobody", RegistryError, "no scripted policy 'nobody'"),
            ("seats.user=expert", ConfigError, "write scripted:expert to seat that one"),
            ("seats.user=random", ConfigError, "does not list what is legal for 'user'"),
            ("phases=[{start = 2, seats = {user = 'random'}}]", ConfigError, "what is legal for 'user'"),
            ("imitation.seats={user = 'scripted:novice'}", ConfigError, "does not list what is legal for 'assistant'"),
            ("policy.start_from=/nowhere", ConfigError, "policy.start_from: there is no folder /nowhere"),
            ('test_options={split = "exam"}', Exception, "split is one of"),
        ],
    )
    def test_what_only_the_scenario_knows_is_told_before_anything_is_written(
        self, tmp_path: Path, assignment: str, error: type[Exception], complaint: str
    ) -> None:
        with pytest.raises(error, match=complaint):
            TrainingRun.start(tmp_path / "run", desk("phases=[]", assignment))
        assert not (tmp_path / "run").exists()

    @pytest.mark.parametrize(
        "values", [{"scenario": DESK}, {**SMALL_DESK, "imitation": {"seats": {"assistant": "random"}}}]
    )
    def test_where_there_is_no_random_play_a_recipe_is_named(self, tmp_path: Path, values: dict[str, Any]) -> None:
        with pytest.raises(ConfigError, match=r"imitation.seats.user=.*scripted:expert.*, or take the recipe desk"):
            TrainingRun.start(tmp_path / "run", parse(values, "test"))
        assert not (tmp_path / "run").exists()

    def test_the_recipe_that_ships_trains_both(self) -> None:
        config = parse(read("desk"), "desk")
        last = training_phases(config, [("user", "assistant")])[-1]
        assert set(last.learning(0)) == {"user", "assistant"}
        (scenario,) = config.scenarios
        assert scenario.spec.options["split"] != scenario.test_spec.options["split"]
