"""From a policy's text to a policy: models of servers and in this process, their values, trained runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import marl_gem
from marl_gem import registry
from marl_gem.errors import (
    CheckpointError,
    ConfigError,
    MarlGemError,
    RecordError,
    ServerUnreachable,
    TransientLLMError,
)
from marl_gem.llm import Sampling
from marl_gem.llm.cache import ResponseCache
from marl_gem.llm.models import Connection, Models
from marl_gem.policies import HumanPolicy, LLMPolicy, RandomPolicy
from marl_gem.rollout import Job, collect
from marl_gem.specs import PolicySpec, load_policies, training_options
from marl_gem.specs.loading import MAX_TOKENS
from marl_gem.types import Role

pytest.importorskip("aiohttp")

from marl_gem.llm.http import Timeouts
from tests.event_loop import async_test
from tests.fake_server import FakeServer, hang, say, serving, status
from tests.policy_texts import KEY, KUHN, URL, answer, load
from tests.toys import always


def test_policies_without_a_model() -> None:
    assert isinstance(load("random"), RandomPolicy)
    person = HumanPolicy(lambda text: None, lambda prompt: "")
    assert load("human", human=lambda: person) is person


def test_agents_with_equal_specs_share_one_policy() -> None:
    spec = PolicySpec.parse(f"tiny@{URL},temperature=0")
    seating = load_policies({"a": spec, "b": PolicySpec("random"), "c": PolicySpec.parse(str(spec))}, KUHN)
    assert list(seating) == ["a", "b", "c"] and seating["a"] is seating["c"]


# Models of a server


@async_test
async def test_values_reach_the_server() -> None:
    text = "tiny@{},temperature=0.5,top_p=0.9,max_tokens=5"
    async with FakeServer() as server:
        policy = load(text.format(server.url))
        await answer(policy)
        await answer(load(f"tiny@{server.url}"))
    first, plain = (call.body for call in server.calls)
    assert [first[name] for name in ("model", "temperature", "top_p", "max_tokens")] == ["tiny", 0.5, 0.9, 5]
    assert [plain[name] for name in ("temperature", "top_p", "max_tokens")] == [1.0, 1.0, MAX_TOKENS]
    assert policy.name == "tiny" and isinstance(policy, LLMPolicy)


@async_test
async def test_a_name_may_hold_almost_anything() -> None:
    for name in ("Qwen/Qwen3-1.7B", "claude@20250101", "a,b", "hf", "random", "litellm", "модель"):
        async with FakeServer(models=[name]) as server:
            await answer(load(f"{name}@{server.url},temperature=0"))
        assert (server.calls[0].body["model"], server.calls[0].body["temperature"]) == (name, 0)


@async_test
async def test_a_view_by_its_name() -> None:
    async with FakeServer() as server:
        for view in ("bare", "window:1", "chat"):
            agent = load(f"tiny@{server.url},view={view}").agent("player_0", Role("You play."), 7)
            await agent.act("one", {})
            await agent.act("two", {})
    shown = [[message["content"] for message in call.body["messages"]] for call in server.calls[1::2]]
    assert shown == [["two"], ["You play.", "two"], ["You play.", "one", "ok", "two"]]


@async_test
async def test_an_adapter_a_key_and_a_price(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    async with FakeServer() as server:
        server.adapters["won"] = "somewhere"
        policy = load(f"tiny@{server.url},adapter=won,api_key_env=MY_KEY,price=0.5/2")
        response = await answer(policy)
        free = await answer(load(f"tiny@{server.url}"))
    assert server.calls[0].body["model"] == "won" and policy.name == "tiny+won"
    assert server.calls[0].headers["Authorization"] == f"Bearer {KEY}"
    assert response.cost == pytest.approx((7 * 0.5 + 2 * 2) / 1e6)
    assert free.cost is None, "an unknown price is not 0"


@async_test
async def test_log_probabilities_that_the_server_has_processed() -> None:
    async with FakeServer() as server:
        responses = [
            await answer(load(f"tiny@{server.url},temperature=0.5{more}"))
            for more in ("", ",logprobs=processed", ",logprobs=off")
        ]
    assert [bool(response.logprobs) for response in responses] == [False, True, False]
    assert [bool(response.token_ids) for response in responses] == [True, True, False]


@async_test
async def test_time_outs_and_the_wait_for_a_server_are_set_by_the_text() -> None:
    models = Models()
    async with FakeServer(hang, *[status(502)] * 3) as server:
        slow = load(f"tiny@{server.url},read_timeout=0.2,connect_timeout=5,wait=0", models=models)
        slow.llm.attempts = 1
        with pytest.raises(TransientLLMError, match=r"sent nothing for 0.2 s \(read_timeout\)"):
            await answer(slow)
        with pytest.raises(TransientLLMError, match="gave up after 1 attempts"):
            await answer(slow)
        waiting = load(f"tiny@{server.url}", models=models)
        assert (await answer(waiting)).retries == 2, "by default an unreachable server is waited for"
    assert waiting.llm.breaker is not slow.llm.breaker and waiting.llm.patience == 60
    long = load(f"tiny@{server.url},read_timeout=2000").llm.llm
    assert long.timeouts == Timeouts(10, 2000, 2010), "the time for a call is never less than for its answer"


@async_test
async def test_a_server_is_asked_for_its_only_model_also_within_an_event_loop() -> None:
    async with FakeServer(models=["the/only-one"]) as server:
        policy = await asyncio.to_thread(load, f"@{server.url}")
        assert policy.name == "the/only-one"
        await answer(policy)
        assert server.calls[0].body["model"] == "the/only-one"
        server.models.append("another")
        with pytest.raises(ConfigError, match=r"has 2 models; name one of them, as in the/only-one@http"):
            await asyncio.to_thread(load, f"@{server.url}")
        server.models.clear()
        with pytest.raises(ConfigError, match="has no model"):
            await asyncio.to_thread(load, f"@{server.url}")
    with pytest.raises(ServerUnreachable, match="Is the server running"):
        await asyncio.to_thread(load, f"@{server.url}")


def test_a_server_is_asked_for_its_only_model_from_a_running_loop() -> None:
    async def ask(url: str) -> Any:
        return load(f"@{url}")

    with serving() as url:
        assert asyncio.run(ask(url)).name == "tiny"


@async_test
async def test_who_names_the_same_model_shares_it() -> None:
    models = Models()
    async with FakeServer(status(502), say("better"), say("still")) as server:
        cold, warm = (load(f"tiny@{server.url},temperature={t}", models=models) for t in (0, 1))
        assert cold.llm is warm.llm
        assert (await answer(cold)).retries == 1, "what may go well when asked again is asked again"
        assert (await answer(warm)).text == "still"
    assert models.get(f"tiny@{server.url}") is cold.llm
    assert models.get(f"tiny@{server.url}", Connection(adapter="x")) is not cold.llm
    assert models.get(f"other@{server.url}").breaker is cold.llm.breaker, "they share what they know of the server"  # type: ignore[attr-defined]
    assert Models().get(f"tiny@{server.url}") is not cold.llm


@async_test
async def test_a_cache_for_all_models(tmp_path: Path) -> None:
    async with FakeServer(models=["tiny", "other"]) as server:
        for round in range(2):
            models = Models(tmp_path / "answers.sqlite")
            for name in ("tiny", "other"):
                response = await answer(load(f"{name}@{server.url}", models=models))
                assert response.cached == bool(round)
                assert not (await answer(load(f"{name}@{server.url}", models=models), seed=8 + round)).cached
    assert len(server.calls) == 6
    with pytest.raises(RecordError, match="cannot be used"):
        Models(tmp_path)
    shared = ResponseCache(tmp_path / "answers.sqlite")
    assert (await answer(load(f"tiny@{server.url}", models=Models(shared)))).cached, "the server is gone"


def test_a_game_between_two_models_of_a_server() -> None:
    with serving("--text", "[check]") as url:
        texts = {"player_0": f"tiny@{url}", "player_1": f"@{url},temperature=0"}
        seating = load_policies({agent: PolicySpec.parse(text) for agent, text in texts.items()}, KUHN)
        episodes = collect(lambda: marl_gem.make(KUHN), [Job(seed, seating) for seed in range(20)])
    assert all(episode.ending == "terminated" and not episode.error for episode in episodes)
    assert {tuple(episode.models.values()) for episode in episodes} == {("tiny", "tiny")}


@async_test
async def test_earlier_reasoning_is_kept_where_that_is_asked_for() -> None:
    shown = []
    for more in ("", ",reasoning=drop", ",reasoning=keep"):
        async with FakeServer(say("[check]", reasoning_content="I hold the queen.")) as server:
            agent = load(f"tiny@{server.url}{more}").agent("player_0", Role("You play."), 7)
            assert (await agent.act("one", {})).reasoning == "I hold the queen."
            await agent.act("two", {})
            shown.append("queen" in str(server.calls[1].body["messages"]))
    assert shown == [False, False, True]


# A model in this process


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model as transformers saves one."""
    tiny = pytest.importorskip("marl_gem.trainers.tiny")
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tokenizer = tiny.tiny_tokenizer(["Check or bet? [pass] [bet]"] * 3, 300)
    tiny.tiny_model(tokenizer, width=16, layers=1, heads=2, context=64).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_a_folder_of_transformers(folder: Path, tmp_path: Path) -> None:
    models = Models(tmp_path / "answers.sqlite")
    one, other = (load(f"hf:{folder},max_tokens={n},temperature=0", models=models) for n in (3, 5))
    assert one.llm is other.llm and one.sampling == Sampling(3, 0.0)
    first, again = asyncio.run(answer(one)), asyncio.run(answer(one))
    assert 1 <= len(first.token_ids) <= 3
    assert not again.cached and again.token_ids == first.token_ids, "there is no server to spare"


def test_a_folder_that_holds_no_model_is_told(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with pytest.raises(MarlGemError, match=str(tmp_path)):
        load(f"hf:{tmp_path}")


def test_a_training_run(tmp_path: Path, restored_registry: None) -> None:
    pytest.importorskip("torch")
    from marl_gem.trainers.config import parse
    from marl_gem.trainers.run import TrainingRun

    config = {
        "scenario": KUHN,
        "options": {"max_steps": 9},
        "policy": {"width": 16, "layers": 1, "heads": 2, "context": 128},
        "imitation": {"episodes": 20, "steps": 2, "batch": 8},
        "training": {"updates": 1, "episodes": 4, "save_every": 1},
        "evaluation": {"final_episodes": 2, "probe_episodes": 2},
    }
    run = tmp_path / "run"
    for _ in TrainingRun.start(run, parse(config, "test")).work():
        pass
    registry.register_strategy(KUHN, "player_0", "named", lambda policy, mark: always("", policy.name + mark), mark="!")
    models = Models()
    trained = load(str(run), models=models)
    cold = load(f"{run},temperature=0,max_tokens=2", models=models)
    assert trained.llm is cold.llm, "it is loaded once"
    assert cold.sampling == Sampling(2, 0.0, trained.sampling.top_p) and trained.sampling != cold.sampling
    assert asyncio.run(answer(cold)).text == asyncio.run(answer(cold, seed=8)).text
    assert load(f"{run},strategy=named", models=models, agents=["player_0"]).name == f"{trained.name}!"
    with pytest.raises(ConfigError, match="takes no 'view'; it takes temperature, top_p, max_tokens"):
        load(f"{run},view=bare")
    policies = [PolicySpec.parse(text) for text in (f"{run},temperature=0", "random", f"tiny@{URL}")]
    assert training_options(policies, KUHN) == {"max_steps": 9}
    assert training_options(policies, "game:TicTacToe-v0") == {}, "another scenario has other options"
    assert load(f"{run}@1", models=models).llm.version == 1
    with pytest.raises(CheckpointError, match=f"there is no checkpoint {run}@7; there is {run}@0, {run}@1$"):
        load(f"{run}@7")
