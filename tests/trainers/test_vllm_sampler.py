"""Training whose episodes are answered by a server, with a stand-in for vLLM (tests/fake_vllm)."""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from marl_gem import registry
from marl_gem.errors import ConfigError, LLMError
from marl_gem.trainers import checkpoint
from marl_gem.trainers.run import TrainingRun
from marl_gem.trainers.sections import TrainConfig
from marl_gem.types import Episode, from_json
from tests.trainers.support import Babble, babble, desk, kuhn, rows, work

FAKE = Path(__file__).parents[1] / "fake_vllm"

SMALL = (
    "imitation.steps=0",
    "policy.view=chat",
    "training.updates=2",
    "training.episodes=6",
    "training.keep_episodes=8",
    "training.save_every=1",
    "evaluation.final_episodes=2",
    "evaluation.probe_every=100",
)


class Events:
    """What the stand-in has written down."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, event: str) -> list[dict[str, Any]]:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [found for found in map(json.loads, lines) if found["event"] == event]

    @property
    def pids(self) -> list[int]:
        return [start["pid"] for start in self("start")]


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Events:
    monkeypatch.setenv("PYTHONPATH", f"{FAKE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("FAKE_VLLM_LOG", str(tmp_path / "events"))
    return Events(tmp_path / "events")


def adapters(base: Path, *assignments: str) -> TrainConfig:
    return kuhn(*SMALL, f"policy.start_from={base}", "policy.lora_rank=4", "sampler=vllm", *assignments)


def all_weights(base: Path, *assignments: str) -> TrainConfig:
    return kuhn(*SMALL, f"policy.start_from={base}", "sampler=vllm", *assignments)


def episodes(folder: Path) -> list[Episode]:
    return [from_json(line, Episode) for line in (folder / "episodes.jsonl").read_text().splitlines()]


def is_running(pid: int) -> bool:
    found = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return found.stdout.strip() != "" and not found.stdout.startswith("Z")  # not reaped yet


def finished(folder: Path, config: TrainConfig) -> TrainingRun:
    run = TrainingRun.start(folder, config)
    work(run)
    return run


class TestAdapters:
    @pytest.fixture(scope="class")
    def run(self, base: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TrainingRun, Events]]:
        folder = tmp_path_factory.mktemp("run")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", f"{FAKE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
            patch.setenv("FAKE_VLLM_LOG", str(folder / "events"))
            settings = (
                "training.updates=3",
                "training.opponent_pool_fraction=0.5",
                "league.draw=episode",
                "policy.max_tokens=4",
            )
            with registry.preserved():
                registry.register("test:Babble-v0", Babble, agents=3)
                values = (*SMALL, f"policy.start_from={base}", "policy.lora_rank=4", "sampler=vllm", *settings)
                yield finished(folder / "run", babble("Babble", {}, *values)), Events(folder / "events")

    def test_every_turn_has_the_version_that_answered(self, run: tuple[TrainingRun, Events]) -> None:
        training, events = run
        names: dict[tuple[tuple[int, ...], tuple[int, ...]], set[str]] = {}  # who answered, by prompt and answer
        for answer in events("answer"):
            names.setdefault((tuple(answer["prompt"]), tuple(answer["ids"])), set()).add(answer["model"])
        turns = [(episode, turn) for episode in episodes(training.folder) for turn in episode.turns]
        served = [(episode, turn.response) for episode, turn in turns if turn.response.token_ids]
        assert {response.version for _, response in served} == {0, 1, 2, 3}
        for episode, response in served:
            found = names[response.prompt_ids, response.token_ids]
            assert any(name.endswith(f"-v{response.version}") for name in found)
            assert response.logprobs == (-0.5,) * len(response.token_ids)
            if not episode.id.startswith("measured"):
                assert response.version <= int(episode.id.partition("-")[0])

    def test_each_prompt_begins_with_the_prompt_and_the_answer_before(self, run: tuple[TrainingRun, Events]) -> None:
        extended = 0
        for episode in episodes(run[0].folder):
            for agent in episode.roles:
                answered = [turn.response for turn in episode.turns_of(agent) if turn.response.token_ids]
                for earlier, later in itertools.pairwise(answered):
                    ids = earlier.prompt_ids + earlier.token_ids
                    assert later.prompt_ids[: len(ids)] == ids
                    extended += 1
        assert extended

    def test_versions_that_nobody_uses_are_unloaded(self, run: tuple[TrainingRun, Events]) -> None:
        training, events = run
        loaded, unloaded = ([event["name"] for event in events(kind)] for kind in ("load", "unload"))
        assert len(loaded) == len(set(loaded)) >= 4 and sorted(unloaded) == sorted(loaded)
        assert list((training.folder / "vllm").rglob("*.safetensors")) == []

    def test_the_server_ends_with_the_run(self, run: tuple[TrainingRun, Events]) -> None:
        training, events = run
        assert len(events.pids) == 1 and not is_running(events.pids[0])
        assert training.report is not None and training.report.after.sampler == "vllm"
        assert all(row["failed"] == 0 for row in rows(training.folder) if row["stage"] == "training")


class TestStaleness:
    def test_adapters_answer_while_an_update_is_computed(self, base: Path, events: Events, tmp_path: Path) -> None:
        run = finished(tmp_path / "run", adapters(base, "training.staleness=1", "training.updates=3"))
        played: dict[str, set[int]] = {}  # the versions that answered in each update's episodes
        for episode in episodes(run.folder):
            if not episode.id.startswith("measured"):
                versions = {turn.response.version for turn in episode.turns if turn.response.token_ids}
                played.setdefault(episode.id.partition("-")[0], set()).update(versions)
        assert {update: max(versions) for update, versions in played.items()} == {"0": 0, "1": 0, "2": 1}
        assert sorted(e["name"] for e in events("load")) == sorted(e["name"] for e in events("unload"))

    def test_all_weights_take_turns(self, base: Path, events: Events, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="a vLLM server has one version of a model at a time"):
            finished(tmp_path / "run", all_weights(base, "training.staleness=1"))


class TestAllWeights:
    def test_every_version_is_loaded_when_no_request_is_under_way(
        self, base: Path, events: Events, tmp_path: Path
    ) -> None:
        run = finished(tmp_path / "run", all_weights(base))
        assert [event["folder"] for event in events("reload")] == ["v0", "v1", "v2"]
        # Its head shares the embeddings' weights, of which vLLM would keep the old ones for the head.
        assert all("lm_head.weight" in event["tensors"] for event in events("reload"))
        assert len({answer["salt"] for answer in events("answer")}) == 3  # no prefix is reused across versions
        assert all(row["failed"] == 0 for row in rows(run.folder) if row["stage"] == "training")
        assert list((run.folder / "vllm").rglob("*.safetensors")) == []

    def test_several_policies_are_refused(self, base: Path, events: Events, tmp_path: Path) -> None:
        config = desk("seats.user=user", "phases=[]", f"policy.start_from={base}", "sampler=vllm")
        with pytest.raises(ConfigError, match="2 policies learn; make them adapters"):
            TrainingRun.start(tmp_path / "run", config)


class TestServersThatDie:
    @pytest.mark.parametrize("config", [adapters, all_weights])
    def test_a_server_that_dies_is_started_again_and_nothing_is_lost(
        self, config: Any, base: Path, events: Events, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FAKE_VLLM_DIES_AT", "10")
        run = finished(tmp_path / "run", config(base))
        assert len(events("death")) == 1 and len(events("start")) == 2
        assert all(row["failed"] == 0 for row in rows(run.folder) if row["stage"] == "training")
        assert not any(map(is_running, events.pids))
        retries = [turn.response.retries for episode in episodes(run.folder) for turn in episode.turns]
        assert any(retries)

    def test_a_server_that_stays_away_ends_the_run_which_can_be_resumed(
        self, base: Path, events: Events, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FAKE_VLLM_DIES_AT", "10")
        monkeypatch.setenv("FAKE_VLLM_STAYS_AWAY", "1")
        config = adapters(base)
        with pytest.raises(LLMError, match=r"vLLM ended while it started.*there is no memory left"):
            finished(tmp_path / "run", config)
        monkeypatch.delenv("FAKE_VLLM_STAYS_AWAY")
        assert checkpoint.load(tmp_path / "run").updates < 2
        resumed = TrainingRun.resume(tmp_path / "run", config)
        work(resumed)
        assert resumed.report is not None
        assert [row["update"] for row in rows(tmp_path / "run") if row["stage"] == "training"] == [1, 2]

    def test_a_server_that_does_not_start_is_quoted(
        self, base: Path, events: Events, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FAKE_VLLM_STAYS_AWAY", "1")
        events.path.write_text('{"event": "death"}\n')
        with pytest.raises(LLMError, match=r"run/vllm/server\.log says: RuntimeError: there is no memory left"):
            finished(tmp_path / "run", adapters(base))

    def test_a_run_that_is_left_stops_its_server(self, base: Path, events: Events, tmp_path: Path) -> None:
        run = TrainingRun.start(tmp_path / "run", adapters(base))
        work(run, until=1)
        (pid,) = events.pids
        assert not is_running(pid)
        work(run)
        assert run.report is not None and len(events.pids) == 2 and not is_running(events.pids[1])

    def test_a_server_ends_when_the_process_that_started_it_is_killed(
        self, base: Path, events: Events, tmp_path: Path
    ) -> None:
        code = (
            "import sys, time; from pathlib import Path\n"
            "from marl_gem.trainers.samplers.vllm_server import VLLMServer\n"
            "from marl_gem.trainers.sections import VLLMConfig\n"
            "for _ in VLLMServer(Path(sys.argv[1]), VLLMConfig(), log=Path(sys.argv[2]), cpu=True).start(): pass\n"
            "print('ready', flush=True); time.sleep(60)"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(base), str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        (pid,) = events.pids
        assert is_running(pid)
        process.kill()
        process.communicate()
        deadline = time.monotonic() + 20
        while is_running(pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not is_running(pid)


class TestServersElsewhere:
    @pytest.fixture
    def url(self, base: Path, events: Events) -> Iterator[str]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = ["--host", "127.0.0.1", "--port", str(port), "--model", str(base), "--served-model-name", "big"]
        command += ["--enable-lora", "--logprobs-mode", "processed_logprobs"]
        process = subprocess.Popen([sys.executable, "-m", "vllm.entrypoints.openai.api_server", *command])
        try:
            while not events("start"):
                time.sleep(0.02)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.kill()
            process.wait()

    def test_a_run_leaves_nothing_behind_on_it(self, url: str, base: Path, events: Events, tmp_path: Path) -> None:
        run = finished(tmp_path / "run", adapters(base, f"sampler={url}", "training.updates=1"))
        assert sorted(e["name"] for e in events("load")) == sorted(e["name"] for e in events("unload"))
        assert is_running(events.pids[0])
        assert run.report is not None and run.report.after.sampler == url

    def test_it_serves_adapters_only(self, base: Path, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"serves policies that are adapters \(policy.lora_rank\)"):
            TrainingRun.start(tmp_path / "run", all_weights(base, "sampler=http://127.0.0.1:1/v1"))

    def test_one_that_is_away_for_too_long_ends_the_run(self, base: Path, tmp_path: Path) -> None:
        config = adapters(base, "sampler=http://127.0.0.1:1/v1", "vllm.patience=0.1")
        with pytest.raises(LLMError, match=r"has been away for 0\.1 s \(vllm\.patience\)"):
            finished(tmp_path / "run", config)


class TestConfiguration:
    def test_a_sampler_is_in_process_vllm_or_a_url(self) -> None:
        with pytest.raises(ConfigError, match=r'sampler is "in_process", "vllm" or the URL'):
            kuhn("sampler=vlm")

    def test_a_missing_vllm_is_an_error_with_the_command_that_installs_it(self, base: Path, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"has no vLLM\. Install it .*pip install vllm.*vllm\.python="):
            TrainingRun.start(tmp_path / "run", adapters(base, f"vllm.python={sys.executable}"))
        with pytest.raises(ConfigError, match=r"vllm\.python: '/nowhere/python' cannot be started"):
            TrainingRun.start(tmp_path / "run", adapters(base, "vllm.python=/nowhere/python"))
