"""The rules of published scores: the option official=true, and the strategy `official` of both seats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

import marl_gem
from marl_gem import registry
from marl_gem.errors import ConfigError, InvalidOption
from marl_gem.llm import Sampling, wire
from marl_gem.policies import LLMPolicy, Policy, ScriptedPolicy
from marl_gem.rollout import Job, collect
from marl_gem.scenarios.tau.database import Database, Session
from marl_gem.scenarios.tau.dialogue import STOP
from marl_gem.scenarios.tau.domain import USER_ROLE, Domain, Task, load_domain
from marl_gem.scenarios.tau.env import TauEnv
from marl_gem.scenarios.tau.official_seats import assistant, user
from marl_gem.scenarios.tau.scripts import ScriptPolicy
from marl_gem.scenarios.tau.tool import tool
from marl_gem.tools.calls import CLOSE, OPEN, write_call
from marl_gem.types import Episode, Message, Response, ToolCall, ToolSpec
from tests.tau.test_domain_files import TOOLS, write_domain


@tool
def close_ticket(db: Session, number: str) -> str:
    """Close a ticket."""
    db["tickets"].edit(number)["status"] = "closed"
    return f"{number} is closed"


TASK = Task("ann", "You are Ann. Close 815.", (ToolCall("close_ticket", {"number": "815"}),), ("815 is closed",))
DESK = Domain(
    name="desk",
    official="retail",
    policy="Help where you can.",
    tools={"close_ticket": close_ticket},
    terminating=frozenset(),
    database=Database({"tickets": {"815": {"status": "open"}, "816": {"status": "open"}}}),
    splits={"test": (TASK,)},
    official_user_role="You play: {instruction} Say {stop} at the end.",
)
CLOSE_815 = write_call("close_ticket", {"number": "815"})
CLOSE_816 = write_call("close_ticket", {"number": "816"})


def begun(**options: Any) -> TauEnv:
    env = TauEnv(DESK, **{"official": True, **options})
    env.reset(seed=0)
    env.step({"user": "Close 815."})
    return env


# The rules of the environment


def test_the_user_has_the_official_prompt() -> None:
    assert begun().role("user").instructions == f"You play: {TASK.instruction} Say {STOP} at the end."
    assert begun(official=False).role("user").instructions.startswith("You are a customer who writes")


def test_where_the_official_prompt_is_not_known_ours_is_used() -> None:
    env = TauEnv(Domain("desk", "retail", "", {}, frozenset(), Database({"t": {}}), {"test": (TASK,)}), official=True)
    env.reset(seed=0)
    ours = USER_ROLE.replace("{stop}", STOP).replace("{instruction}", TASK.instruction)
    assert env.role("user").instructions == ours


def test_a_domain_reads_the_official_prompt_from_its_file(tmp_path: Path) -> None:
    domain = load_domain(write_domain(tmp_path), TOOLS, name="test", official="retail")
    assert domain.official_user_role == ""
    write_domain(tmp_path, **{"user_official.md": "Play {instruction} until {stop}."})
    domain = load_domain(tmp_path, TOOLS, name="test", official="retail")
    assert (domain.official_user_role, domain.user_role) == ("Play {instruction} until {stop}.", USER_ROLE)


@pytest.mark.parametrize(
    "call",
    [
        f'{OPEN}{{"name": "close_ticket", "arguments": {{"number": }}}}{CLOSE}',
        f'{OPEN}{{"name": "close_ticket", "arguments": ["815"]}}{CLOSE}',
        f"{OPEN}close it{CLOSE}",
        f"{OPEN}close it{CLOSE}{write_call('close_ticket', {'number': '815'})}",
        write_call("respond", {}),
        write_call("respond", {"content": None}),
        write_call("respond", {"text": "815 is closed"}),
    ],
)
def test_a_call_that_cannot_be_read_ends_the_dialogue_with_nothing(call: str) -> None:
    env = begun()
    env.step({"assistant": CLOSE_815})
    env.step({"assistant": "815 is closed"})
    env.step({"user": "And?"})  # everything is done, so that stopping now would earn 1
    _, rewards, terminations, _, infos = env.step({"assistant": call})
    assert rewards["assistant"] == 0 and all(terminations.values()) and env.done
    assert infos["assistant"]["ended"] == infos["assistant"]["failure"] == "broken call"
    assert infos["assistant"]["success"] is False
    assert "the official code breaks off" in infos["assistant"]["illegal"]
    lenient = begun(official=False)
    lenient.step({"assistant": call})
    assert not lenient.done and lenient.acting == ("assistant",)


def test_arguments_that_are_read_but_wrong_are_answered_with_an_error() -> None:
    env = begun()
    observations, *_ = env.step({"assistant": write_call("close_ticket", {})})
    assert observations["assistant"][0]["text"].startswith("Error: CloseTicket.invoke() missing 1 required")
    observations, *_ = env.step({"assistant": write_call("open_ticket", {})})
    assert observations["assistant"][0]["text"] == "Unknown action open_ticket"


def test_a_call_named_respond_is_said_to_the_user() -> None:
    env = begun()
    observations, *_, infos = env.step(
        {"assistant": write_call("respond", {"content": "815 is closed", "tone": "kind"})}
    )
    assert observations == {"user": "815 is closed"}
    assert infos["assistant"]["calls"] == ["respond"] and "illegal" not in infos["assistant"]
    env.step({"user": "Thanks."})
    env.step({"assistant": CLOSE_815})
    env.step({"assistant": "Bye."})
    env.step({"user": STOP})
    assert env.returns["assistant"] == 1  # what was said so counts as an output
    lenient = begun(official=False)
    observations, *_ = lenient.step({"assistant": write_call("respond", {"content": "Hello"})})
    assert observations["assistant"][0]["text"] == "Unknown action respond"


def test_respond_counts_as_an_action() -> None:
    env = begun(max_actions=2)
    for _ in range(2):
        env.step({"assistant": write_call("respond", {"content": "Hm."})})
        if not env.done:
            env.step({"user": "Go on."})
    assert env.done and env.infos["assistant"]["ended"] == "cut off"


@pytest.mark.parametrize("options", [{"calls": "all"}, {"transfer": "strict"}])
def test_options_that_contradict_the_official_rules_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match="official=true goes with calls=first, transfer=official"):
        TauEnv(DESK, official=True, **options)


def test_wrong_values_are_refused() -> None:
    with pytest.raises(InvalidOption, match="official is true or false, not 'yes'"):
        marl_gem.make("tau:desk-v0", official="yes")
    with pytest.raises(InvalidOption, match="corrected=false"):
        marl_gem.make("tau:retail-mini-v0", official=True, corrected=True)


@pytest.mark.parametrize("scenario", ["tau:retail-mini-v0", "tau:airline-mini-v0", "tau:desk-v0"])
def test_the_oracle_solves_every_scenario_under_the_official_rules(scenario: str) -> None:
    made = marl_gem.make(scenario, official=True)
    assert isinstance(made, TauEnv)
    oracle = ScriptPolicy("oracle", made.domain, made.domain.splits["test"])
    jobs = [Job(0, oracle, options={"task": task}) for task in range(20)]
    played = collect(lambda: marl_gem.make(scenario, official=True), jobs)
    assert [episode.returns["assistant"] for episode in played] == [1.0] * 20


# The strategies of the seats


class Model:
    """Answers with these texts in turn, and keeps what it was asked."""

    name = "model"

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = iter(texts)
        self.asked: list[tuple[list[Message], Sampling]] = []

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, seed: int, tools: Sequence[ToolSpec] = ()
    ) -> Response:
        self.asked.append((list(messages), sampling))
        return Response(next(self._texts), token_ids=(1, 2), logprobs=(-0.5, -0.5))


def played(*texts: str, customer: Sequence[str] = ("Hi", STOP)) -> tuple[Model, Episode]:
    """A dialogue with a model as the assistant, under the official rules."""
    model, lines = Model(texts), iter(customer)
    policies: dict[str, Policy] = {
        "assistant": assistant(LLMPolicy(model, sampling=Sampling(temperature=0.7)), TauEnv(DESK, official=True)),
        "user": ScriptedPolicy(lambda observation, info: next(lines)),
    }
    (episode,) = collect(lambda: TauEnv(DESK, official=True), [Job(0, policies)])
    assert episode.error is None, episode.error
    return model, episode


def test_the_assistant_takes_the_most_likely_tokens_without_a_limit() -> None:
    model, _ = played("Bye.")
    assert model.asked[0][1] == Sampling(max_tokens=None, temperature=0.0)


def test_the_user_draws_at_temperature_1_without_a_limit() -> None:
    policy = LLMPolicy(Model([]), sampling=Sampling(max_tokens=10, temperature=0.0))
    assert user(policy, TauEnv(DESK, official=True)).sampling == Sampling(max_tokens=None, temperature=1.0)
    assert policy.sampling == Sampling(max_tokens=10, temperature=0.0)


def test_of_several_calls_the_others_leave_the_history() -> None:
    model, episode = played(f"Both. {CLOSE_815}\n{CLOSE_816} Done.", "815 is closed")
    assert [message["content"] for message in model.asked[1][0][2:3]] == [f"Both. {CLOSE_815}"]
    assert "token_ids" not in model.asked[1][0][2] or model.asked[1][0][2]["token_ids"] == ()
    assert [message["role"] for message in model.asked[1][0]] == ["system", "user", "assistant", "tool"]
    called = episode.turns_of("assistant")[0]
    assert called.response.text == f"Both. {CLOSE_815}" and called.response.logprobs == ()
    assert called.info["calls"] == ["close_ticket"] and "several" not in called.info
    assert episode.returns["assistant"] == 1


@pytest.mark.parametrize(
    "text", [CLOSE_815, f"One. {CLOSE_815}", write_call("respond", {"content": "Hm."}) + CLOSE_815]
)
def test_other_answers_stay_as_they_are(text: str) -> None:
    model, episode = played(text, "815 is closed", "Bye.", customer=("Hi", "Go on.", STOP))
    assert episode.turns_of("assistant")[0].response.text == text
    assert episode.turns_of("assistant")[0].response.token_ids == (1, 2)
    assert model.asked[1][0][2]["content"] == text


@pytest.mark.parametrize("strategy", [assistant, user])
def test_the_strategies_go_with_the_option_and_with_models(strategy: Any) -> None:
    model = LLMPolicy(Model([]))
    for env in (TauEnv(DESK), marl_gem.make("game:TicTacToe-v0")):
        with pytest.raises(ConfigError, match="add --option official=true"):
            strategy(model, env)
    with pytest.raises(ConfigError, match="official takes a language model"):
        strategy(ScriptedPolicy(lambda observation, info: ""), TauEnv(DESK, official=True))


def test_every_scenario_offers_the_strategy_in_both_seats() -> None:
    for seat in ("user", "assistant"):
        assert "official" in registry.strategies("tau:retail-mini-v0")[seat]
        made = registry.make_strategy(
            "tau:retail-mini-v0", seat, "official", LLMPolicy(Model([])), options={"official": True}
        )
        assert isinstance(made, LLMPolicy) and made.sampling.max_tokens is None


def test_a_request_without_a_limit_names_none() -> None:
    sampling = Sampling(max_tokens=None, temperature=0.0)
    body = wire.write_request("m", [{"role": "user", "content": "Hi"}], sampling, 0, (), tokens=False, logprobs=False)
    assert not {"max_tokens", "max_completion_tokens"} & body.keys() and body["temperature"] == 0
