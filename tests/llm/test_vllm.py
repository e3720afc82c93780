"""A real vLLM server on this machine's processors, and a tiny model that is made on the spot: `make test-vllm`.

The server runs in a virtual environment of its own. MARL_GEM_VLLM_PYTHON is the path of that environment's Python;
where it is not set these tests are skipped.
"""

from __future__ import annotations

import os

import pytest

if not os.environ.get("MARL_GEM_VLLM_PYTHON"):
    pytest.skip("MARL_GEM_VLLM_PYTHON names no Python that has vLLM; see `make test-vllm`", allow_module_level=True)

import asyncio
import copy
import json
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import marl_gem
from marl_gem import Response, ToolSpec
from marl_gem.errors import ContextTooLong, LLMError, ServerUnreachable, TransientLLMError
from marl_gem.llm import Sampling
from marl_gem.llm.http import HTTPModel, Timeouts
from marl_gem.llm.retry import Backoff, Retrying
from marl_gem.policies import LLMPolicy
from marl_gem.rollout import Job, collect, stream
from marl_gem.trainers.tiny import tiny_tokenizer
from marl_gem.types import Episode, Message, Turn
from marl_gem.views import chat

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

GAME = "game:TicTacToe-v0"
MOVES = [f"[{square}]" for square in "123456789"]
CONTEXT = 1024
TOLERANCE = 1e-4
"""Nats by which a token's log-probability may differ between vLLM and transformers, in float32; 5e-6 was seen."""


def tiny_llama(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """A Llama with random weights that prefers the nine moves and the end to all other tokens.

    Without that preference every game would be over with its first answer. It comes from one feature that is the
    same for all tokens, and that no layer changes.
    """
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,  # of 32 features each, the fewest that vLLM takes
        num_key_value_heads=1,
        max_position_embeddings=CONTEXT,
        initializer_range=0.2,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        model = LlamaForCausalLM(config).eval()
        model.model.embed_tokens.weight[:, 0] = 4.0
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight[0] = 0.0
            layer.mlp.down_proj.weight[0] = 0.0
        model.lm_head.weight[:, 0] = 0.0
        model.lm_head.weight[[*tokenizer.convert_tokens_to_ids(MOVES), tokenizer.eos_token_id], 0] = 10.0
    return model


TOKENIZER = tiny_tokenizer(MOVES * 2)
MODEL = tiny_llama(TOKENIZER)


class Server:
    """vLLM, serving that model as "tiny" from processes of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._log = folder, folder / "log"
        MODEL.save_pretrained(folder / "tiny")
        TOKENIZER.save_pretrained(folder / "tiny")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    def start(self) -> None:
        """Start it; half a minute later it is there."""
        options = ["--host", "127.0.0.1", "--port", str(self._port), "--model", "tiny", "--dtype", "float32"]
        options += ["--max-model-len", str(CONTEXT), "--enforce-eager", "--logprobs-mode", "processed_logprobs"]
        options += ["--no-enable-chunked-prefill"]  # else vLLM 0.32 dies of a long prompt with a seed, without a GPU
        # More places for adapters than are ever taken: without a GPU vLLM 0.32 applies the one in the last place to the
        # base model (https://github.com/vllm-project/vllm/pull/48421).
        options += ["--enable-lora", "--max-loras", "32", "--max-lora-rank", "8"]
        settings = {
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
            "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
            "TORCHDYNAMO_DISABLE": "1",  # else the first request for log-probabilities compiles for 20 s
            "TMPDIR": str(self._folder),  # where it leaves sockets when it is killed
        }
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [os.environ["MARL_GEM_VLLM_PYTHON"], "-m", "vllm.entrypoints.openai.api_server", *options],
                cwd=self._folder,
                env=os.environ | settings,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    async def wait(self) -> None:
        """Wait until it is well."""
        model = HTTPModel(self.url)
        async with asyncio.timeout(300):
            while self._process.poll() is None:
                with suppress(TransientLLMError):
                    return await model.health()
                await asyncio.sleep(0.2)
        pytest.fail("vLLM does not start:\n" + "\n".join(self._log.read_text().splitlines()[-50:]))

    def kill(self) -> None:
        """End it without notice, and then all that it has started."""
        self._process.kill()
        self._process.wait()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)  # not yet SIGKILL: one of them sees to its shared memory
            for _ in range(100):
                os.killpg(self._process.pid, 0)
                time.sleep(0.1)
            os.killpg(self._process.pid, signal.SIGKILL)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Passes of so small a model only wait for more threads, which the server keeps busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("vllm"))
    server.start()
    try:
        asyncio.run(server.wait())
        yield server
    finally:
        server.kill()


def connect(server: Server, adapter: str | None = None, **settings: Any) -> HTTPModel:
    return HTTPModel(server.url, "tiny", adapter=adapter, timeouts=Timeouts(total=60), **settings)


@pytest.fixture
def model(server: Server) -> HTTPModel:
    return connect(server)


@pytest.fixture(autouse=True)
def unloaded(server: Server) -> Iterator[None]:
    """No test finds the adapters that another one has left behind."""
    yield

    async def unload_all() -> None:
        model = connect(server)
        for name in await model.models(adapters=True):
            if name != "tiny":
                await model.unload_adapter(name)

    with suppress(ServerUnreachable):  # of a test that has killed it
        asyncio.run(unload_all())


def user(text: str) -> list[Message]:
    return [{"role": "user", "content": text}]


def ask(model: HTTPModel, messages: Any = None, seed: int = 0, **sampling: Any) -> Response:
    return asyncio.run(model.complete(messages or user("1 2 3"), Sampling(**{"max_tokens": 8, **sampling}), seed))


def encode(messages: list[Message]) -> tuple[int, ...]:
    return tuple(TOKENIZER.apply_chat_template(messages, add_generation_prompt=True, return_dict=False))


def logits_of(response: Response, model: LlamaForCausalLM) -> torch.Tensor:
    """The logits before each token of an answer, as a pass of transformers over all of it gives them."""
    with torch.no_grad():
        logits: torch.Tensor = model(input_ids=torch.tensor([response.prompt_ids + response.token_ids])).logits
    return logits[0, len(response.prompt_ids) - 1 : -1]


def is_from(response: Response, model: LlamaForCausalLM) -> bool:
    """Whether the log-probabilities of an answer are those that this model gives its tokens."""
    tokens = torch.tensor(response.token_ids).unsqueeze(1)
    logprobs = torch.log_softmax(logits_of(response, model).double(), -1).gather(1, tokens).squeeze(1)
    return response.logprobs == pytest.approx(logprobs.tolist(), abs=TOLERANCE)


def play(jobs: list[Job]) -> list[Episode]:
    return collect(lambda: marl_gem.make(GAME), jobs, concurrency=16)


def policy(model: HTTPModel) -> LLMPolicy:
    return LLMPolicy(Retrying(model, backoff=Backoff(cap=1.0)), chat, Sampling(max_tokens=4))


# Both seats


@pytest.fixture(scope="module")
def games(server: Server) -> list[Episode]:
    """Played by one policy in both seats."""
    return play([Job(seed, policy(HTTPModel(server.url))) for seed in range(48)])


def turns_of(games: list[Episode]) -> list[Turn]:
    return [turn for game in games for turn in game.turns]


def test_the_model_plays_both_seats(games: list[Episode]) -> None:
    assert [(game.ending, game.error) for game in games] == [("terminated", None)] * len(games)
    assert {tuple(game.models.values()) for game in games} <= {("tiny",), ("tiny", "tiny")}
    assert sum(set(game.returns.values()) == {1.0, -1.0} for game in games) > len(games) // 2
    assert max(len(game.turns) for game in games) >= 5
    assert len({turn.response.text for turn in turns_of(games)}) > 20
    assert {turn.response.finish_reason for turn in turns_of(games)} == {"stop", "length"}


def test_every_turn_keeps_its_tokens(games: list[Episode]) -> None:
    for turn in turns_of(games):
        response = turn.response
        text = TOKENIZER.decode(response.token_ids, skip_special_tokens=True)
        assert response.text == text.rstrip("\ufffd")  # it leaves out a last letter that is not whole
        assert len(response.logprobs) == len(response.token_ids) == response.usage["completion_tokens"]
        assert len(response.prompt_ids) == response.usage["prompt_tokens"]
        assert (response.token_ids[-1] == TOKENIZER.eos_token_id) == (response.finish_reason == "stop")


def test_a_prompt_is_the_chat_template_s(games: list[Episode]) -> None:
    env = marl_gem.make(GAME)
    for game, agent in product(games, env.possible_agents):
        messages: list[Message] = [{"role": "system", "content": env.role(agent).instructions}]
        for turn in game.turns_of(agent):
            messages.append({"role": "user", "content": turn.observation})
            assert turn.response.prompt_ids == encode(messages)
            messages.append({"role": "assistant", "content": turn.response.text})


def test_logprobs_are_those_of_transformers(games: list[Episode]) -> None:
    """Of whole games, whose answers were sampled in batches of all sizes, from prompts read in part from a cache."""
    turns = turns_of(games)
    assert sum(len(turn.response.token_ids) for turn in turns) > 200
    assert all(is_from(turn.response, MODEL) for turn in turns)


# One call


def test_the_same_seed_gives_the_same_answer_and_others_others(model: HTTPModel) -> None:
    answers = [ask(model, seed=seed).token_ids for seed in [*range(20), *range(20)]]
    assert answers[:20] == answers[20:]
    assert len(set(answers)) > 10


def test_temperature_0_is_the_most_likely(server: Server) -> None:
    response = ask(connect(server, logprobs="processed"), temperature=0)
    assert response.token_ids == tuple(logits_of(response, MODEL).argmax(-1).tolist())
    assert response.logprobs == ()  # the server tells those of temperature 1


@pytest.mark.parametrize("sampling", [{"temperature": 0.5}, {"temperature": 2.0}, {"top_p": 0.5}], ids=str)
def test_processed_logprobs_are_those_of_the_draw(server: Server, sampling: dict[str, float]) -> None:
    for seed in (0, 2, 4):
        response = ask(connect(server, logprobs="processed"), seed=seed, **sampling)
        logits = logits_of(response, MODEL).double() / sampling.get("temperature", 1.0)
        expected = []
        for token, probabilities in zip(response.token_ids, torch.softmax(logits, -1), strict=True):
            likely = probabilities.sort(descending=True).values
            kept = likely[likely.cumsum(0) - likely < sampling.get("top_p", 1.0)].sum()
            expected.append(float((probabilities[token] / kept).log()))
        assert response.logprobs == pytest.approx(expected, abs=TOLERANCE)
        assert ask(connect(server), seed=seed, **sampling).logprobs == ()  # taken for raw ones, which these are not


def test_an_answer_ends_before_a_stop_text(model: HTTPModel) -> None:
    answer = ask(model)
    first, second, third = (answer.text[start : start + 3] for start in (0, 3, 6))
    assert {first, second, third} <= set(MOVES) and second != third
    response = ask(model, stop=(third,))
    assert (response.text, response.finish_reason) == (first + second, "stop")
    assert response.token_ids == answer.token_ids[:3]  # with the stop text, as it was sampled


def test_odd_texts_reach_the_model(model: HTTPModel) -> None:
    for text in ("", "\x00", "🃏", "\ud800", "[" * 100, '{"a": '):
        response = ask(model, user(text))
        shown = text.replace("\ud800", "?")
        assert response.prompt_ids == encode(user(shown)), ascii(text)


def test_a_server_that_parses_no_tool_calls_takes_tools_all_the_same(model: HTTPModel) -> None:
    tools = (ToolSpec("look", "Look up an order.", {"type": "object", "properties": {"id": {"type": "string"}}}),)
    response = asyncio.run(model.complete(user("1 2 3"), Sampling(), 0, tools))
    assert response.prompt_ids == encode(user("1 2 3")) and response.token_ids


def test_too_long_a_prompt_is_told_apart(model: HTTPModel) -> None:
    with pytest.raises(ContextTooLong, match="Show less of the history"):
        ask(model, user("?" * 2 * CONTEXT))
    room = CONTEXT - len(encode(user("")))
    assert ask(model, user("?" * (room - 1))).usage == {"prompt_tokens": CONTEXT - 1, "completion_tokens": 1}
    with pytest.raises(ContextTooLong, match="Show less of the history"):
        ask(model, user("?" * room))


def test_an_unknown_model_is_told_with_those_that_are_served(server: Server) -> None:
    with pytest.raises(LLMError, match="We asked for 'large'; it serves 'tiny'"):
        ask(HTTPModel(server.url, "large"))


# Adapters


def write_adapter(folder: Path, seed: int) -> LlamaForCausalLM:
    """Write a LoRA adapter with random weights as peft does; returns the model with it merged in."""
    rank, alpha, targets = 4, 8, ("self_attn.q_proj", "self_attn.v_proj", "mlp.up_proj")
    generator, merged = torch.Generator().manual_seed(seed), copy.deepcopy(MODEL)
    tensors: dict[str, torch.Tensor] = {}
    for layer in range(MODEL.config.num_hidden_layers):
        for name in (f"model.layers.{layer}.{target}" for target in targets):
            linear = merged.get_submodule(name)
            a = torch.randn(rank, linear.in_features, generator=generator) / linear.in_features**0.5
            b = torch.randn(linear.out_features, rank, generator=generator)
            linear.weight.data += alpha / rank * b @ a
            tensors |= {f"base_model.model.{name}.lora_A.weight": a, f"base_model.model.{name}.lora_B.weight": b}
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "bias": "none"}
    config["target_modules"] = [target.rpartition(".")[2] for target in targets]
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return merged


LONG = user("1 2 3\n" * 60)
"""Long enough that the server keeps what it computed of it."""


def test_two_adapters_serve_two_policies(server: Server, tmp_path: Path) -> None:
    models = {name: connect(server, name) for name in ("ann", "bob")}
    merged = {name: write_adapter(tmp_path / name, seed) for seed, name in enumerate(models)}
    for name, model in models.items():
        asyncio.run(model.load_adapter(name, str(tmp_path / name)))
    seating = {"player_0": policy(models["ann"]), "player_1": policy(models["bob"])}
    games = play([Job(seed, seating) for seed in range(24)])
    assert {game.error for game in games} == {None}
    assert {game.models.get("player_1", "tiny+bob") for game in games} == {"tiny+bob"}
    for turn in turns_of(games):
        name = {"player_0": "ann", "player_1": "bob"}[turn.agent]
        assert is_from(turn.response, merged[name])
    first = games[0].turns[0].response
    assert not is_from(first, MODEL) and not is_from(first, merged["bob"])


def test_an_adapter_is_loaded_replaced_and_unloaded(server: Server, model: HTTPModel, tmp_path: Path) -> None:
    adapted = connect(server, "ann")
    old, new = (write_adapter(tmp_path / name, seed) for seed, name in enumerate(["old", "new"]))
    asyncio.run(model.load_adapter("ann", str(tmp_path / "old")))
    assert asyncio.run(model.models(adapters=True)) == ["tiny", "ann"]
    assert is_from(ask(adapted, LONG), old)
    with pytest.raises(LLMError, match="already been loaded"):
        asyncio.run(model.load_adapter("ann", str(tmp_path / "new")))
    assert is_from(ask(adapted, LONG), old)
    asyncio.run(model.load_adapter("ann", str(tmp_path / "new"), replace=True))
    shutil.rmtree(tmp_path / "new")
    assert is_from(ask(adapted, LONG), new)
    assert is_from(ask(model, LONG), MODEL)
    asyncio.run(model.unload_adapter("ann"))
    with pytest.raises(LLMError, match="We asked for 'ann'; it serves 'tiny'"):
        ask(adapted)
    with pytest.raises(LLMError, match="cannot be found"):
        asyncio.run(model.unload_adapter("ann"))
    with pytest.raises(LLMError, match=r"404: .*No adapter found.*Can it read .*nowhere\?"):
        asyncio.run(model.load_adapter("ann", str(tmp_path / "nowhere")))
    assert is_from(ask(model, LONG), MODEL)


def test_an_adapter_rewritten_in_its_folder_is_replaced_altogether(server: Server, tmp_path: Path) -> None:
    adapted = connect(server, "ann")
    for seed in range(3):
        merged = write_adapter(tmp_path / "ann", seed)
        asyncio.run(adapted.load_adapter("ann", str(tmp_path / "ann"), replace=True))
        assert is_from(ask(adapted, LONG), merged)


def test_an_adapter_may_be_replaced_while_it_answers(server: Server, tmp_path: Path) -> None:
    """Each answer is of the old or of the new one, not of both; those asked for afterwards are of the new one."""
    adapted = connect(server, "ann", extra_body={"ignore_eos": True})
    old, new = (write_adapter(tmp_path / name, seed) for seed, name in enumerate(["old", "new"]))

    async def ask_many(lengths: list[int]) -> list[asyncio.Task[Response]]:
        """Requests that are being answered: the first answer is there."""
        calls = (adapted.complete(LONG, Sampling(max_tokens=length), seed) for seed, length in enumerate(lengths))
        tasks = [asyncio.create_task(call) for call in calls]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return tasks

    async def replace() -> list[list[Response]]:
        await adapted.load_adapter("ann", str(tmp_path / "old"))
        before = await ask_many([64] * 16 + [1])
        await adapted.load_adapter("ann", str(tmp_path / "new"), replace=True)
        after = await ask_many([8] * 16)
        return [await asyncio.gather(*before), await asyncio.gather(*after)]

    before, after = asyncio.run(replace())
    assert all(is_from(response, old) or is_from(response, new) for response in before)
    assert any(is_from(response, old) for response in before)
    assert all(is_from(response, new) for response in after)
    with pytest.raises(LLMError, match="No adapter found"):
        asyncio.run(adapted.load_adapter("ann", str(tmp_path / "nowhere"), replace=True))
    assert is_from(ask(adapted, LONG), new)


# A server that dies


def test_a_server_killed_in_mid_run_costs_retries_and_no_episode(server: Server, tmp_path: Path) -> None:
    """Calls break, for half a minute nobody is there, then the adapter is gone: all games are what they would be."""
    models = {"player_0": MODEL, "player_1": write_adapter(tmp_path / "ann", 0)}
    tiny, ann = connect(server), connect(server, "ann")
    asyncio.run(ann.load_adapter("ann", str(tmp_path / "ann")))
    seating = {"player_0": policy(tiny), "player_1": policy(ann)}
    jobs = [Job(seed, seating, id=str(seed)) for seed in range(120)]

    async def broken() -> list[Episode]:
        games = []
        async for game in stream(lambda: marl_gem.make(GAME), jobs, concurrency=16):
            games.append(game)
            if len(games) == len(jobs) // 3:
                await asyncio.to_thread(server.kill)
                with pytest.raises(ServerUnreachable):
                    await tiny.health()
                server.start()
        return games

    unbroken, games = play(jobs), asyncio.run(broken())
    assert {game.error for game in [*unbroken, *games]} == {None}
    assert all(is_from(turn.response, models[turn.agent]) for turn in turns_of(games))
    assert sorted(game.id for game in games) == sorted(job.id for job in jobs)
    texts = [{game.id: [turn.response.text for turn in game.turns] for game in run} for run in (unbroken, games)]
    assert texts[0] == texts[1]
    retries = [sum(turn.response.retries for turn in turns_of(run)) for run in (unbroken, games)]
    assert retries[0] == 0 < retries[1]
