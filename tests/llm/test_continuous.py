"""Continuous batching: requests join between two tokens and leave when they end, with the answers of a static batch."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from marl_gem import Response  # noqa: E402
from marl_gem.errors import ConfigError, LLMError  # noqa: E402
from marl_gem.llm import Sampling, token_sampling  # noqa: E402
from marl_gem.llm.token_sampling import sample_tokens  # noqa: E402
from marl_gem.llm.transformers import TransformersLLM  # noqa: E402
from marl_gem.trainers.tiny import tiny_model, tiny_tokenizer  # noqa: E402
from marl_gem.types import Message  # noqa: E402

TOKENIZER = tiny_tokenizer(["Your card: K. Moves so far: nothing.", "a b c d e f g h i"] * 3, vocabulary=300)


def tiny(batching: Any = "continuous", **options: Any) -> TransformersLLM:
    model = tiny_model(TOKENIZER, width=32, context=128, seed=3)
    return TransformersLLM(model, TOKENIZER, name="tiny", batching=batching, **options)


def user(text: str) -> list[Message]:
    return [{"role": "user", "content": text}]


async def later(llm: TransformersLLM, text: str, seed: int, tokens: int, steps: int) -> Response:
    """An answer that is asked for after some iterations of the event loop."""
    for _ in range(steps):
        await asyncio.sleep(0)
    return await llm.complete(user(text), Sampling(tokens), seed)


REQUESTS = [("a" * (1 + index % 5), index, (1, 30, 7, 2)[index % 4], 3 * index) for index in range(12)]
"""Text, seed, the greatest number of tokens, and when it is asked for."""


def answers(llm: TransformersLLM, requests: list[tuple[str, int, int, int]] = REQUESTS) -> list[Response]:
    async def ask() -> list[Response]:
        return await asyncio.gather(*(later(llm, *request) for request in requests))

    return asyncio.run(ask())


def passes(llm: TransformersLLM) -> list[tuple[int, int]]:
    """Fills with rows and tokens of every forward pass."""
    shapes: list[tuple[int, int]] = []
    llm.model.register_forward_pre_hook(
        lambda module, args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    return shapes


class TestAnswers:
    @pytest.mark.parametrize("max_batch", [1024, 3])
    def test_they_are_those_of_each_request_alone(self, max_batch: int) -> None:
        together = answers(tiny(max_batch=max_batch))
        for request, response in zip(REQUESTS, together, strict=True):
            (alone,) = answers(tiny("static"), [request])
            assert response.token_ids == alone.token_ids and response.prompt_ids == alone.prompt_ids
            assert response.finish_reason == alone.finish_reason and response.text == alone.text
            assert response.logprobs == pytest.approx(alone.logprobs, abs=1e-4)

    def test_log_probabilities_are_those_of_a_plain_forward_pass(self) -> None:
        llm = tiny()
        for response in answers(llm):
            assert llm.logprob(response.prompt_ids, response.token_ids) == pytest.approx(
                sum(response.logprobs), abs=1e-4
            )

    def test_a_run_is_the_same_every_time(self) -> None:
        assert answers(tiny()) == answers(tiny())

    def test_a_text_that_ends_the_answer(self) -> None:
        (free,) = answers(tiny(), [("a", 1, 30, 0)])
        end = free.text[len(free.text) // 2]

        async def ask() -> Response:
            return await tiny().complete(user("a"), Sampling(30, stop=(end,)), 1)

        assert asyncio.run(ask()).text == free.text[: free.text.index(end)]


class TestSchedule:
    def test_short_answers_do_not_wait_for_long_ones(self) -> None:
        llm, order = tiny(), []

        async def ask(name: str, tokens: int, steps: int) -> None:
            await later(llm, "a", 0, tokens, steps)
            order.append(name)

        async def all_of_them() -> None:
            await asyncio.gather(ask("long", 60, 0), ask("short", 2, 0), ask("late", 2, 20))

        llm.template.ends = frozenset()
        asyncio.run(all_of_them())
        assert order == ["short", "late", "long"]

    def test_there_is_a_step_for_each_token_of_the_longest(self) -> None:
        """12 answers join and leave; the prompts are read beside the steps, and no step has more rows than needed."""
        llm = tiny()
        llm.template.ends = frozenset()
        shapes = passes(llm)
        answers(llm, [("a", seed, tokens, 0) for seed, tokens in enumerate((40, 5, 5, 20))])
        prompt, *steps = shapes
        assert prompt[0] == 1  # equal prompts are read once
        assert [rows for rows, _ in steps] == [4] * 4 + [2] * 15 + [1] * 20 and {tokens for _, tokens in steps} == {1}

    def test_other_tasks_run_between_two_tokens(self) -> None:
        llm, ticks = tiny(), 0
        llm.template.ends = frozenset()

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0)
                ticks += 1

        async def both() -> None:
            ticking = asyncio.create_task(tick())
            await llm.complete(user("a"), Sampling(40), 0)
            ticking.cancel()

        asyncio.run(both())
        assert ticks >= 40

    def test_who_has_gone_makes_room(self) -> None:
        llm = tiny(max_batch=1)
        llm.template.ends = frozenset()

        async def one_leaves() -> Response:
            gone = asyncio.create_task(llm.complete(user("a"), Sampling(50), 0))
            stays = asyncio.create_task(llm.complete(user("b"), Sampling(3), 0))
            for _ in range(10):
                await asyncio.sleep(0)
            gone.cancel()
            return await stays

        shapes = passes(llm)
        assert asyncio.run(one_leaves()).prompt_ids == llm.encode(user("b"))
        assert len(shapes) < 20

    def test_the_others_go_on_when_someone_has_gone(self) -> None:
        llm = tiny()
        llm.template.ends = frozenset()

        async def first_leaves() -> list[Response]:
            tasks = [asyncio.create_task(later(llm, "a" * (5 - n), n, 20, 0)) for n in range(4)]
            for _ in range(10):
                await asyncio.sleep(0)
            tasks[0].cancel()
            return await asyncio.gather(*tasks[1:])

        for seed, response in enumerate(asyncio.run(first_leaves()), 1):
            (alone,) = answers(llm, [("a" * (5 - seed), seed, 20, 0)])
            assert response.token_ids == alone.token_ids

    def test_an_interrupted_event_loop_leaves_nothing_behind(self) -> None:
        for batching in ("continuous", "static"):
            llm = tiny(batching)

            async def interrupted(llm: TransformersLLM = llm) -> None:
                asyncio.get_running_loop().call_soon(asyncio.get_running_loop().stop)
                await llm.complete(user("a"), Sampling(50), 0)

            loop = asyncio.new_event_loop()
            task = loop.create_task(interrupted())
            loop.run_forever()
            task.cancel()
            loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
            loop.close()
            assert len(answers(llm, [("b", 0, 3, 0)])) == 1

    def test_a_failure_reaches_all_and_the_next_requests_are_answered(self, monkeypatch: pytest.MonkeyPatch) -> None:
        llm = tiny()
        forward = llm.model.forward

        def failing(*arguments: Any, **options: Any) -> Any:
            if options.get("past_key_values") is not None:
                raise RuntimeError("out of memory")
            return forward(*arguments, **options)

        monkeypatch.setattr(llm.model, "forward", failing)
        for _ in range(2):
            with pytest.raises(LLMError, match="failed on a batch of 2: out of memory"):
                asyncio.run(_both(llm))
        monkeypatch.undo()
        assert len(answers(llm)) == len(REQUESTS)

    def test_the_default_on_a_cpu_is_static(self) -> None:
        llm = tiny("auto")
        shapes = passes(llm)
        llm.template.ends = frozenset()
        answers(llm, [("a", 0, 9, 0), ("a", 1, 3, 4)])
        assert [rows for rows, _ in shapes] == [1] * 12  # one after the other

    def test_a_cache_with_a_sliding_window_is_refused(self) -> None:
        from transformers import Gemma3ForCausalLM, Gemma3TextConfig

        config = Gemma3TextConfig(
            vocab_size=64, hidden_size=8, intermediate_size=8, num_hidden_layers=2, num_attention_heads=1,
            num_key_value_heads=1, head_dim=8, sliding_window=4, layer_types=["sliding_attention", "full_attention"],
        )  # fmt: skip
        model = Gemma3ForCausalLM(config)
        with pytest.raises(ConfigError, match=r"policy\.batching: the cache of Gemma3ForCausalLM .* choose static"):
            TransformersLLM(model, TOKENIZER, batching="continuous")


async def _both(llm: TransformersLLM) -> None:
    await asyncio.gather(*(llm.complete(user("a"), Sampling(9), seed) for seed in range(2)))


class TestLargeVocabularies:
    """Probabilities in float32: the same tokens as in float64 but for draws next to a boundary."""

    def both(self, monkeypatch: pytest.MonkeyPatch, draws: list[float], **sampling: Any) -> list[Any]:
        torch.manual_seed(0)
        logits = torch.randn(len(draws), 5000) * 3
        found = []
        for limit in (5000, 4999):
            monkeypatch.setattr(token_sampling, "EXACT_VOCABULARY", limit)
            found.append(sample_tokens(logits, [Sampling(1, **sampling)] * len(draws), draws))
        return found

    @pytest.mark.parametrize("sampling", [{}, {"temperature": 0.5}, {"top_p": 0.9}, {"temperature": 0.0}])
    def test_tokens_and_log_probabilities_agree(
        self, monkeypatch: pytest.MonkeyPatch, sampling: dict[str, Any]
    ) -> None:
        (tokens, logprobs), (others, rounded) = self.both(
            monkeypatch, [index / 300 for index in range(300)], **sampling
        )
        same = [a == b for a, b in zip(tokens, others, strict=True)]
        assert sum(same) >= 299
        assert [b for b, ok in zip(rounded, same, strict=True) if ok] == pytest.approx(
            [a for a, ok in zip(logprobs, same, strict=True) if ok],
            abs=1e-3 if "top_p" in sampling else 1e-5,  # the last token of a nucleus may be another
        )

    def test_the_greatest_draw_takes_a_token_that_can_be_sampled(self, monkeypatch: pytest.MonkeyPatch) -> None:
        draw = 1 - 2**-53  # rounds to 1 in float32
        for _, logprobs in self.both(monkeypatch, [draw] * 50, top_p=0.5):
            assert min(logprobs) > -20
