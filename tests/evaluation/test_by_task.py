"""Where and why a task fails: results by task and by reason, and beside what playing without wit comes to."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from marl_gem import MultiAgentEnv, Response, Role, SequentialSelector
from marl_gem.errors import ScenarioFault
from marl_gem.evaluation import Budget, Player, evaluate, tournament
from marl_gem.evaluation.markdown import markdown, summary
from marl_gem.evaluation.pictures import pictures
from marl_gem.evaluation.report import TaskReport, TriesReport, read_report
from marl_gem.policies import Info, Policy, ScriptedPolicy
from marl_gem.registry import make, make_policy
from marl_gem.types import Limits, Metadata, Observation
from tests.evaluation.helpers import timeless

MINI = "tau:retail-mini-v0"


class Errand(MultiAgentEnv):
    """A clerk has an errand to do. "done" does it, "again" takes another turn, "?" is illegal and ends it, "mute" ends
    it without a word; whatever else it says is why it was not done."""

    possible_agents: tuple[str, ...] = ("clerk",)
    selector = SequentialSelector()
    tasks: int | None = 4
    trivial_baselines: Mapping[str, Sequence[float]] = {"idle": (1.0, 0.5, 0.0, 0.0), "gold": (1, 1, 1, 1)}

    def _reset(self, options: Mapping[str, Any]) -> None:
        self.task = options.get("task")

    def observe(self, agent: str) -> str:
        return f"errand {self.task}"

    def _process_actions(self, actions: dict[str, str]) -> None:
        ((agent, text),) = actions.items()
        failure = {"?": {"illegal": "?"}, "mute": {"failure": ""}}.get(text, {"failure": text})
        self.infos[agent] = {"success": text == "done"} | (failure if text != "done" else {})
        self.infos[agent] = {} if text == "again" else self.infos[agent]
        self.rewards[agent] = float(text == "done")
        self.terminations[agent] = text != "again"


class Unnumbered(Errand):
    tasks = None
    trivial_baselines: Mapping[str, Sequence[float]] = {}


class Says:
    """Says what `words` has for the number of the episode."""

    name = "says"

    def __init__(self, words: Callable[[int], str]) -> None:
        self._words, self._begun = words, 0

    def agent(self, agent_id: str, role: Role, seed: int) -> ScriptedAgent:
        self._begun += 1
        return ScriptedAgent(self._words(self._begun - 1))


class Moody:
    """Says what its seed draws."""

    name = "moody"

    def __init__(self, *words: str) -> None:
        self._words = words

    def agent(self, agent_id: str, role: Role, seed: int) -> ScriptedAgent:
        return ScriptedAgent(random.Random(seed).choice(self._words))


class ScriptedAgent:
    def __init__(self, text: str) -> None:
        self._text = text

    async def act(self, observation: Observation, info: Info) -> Response:
        return Response(self._text)


def always(text: str) -> Policy:
    return ScriptedPolicy(lambda observation, info: text, text)


def repeats_of(*tries: Sequence[str], scenario: Any = Errand, **asked: Any) -> Any:
    """The report on an evaluation in which each task goes as its own list of words says, one for each repeat."""
    n, repeats = len(tries), len(tries[0])
    words = Says(lambda begun: tries[begun % n][begun // n])  # they are played repeat by repeat
    return evaluate(scenario, words, n=n, repeats=repeats, concurrency=1, **asked).report


def clerk(report: Any, match: int = 0) -> Any:
    return report.matches[match].agents["clerk"]


def script(name: str, options: Mapping[str, Any] | None = None) -> Player:
    return Player(f"scripted:{name}", make_policy(MINI, name, options))


class TestByTask:
    def test_each_has_its_tries_its_successes_and_why_not(self) -> None:
        report = repeats_of(
            ["done", "done", "done"], ["data", "done", "data"], ["mute", "data", "done"], ["outputs", "data", "data"]
        )
        (match,) = report.matches
        assert match.by_task == (
            TaskReport(0, {"clerk": TriesReport(3, 3, {})}),
            TaskReport(1, {"clerk": TriesReport(3, 1, {"data": 2})}),
            TaskReport(2, {"clerk": TriesReport(3, 1, {"data": 1})}),
            TaskReport(3, {"clerk": TriesReport(3, 0, {"data": 2, "outputs": 1})}),
        )
        assert list(match.by_task[3].agents["clerk"].reasons) == ["data", "outputs"]  # most frequent first
        text = summary(report)
        assert "**By task** for clerk: of 4 tasks 1 always solved, 2 sometimes, 1 never." in text
        assert "- sometimes: 1 (1 of 3), 2 (1 of 3)\n- never: 3" in text
        page = markdown(report)
        assert "| 3 | 0 of 3 | data 2, outputs 1 |" in page and "| 2 | 1 of 3 | data 1, other 1 |" in page
        assert "| 0 |" not in page

    def test_played_once_is_solved_or_not(self) -> None:
        text = summary(repeats_of(["done"], ["data"], ["done"], ["data"]))
        assert "of 4 tasks 2 solved, 2 not." in text and "- not: 1, 3" in text and "sometimes" not in text

    def test_all_solved_lists_none(self) -> None:
        report = repeats_of(*[["done", "done"]] * 4)
        assert "of 4 tasks 4 always solved, 0 sometimes, 0 never." in summary(report)
        assert "not always solved" not in markdown(report)

    def test_in_a_terminal_the_first_are_listed_hardest_first_and_in_the_file_all(self) -> None:
        class Many(Errand):
            tasks = 100
            trivial_baselines: Mapping[str, Sequence[float]] = {}

        def word(begun: int) -> str:
            task, repeat = begun % 100, begun // 100
            solved = 2 if task == 90 else 3 if task % 2 else 0 if task < 60 else 4
            return "done" if repeat < solved else "data"

        report = evaluate(Many, Says(word), n=100, repeats=4, concurrency=1).report
        text = summary(report)
        assert "of 100 tasks 19 always solved, 51 sometimes, 30 never" in text
        hardest = "- sometimes: 90 (2 of 4), 1 (3 of 4), 3 (3 of 4), "
        assert hardest in text and "\n- never: 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, ...\n" in text + "\n"
        assert max(map(len, text.splitlines())) < 250
        page = markdown(report)
        assert all(f"\n| {task} | " in page for task in range(100) if task % 2 or task < 60)
        assert page.count(" of 4 | data ") == 81

    def test_tasks_that_follow_one_another_are_listed_as_a_range(self) -> None:
        text = summary(repeats_of(["data"], ["data"], ["data"], ["done"]))
        assert "- not: 0–2" in text

    def test_needs_a_scenario_that_counts_its_tasks(self) -> None:
        report = repeats_of(["data", "done"], ["data", "data"], scenario=Unnumbered)
        assert report.matches[0].by_task == ()
        assert "By task" not in markdown(report) and "success 25.0%, data 75.0%" in summary(report)

    def test_agents_with_the_same_results_share_a_paragraph_and_have_the_same_intervals(self) -> None:
        report = evaluate(MINI, {"user": script("oracle"), "assistant": script("noop")}, n=12, repeats=2).report
        agents = report.matches[0].agents
        assert agents["user"].success == agents["assistant"].success and (agents["user"].success.low or 0.0) < 0.5
        text = summary(report)
        assert text.count("**By task** for user, assistant:") == text.count("**How it ended** for user, assistant") == 1
        assert text.count("pass@k (at least one does)") == 1

    def test_agents_with_other_results_have_their_paragraphs(self) -> None:
        class Race(Errand):
            possible_agents = ("clerk", "rival")
            trivial_baselines: Mapping[str, Sequence[float]] = {}

        report = evaluate(Race, {"clerk": always("done"), "rival": always("slow")}, n=4).report
        text = summary(report)
        assert "for clerk: of 4 tasks 4 solved, 0 not." in text and "for rival: of 4 tasks 0 solved, 4 not." in text
        assert "**How it ended** for rival: success 0.0%, slow 100.0%." in text and "ended** for clerk" not in text


class TestReasons:
    def test_are_the_scenarios_words_counted(self) -> None:
        words = [["done"] * 6, ["done", "data", "data", "data", "outputs", "cut off"]]
        report = repeats_of(*words)
        assert clerk(report).reasons == {"data": 3, "cut off": 1, "outputs": 1}
        text = "**How it ended** for clerk: success 58.3%, data 25.0%, cut off 8.3%, outputs 8.3%."
        assert text in summary(report) and text in markdown(report)

    def test_limits_and_illegal_endings_without_a_word_have_their_own_names(self) -> None:
        report = repeats_of(["done", "again"], ["?", "data"], ["mute", "mute"], limits=Limits(turns=3))
        assert clerk(report).reasons == {"cut by turns": 1, "data": 1, "illegal action": 1}
        failure = "success 16.7%, cut by turns 16.7%, data 16.7%, illegal action 16.7%, other 33.3%."
        assert failure in summary(report)

    def test_the_scenarios_limit_is_named_too(self) -> None:
        class Short(Errand):
            max_steps = 2

        assert clerk(repeats_of(["again"], ["done"], scenario=Short)).reasons == {"truncated": 1}

    def test_a_success_has_none_whatever_the_info_says(self) -> None:
        class Proud(Errand):
            def _process_actions(self, actions: dict[str, str]) -> None:
                super()._process_actions(actions)
                self.infos["clerk"]["failure"] = "pride"

        assert clerk(repeats_of(["done"], ["data"], scenario=Proud)).reasons == {"pride": 1}

    @pytest.mark.parametrize("word", [None, 3, ["data"], True])
    def test_what_is_no_text_is_no_word(self, word: Any) -> None:
        class Odd(Errand):
            def _process_actions(self, actions: dict[str, str]) -> None:
                super()._process_actions(actions)
                self.infos["clerk"]["failure"] = word

        assert clerk(repeats_of(["data"], scenario=Odd)).reasons == {}

    def test_scenarios_without_them_lose_nothing(self) -> None:
        text = summary(repeats_of(["mute", "done"], ["mute", "mute"]))
        assert "How it ended" not in text and "25.0%" in text

    def test_hostile_words_keep_the_tables(self) -> None:
        report = repeats_of(["a|b\n<i>"], ["done"])
        assert clerk(report).reasons == {"a|b\n<i>": 1}
        assert "| 0 | 0 of 1 | `a`&#124;`b <i>` 1 |" in markdown(report)

    def test_in_a_game_the_others_have_won_or_not(self) -> None:
        class Duel(Errand):
            possible_agents = ("clerk", "rival")
            metadata = Metadata(zero_sum=True)

            def _process_actions(self, actions: dict[str, str]) -> None:
                ((agent, text),) = actions.items()
                other = "rival" if agent == "clerk" else "clerk"
                self.rewards = {agent: -1.0, other: 1.0}
                self.infos[agent] = {"illegal": text}
                self.terminations = dict.fromkeys(self.agents, True)

        report = evaluate(Duel, always("?"), n=4).report
        assert clerk(report).reasons == {"illegal action": 4}
        assert "for clerk: won 0.0%, illegal action 100.0%." in summary(report)


class TestTrivialBaselines:
    def test_stand_beside_the_success(self) -> None:
        report = repeats_of(*[["done", "data"]] * 4)
        assert report.trivial_baselines == {"idle": 0.375, "gold": 1.0}
        assert "**Trivial baselines** on the same tasks: idle 37.5%, gold 100.0%." in summary(report)

    def test_are_those_of_the_tasks_that_were_played(self) -> None:
        assert repeats_of(["done"], ["data"]).trivial_baselines["idle"] == 0.75

    def test_weigh_a_task_as_often_as_it_counts(self) -> None:
        report = evaluate(
            Errand, always("done"), n=4, repeats=2, concurrency=1, budget=Budget(episodes=5)
        ).report  # all four once, and the first again
        assert report.episodes.counted == 5 and report.trivial_baselines["idle"] == (1 + 0.5 + 1) / 5

    def test_of_nothing_played_or_none_declared_are_left_out(self) -> None:
        nothing = evaluate(Errand, always("done"), n=4, budget=Budget(episodes=0)).report
        for report in (nothing, repeats_of(["done"], scenario=Unnumbered)):
            assert report.trivial_baselines == {} and "**Trivial baselines**" not in summary(report)

    def test_are_left_out_of_tournaments(self) -> None:
        players = {"a": script("noop"), "b": script("oracle")}
        assert "rivial baselines" not in summary(tournament(MINI, players, n=2).report)

    @pytest.mark.parametrize("shares", [(1.0, 0.5), 0.4, (1.0, 2.0, 0.0, 0.0), ()])
    def test_that_are_not_a_share_for_each_task_are_an_error(self, shares: Any) -> None:
        class Wrong(Errand):
            trivial_baselines: Mapping[str, Sequence[float]] = {"idle": shares}

        text = (
            r"Wrong: trivial_baselines\['idle'\] must hold a share from 0 to 1 for each of its tasks, "
            r"of which there are 4; not "
        )
        with pytest.raises(ScenarioFault, match=text):
            evaluate(Wrong, always("done"))

    def test_need_tasks(self) -> None:
        class Wrong(Unnumbered):
            trivial_baselines: Mapping[str, Sequence[float]] = {"idle": (1.0,)}

        with pytest.raises(ScenarioFault, match="of which there are none"):
            evaluate(Wrong, always("done"))

    @pytest.mark.parametrize("options", [{}, {"transfer": "strict"}], ids=["official", "strict"])
    @pytest.mark.parametrize(
        ("floor", "name"),
        [
            ("noop", "noop"),
            ("transfer", "transfer"),
            ("gold-without-words", "gold-without-words"),
            ("gold", "oracle"),
        ],
    )
    def test_of_tau_are_what_the_scripts_reach_task_by_task(
        self, floor: str, name: str, options: dict[str, Any]
    ) -> None:
        players = {"user": script("oracle", options), "assistant": script(name, options)}
        report = evaluate(MINI, players, options=options).report
        declared = make(MINI, **options).trivial_baselines[floor]
        (match,) = report.matches
        assert [entry.agents["assistant"].solved for entry in match.by_task] == list(declared)
        assert match.agents["assistant"].success.mean == pytest.approx(report.trivial_baselines[floor])
        assert len(declared) == 48 and len(set(declared)) == (1 if floor == "gold" else 2)

    def test_of_tau_on_some_tasks_are_not_those_of_all(self) -> None:
        players = {"user": script("oracle"), "assistant": script("noop")}
        report = evaluate(MINI, players, n=20, order="listed").report
        overall = make(MINI).trivial_baselines["noop"]
        assert report.trivial_baselines["noop"] == sum(overall[:20]) / 20 != sum(overall) / 48


class TestAGrid:
    SEATS: Mapping[str, Any] = {
        "user": [script("oracle"), Player("patient", make_policy(MINI, "noop"))],
        "assistant": [script("oracle"), script("noop"), script("transfer"), script("gold-without-words")],
    }

    def test_shows_where_and_why_for_each_combination(self) -> None:
        report = evaluate(MINI, self.SEATS, n=20, order="listed").report
        grid, text = report.grid, summary(report)
        assert (grid.row_agents, grid.column_agent) == (("user",), "assistant")
        assert f"**Trivial baselines** on the same tasks: noop {100 * report.trivial_baselines['noop']:.1f}%" in text
        assert "| user | assistant | success |" in text
        at = {cell: name for name, cell in grid.cells.items()}
        matches = {match.name: match for match in report.matches}
        for user in ("scripted:oracle", "scripted:noop"):
            noop = matches[at[user, "scripted:noop"]].agents["assistant"]
            assert noop.success.mean == report.trivial_baselines["noop"]
            assert sum(noop.reasons.values()) == 20 - round(20 * noop.success.mean)
            row = f"| {user} | scripted:noop | {100 * noop.success.mean:.1f}% | "
            assert row + f"{100 * noop.reasons['data'] / 20:.1f}% |" in text

    def test_adds_its_combinations_up_by_task(self) -> None:
        report = evaluate(MINI, self.SEATS, n=20, order="listed").report
        solved = [0] * 20
        for match in report.matches:
            for entry in match.by_task:
                solved[entry.task] += entry.agents["assistant"].solved
        kept = [sum(count == 8 for count in solved), sum(0 < count < 8 for count in solved)]
        counts = f"of 20 tasks {kept[0]} always solved, {kept[1]} sometimes, 0 never."
        assert f"**By task** for assistant over all combinations: {counts}" in summary(report)
        page = markdown(report)
        assert all(f"| {task} | {count} of 8 | " in page for task, count in enumerate(solved) if count < 8)

    def test_its_parts_have_the_same_numbers(self, tmp_path: Path) -> None:
        report = evaluate(MINI, self.SEATS, n=6, repeats=2, out=tmp_path / "grid").report
        for match in report.matches:
            alone = read_report(tmp_path / "grid" / match.folder)
            assert alone.matches == (match,) and alone.trivial_baselines == report.trivial_baselines

    def test_its_pictures_name_the_baselines_and_the_seats(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from matplotlib.figure import Figure

        drawn: list[tuple[str, str, str]] = []
        save = Figure.savefig

        def savefig(figure: Figure, *arguments: Any, **options: Any) -> None:
            (axes,) = figure.axes
            drawn.append((axes.get_ylabel(), axes.get_xlabel(), " ".join(figure.get_supxlabel().split())))
            save(figure, *arguments, **options)

        monkeypatch.setattr(Figure, "savefig", savefig)
        report = evaluate(MINI, self.SEATS, n=20, order="listed").report
        assert set(pictures(report)) == {"heatmap.png", "bars.png"}
        note = "Trivial baselines on the same tasks: noop 30.0%, transfer 0.0%, gold-without-words 60.0%, gold 100.0%"
        assert drawn == [("user", "assistant", note), ("", "", note)]
        drawn.clear()
        pictures(repeats_of(["done"], scenario=Unnumbered))
        assert drawn == [("", "", "")]


class TestResume:
    ASKED: Mapping[str, Any] = {"scenario": Errand, "repeats": 6, "seed": 3}

    @staticmethod
    def moody() -> Moody:
        return Moody("done", "data", "outputs", "?", "again", "mute")

    def test_equals_the_unbroken_run(self, tmp_path: Path) -> None:
        asked = {**self.ASKED, "seats": self.moody(), "limits": Limits(turns=2)}
        whole = evaluate(**asked, out=tmp_path / "whole").report
        evaluate(**asked, out=tmp_path / "run", budget=Budget(episodes=9), concurrency=2)
        resumed = evaluate(**asked, out=tmp_path / "run", resume=True).report
        assert timeless(resumed) == timeless(whole)
        assert {"data", "outputs", "illegal action", "cut by turns"} == set(clerk(whole).reasons)
        assert json.dumps(clerk(resumed).reasons) == json.dumps(clerk(whole).reasons)  # in the same order
        pages = [(tmp_path / run / "report.md").read_text().partition("## To play")[0] for run in ("run", "whole")]
        assert pages[0] == pages[1]

    def test_of_a_run_from_before_there_was_any_of_this(self, tmp_path: Path) -> None:
        asked = {**self.ASKED, "seats": self.moody(), "limits": Limits(turns=2), "out": tmp_path / "run"}
        whole = evaluate(**asked).report
        old = json.loads((tmp_path / "run" / "report.json").read_text())
        old.pop("trivial_baselines"), old["matches"][0].pop("by_task")
        old["matches"][0]["agents"]["clerk"].pop("reasons")
        (tmp_path / "run" / "report.json").write_text(json.dumps(old))
        assert timeless(evaluate(**asked, resume=True).report) == timeless(whole)
        assert timeless(json.loads((tmp_path / "run" / "report.json").read_text())) == timeless(whole)


def test_the_terminal_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from marl_gem.cli import main

    asked = ["eval", MINI, "--seat", "user=scripted:oracle", "--seat", "assistant=scripted:noop", "-n", "20"]
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as left:
        patch.setattr(sys, "argv", ["marl-gem", *asked, "--repeats", "2", "--out", str(tmp_path / "run")])
        patch.setenv("COLUMNS", "300")
        main()
    text = capsys.readouterr().out
    assert left.value.code == 0
    for line in (
        "Trivial baselines on the same tasks: noop 40.0%, transfer 20.0%, gold-without-words 65.0%, gold 100.0%.",
        "How it ended for user, assistant: success 40.0%, data 60.0%.",
        "By task for user, assistant: of 20 tasks 8 always solved, 0 sometimes, 12 never.",
        "never: 6–10, 18–21, 28–29, 31",
    ):
        assert line in text, text
