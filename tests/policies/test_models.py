"""Who sits in a seat, by a string: models of every kind, their values, scripted policies, replayed runs."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import marl_gem
from marl_gem import MultiAgentEnv, SequentialSelector, registry
from marl_gem.errors import (
    AgentError,
    ConfigError,
    MarlGemError,
    RecordError,
    RegistryError,
    ServerUnreachable,
)
from marl_gem.llm import Sampling
from marl_gem.llm.cache import ResponseCache
from marl_gem.llm.models import Connection, Models
from marl_gem.policies import HumanPolicy, LLMPolicy, Policy, RandomPolicy, ScriptedPolicy
from marl_gem.policies.replay import ReplayPolicy
from marl_gem.rollout import Job, collect
from marl_gem.seats import MAX_TOKENS, options_of, parse_seats, policy
from marl_gem.types import Episode, Observation, Role, to_json

pytest.importorskip("aiohttp")

from tests.fake_server import FakeServer, say, serving, status

KUHN = "game:KuhnPoker-v0"
URL = "http://127.0.0.1:9/v1"
KEY = "sk-canary-0123456789abcdef"


def on_a_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async test, which must end in time."""

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(30):
                await test(*arguments, **named)

        asyncio.run(bounded())

    return run


def seat(text: str, **given: Any) -> Any:
    return policy(text, KUHN, **given)


async def said(policy: Policy, text: Observation = "Check or bet?", seed: int = 7) -> Any:
    """What a policy answers to one observation."""
    return await policy.agent("player_0", Role("You play poker."), seed).act(text, {})


class Talk(MultiAgentEnv):
    """Two agents say anything, three times each; what one says the other hears."""

    possible_agents = ("a", "b")
    selector = SequentialSelector()

    def _reset(self, options: Mapping[str, Any]) -> None:
        self.heard = f"hello {self.rng.randrange(10**6)}"
        self.said = 0

    def observe(self, agent: str) -> Observation:
        return self.heard

    def _process_actions(self, actions: dict[str, str]) -> None:
        (self.heard,) = actions.values()
        self.said += 1
        self.rewards = dict.fromkeys(actions, 1.0)
        if self.said == 6:
            self.terminations = dict.fromkeys(self.agents, True)


# Who


def test_who_needs_no_model() -> None:
    assert isinstance(seat("random"), RandomPolicy)
    person = HumanPolicy(lambda text: None, lambda prompt: "")
    assert seat("human", human=lambda: person) is person


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("randm", "Did you mean random?"),
        ("Human", "Did you mean human?"),
        ("litelm:openai/gpt-4o", "Did you mean litellm:openai/gpt-4o?"),
        ("lite-llm:openai/gpt-4o", "Did you mean litellm:openai/gpt-4o?"),
        ("script:oracle", "Did you mean scripted:oracle?"),
        ("reply:runs/x", "Did you mean replay:runs/x?"),
        ("openai/gpt-4o-mini", "Did you mean litellm:openai/gpt-4o-mini or openai/gpt-4o-mini@URL?"),
        ("tiny@127.0.0.1:8000/v1", "Did you mean tiny@http://127.0.0.1:8000/v1?"),
        ("runs/demo", "no such folder"),
        ("runs/demo,temperature", "'temperature' after runs/demo sets nothing; write NAME=VALUE"),
        (f"tiny@{URL},", "sets nothing"),
        (f"tiny@{URL},top_p", "'top_p' after .* sets nothing"),
        ("", "nobody is called ''"),
        ("scripted:", "lacks a name; write scripted:NAME"),
        ("replay:", "lacks a name; write replay:FOLDER"),
        ("litellm:", "lacks the model's name, as in litellm:openai/gpt-4o-mini"),
        ("hf:", "lacks the model's name, as in hf:models/tiny"),
        ("hf:no/such/folder", "there is no folder no/such/folder"),
    ],
)
def test_nobody_is_called_so(text: str, told: str) -> None:
    with pytest.raises(MarlGemError, match=told):
        seat(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{m},temprature=0", "takes no 'temprature'.* Did you mean temperature"),
        ("{m},api_key=sk-1234567890", "Did you mean api_key_env"),
        ("{m},xyz=1", "it takes temperature, top_p"),
        ("{m},temperature=warm", "temperature is a number from 0 up, not 'warm'"),
        ("{m},temperature=-1", "temperature is a number"),
        ("{m},temperature=nan", "temperature is a number"),
        ("{m},temperature=inf", "temperature is a number"),
        ("{m},temperature=", "temperature is a number"),
        ("{m},temperature=0,temperature=1", "temperature is set twice"),
        ("{m},top_p=0", "top_p is a number above 0 and up to 1, not '0'"),
        ("{m},top_p=1.1", "top_p is a number"),
        ("{m},max_tokens=0", "max_tokens is a whole number from 1 up, not '0'"),
        ("{m},max_tokens=1.5", "max_tokens is a whole number"),
        ("{m},max_tokens=²", "max_tokens is a whole number"),
        ("{m},view=cht", "there is no view 'cht'.* Did you mean 'chat'"),
        ("{m},view=window", "window:8"),
        ("{m},reasoning=maybe", "reasoning is keep or drop, not 'maybe'"),
        ("{m},price=1", "price is two numbers from 0 up, as in 0.15/0.6, not '1'"),
        ("{m},price=1/-2", "price is two numbers"),
        ("{m},price=1/2/3", "price is two numbers"),
        ("{m},api_key_env=NOT_SET_ANYWHERE", "NOT_SET_ANYWHERE, which is not set"),
        ("{m},api_key_env=sk-1234567890", "the name of an environment variable, as in OPENAI_API_KEY$"),
        ("{m},api_key_env=gsk_1234567890", "the name of an environment variable"),
        ("{m},logprobs=yes", "logprobs is raw, processed or off, not 'yes'"),
        ("{m},adapter=", "adapter is the name of an adapter"),
        ("random,temperature=0", "random takes no 'temperature'; it takes no values"),
        ("human,view=chat", "human takes no 'view'"),
        ("scripted:x,temperature=0", "takes no 'temperature'"),
        ("replay:x,seed=0", "takes no 'seed'"),
        ("litellm:openai/gpt-4o,adapter=x", "takes no 'adapter'"),
        ("{m},strategy=", "strategy is a strategy's name, not ''"),
        ("{m},strategy=react", r"strategy=react is one of a seat, and none was named; call policy\(..., agents="),
        ("{m},judge={m}", "a judge has nothing to judge without a strategy"),
        ("{m},strategy=verify,judge=random", "judge is a model, as in tiny@http://127.0.0.1:8000/v1, not 'random'"),
        ("random,strategy=react", "random takes no 'strategy'"),
        ("scripted:x,strategy=react", "takes no 'strategy'"),
        ("hf:x,price=1/2", "takes no 'price'"),
    ],
)
def test_values_that_make_no_sense(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        seat(text.format(m=f"tiny@{URL}"))
    assert "1234567890" not in str(caught.value), "a key that stands in the wrong place is not repeated"


@pytest.mark.parametrize(
    "url",
    [
        "http://user:hunter2secret@127.0.0.1/v1",
        "https://hunter2secret@127.0.0.1/v1",
        "http://127.0.0.1/v1?api_key=hunter2secret",
        "http://127.0.0.1/v1?a=b&token=hunter2secret",
        "http://127.0.0.1/v1?sig=",
        "http://[hunter2secret/v1",
    ],
)
@pytest.mark.parametrize("who", ["tiny@{}", "@{}", "litellm:openai/tiny@{}", f"tiny@{URL},strategy=x,judge=tiny@{{}}"])
def test_a_url_that_holds_a_secret_is_refused_unseen(who: str, url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        seat(who.format(url))
    assert "hunter2" not in str(caught.value)


def test_a_seat_is_taken_once() -> None:
    env = marl_gem.make(KUHN)
    loads: list[tuple[str, tuple[str, ...]]] = []

    def load(text: str, agents: tuple[str, ...]) -> Policy:
        loads.append((text, agents))
        return RandomPolicy()

    seating = parse_seats(["player_1=x,temperature=0"], env, load)
    assert list(seating) == ["player_0", "player_1"]
    assert sorted(loads) == [("random", ("player_0",)), ("x,temperature=0", ("player_1",))]
    with pytest.raises(AgentError, match="two are seated as 'player_0'"):
        parse_seats(["player_0=random", "player_0=human"], env, load)


# Models of a server


@on_a_loop
async def test_values_reach_the_server() -> None:
    text = "tiny@{},temperature=0.5,top_p=0.9,max_tokens=5"
    async with FakeServer() as server:
        seated = seat(text.format(server.url))
        await said(seated)
        await said(seat(f"tiny@{server.url}"))
    first, plain = (call.body for call in server.calls)
    assert [first[name] for name in ("model", "temperature", "top_p", "max_tokens")] == ["tiny", 0.5, 0.9, 5]
    assert [plain[name] for name in ("temperature", "top_p", "max_tokens")] == [1.0, 1.0, MAX_TOKENS]
    assert seated.name == "tiny" and isinstance(seated, LLMPolicy)


@on_a_loop
async def test_a_name_may_hold_almost_anything() -> None:
    for name in ("Qwen/Qwen3-1.7B", "claude@20250101", "a,b", "hf", "random", "litellm", "модель"):
        async with FakeServer(models=[name]) as server:
            await said(seat(f"{name}@{server.url},temperature=0"))
        assert (server.calls[0].body["model"], server.calls[0].body["temperature"]) == (name, 0)


@on_a_loop
async def test_a_view_by_its_name() -> None:
    async with FakeServer() as server:
        for view in ("bare", "window:1", "chat"):
            agent = seat(f"tiny@{server.url},view={view}").agent("player_0", Role("You play."), 7)
            await agent.act("one", {})
            await agent.act("two", {})
    shown = [[message["content"] for message in call.body["messages"]] for call in server.calls[1::2]]
    assert shown == [["two"], ["You play.", "two"], ["You play.", "one", "ok", "two"]]


@on_a_loop
async def test_an_adapter_a_key_and_a_price(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    async with FakeServer() as server:
        server.adapters["won"] = "somewhere"
        seated = seat(f"tiny@{server.url},adapter=won,api_key_env=MY_KEY,price=0.5/2")
        response = await said(seated)
        free = await said(seat(f"tiny@{server.url}"))
    assert server.calls[0].body["model"] == "won" and seated.name == "tiny+won"
    assert server.calls[0].headers["Authorization"] == f"Bearer {KEY}"
    assert response.cost == pytest.approx((7 * 0.5 + 2 * 2) / 1e6)
    assert free.cost is None, "an unknown price is not 0"


@on_a_loop
async def test_log_probabilities_that_the_server_has_processed() -> None:
    async with FakeServer() as server:
        responses = [
            await said(seat(f"tiny@{server.url},temperature=0.5{more}"))
            for more in ("", ",logprobs=processed", ",logprobs=off")
        ]
    assert [bool(response.logprobs) for response in responses] == [False, True, False]
    assert [bool(response.token_ids) for response in responses] == [True, True, False]


@on_a_loop
async def test_a_server_is_asked_for_its_only_model_also_within_an_event_loop() -> None:
    async with FakeServer(models=["the/only-one"]) as server:
        seated = await asyncio.to_thread(seat, f"@{server.url}")
        assert seated.name == "the/only-one"
        await said(seated)
        assert server.calls[0].body["model"] == "the/only-one"
        server.models.append("another")
        with pytest.raises(ConfigError, match=r"has 2 models; name one of them, as in the/only-one@http"):
            await asyncio.to_thread(seat, f"@{server.url}")
        server.models.clear()
        with pytest.raises(ConfigError, match="has no model"):
            await asyncio.to_thread(seat, f"@{server.url}")
    with pytest.raises(ServerUnreachable, match="Is the server running"):
        await asyncio.to_thread(seat, f"@{server.url}")


def test_a_server_is_asked_for_its_only_model_from_a_running_loop() -> None:
    async def ask(url: str) -> Any:
        return seat(f"@{url}")

    with serving() as url:
        assert asyncio.run(ask(url)).name == "tiny"


@on_a_loop
async def test_who_names_the_same_model_shares_it() -> None:
    models = Models()
    async with FakeServer(status(502), say("better"), say("still")) as server:
        cold, warm = (seat(f"tiny@{server.url},temperature={t}", models=models) for t in (0, 1))
        assert cold.llm is warm.llm
        assert (await said(cold)).retries == 1, "what may go well when asked again is asked again"
        assert (await said(warm)).text == "still"
    assert models.get(f"tiny@{server.url}") is cold.llm
    assert models.get(f"tiny@{server.url}", Connection(adapter="x")) is not cold.llm
    assert models.get(f"other@{server.url}").breaker is cold.llm.breaker, "they share what they know of the server"  # type: ignore[attr-defined]
    assert Models().get(f"tiny@{server.url}") is not cold.llm


@on_a_loop
async def test_a_cache_for_all_models(tmp_path: Path) -> None:
    async with FakeServer(models=["tiny", "other"]) as server:
        for round in range(2):
            models = Models(tmp_path / "answers.sqlite")
            for name in ("tiny", "other"):
                response = await said(seat(f"{name}@{server.url}", models=models))
                assert response.cached == bool(round)
                assert not (await said(seat(f"{name}@{server.url}", models=models), seed=8 + round)).cached
    assert len(server.calls) == 6
    with pytest.raises(RecordError, match="cannot be used"):
        Models(tmp_path)
    shared = ResponseCache(tmp_path / "answers.sqlite")
    assert (await said(seat(f"tiny@{server.url}", models=Models(shared)))).cached, "the server is gone"


def test_a_game_between_two_models_of_a_server() -> None:
    with serving("--text", "[check]") as url:
        env = marl_gem.make(KUHN)
        models = Models()
        seating = parse_seats(
            [f"player_0=tiny@{url}", f"player_1=@{url},temperature=0"], env, lambda who, _: seat(who, models=models)
        )
        episodes = collect(lambda: marl_gem.make(KUHN), [Job(seed, seating) for seed in range(20)])
    assert all(episode.ending == "terminated" and not episode.error for episode in episodes)
    assert {tuple(episode.models.values()) for episode in episodes} == {("tiny", "tiny")}


@on_a_loop
async def test_earlier_reasoning_is_kept_where_that_is_asked_for() -> None:
    shown = []
    for more in ("", ",reasoning=drop", ",reasoning=keep"):
        async with FakeServer(say("[check]", reasoning_content="I hold the queen.")) as server:
            agent = seat(f"tiny@{server.url}{more}").agent("player_0", Role("You play."), 7)
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
    one, other = (seat(f"hf:{folder},max_tokens={n},temperature=0", models=models) for n in (3, 5))
    assert one.llm is other.llm and one.sampling == Sampling(3, 0.0)
    first, again = asyncio.run(said(one)), asyncio.run(said(one))
    assert 1 <= len(first.token_ids) <= 3
    assert not again.cached and again.token_ids == first.token_ids, "there is no server to spare"


def test_a_folder_that_holds_no_model_is_told(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with pytest.raises(MarlGemError, match=str(tmp_path)):
        seat(f"hf:{tmp_path}")


def test_what_a_training_run_made(tmp_path: Path, strategies: None) -> None:
    pytest.importorskip("torch")
    from marl_gem.trainers.config import parse
    from marl_gem.trainers.run import Run

    config = {
        "scenario": KUHN,
        "options": {"max_steps": 9},
        "policy": {"width": 16, "layers": 1, "heads": 2, "context": 128},
        "imitation": {"games": 20, "steps": 2, "batch": 8},
        "self_play": {"updates": 1, "games": 4},
        "record": {"final_games": 2, "probe_games": 2, "save_every": 1},
    }
    run = tmp_path / "run"
    for _ in Run.start(run, parse(config, "test")).work():
        pass
    models = Models()
    trained = seat(str(run), models=models)
    cold = seat(f"{run},temperature=0,max_tokens=2", models=models)
    assert trained.llm is cold.llm, "it is loaded once"
    assert cold.sampling == Sampling(2, 0.0, trained.sampling.top_p) and trained.sampling != cold.sampling
    assert asyncio.run(said(cold)).text == asyncio.run(said(cold, seed=8)).text
    assert options_of([f"player_0={run},temperature=0", "player_1=random", f"x=tiny@{URL}"], KUHN) == {"max_steps": 9}
    opener = seat(f"{run},temperature=0,max_tokens=2,strategy=opener", models=models, agents=["player_0"])
    assert opener.name == f"{trained.name} (opens)" and opener.policy.sampling == cold.sampling
    with pytest.raises(ConfigError, match="takes no 'view'; it takes temperature, top_p, max_tokens"):
        seat(f"{run},view=bare")


# Strategies of a seat


class Told:
    """A policy that is told more of its role."""

    def __init__(self, policy: Policy, how: str, judge: Policy | None = None) -> None:
        self.policy, self.how, self.judge = policy, how, judge

    @property
    def name(self) -> str:
        return f"{self.policy.name} ({self.how}{f' under {self.judge.name}' if self.judge else ''})"

    def agent(self, agent_id: str, role: Role, seed: int) -> Any:
        return self.policy.agent(agent_id, Role(f"{role.instructions} {self.how}"), seed)


@pytest.fixture
def strategies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strategies of Kuhn poker: "opener" in either seat, which means another thing there, "judged" in the first."""
    marl_gem.list()
    monkeypatch.setattr(registry, "_strategies", {})
    registry.register_strategy(KUHN, "player_0", "opener", Told, how="opens")
    registry.register_strategy(KUHN, "player_1", "opener", Told, how="waits")
    registry.register_strategy(KUHN, "player_0", "judged", Told, needs=["judge"], how="is judged")


@on_a_loop
async def test_a_strategy_depends_on_the_seat(strategies: None) -> None:
    async with FakeServer() as server:
        text = f"tiny@{server.url},strategy=opener,temperature=0.5"
        first, second = (seat(text, agents=[agent]) for agent in ("player_0", "player_1"))
        await said(first)
        await said(second)
        seating = parse_seats(
            [f"player_0={text}", f"player_1={text}"],
            marl_gem.make(KUHN),
            lambda who, agents: seat(who, agents=agents),
        )
        for agent, seated in seating.items():
            await seated.agent(agent, Role("You play poker."), 7).act("Check or bet?", {})
    told = [call.body["messages"][0]["content"] for call in server.calls]
    assert told == ["You play poker. opens", "You play poker. waits"] * 2
    assert (first.name, second.name) == ("tiny (opens)", "tiny (waits)")
    assert {call.body["temperature"] for call in server.calls} == {0.5}


@on_a_loop
async def test_who_judges(strategies: None, tmp_path: Path) -> None:
    models = Models(tmp_path / "answers.sqlite")
    async with FakeServer(models=["tiny", "critic"]) as server:
        text = f"tiny@{server.url},strategy=judged"
        alone = seat(text, agents=["player_0"], models=models)
        under = seat(f"{text},judge=critic@{server.url},max_tokens=5", agents=["player_0"], models=models)
        assert (await said(under.judge)).text == "ok"
    assert alone.judge is alone.policy and alone.name == "tiny (is judged under tiny)"
    assert under.judge.llm is models.get(f"critic@{server.url}"), "judges share models and their cache with all"
    assert under.policy.sampling.max_tokens == 5 and under.judge.sampling.max_tokens == MAX_TOKENS
    assert server.calls[0].body["model"] == "critic"


@pytest.mark.parametrize(
    ("agent", "text", "told"),
    [
        ("player_0", "strategy=open", r"has no strategy 'open' for 'player_0'; it offers judged, opener. Did you mean"),
        ("player_1", "strategy=judged", r"has no strategy 'judged' for 'player_1'; it offers opener\.$"),
        ("player_1", f"strategy=opener,judge=tiny@{URL}", "nobody judges in the strategy 'opener' of 'player_1'"),
    ],
)
def test_strategies_that_make_no_sense(strategies: None, agent: str, text: str, told: str) -> None:
    with pytest.raises(MarlGemError, match=told):
        seat(f"tiny@{URL},{text}", agents=[agent])


def test_strategies_where_there_are_none() -> None:
    with pytest.raises(RegistryError, match=f"{KUHN} has no strategy 'react' for 'player_0'; it offers none"):
        seat(f"tiny@{URL},strategy=react", agents=["player_0"])


# Scripted policies


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, Any, Any]]]:
    """Policies that come with Kuhn poker and its family; gives what their makers were called with."""
    made: list[tuple[str, Any, Any]] = []

    def passing(scenario: str, options: Mapping[str, Any], text: str = "[check]") -> Policy:
        made.append((scenario, dict(options), text))
        return ScriptedPolicy(lambda observation, info: text, "passing")

    marl_gem.list()
    monkeypatch.setattr(registry, "_scenarios", dict(registry._scenarios))
    monkeypatch.setattr(registry, "_policies", {})
    registry._resolve.cache_clear()
    module = ModuleType("of_scripts")
    module.passing = passing  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "of_scripts", module)
    registry.register_policy("game", "calm", passing)
    registry.register_policy(KUHN, "bold", "of_scripts:passing", text="[bet]", description="Always bets.")
    yield made


def test_a_scenarios_own_policies(scripted: list[Any]) -> None:
    seating = parse_seats(
        ["player_0=scripted:calm", "player_1=scripted:bold"],
        marl_gem.make(KUHN),
        lambda who, agents: seat(who, options={"max_steps": 9}),
    )
    (episode,) = collect(lambda: marl_gem.make(KUHN), [Job(1, seating)])
    assert [turn.response.text for turn in episode.turns][:2] == ["[check]", "[bet]"]
    assert scripted == [(KUHN, {"max_steps": 9}, "[check]"), (KUHN, {"max_steps": 9}, "[bet]")]
    assert registry.policies(KUHN)["bold"].description == "Always bets."


def test_a_familys_policies_and_a_scenarios_own_come_together(scripted: list[Any]) -> None:
    assert set(registry.policies(KUHN)) == {"calm", "bold"}
    assert set(registry.policies("game:TicTacToe-v0")) == {"calm"}
    registry.register_policy(KUHN, "calm", "of_scripts:passing", text="[bet]")
    registry.make_policy(KUHN, "calm")
    assert scripted[-1][2] == "[bet]", "the scenario's own goes before its family's"


def test_the_options_that_a_scenario_is_registered_with_are_told(scripted: list[Any]) -> None:
    marl_gem.register("game:Again-v0", "marl_gem.scenarios.games.kuhn_poker:KuhnPoker", max_steps=3, deck="short")
    policy("scripted:calm", "game:Again-v0", options={"max_steps": 5})
    assert scripted == [("game:Again-v0", {"max_steps": 5, "deck": "short"}, "[check]")]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("bald", r"has no scripted policy 'bald'; it offers bold, calm. Did you mean 'bold'\?"),
        ("oracle", "it offers bold, calm.$"),
    ],
)
def test_a_script_that_does_not_exist(scripted: list[Any], name: str, told: str) -> None:
    with pytest.raises(RegistryError, match=told):
        seat(f"scripted:{name}")


def test_scripts_where_there_are_none(scripted: list[Any]) -> None:
    marl_gem.register("test:Talk-v0", Talk)
    with pytest.raises(RegistryError, match="it offers none"):
        policy("scripted:x", "test:Talk-v0")
    with pytest.raises(RegistryError, match="There is no scenario"):
        policy("scripted:x", "no:Such-v0")


def test_a_scripts_name_is_taken_once(scripted: list[Any]) -> None:
    for name in ("calm", ""):
        with pytest.raises(RegistryError, match=r"needs another name than .*; it offers \['calm'\]"):
            registry.register_policy("game", name, "of_scripts:passing")


# Replay


def talking(jobs: Any, tmp_path: Path) -> tuple[list[Episode], Path]:
    """Some recorded episodes of `Talk`, and their file."""
    episodes = collect(Talk, jobs)
    folder = tmp_path / "run"
    folder.mkdir(exist_ok=True)
    write(folder / "episodes.jsonl", episodes)
    return episodes, folder


def write(file: Path, episodes: Any) -> None:
    file.write_text("".join(f"{to_json(episode)}\n" for episode in episodes), "utf-8")


class Babble:
    """Says something else in every seat, episode and turn."""

    name = "babble"

    def agent(self, agent_id: str, role: Role, seed: int) -> Any:
        turns = iter(range(100))
        return ScriptedPolicy(lambda observation, info: f"{agent_id} {seed} {next(turns)}\ud800").agent("", role, 0)


def test_a_replay_says_what_was_said(tmp_path: Path) -> None:
    jobs = [Job(seed, Babble(), f"{seed}.{repeat}", repeat=repeat) for seed in range(3) for repeat in range(2)]
    episodes, folder = talking(jobs, tmp_path)
    for path in (folder, folder / "episodes.jsonl"):
        replay = policy(f"replay:{path}", "Talk")
        again = collect(Talk, [Job(job.seed, replay, job.id, repeat=job.repeat) for job in reversed(jobs)])
        assert [e.returns for e in again] == [e.returns for e in episodes]
        for first, second in zip(episodes, reversed(again), strict=True):
            assert [turn.response.text for turn in first.turns] == [turn.response.text for turn in second.turns]
            assert all(turn.response.cached for turn in second.turns)
    assert replay.name == f"replay:{folder / 'episodes.jsonl'}"


def test_one_seat_is_replayed_and_another_plays_anew(tmp_path: Path) -> None:
    same = ScriptedPolicy(lambda observation, info: "yes")
    episodes, folder = talking([Job(5, {"a": Babble(), "b": same})], tmp_path)
    (again,) = collect(Talk, [Job(5, {"a": ReplayPolicy(folder), "b": same})])
    assert [turn.response.text for turn in again.turns] == [turn.response.text for turn in episodes[0].turns]


def test_a_replay_keeps_what_an_answer_cost(tmp_path: Path) -> None:
    with serving() as url:
        (first,), folder = talking([Job(1, seat(f"tiny@{url},price=1/1"), "x")], tmp_path)
    (again,) = collect(Talk, [Job(1, ReplayPolicy(folder), "x")])
    assert first.cost and (again.cost, again.usage) == (first.cost, first.usage)
    assert [turn.response.token_ids for turn in again.turns] == [turn.response.token_ids for turn in first.turns]


def test_a_seed_or_a_seat_that_was_not_recorded(tmp_path: Path) -> None:
    _, folder = talking([Job(seed, Babble()) for seed in (5, 6)], tmp_path)
    for job in (Job(7, ReplayPolicy(folder)), Job(5, ReplayPolicy(folder), repeat=1)):
        (episode,) = collect(Talk, [job])
        assert episode.error is not None and episode.error.origin == "agent"
        assert "holds no turn of 'a' in an episode with this seed and repeat; it holds 2 seeds: 5, 6" in (
            episode.error.message
        )


def test_a_game_that_leaves_the_record_is_told(tmp_path: Path) -> None:
    _, folder = talking([Job(5, {"a": Babble(), "b": ScriptedPolicy(["yes", "yes", "yes"])})], tmp_path)
    (episode,) = collect(Talk, [Job(5, {"a": ReplayPolicy(folder), "b": ScriptedPolicy(["yes", "no"])})])
    assert episode.error is not None and len(episode.turns) == 4
    assert "in turn 3 it observed 'yes', and now 'no'" in episode.error.message


def test_where_long_observations_differ_is_shown(tmp_path: Path) -> None:
    long = "x" * 500
    script = {"a": Babble(), "b": ScriptedPolicy([f"{long} one {long}"] * 3)}
    _, folder = talking([Job(5, script)], tmp_path)
    script = {"a": ReplayPolicy(folder), "b": ScriptedPolicy([f"{long} two {long}"] * 3)}
    (episode,) = collect(Talk, [Job(5, script)])
    assert episode.error and " one xxx" in episode.error.message and " two xxx" in episode.error.message
    assert len(episode.error.message) < 500


def test_a_record_that_ends_is_told_with_what_it_ended_in(tmp_path: Path) -> None:
    broken = {"a": ScriptedPolicy(["one"]), "b": ScriptedPolicy(["yes"] * 3)}
    (recorded,), folder = talking([Job(5, broken)], tmp_path)
    assert recorded.error
    (episode,) = collect(Talk, [Job(5, {"a": ReplayPolicy(folder), "b": ScriptedPolicy(["yes"] * 3)})])
    assert episode.error and "the record ends after 1 turns, where the episode broke off (AgentError: " in (
        episode.error.message
    )


def test_several_records_of_a_seed_are_told_apart_by_what_was_observed(tmp_path: Path) -> None:
    """As in a tournament, whose pairs play the same tasks."""
    jobs = [
        Job(5, {"a": ScriptedPolicy(["hi", f"{answer} too", "bye"]), "b": ScriptedPolicy([answer] * 3)}, answer)
        for answer in ("yes", "no")
    ]
    episodes, folder = talking(jobs, tmp_path)
    for episode, answer in zip(episodes, ("yes", "no"), strict=True):
        (again,) = collect(Talk, [Job(5, {"a": ReplayPolicy(folder), "b": ScriptedPolicy([answer] * 3)})])
        assert [turn.response.text for turn in again.turns] == [turn.response.text for turn in episode.turns]


def test_records_that_contradict_each_other_are_told(tmp_path: Path) -> None:
    jobs = [Job(5, ScriptedPolicy([text] * 3), text) for text in ("one", "two")]
    _, folder = talking(jobs, tmp_path)
    (again,) = collect(Talk, [Job(5, ReplayPolicy(folder))])
    assert again.error and "holds 2 episodes in which 'a' had this seed and saw the same" in again.error.message


@pytest.mark.parametrize("cut_at", [1, 100, -1])
def test_a_torn_last_line_is_left_out(tmp_path: Path, cut_at: int) -> None:
    episodes, folder = talking([Job(seed, Babble()) for seed in (5, 6)], tmp_path)
    first, last = (f"{to_json(episode)}\n".encode() for episode in episodes)
    (folder / "episodes.jsonl").write_bytes(first + last[:cut_at])
    replay = ReplayPolicy(folder)
    assert not collect(Talk, [Job(5, replay)])[0].error
    assert collect(Talk, [Job(6, replay)])[0].error


def test_a_broken_line_is_told_with_its_number(tmp_path: Path) -> None:
    episodes, folder = talking([Job(seed, Babble()) for seed in (5, 6)], tmp_path)
    for broken in (b"{\n", b"\xff\n", b'{"id": 1}\n', b"\n"):
        (folder / "episodes.jsonl").write_bytes(f"{to_json(episodes[0])}\n".encode() + broken)
        with pytest.raises(RecordError, match=r"episodes\.jsonl, line 2: "):
            ReplayPolicy(folder)


def test_a_record_that_is_not_there_is_told(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.jsonl"):
        with pytest.raises(RecordError, match=r"cannot read a recorded run from .*: No such file"):
            seat(f"replay:{path}")


def test_the_docstring_tells_all_values() -> None:
    from marl_gem import seats

    assert seats.__doc__
    table = [line.strip() for line in seats.__doc__.splitlines() if line.startswith("    ") and "=" in line]
    assert sorted(line.partition("=")[0] for line in table) == sorted(seats.VALUES)
