"""Policies as records: what a text may say, and that it is parsed once."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from marl_gem.errors import AgentError, ConfigError, MarlGemError
from marl_gem.llm.models import ModelSpec
from marl_gem.specs import (
    RANDOM,
    PolicySpec,
    ScenarioInfo,
    ScenarioSpec,
    assign_candidates,
    assign_seats,
    is_learner_name,
    parse_assignment,
    policy,
    values,
)
from tests.policy_texts import KUHN, URL, load


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("random", PolicySpec("random")),
        ("human", PolicySpec("human")),
        ("scripted:gold-without-words", PolicySpec("scripted", "gold-without-words")),
        ("replay:runs/a@3", PolicySpec("replay", "runs/a@3")),
        (f"@{URL}", PolicySpec("http", "", URL)),
        (f"a,b/c@20250101@{URL}", PolicySpec("http", "a,b/c@20250101", URL)),
        ("litellm:openai/gpt-4o-mini", PolicySpec("litellm", "openai/gpt-4o-mini")),
        (f"litellm:openai/tiny@{URL}", PolicySpec("litellm", "openai/tiny", URL)),
        ("hf:models/tiny", PolicySpec("hf", "models/tiny")),
        (f"tiny@{URL},temperature=0.70", PolicySpec("http", "tiny", URL, temperature=0.7)),
        (
            f"tiny@{URL}, judge = big@{URL} ,strategy=verify,max_tokens=5,top_p=1.0,view=window:8,reasoning=keep",
            PolicySpec(
                "http",
                "tiny",
                URL,
                max_tokens=5,
                top_p=1.0,
                view="window:8",
                reasoning="keep",
                strategy="verify",
                judge=ModelSpec("http", "big", URL),
            ),
        ),
        (
            f"tiny@{URL},price=0.15/2,api_key_env=MY_KEY,adapter=won,logprobs=off",
            PolicySpec("http", "tiny", URL, price=(0.15, 2.0), api_key_env="MY_KEY", adapter="won", logprobs="off"),
        ),
        (
            f"tiny@{URL},connect_timeout=0.5,read_timeout=60,timeout=90,wait=0",
            PolicySpec("http", "tiny", URL, connect_timeout=0.5, read_timeout=60.0, timeout=90.0, wait=0.0),
        ),
    ],
    ids=str,
)
def test_a_text_and_its_record(text: str, spec: PolicySpec) -> None:
    assert PolicySpec.parse(text) == spec
    assert PolicySpec.parse(str(spec)) == spec and hash(PolicySpec.parse(text)) == hash(spec)
    assert msgspec.json.decode(msgspec.json.encode(spec), type=PolicySpec) == spec


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        (f"tiny@{URL},top_p=0.50,temperature=-0.0", f"tiny@{URL},temperature=0,top_p=0.5"),
        (f"tiny@{URL},price=1e0/.5", f"tiny@{URL},price=1/0.5"),
        (f"tiny@{URL},temperature=1e-7,max_tokens=007", f"tiny@{URL},temperature=1e-07,max_tokens=7"),
    ],
)
def test_equal_policies_have_one_text(text: str, canonical: str) -> None:
    assert str(PolicySpec.parse(text)) == canonical


def test_a_run_and_one_of_its_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "x").mkdir(parents=True)
    assert PolicySpec.parse("runs/x,temperature=0") == PolicySpec("run", "runs/x", temperature=0.0)
    assert PolicySpec.parse("runs/x@120") == PolicySpec("run", "runs/x", checkpoint=120)
    assert str(PolicySpec.parse("runs/x@0120,top_p=1")) == "runs/x@120,top_p=1"
    (tmp_path / "runs" / "x@7").mkdir()
    assert PolicySpec.parse("runs/x@7") == PolicySpec("run", "runs/x@7"), "a folder of that name comes first"
    assert PolicySpec.parse("runs/x:user") == PolicySpec("run", "runs/x", learner="user")
    assert str(PolicySpec.parse("runs/x@0120:user,top_p=1")) == "runs/x@120:user,top_p=1"
    assert PolicySpec.parse("runs/x@7:user") == PolicySpec("run", "runs/x@7", learner="user")
    for text in ("runs/x@", "runs/x@latest", "runs/y@120", "runs/x:", "runs/x:User", "runs/x:user@120", "runs/y:user"):
        with pytest.raises(AgentError, match="there is no policy"):
            PolicySpec.parse(text)


def test_only_models_have_a_model() -> None:
    assert PolicySpec.parse(f"tiny@{URL},temperature=0").model == ModelSpec("http", "tiny", URL)
    with pytest.raises(ConfigError, match="random is no model; a model is MODEL@URL, litellm:PROVIDER/MODEL, hf:"):
        RANDOM.model  # noqa: B018


@pytest.mark.parametrize("text", ["assistant", "policy", "user_2", "a-b", "run"])
def test_names_of_policies_that_learn(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / text).mkdir()
    assert is_learner_name(text), "even where a folder has this name"
    assert not is_learner_name(f"./{text}") and PolicySpec.parse(f"./{text}").kind == "run"


@pytest.mark.parametrize(
    "text",
    ["random", "human", "scripted:x", "scripted", "replay", "", "User", "2nd", "a b", f"a@{URL}", "runs/x"],
)
def test_other_texts_are_no_such_names(text: str) -> None:
    assert not is_learner_name(text)


@pytest.mark.parametrize(
    ("text", "message"),
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
        ("", "there is no policy ''"),
        ("scripted:", "lacks a name; write scripted:NAME"),
        ("replay:", "lacks a name; write replay:FOLDER"),
        ("litellm:", "lacks the model's name, as in litellm:openai/gpt-4o-mini"),
        ("hf:", "lacks the model's name, as in hf:models/tiny"),
        ("hf:no/such/folder", "there is no folder no/such/folder"),
    ],
)
def test_texts_that_name_no_policy(text: str, message: str) -> None:
    with pytest.raises(MarlGemError, match=message):
        load(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{m},temprature=0", "takes no 'temprature'.* Did you mean temperature"),
        ("{m},api_key=sk-1234567890", "Did you mean api_key_env"),
        ("{m},xyz=1", "it takes temperature, top_p"),
        ("{m},temperature=warm", "temperature is a number from 0 to 100, not 'warm'"),
        ("{m},temperature=-1", "temperature is a number"),
        ("{m},temperature=nan", "temperature is a number"),
        ("{m},temperature=inf", "temperature is a number"),
        ("{m},temperature=", "temperature is a number"),
        ("{m},temperature=0,temperature=1", "temperature is set twice"),
        ("{m},top_p=0", "top_p is a number above 0 up to 1, not '0'"),
        ("{m},top_p=1.1", "top_p is a number"),
        ("{m},max_tokens=0", "max_tokens is a whole number from 1 to 1,000,000,000, not '0'"),
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
        ("{m},wait=-1", "wait is a number of seconds from 0 to 1,000,000,000, not '-1'"),
        ("{m},wait=nan", "wait is a number of seconds"),
        ("{m},timeout=0", "timeout is a number of seconds above 0 up to 1,000,000,000, not '0'"),
        ("{m},read_timeout=inf", "read_timeout is a number of seconds above 0"),
        ("{m},patience=5", "takes no 'patience'"),
        ("litellm:openai/gpt-4o,read_timeout=5", "takes no 'read_timeout'"),
        ("hf:x,wait=5", "takes no 'wait'"),
        ("{m},adapter=", "adapter is the name of an adapter"),
        ("random,temperature=0", "random takes no 'temperature'; it takes no values"),
        ("human,view=chat", "human takes no 'view'"),
        ("scripted:x,temperature=0", "takes no 'temperature'"),
        ("replay:x,seed=0", "takes no 'seed'"),
        ("litellm:openai/gpt-4o,adapter=x", "takes no 'adapter'"),
        ("{m},strategy=", "strategy is a strategy's name, not ''"),
        ("{m},strategy=react", r"strategy=react is one of an agent, and none is named; call load_policy\(..., agents="),
        ("{m},judge={m}", "a judge needs a strategy to judge in"),
        ("{m},strategy=verify,judge=random", "judge is a model, as in tiny@http://127.0.0.1:8000/v1, not 'random'"),
        ("random,strategy=react", "random takes no 'strategy'"),
        ("scripted:x,strategy=react", "takes no 'strategy'"),
        ("hf:x,price=1/2", "takes no 'price'"),
    ],
)
def test_wrong_values(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load(text.format(m=f"tiny@{URL}"))
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
def test_a_url_that_holds_a_secret_is_refused_and_not_repeated(who: str, url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(who.format(url))
    assert "hunter2" not in str(caught.value)


def test_the_docstring_has_all_values() -> None:
    assert policy.__doc__
    table = [line.strip() for line in policy.__doc__.splitlines() if line.startswith("    ") and "=" in line]
    assert [line.partition("=")[0] for line in table] == list(values.VALUES)


# Seats


@pytest.fixture(scope="module")
def info() -> ScenarioInfo:
    return ScenarioSpec(KUHN).inspect()


def test_agents_without_an_assignment_play_at_random(info: ScenarioInfo) -> None:
    pairs = map(parse_assignment, [f"player_1=tiny@{URL},temperature=0"])
    assert assign_seats(pairs, info) == {
        "player_0": RANDOM,
        "player_1": PolicySpec("http", "tiny", URL, temperature=0.0),
    }


def test_an_agent_has_one_policy_and_in_a_grid_several(info: ScenarioInfo) -> None:
    pairs = [parse_assignment(text) for text in ("player_1=random", "player_1=human")]
    assert assign_candidates(pairs, info) == {"player_0": (RANDOM,), "player_1": (RANDOM, PolicySpec("human"))}
    with pytest.raises(AgentError, match="'player_1' is given 2 policies; an agent has one"):
        assign_seats(pairs, info)


def test_an_agent_that_the_scenario_does_not_have(info: ScenarioInfo) -> None:
    pairs = [("player_2", RANDOM)]
    with pytest.raises(AgentError, match=f"{KUHN} has no agent 'player_2'; its agents are player_0, player_1"):
        assign_seats(pairs, info)
    open_info = msgspec.structs.replace(info, joins=True)
    assert list(assign_seats(pairs, open_info)) == ["player_0", "player_1", "player_2"], "it may join later"


def test_a_pattern_names_several_agents_and_an_agents_own_name_counts_more(info: ScenarioInfo) -> None:
    def seats(*texts: str) -> list[str]:
        return [str(policy) for policy in assign_seats(map(parse_assignment, texts), info).values()]

    assert seats("*=human") == ["human", "human"]
    assert seats("player_1=random", "*=human") == seats("player_?=human", "*_1=random") == ["human", "random"]
    with pytest.raises(AgentError, match=f"{KUHN} has no agent 'wolf_[*]'; its agents are player_0, player_1"):
        seats("wolf_*=human")
    listed = assign_candidates(map(parse_assignment, ["*=human", "*=random"]), info)
    assert [list(map(str, policies)) for policies in listed.values()] == [["human", "random"]] * 2


def test_a_policys_text_may_hold_an_equals_sign(tmp_path: Path) -> None:
    (tmp_path / "x=y").mkdir()
    assert parse_assignment(f"a={tmp_path}/x=y") == ("a", PolicySpec("run", f"{tmp_path}/x=y"))


@pytest.mark.parametrize("text", ["player_0", "player_0=", "=random", ""])
def test_an_assignment_has_two_sides(text: str) -> None:
    with pytest.raises(AgentError, match="lacks a side; write NAME=WHO, as in player_0=random"):
        parse_assignment(text)
