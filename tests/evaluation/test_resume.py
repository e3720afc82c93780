"""Runs that are resumed."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from marl_gem import Response
from marl_gem.errors import ConfigError, JournalError
from marl_gem.evaluation import Budget, Numbers, Player, evaluate, plan_evaluation, run
from marl_gem.policies import RandomPolicy
from marl_gem.runs.lock import run_lock
from marl_gem.types import Limits
from tests.evaluation.helpers import (
    GUESS,
    Answer,
    Answers,
    Tasks,
    ids,
    played,
    report_of,
    timeless,
)
from tests.slow_game import Slow
from tests.toys import always


class TestResume:
    def test_plays_what_is_pending_and_nothing_else(self, tmp_path: Path) -> None:
        whole = evaluate(Slow, GUESS, n=20, repeats=2, seed=1, out=tmp_path / "whole")
        evaluate(Slow, GUESS, n=20, repeats=2, seed=1, out=tmp_path / "run", budget=Budget(episodes=13))
        before = (tmp_path / "run" / "episodes.jsonl").read_bytes()
        result = evaluate(Slow, GUESS, n=20, repeats=2, seed=1, out=tmp_path / "run", resume=True)
        assert (tmp_path / "run" / "episodes.jsonl").read_bytes().startswith(before) and before.count(b"\n") == 13
        assert played(tmp_path / "run") == played(tmp_path / "whole")
        assert timeless(result.report) == timeless(whole.report)

    def test_of_a_finished_run_writes_the_report_anew(self, tmp_path: Path) -> None:
        evaluate(Slow, GUESS, n=5, out=tmp_path / "run")
        before = report_of(tmp_path / "run")
        (tmp_path / "run" / "report.json").unlink()
        (tmp_path / "run" / "bars.png").unlink()
        dead = Answers(lambda begun: ValueError("nobody should be asked"), name="slow")
        assert evaluate(Slow, dead, n=5, out=tmp_path / "run", resume=True).pending == 0
        assert report_of(tmp_path / "run") == before and (tmp_path / "run" / "bars.png").exists()

    @pytest.mark.parametrize("made", [(), ("run",), ("run", ".lock")])
    def test_of_nothing_is_an_error_and_writes_nothing(self, tmp_path: Path, made: tuple[str, ...]) -> None:
        tmp_path.joinpath(*made).mkdir(parents=True, exist_ok=True)
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(ConfigError, match=r"run (does not exist|holds no run): .* without --resume"):
            evaluate(Slow, GUESS, n=3, out=tmp_path / "run", resume=True)
        assert sorted(tmp_path.rglob("*")) == before

    @pytest.mark.parametrize(
        ("content", "text"),
        [
            ({"notes.txt": ""}, "is no run: it holds no config.json"),
            ({"config.json": "{}"}, "something that is no evaluation .*format"),
            ({"config.json": "[" * 100_000}, "config.json is damaged: it is nested too deeply"),
            ({"config.json": '{"format": 2, "kind": "eval", "scenario": "a"}'}, "no evaluation .*field `n`"),
            ({"config.json": '{"format": 2, "kind": "eval", "scenario": "a", "n": "6"}'}, "no evaluation .*int"),
            ({"config.json": '{"format": 2, "kind": "cell", "scenario": "a", "n": 6}'}, "is a part of the run in"),
            ({"config.json": "\0\0"}, "config.json is damaged"),
            ({"config.json": '{"n": ' + "9" * 5000 + "}"}, "config.json is damaged"),
        ],
    )
    def test_of_something_else_is_an_error_and_writes_nothing(
        self, tmp_path: Path, content: dict[str, str], text: str
    ) -> None:
        (tmp_path / "run").mkdir()
        for name, written in content.items():
            (tmp_path / "run" / name).write_text(written)
        with pytest.raises(ConfigError, match=text):
            evaluate(Slow, GUESS, n=3, out=tmp_path / "run", resume=True)
        assert {file.name: file.read_text() for file in (tmp_path / "run").iterdir()} == content

    def test_of_a_file_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "run").write_text("")
        for resume in (True, False):
            with pytest.raises(ConfigError, match="run is a file, and a run needs a folder"):
                evaluate(Slow, GUESS, n=3, out=tmp_path / "run", resume=resume)

    def test_of_a_run_whose_configuration_was_changed_is_an_error(self, tmp_path: Path) -> None:
        evaluate(Slow, GUESS, n=3, out=tmp_path / "run")
        config = tmp_path / "run" / "config.json"
        changed = config.read_text().replace('"n": 3', '"n": 7')
        config.write_text(changed)
        with pytest.raises(ConfigError, match=r"config.json is damaged: .*checksum.*if you changed it on purpose"):
            evaluate(Slow, GUESS, n=7, out=tmp_path / "run", resume=True)
        config.write_text(changed[: changed.rindex(',\n  "crc32"')] + "}")
        assert evaluate(Slow, GUESS, n=7, out=tmp_path / "run", resume=True).pending == 0

    def test_may_extend_tasks_and_repeats(self, tmp_path: Path) -> None:
        evaluate(Slow, GUESS, n=10, repeats=2, out=tmp_path / "whole")
        evaluate(Slow, GUESS, n=6, out=tmp_path / "run")
        first = played(tmp_path / "run")
        evaluate(Slow, GUESS, n=10, repeats=2, out=tmp_path / "run", resume=True)
        assert played(tmp_path / "run") == played(tmp_path / "whole")
        assert first.items() <= played(tmp_path / "whole").items()
        assert report_of(tmp_path / "run") == report_of(tmp_path / "whole")
        assert json.loads((tmp_path / "run" / "config.json").read_text())["n"] == 10

    def test_without_n_keeps_the_runs(self, tmp_path: Path) -> None:
        evaluate(Slow, GUESS, n=6, out=tmp_path / "run")
        assert evaluate(Slow, GUESS, out=tmp_path / "run", resume=True).plan.n == 6

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"seed": 5}, "seed was 1 and would be 5"),
            ({"n": 4}, "n was 8 and would be 4"),
            ({"seats": {"a": GUESS, "b": always("tails")}}, "seats.b was 'slow' and would be 'tails'"),
            ({"limits": Limits(turns=3)}, "limits.turns was not set and would be 3"),
            ({"scenario": Tasks}, "scenario was 'Slow' and would be 'Tasks'"),
        ],
    )
    def test_refuses_another_configuration_and_names_the_difference(
        self, tmp_path: Path, change: dict[str, Any], message: str
    ) -> None:
        asked: dict[str, Any] = {"scenario": Slow, "seats": GUESS, "n": 8, "seed": 1}
        evaluate(**asked, out=tmp_path / "run")
        before = {file.name: file.read_bytes() for file in (tmp_path / "run").iterdir()}
        change = change | ({"seats": GUESS, "n": 5} if "scenario" in change else {})
        with pytest.raises(ConfigError, match=f"started with another configuration: .*{re.escape(message)}"):
            evaluate(**asked | change, out=tmp_path / "run", resume=True)
        assert {file.name: file.read_bytes() for file in (tmp_path / "run").iterdir()} == before

    def test_a_server_may_be_waited_for_longer(self, tmp_path: Path) -> None:
        def run_with(values: str, n: int, resume: bool) -> str:
            player = Player(f"tiny@http://127.0.0.1:8000/v1{values}", always("heads"))
            plan = plan_evaluation(Slow, {"a": player, "b": player}, Numbers(n))
            return run(plan, tmp_path / "run", resume=resume).report.matches[0].players["a"].who

        run_with(",wait=5", 2, resume=False)
        assert run_with(",wait=600,timeout=60", 4, resume=True).endswith(",wait=600,timeout=60")
        with pytest.raises(ConfigError, match="temperature=0"):
            run_with(",wait=600,temperature=0", 4, resume=True)

    def test_a_change_of_sampling_is_an_error(self, tmp_path: Path) -> None:
        from marl_gem.llm import Sampling
        from marl_gem.policies import LLMPolicy

        class Parrot:
            name = "parrot"

            async def complete(self, messages: Any, sampling: Any, seed: int, tools: Any = ()) -> Response:
                return Response("1")

        evaluate(Answer, LLMPolicy(Parrot(), sampling=Sampling(temperature=0.5)), n=2, out=tmp_path / "run")
        with pytest.raises(ConfigError, match=r"sampling.parrot.temperature was 0.5 and would be 1.0"):
            evaluate(Answer, LLMPolicy(Parrot()), n=2, out=tmp_path / "run", resume=True)

    def test_knows_options_again_that_are_no_plain_data(self, tmp_path: Path) -> None:
        from marl_gem.registry import register

        register(f"test:Odd-{tmp_path.name}-v0", lambda rounds, judge: Slow(rounds[0]), agents=2)
        asked: dict[str, Any] = {"scenario": f"test:Odd-{tmp_path.name}-v0", "seats": GUESS, "out": tmp_path / "run"}
        evaluate(**asked, n=2, options={"rounds": (1, 2), "judge": always})
        assert evaluate(**asked, n=3, options={"rounds": (1, 2), "judge": always}, resume=True).pending == 0
        with pytest.raises(ConfigError, match=r"options.judge was 'always' and would be 'ids'"):
            evaluate(**asked, n=3, options={"rounds": (1, 2), "judge": ids}, resume=True)

    def test_is_not_guessed(self, tmp_path: Path) -> None:
        evaluate(Slow, GUESS, n=3, out=tmp_path / "run")
        with pytest.raises(ConfigError, match="holds a run already"):
            evaluate(Slow, GUESS, n=3, out=tmp_path / "run")

    @pytest.mark.parametrize("resume", [False, True])
    @pytest.mark.parametrize(
        ("name", "content"), [("notes.txt", "mine"), ("config.json", '{"policy": {}}'), ("config.json", "{")]
    )
    def test_a_folder_of_something_else_is_left_alone(
        self, tmp_path: Path, name: str, content: str, resume: bool
    ) -> None:
        (tmp_path / name).write_text(content)
        with pytest.raises(ConfigError):
            evaluate(Slow, GUESS, n=3, out=tmp_path, resume=resume)
        assert [file.name for file in tmp_path.iterdir()] == [name]

    def test_another_version_of_marl_gem_may_go_on(self, tmp_path: Path) -> None:
        evaluate(Slow, GUESS, n=3, out=tmp_path / "run")
        config = json.loads((tmp_path / "run" / "config.json").read_text()) | {"version": "0.0.1"}
        (tmp_path / "run" / "config.json").write_text(json.dumps(config))
        assert evaluate(Slow, GUESS, n=4, out=tmp_path / "run", resume=True).pending == 0

    def test_another_format_is_an_error(self, tmp_path: Path) -> None:
        evaluate(Slow, GUESS, n=3, out=tmp_path / "run")
        config = json.loads((tmp_path / "run" / "config.json").read_text()) | {"format": 99}
        (tmp_path / "run" / "config.json").write_text(json.dumps(config))
        with pytest.raises(ConfigError, match="it has format 99, not 2"):
            evaluate(Slow, GUESS, n=3, out=tmp_path / "run", resume=True)

    def test_after_a_torn_line_equals_the_whole_run(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib", None)  # pictures would take most of the time
        evaluate(Answer, always("1"), n=3, out=tmp_path / "whole", concurrency=1)
        lines = (tmp_path / "whole" / "episodes.jsonl").read_bytes().splitlines(keepends=True)
        shutil.copytree(tmp_path / "whole", tmp_path / "run")
        journal = tmp_path / "run" / "episodes.jsonl"
        for cut in range(0, len(lines[-1]), 5):
            journal.write_bytes(b"".join(lines[:-1]) + lines[-1][:cut])
            plan = plan_evaluation(Answer, always("1"), Numbers(n=3))
            run(plan, tmp_path / "run", resume=True)
            assert played(tmp_path / "run") == played(tmp_path / "whole")
        assert report_of(tmp_path / "run") == report_of(tmp_path / "whole")

    def test_a_damaged_or_foreign_line_is_named_by_its_number(self, tmp_path: Path) -> None:
        evaluate(Slow, GUESS, n=4, out=tmp_path / "run")
        journal = tmp_path / "run" / "episodes.jsonl"
        lines = journal.read_bytes().splitlines(keepends=True)
        plain = lines[1][: lines[1].rindex(b',"crc32"')] + b"}\n"
        for content, text in (
            ([lines[0], b"?\n", lines[2]], "line 2, is damaged"),
            ([lines[0], lines[1].replace(b"Guess", b"Gless", 1)], "line 2, is damaged .*it does not fit its checksum"),
            ([lines[0], lines[1], lines[0]], "line 3: episode .* is there twice"),
            ([lines[0], plain.replace(b'"seed":', b'"seed":1')], "line 2: episode .* is not of this run"),
            ([lines[0], plain.replace(b'"id":"', b'"id":"x')], "line 2: episode .* is not of this run"),
        ):
            journal.write_bytes(b"".join(content))
            with pytest.raises(JournalError, match=text):
                evaluate(Slow, GUESS, n=4, out=tmp_path / "run", resume=True)

    def test_is_refused_while_another_works_on_it(self, tmp_path: Path) -> None:
        evaluate(Slow, GUESS, n=3, out=tmp_path / "run")
        with run_lock(tmp_path / "run"), pytest.raises(JournalError, match="is working on"):
            evaluate(Slow, GUESS, n=3, out=tmp_path / "run", resume=True)

    def test_compares_wrappers(self, tmp_path: Path) -> None:
        asked: dict[str, Any] = {"scenario": "game:KuhnPoker-v0", "seats": RandomPolicy(), "out": tmp_path / "run"}
        cut = evaluate(**asked, n=2, wrappers=["time_limit=1"])
        assert cut.report.config.wrappers == ("time_limit,max_steps=1",)
        assert cut.report.episodes.endings == {"truncated": 2}
        assert evaluate(**asked, n=3, wrappers=["time_limit,max_steps=1"], resume=True).pending == 0
        with pytest.raises(ConfigError, match=r"wrappers was .*max_steps=1.* and would be .*max_steps=2"):
            evaluate(**asked, n=3, wrappers=["time_limit=2"], resume=True)

    def test_of_a_policy_that_is_spelled_otherwise_is_no_change(self, tmp_path: Path) -> None:
        url = "tiny@http://127.0.0.1:9/v1"
        first, again = (
            Player(f"{url},{values}", always("1")) for values in ("temperature=0.70,top_p=1", "top_p=1,temperature=0.7")
        )
        evaluate(Answer, {"solver": first}, n=2, out=tmp_path / "run")
        assert evaluate(Answer, {"solver": again}, n=3, out=tmp_path / "run", resume=True).pending == 0
