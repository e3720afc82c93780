"""Fixtures of the tests of training."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from marl_gem import registry
from marl_gem.trainers.backends.local import LocalBackend
from marl_gem.trainers.run import TrainingRun
from marl_gem.trainers.tiny import tiny_model, tiny_tokenizer
from tests.trainers.support import Babble, Fragile, Late, Silent, desk, kuhn, work


@pytest.fixture(scope="session")
def finished_kuhn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of self-play that went through without a break."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    work(TrainingRun.start(folder, kuhn()))
    return folder


@pytest.fixture(scope="session")
def finished_desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of co-evolution that went through without a break."""
    folder = tmp_path_factory.mktemp("runs") / "pair"
    work(TrainingRun.start(folder, desk()))
    return folder


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny pretrained model, which adapters start from."""
    folder = tmp_path_factory.mktemp("base") / "model"
    tokenizer = tiny_tokenizer(["Your card is the King. check bet call fold"], split="words", tools=True)
    tiny_model(tokenizer, width=16, layers=1, heads=2, context=1024).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def babble_games() -> Iterator[None]:
    """Registers the small games of `support`, as test:Babble-v0 and so on."""
    with registry.preserved():
        for game in (Babble, Late, Silent, Fragile):
            registry.register(f"test:{game.__name__}-v0", game, agents=3)
        yield


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What every step of a backend is made of, in order: rows, denominator, kl_weight, learning_rate."""
    taken: list[dict[str, Any]] = []
    forward_backward, step = LocalBackend.forward_backward, LocalBackend.step

    def recorded_forward(backend: LocalBackend, rows: Any, loss: Any, **options: Any) -> dict[str, float]:
        taken.append({"rows": rows, **options})
        return forward_backward(backend, rows, loss, **options)

    def recorded_step(backend: LocalBackend, **options: Any) -> float:
        taken[-1] |= options
        return step(backend, **options)

    monkeypatch.setattr(LocalBackend, "forward_backward", recorded_forward)
    monkeypatch.setattr(LocalBackend, "step", recorded_step)
    return taken
