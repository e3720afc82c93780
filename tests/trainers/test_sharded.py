"""Several processes train one model: on a CPU, with gloo, as torchrun would start them."""

from __future__ import annotations

import multiprocessing
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from marl_gem.trainers import checkpoint
from marl_gem.trainers.algorithms import make_algorithm
from marl_gem.trainers.backends import ranks
from marl_gem.trainers.backends.adapters import AdapterModel, CausalModel, SharedBase
from marl_gem.trainers.backends.base import Regularization
from marl_gem.trainers.backends.frozen import copy_weights
from marl_gem.trainers.backends.local import LocalBackend
from marl_gem.trainers.backends.memory import Memory
from marl_gem.trainers.rows import Row, merge
from tests.trainers.support import SMALL_KUHN, rows_without_times, toml
from tests.trainers.test_backend import tiny, tokenizer
from tests.trainers.test_losses import off_policy

PROCESSES = 2
REGULARIZATION = Regularization("exact", False, 0.1)
CASES: dict[str, dict[str, Any]] = {
    "padded": {},
    "packed, several micro-batches": {"memory": Memory("float32", True, True), "micro_batch_tokens": 20},
    "adapters": {"adapters": True, "logits_at_once": 500},
}


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def model(seed: int, adapters: bool) -> CausalModel:
    network = tiny(seed).double()
    if not adapters:
        return network
    adapter = SharedBase(network, rank=2, alpha=4).adapter("a", seed=seed)
    generator = torch.Generator().manual_seed(seed)
    noise = {name: 0.1 * torch.randn(v.shape, generator=generator).double() for name, v in adapter.state_dict().items()}
    adapter.load_state_dict(noise)
    return adapter


def updated(backend: LocalBackend, rows: list[Row], reference: dict[str, torch.Tensor]) -> list[Any]:
    """All that a backend says in the course of two updates, and its weights and optimizer afterwards."""
    backend.reference = reference
    loss = make_algorithm("grpo", {}).loss
    messages: list[Any] = []
    for _ in range(2):
        messages.append(
            backend.forward_backward(rows, loss, denominator=20, kl_weight=0.3, regularization=REGULARIZATION)
        )
        messages.append(backend.step(learning_rate=1e-3, max_grad_norm=1.0))
        backend.set_reference()
    messages += [backend.logprobs(rows), backend.logprobs(rows, reference=True)]
    state = backend.optimizer_state()
    backend.load_optimizer_state(state)
    again = backend.optimizer_state()
    assert state.keys() == again.keys() and all(torch.equal(value, again[name]) for name, value in state.items())
    return [*messages, backend.weights(), state]


def compare(folder: Path) -> None:
    """In the first process: every case against one process that does all."""
    from marl_gem.trainers.backends.sharded import make_sharded

    rows = merge(off_policy(3), fold=True, equal_logprobs=True)
    for name, case in CASES.items():
        options = dict(case)
        adapters = options.pop("adapters", False)
        reference = copy_weights(model(2, adapters))
        expected = updated(LocalBackend(model(1, adapters), tokenizer(), **options), rows, reference)
        backend, complete, _ = make_sharded(model(1, adapters), tokenizer(), options)
        found = updated(backend, rows, reference)
        assert isinstance(complete, AdapterModel) == adapters, name
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
        backend.save_model(folder / name)
    sharded = {type(p).__name__ for p in make_sharded(tiny(), tokenizer(), {})[0].model.parameters()}
    assert sharded == {"DTensor"}


def take_part(rank: int, port: int, folder: Path) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(PROCESSES))
    torch.set_num_threads(1)
    if ranks.begin() == 0:
        compare(folder)
    else:
        from marl_gem.trainers.backends.sharded import serve

        serve()
    ranks.end()


@pytest.mark.slow
def test_two_processes_have_the_gradients_and_weights_of_one(tmp_path: Path) -> None:
    context, port = multiprocessing.get_context("forkserver"), free_port()  # among all tests it has torch already
    workers = [context.Process(target=take_part, args=(rank, port, tmp_path)) for rank in range(PROCESSES)]
    for worker in workers:
        worker.start()
    try:
        workers[0].join(120)
        assert workers[0].exitcode == 0
        workers[1].join(60)
        assert workers[1].exitcode == 0
    finally:
        for worker in workers:
            worker.kill()
    assert (tmp_path / "padded" / "model.safetensors").exists()
    assert (tmp_path / "adapters" / "adapter_model.safetensors").exists()


@pytest.mark.long
def test_torchrun_trains_and_one_process_goes_on(tmp_path: Path) -> None:
    """Rounding lets the runs part later: a token is drawn otherwise. The first update is still the same."""
    values = {**SMALL_KUHN, "threads": 1, "device": "cpu", "imitation": {"episodes": 20, "steps": 20, "batch": 8}}
    (tmp_path / "kuhn.toml").write_text(toml(values))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(PROCESSES), "--master-port"]
    alone, several = [sys.executable], [*torchrun, str(free_port())]
    for name, command in (("several", several), ("alone", alone)):
        call([*command, "-m", "marl_gem.cli"], ["train", "kuhn.toml", "--name", name, "--updates", "1"], tmp_path)
    found, expected = (rows_without_times(tmp_path / "runs" / name) for name in ("several", "alone"))
    assert [row["stage"] for row in found] == ["imitation", "imitation", "before", "training", "after"]
    for row, other in zip(found, expected, strict=True):
        for name in {"loss", "entropy", "gradient_norm", "tokens"} & row.keys():
            assert row[name] == pytest.approx(other[name], rel=1e-3)
    assert checkpoint.newest(tmp_path / "runs" / "several").name == "update-000001"
    call([*alone, "-m", "marl_gem.cli"], ["train", "--resume", "runs/several", "--updates", "2"], tmp_path)
    assert checkpoint.newest(tmp_path / "runs" / "several").name == "update-000002"


def call(command: list[str], arguments: list[str], folder: Path) -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, *arguments], cwd=folder, env=environment, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
