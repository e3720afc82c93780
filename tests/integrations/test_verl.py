"""verl's agent loop, against a server that answers from a script."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("verl")

import torch
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.trainer.ppo.core_algos import get_adv_estimator_fn
from verl.workers.rollout.replica import TokenOutput

from marl_gem import registry
from marl_gem.errors import MarlGemError
from marl_gem.integrations import Start, per_agent_advantages
from marl_gem.integrations.verl import SeatAgentLoop
from marl_gem.trainers.tiny import tiny_tokenizer
from tests.toys import NumberGame

pytestmark = pytest.mark.slow
TOKENIZER: Any = tiny_tokenizer(["1", "2", "3", "You are a.", "You are b.", "step 0", "step 1"] * 2)


class FakeServer:
    """Answers "2" to the agent a and "3" to b, and keeps the ids of the requests."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> TokenOutput:
        self.ids.append(request_id)
        text = "2" if "You are a." in TOKENIZER.decode(prompt_ids) else "3"
        ids = [*TOKENIZER.encode(text), TOKENIZER.eos_token_id]
        return TokenOutput(token_ids=ids, log_probs=[-0.5] * len(ids))


@pytest.fixture(autouse=True)
def numbers() -> None:
    registry.register("toy:Numbers-v0", NumberGame)


def loop(server: FakeServer, **options: Any) -> SeatAgentLoop:
    rollout = SimpleNamespace(response_length=1000, prompt_length=1000)
    config = SimpleNamespace(actor_rollout_ref=SimpleNamespace(rollout=rollout))
    return SeatAgentLoop(
        DictConfigWrap(config),
        server,
        TOKENIZER,
        None,
        dataset_cls=None,
        data_config=DictConfigWrap({}),
        scenario="toy:Numbers-v0",
        **options,
    )


def test_a_row_is_an_episode_and_gives_the_trained_seat() -> None:
    async def play() -> list[Any]:
        server = FakeServer()
        both = loop(server)
        outputs = [await both.run({}, start=Start(1).to_text(), seat=seat) for seat in ("a", "b")]
        assert len(server.ids) == 8 and len(set(server.ids)) == 4
        return [*outputs, await loop(server, others={"b": "random"}).run({}, start="1")]

    a, b, alone = asyncio.run(play())
    assert (a.reward_score, b.reward_score, alone.reward_score) == (4.0, 6.0, 4.0)
    for output in (a, b, alone):
        assert len(output.response_ids) == len(output.response_mask) == len(output.response_logprobs)
        assert output.num_turns == 4 and 0 in output.response_mask
        sampled = [i for i, mask in zip(output.response_ids, output.response_mask, strict=True) if mask]
        assert sampled.count(TOKENIZER.eos_token_id) == 2


def test_the_estimator_normalizes_over_the_batch() -> None:
    rewards = torch.tensor([[0.0, 1.0], [0.0, 4.0], [2.0, 0.0]])
    mask = torch.tensor([[1, 1], [0, 1], [1, 0]])
    advantages, _ = get_adv_estimator_fn("marl_gem_rebn")(token_level_rewards=rewards, response_mask=mask, config=None)
    expected = torch.tensor(per_agent_advantages([1.0, 4.0, 2.0], ["x"] * 3))
    assert torch.allclose(advantages, expected[:, None] * mask)


def test_a_failed_episode_raises() -> None:
    class Broken(FakeServer):
        async def generate(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError("the server has died")

    with pytest.raises(MarlGemError, match="the server has died"):
        asyncio.run(loop(Broken()).run({}, start="1"))
