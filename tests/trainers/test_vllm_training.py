"""Training through a real vLLM on this machine's processors: `make test-vllm`.

MARL_GEM_VLLM_PYTHON is the path of a Python that has vLLM; where it is not set these tests are skipped.
"""

from __future__ import annotations

import os

import pytest

if not os.environ.get("MARL_GEM_VLLM_PYTHON"):
    pytest.skip("MARL_GEM_VLLM_PYTHON names no Python that has vLLM; see `make test-vllm`", allow_module_level=True)

import re
import signal
import threading
import time
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from marl_gem.trainers.run import TrainingRun
from marl_gem.trainers.tiny import tiny_tokenizer
from marl_gem.types import Episode, from_json
from tests.trainers.support import babble, kuhn, rows, work

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

SERVED = (
    "sampler=vllm",
    f"vllm.python={os.environ['MARL_GEM_VLLM_PYTHON']}",
    "policy.temperature=0.7",
    "training.opponent_pool_fraction=0.5",
    "league.draw=episode",
    "training.keep_episodes=16",
    "evaluation.final_episodes=4",
    "evaluation.probe_every=100",
)
TOLERANCE = 1e-4
"""Nats by which a token's log-probability may differ between vLLM and the trainer, in float32; 2e-6 was seen."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama with random weights, whose heads have 32 features, the fewest that vLLM takes on a CPU."""
    folder = tmp_path_factory.mktemp("base") / "model"
    tokenizer = tiny_tokenizer(["Your card is the King. check bet call fold"] * 3, split="words")
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def check_updates(folder: Path, updates: int, policies: int = 1) -> None:
    """All episodes were played to their end, and vLLM's log-probabilities are those of the trainer."""
    training = [row for row in rows(folder) if row["stage"] == "training"]
    assert [row["update"] for row in training] == list(range(1, updates + 1))
    assert [row["failed"] for row in training] == [0] * updates
    differences = [value for row in training for name, value in row.items() if name.startswith("logprob_diff_max")]
    assert len(differences) == updates * policies and max(differences) < TOLERANCE


def check_versions(folder: Path) -> None:
    """The turns that are learned from were answered by the newest version, the others by earlier ones."""
    episodes = [from_json(line, Episode) for line in (folder / "episodes.jsonl").read_text().splitlines()]
    found: dict[int, set[int]] = {}
    for episode in episodes:
        if not episode.id.startswith("measured"):
            update = int(episode.id.partition("-")[0])
            found.setdefault(update, set()).update(turn.response.version for turn in episode.turns)
    assert found[0] == {0}
    assert all(max(versions) == update for update, versions in found.items())
    assert any(min(versions) < update for update, versions in found.items())


def kill_in_mid_answer(log: Path) -> None:
    """Kill all processes of the server as soon as one more answer has been given."""
    answers = log.read_text().count("POST /v1/completions")
    while log.read_text().count("POST /v1/completions") == answers:
        time.sleep(0.01)
    (pid,) = set(re.findall(r"APIServer pid=(\d+)", log.read_text()))
    os.killpg(int(pid), signal.SIGKILL)


@pytest.mark.usefixtures("babble_games")
def test_adapters_of_two_policies_learn_though_the_server_is_killed_in_mid_update(base: Path, tmp_path: Path) -> None:
    lora = (f"policy.start_from={base}", "policy.lora_rank=4", "imitation.steps=0", "training.learning_rate=0.01")
    config = babble("Babble", {"a": "first", "b": "second", "c": "second"}, *SERVED, *lora)
    run = TrainingRun.start(tmp_path / "run", config)
    log, killer = tmp_path / "run" / "vllm" / "server.log", None
    for progress in run.work():
        if progress.stage == "training" and progress.done == 1:
            killer = threading.Thread(target=kill_in_mid_answer, args=[log])
            killer.start()
    assert killer is not None
    killer.join()
    assert len(set(re.findall(r"APIServer pid=(\d+)", log.read_text()))) == 2
    check_updates(run.folder, 3, policies=2)
    check_versions(run.folder)


def test_all_weights_of_a_tiny_model_learn(tmp_path: Path) -> None:
    run = TrainingRun.start(tmp_path / "run", kuhn(*SERVED, "policy.width=64", "policy.heads=2", "training.updates=2"))
    work(run)
    check_updates(run.folder, 2)
    check_versions(run.folder)
