"""marl-gem train, and what its runs are good for afterwards."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from marl_gem import cli
from marl_gem.overrides import apply_overrides
from marl_gem.trainers import checkpoint
from tests.trainers.support import SMALL_KUHN, marl_gem, toml, wide_terminal

pytestmark = pytest.mark.slow


class TestCommandLine:
    @pytest.mark.parametrize("command", [(), ("list",), ("train",), ("play",)])
    def test_help_everywhere(self, command: tuple[str, ...]) -> None:
        done = marl_gem(*command, "--help")
        assert done.returncode == 0
        assert "Usage" in done.stdout

    def test_list(self) -> None:
        assert "game:KuhnPoker-v0" in marl_gem("list").stdout
        assert "ta:TicTacToe-v0" in marl_gem("list", "ta").stdout
        assert "cannot work here" in marl_gem("list", "ta", "--all").stdout
        assert marl_gem("list", "tb").returncode == 2

    @pytest.mark.long
    def test_play(self, finished_kuhn: Path, tmp_path: Path) -> None:
        one = marl_gem("play", "game:KuhnPoker-v0", "--seat", f"player_0={finished_kuhn}", "--seed", 3)
        assert one.returncode == 0, one.stderr
        assert "terminated after" in one.stdout
        many = marl_gem(
            "play", "game:KuhnPoker-v0", "--seat", f"player_1={finished_kuhn}", "-n", 30, "--out", tmp_path / "e"
        )
        assert "30 episodes" in many.stdout
        assert len((tmp_path / "e").read_text().splitlines()) == 30

    def test_play_as_a_person(self) -> None:
        done = marl_gem("play", "game:KuhnPoker-v0", "--seat", "player_0=human", input="[bet]\n")
        assert done.returncode == 0, done.stderr
        assert "Your card" in done.stdout
        assert "chips" in done.stdout

    def test_a_person_who_leaves_is_told(self) -> None:
        done = marl_gem("play", "game:KuhnPoker-v0", "--seat", "player_0=human", input="")
        assert done.returncode == 1
        assert "ended before the episode did" in done.stderr

    @pytest.mark.parametrize(
        ("arguments", "complaint"),
        [
            (("train",), "what should be trained"),
            (("train", ""), "is empty; write a value, or leave it out"),
            (("train", "kuhn", "--policy", "."), "policy.start_from: . holds no model: it is empty"),
            (("eval", "game:KuhnPoker-v0", "--seat", "player_0=hf:."), ". holds no model: it is empty"),
            (("eval", "game:KuhnPoker-v0", "--seat", "player_0=hf:"), "'hf:' lacks the model's name"),
            (("train", "ta:TicTacTo-v0"), "Did you mean 'ta:TicTacToe-v0'"),
            (("train", "--resume", "nowhere"), "nowhere is no run"),
            (("play", "game:KuhnPoker-v0", "--seat", "player_9=random"), "no agent 'player_9'"),
            (("play", "game:KuhnPoker-v0", "--seat", "player_0=nobody"), "there is no policy 'nobody'"),
            (("play", "game:KuhnPoker-v0", "--seat", "player_0"), "'player_0' lacks a side"),
            (("play", "game:KuhnPoker-v0", "-o", "size=3"), "unexpected keyword argument 'size'"),
            (
                ("play", "game:KuhnPoker-v0", "-n", "3", "--out", "/proc/no/file"),
                "cannot write /proc/no/file: No such",
            ),
            (("playthrough", "game:KuhnPoker-v0", "--out", "/proc/x.txt"), "cannot write /proc/x.txt: No such file"),
            (("train", "kuhn", "--runs", "/proc/runs"), "cannot write to /proc/runs/kuhn-1: No such file"),
        ],
    )
    def test_wrong_arguments_are_told_in_a_line(
        self,
        arguments: tuple[str, ...],
        complaint: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["marl-gem", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == 2
        shown = capsys.readouterr().err
        assert complaint in " ".join(shown.split())
        assert "Traceback" not in shown
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize(
        "arguments", [["WRONG"], ["kuhn", "--set", "training.update=3"], ["--resume", "evaluation"]]
    )
    def test_what_can_be_said_without_torch_does_not_wait_for_it(self, arguments: list[str], tmp_path: Path) -> None:
        (tmp_path / "evaluation").mkdir()
        (tmp_path / "evaluation" / "config.json").write_text('{"format": 2, "kind": "eval", "n": 3}')
        code = f"""
import sys
from marl_gem import cli
sys.argv = ["marl-gem", "train", *{arguments!r}]
try:
    cli.main()
finally:
    assert "torch" not in sys.modules
"""
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 2, done.stderr
        assert done.stderr.startswith("error:")

    @pytest.mark.long
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
    def test_ctrl_c_or_sigterm_stops_cleanly_and_resume_finishes(self, tmp_path: Path, number: signal.Signals) -> None:
        (tmp_path / "small.toml").write_text(
            toml(apply_overrides(SMALL_KUHN, ["training.updates=400", "training.save_every=1000"]))
        )
        command = [sys.executable, "-m", "marl_gem.cli", "train", "small.toml", "--name", "run"]
        process = subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=wide_terminal()
        )
        metrics = tmp_path / "runs" / "run" / "metrics.jsonl"
        deadline = time.monotonic() + 90
        while '"training"' not in (metrics.read_text() if metrics.exists() else ""):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(number)
        told = process.communicate(timeout=60)[0].decode()
        assert process.returncode == 130, told
        assert "--resume runs/run" in told
        stopped = checkpoint.load(tmp_path / "runs" / "run").updates
        assert 0 < stopped < 400
        assert (tmp_path / "runs" / "run" / "curve.png").exists()
        refused = marl_gem("train", "--resume", "runs/run", "--set", "training.episodes=8", cwd=tmp_path)
        assert refused.returncode == 2
        assert "training.episodes was 16 and would be 8" in " ".join(refused.stderr.split())
