"""Episodes for other programs: chat rows that `datasets` loads, and logs that inspect reads."""

from __future__ import annotations

import builtins
import importlib.util
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import marl_gem
from marl_gem import views
from marl_gem.cli.export import export
from marl_gem.errors import MarlGemError, MissingPackage, RecordError
from marl_gem.export.chat import IMAGE, rows, write_chat
from marl_gem.export.inspect_log import write_inspect
from marl_gem.export.selection import Selection
from marl_gem.policies import RandomPolicy
from marl_gem.rollout import Job, collect
from marl_gem.runs.library import RunLibrary
from marl_gem.runs.reader import RunReader
from marl_gem.tools.calls import write_call
from marl_gem.types import Episode, EpisodeError, Observation, Response, Role, ToolSpec, Turn, to_json

needs_datasets = pytest.mark.skipif(
    not importlib.util.find_spec("datasets"), reason="the package datasets is not installed"
)
needs_inspect = pytest.mark.skipif(
    not importlib.util.find_spec("inspect_ai"), reason="the package inspect_ai is not installed"
)

PICTURE = "data:image/png;base64,iVBORw0KGgo="


def answer(text: str, prompt: Sequence[int] = (), sampled: Sequence[int] = (), **more: Any) -> Response:
    return Response(text, tuple(prompt), tuple(sampled), tuple(-0.1 * token for token in sampled), **more)


def episode(*turns: Turn, **changes: Any) -> Episode:
    agents = dict.fromkeys(turn.agent for turn in turns)
    fields: dict[str, Any] = {
        "id": "one",
        "scenario": "test:Talk-v0",
        "seed": 2**63 + 1,
        "turns": turns,
        "returns": dict.fromkeys(agents, 0.0),
        "ending": "terminated",
        "models": {agent: f"model of {agent}" for agent in agents},
    }
    return Episode(**(fields | changes))


def run_of(folder: Path, *episodes: Episode) -> RunReader:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "episodes.jsonl").write_text("".join(f"{to_json(episode)}\n" for episode in episodes))
    library = RunLibrary(folder)
    return library.open(next(iter(library.runs())))


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("ascii").splitlines()]


# What a row holds


def test_prompts_that_extend_one_another_share_a_row() -> None:
    turns = [
        Turn("a", "x", answer("A", [1, 2], [3]), reward=0.5),
        Turn("b", "y", answer("B", [9], [8])),
        Turn("a", "z", answer("C", [1, 2, 3, 4], [5, 6]), reward=1.0),
    ]
    first, second = rows(episode(*turns, returns={"a": 2.0, "b": -2.0}))
    assert (first["agent"], first["model"], first["return"]) == ("a", "model of a", 2.0)
    assert first["input_ids"] == [1, 2, 3, 4, 5, 6] and first["loss_mask"] == [0, 0, 1, 0, 1, 1]
    assert first["logprobs"] == pytest.approx([0, 0, -0.3, 0, -0.5, -0.6])
    assert (first["turns"], first["rewards"], first["seed"]) == ([1, 3], [0.5, 1.0], str(2**63 + 1))
    assert [(m["role"], m["content"], m["train"]) for m in first["messages"]] == [
        ("user", "x", False),
        ("assistant", "A", True),
        ("user", "z", False),
        ("assistant", "C", True),
    ]
    assert (second["agent"], second["turns"], second["input_ids"]) == ("b", [2], [9, 8])


def test_a_prompt_that_was_cut_begins_a_new_row() -> None:
    turns = [
        Turn("a", "x", answer("A", [1], [2])),
        Turn("a", "y", answer("B", [1, 2, 3], [4])),
        Turn("a", "z", answer("C", [3, 4, 5], [6])),  # the first exchange was left out
        Turn("a", "w", answer("D", [3, 4, 5, 6, 7], [8])),
    ]
    first, second = rows(episode(*turns))
    assert (first["turns"], first["input_ids"]) == ([1, 2], [1, 2, 3, 4])
    assert (second["turns"], second["input_ids"]) == ([3, 4], [3, 4, 5, 6, 7, 8])
    assert second["loss_mask"] == [0, 0, 0, 1, 0, 1], "what the first row trains is not trained again"
    assert [message["train"] for message in second["messages"]] == [
        False,
        False,
        False,
        False,
        False,
        True,
        False,
        True,
    ]


def test_turns_without_tokens() -> None:
    turns = [
        Turn("a", "x", Response("A")),
        Turn("a", "y", Response("B", token_ids=(4,))),  # the prompt is not known
        Turn("a", "z", answer("C", [3], [6])),
        Turn("a", "w", Response("D", (3, 6, 7), (8,))),  # nor are log-probabilities
    ]
    without, with_tokens = rows(episode(*turns))
    assert (without["turns"], without["input_ids"], without["loss_mask"]) == ([1, 2], [], [])
    assert (with_tokens["input_ids"], with_tokens["logprobs"]) == ([3, 6, 7, 8], [])


tokens = st.lists(st.integers(0, 3), max_size=4)


@given(st.lists(st.tuples(tokens, tokens, st.booleans()), min_size=1, max_size=6))
def test_every_sampled_token_is_trained_once(steps: list[tuple[list[int], list[int], bool]]) -> None:
    turns, seen = [], list[int]()
    for shown, sampled, goes_on in steps:
        prompt = (seen if goes_on else []) + shown
        turns.append(Turn("a", "?", answer("!", prompt, sampled)))
        seen = prompt + sampled
    made = list(rows(episode(*turns)))
    known = [turn.response for turn in turns if turn.response.prompt_ids and turn.response.token_ids]
    assert sum(sum(row["loss_mask"]) for row in made) == sum(len(response.token_ids) for response in known)
    assert sorted(number for row in made for number in row["turns"]) == list(range(1, len(turns) + 1))
    trained = [token for row in made for token, mask in zip(row["input_ids"], row["loss_mask"], strict=True) if mask]
    assert trained == [token for response in known for token in response.token_ids]
    assert sum(message["train"] for row in made for message in row["messages"]) == len(turns)
    assert all(len(row["rewards"]) == len(row["turns"]) for row in made)


def test_tools_reasoning_and_images() -> None:
    call = write_call("look", {"at": "the sky"})
    turns = [
        Turn(
            "a", [{"type": "text", "text": "See?"}, {"type": "image", "url": PICTURE}], Response(call, reasoning="hm")
        ),
        Turn(
            "a",
            [{"type": "tool_result", "name": "look", "text": "blue"}, {"type": "text", "text": "Well?"}],
            Response("yes"),
        ),
    ]
    (row,) = rows(episode(*turns))
    assert [(m["role"], m["name"], m["content"]) for m in row["messages"]] == [
        ("user", "", f"See?\n{IMAGE}"),
        ("assistant", "", call),
        ("tool", "look", "blue"),
        ("user", "", "Well?"),
        ("assistant", "", "yes"),
    ]
    assert row["images"] == [PICTURE] and row["messages"][1]["reasoning_content"] == "hm"


LOOK = ToolSpec("look", "Look somewhere.", {"type": "object", "properties": {"at": {"type": "string"}}})
WAIT = ToolSpec("wait")


def test_a_row_begins_with_its_agents_role() -> None:
    turns = [
        Turn("a", "x", answer("A", [1, 2], [3]), reward=0.5),
        Turn("b", "y", answer("B", [9], [8])),
        Turn("a", "z", answer("C", [2, 4], [5])),  # the prompt was cut, so that a new row begins
        Turn("c", "w", Response("D")),
    ]
    roles = {"a": Role("You are a \ud800.", (LOOK, WAIT)), "b": Role("You are b.")}
    before, after = list(rows(episode(*turns))), list(rows(episode(*turns, roles=roles)))
    system = {"role": "system", "content": "You are a ?.", "reasoning_content": "", "name": "", "train": False}
    assert [row["messages"][0] for row in after[:2]] == [system, system]
    assert after[2]["messages"][0]["content"] == "You are b."
    assert [row["messages"][1:] for row in after[:3]] == [row["messages"] for row in before[:3]]
    assert after[3] == before[3], "the role of c is not recorded"
    for name in set(before[0]) - {"messages", "tools"}:
        assert [row[name] for row in after] == [row[name] for row in before], "the tokens hold it already"
    nothing = {"type": "object", "properties": {}}
    assert json.loads(after[1]["tools"]) == [
        {
            "type": "function",
            "function": {"name": "look", "description": "Look somewhere.", "parameters": LOOK.parameters},
        },
        {"type": "function", "function": {"name": "wait", "description": "", "parameters": nothing}},
    ]
    assert [row["tools"] for row in (*before, *after[2:])] == ["[]"] * 6


def test_messages_and_tools_give_the_tokens_under_the_model_s_chat_template() -> None:
    """So whoever trains on messages trains on what was read and sampled."""
    pytest.importorskip("torch")
    from marl_gem.llm.transformers import TransformersLLM
    from marl_gem.trainers.tiny import CHAT_TEMPLATE, END, tiny_model, tiny_tokenizer

    role = Role("Find the ball.", (LOOK,))
    tokenizer = tiny_tokenizer(["Find the ball. Where is it? It is there."] * 3, tools=True)
    tokenizer.chat_template = "{% if tools %}<|system|>{{ tools | tojson }}{% endif %}" + CHAT_TEMPLATE
    llm = TransformersLLM(tiny_model(tokenizer, width=16, layers=1, heads=2), tokenizer)
    observations: list[Observation] = [
        "Where is it?",
        [{"type": "tool_result", "name": "look", "text": "nothing"}, {"type": "text", "text": "Well?"}],
    ]
    history: list[views.Exchange] = []
    for observation, text in zip(observations, [write_call("look", {"at": "sky"}), "It is there."], strict=True):
        prompt = llm.encode(views.chat(role, [*history, views.Exchange(observation, None)]), role.tools)
        history.append(views.Exchange(observation, Response(text, prompt, llm.encode_answer(text))))
    turns = [Turn("a", exchange.observation, exchange.response) for exchange in history if exchange.response]
    (row,) = rows(episode(*turns, roles={"a": role}))
    rendered = tokenizer.apply_chat_template(row["messages"], tools=json.loads(row["tools"]), tokenize=False)
    assert rendered == tokenizer.decode(row["input_ids"])
    assert rendered.startswith('<|system|>[{"type": "function"') and "<|system|>Find the ball.<|user|>" in rendered
    trained = [token for token, mask in zip(row["input_ids"], row["loss_mask"], strict=True) if mask]
    assert tokenizer.decode(trained) == f"{turns[0].response.text}{END}{turns[1].response.text}{END}"


# The file


def test_a_file_has_the_selected_rows(tmp_path: Path) -> None:
    jobs = [Job(seed, RandomPolicy()) for seed in range(30)]
    played = collect(lambda: marl_gem.make("game:KuhnPoker-v0"), jobs)
    broken = episode(Turn("player_0", "?", Response("!")), ending="error", error=EpisodeError("llm", "X", "x"))
    run = run_of(tmp_path / "run", *played, broken)
    written = write_chat(run, tmp_path / "all.jsonl")
    assert (written.rows, written.episodes, written.errors) == (60, 30, 1) and len(read(tmp_path / "all.jsonl")) == 60
    write_chat(run, tmp_path / "deep" / "won.jsonl", Selection(agents=("player_1",), success=True))
    won = [episode for episode in played if episode.returns["player_1"] > 0]
    kept = read(tmp_path / "deep" / "won.jsonl")
    assert [row["episode"] for row in kept] == [episode.id for episode in won]
    assert {(row["agent"], row["outcome"]) for row in kept} == {("player_1", "win")}
    assert [row["return"] for row in kept] == [episode.returns["player_1"] for episode in won]
    assert kept[0]["line"] == str(played.index(won[0]) + 1)
    assert {tuple(row) for row in read(tmp_path / "all.jsonl")} == {tuple(kept[0])}, "all rows have the same columns"


def test_no_file_is_replaced_without_force_or_left_incomplete(tmp_path: Path) -> None:
    run, path = run_of(tmp_path / "run", episode(Turn("a", "?", Response("!")))), tmp_path / "out.jsonl"
    path.write_text("precious")
    with pytest.raises(RecordError, match="--force"):
        write_chat(run, path)
    assert path.read_text() == "precious"
    write_chat(run, path, force=True)
    assert len(read(path)) == 1
    for file in run.paths:
        with pytest.raises(RecordError, match="belongs to the run"):
            write_chat(run, file, force=True)
    with pytest.raises(RecordError, match="is a folder"):
        write_chat(run, tmp_path, force=True)
    path.write_text("precious")
    (tmp_path / "run" / "episodes.jsonl").unlink()
    (tmp_path / "run" / "episodes.jsonl").mkdir()
    with pytest.raises(RecordError, match="cannot be read"):
        write_chat(run, path, force=True)
    assert path.read_text() == "precious"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["out.jsonl", "run"], "no draft is left"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(RecordError, match="cannot write"):
        write_chat(run_of(tmp_path / "run", episode(Turn("a", "?", Response("!")))), tmp_path / "closed" / "x.jsonl")


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    run = run_of(tmp_path / "run", *[episode(Turn("a", "?" * 10_000, Response("!")))] * 50)
    path = tmp_path / "out.jsonl"
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft{path.suffix}")
    draft.symlink_to("/dev/full")
    with pytest.raises(RecordError, match="No space left"):
        write_chat(run, path)
    assert not path.exists() and not draft.exists()


@needs_datasets
def test_datasets_loads_the_file_whatever_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a column's type from the first 10 MB; so rows with tokens, and with pictures, must be among them."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import datasets

    long = "x" * 1_500_000
    plain = [episode(Turn("a", long, Response("A")), id=f"plain {number}") for number in range(12)]
    tools = [ToolSpec("look", "", {"type": "object", "properties": {"at": {"enum": ["sky", 3]}}}), WAIT]
    odd = [
        episode(Turn("a", "?", Response("E")), id="with tools", roles={"a": Role("Look.", tuple(tools))}),
        episode(Turn("a", "half \ud800 a \x00", answer("\udfff", [1], [2], reasoning="hm")), id="with tokens"),
        episode(Turn("a", [{"type": "image", "url": PICTURE}], Response("C")), id="with a picture"),
        episode(Turn("a", [{"type": "tool_result", "name": "t", "text": "y"}], answer("D", [2**31], [3])), id="last"),
    ]
    write_chat(run_of(tmp_path / "run", *plain, *odd), tmp_path / "out.jsonl")
    loaded = datasets.load_dataset(
        "json", data_files=str(tmp_path / "out.jsonl"), split="train", cache_dir=str(tmp_path / "cache")
    )
    by_id = {row["episode"]: row for row in loaded}
    assert by_id.keys() == {record.id for record in [*plain, *odd]}
    assert by_id["last"]["input_ids"] == [2**31, 3] and by_id["last"]["loss_mask"] == [0, 1]
    assert by_id["last"]["messages"][0] == {
        "role": "tool",
        "content": "y",
        "reasoning_content": "",
        "name": "t",
        "train": False,
    }
    schemas = [tool["function"] for tool in json.loads(by_id["with tools"]["tools"])]
    nothing = {"type": "object", "properties": {}}
    assert [tool["parameters"] for tool in schemas] == [tools[0].parameters, nothing], (
        "no schema is filled up with others"
    )
    assert by_id["with tools"]["messages"][0]["role"] == "system" and by_id["last"]["tools"] == "[]"
    assert by_id["with a picture"]["images"] == [PICTURE] and by_id["plain 3"]["input_ids"] == []
    assert (
        by_id["with tokens"]["seed"] == str(2**63 + 1)
        and by_id["with tokens"]["messages"][0]["content"] == "half ? a \x00"
    )


# inspect


@needs_inspect
def test_inspect_reads_the_log(tmp_path: Path) -> None:
    from inspect_ai.log import read_eval_log

    call = write_call("look", {"at": ["the", "sky"]})
    turns = [
        Turn(
            "a",
            [{"type": "text", "text": "See?"}, {"type": "image", "url": PICTURE}],
            Response(f"Hm.{call}", reasoning="so"),
        ),
        Turn("b", "Anybody?", Response("Me \ud800.", seconds=2.5)),
        Turn("a", [{"type": "tool_result", "name": "look", "text": "blue"}], Response("It is blue."), reward=1.0),
    ]
    usage = {"prompt_tokens": 10, "completion_tokens": 5}
    played = [
        episode(*turns, returns={"a": 1.0, "b": -1.0}, repeat=1, seconds=9.0),
        episode(
            Turn("a", "?", Response("!", usage=usage)),
            Turn("b", "", Response("")),
            id="two/../x",
            returns={"a": 0.0, "b": 0.0},
        ),
        episode(
            Turn("a", "?", Response("!")),
            id="bad",
            ending="error",
            error=EpisodeError("llm", "X", "the server is gone"),
        ),
    ]
    path = tmp_path / "log.eval"
    assert write_inspect(run_of(tmp_path / "run", *played), path) == 3
    log = read_eval_log(str(path))
    assert (log.status, log.eval.task, log.eval.config.epochs) == ("success", "test:Talk-v0", 2)
    assert log.samples and log.results and (log.results.total_samples, log.results.completed_samples) == (3, 2)
    by_id = {sample.id: sample for sample in log.samples}
    first = by_id["one"]
    assert [(message.role, message.metadata["agent"]) for message in first.messages] == [
        ("user", "a"),
        ("assistant", "a"),
        ("user", "b"),
        ("assistant", "b"),
        ("tool", "a"),
        ("assistant", "a"),
    ]
    call, result = first.messages[1], first.messages[4]
    assert call.role == "assistant" and result.role == "tool" and call.tool_calls
    assert call.tool_calls[0].arguments == {"at": ["the", "sky"]} and result.tool_call_id == call.tool_calls[0].id
    assert call.text == "Hm." and first.output.completion == "It is blue."
    assert first.scores and first.epoch == 2
    assert {name: score.value for name, score in first.scores.items()} == {
        "return/a": 1.0,
        "outcome/a": 1.0,
        "return/b": -1.0,
        "outcome/b": 0.0,
    }
    assert (first.total_time, first.working_time) == (9.0, 2.5)
    assert first.messages[3].text == "Me ?."
    assert by_id["two/../x"].model_usage["model of a"].total_tokens == 15
    assert log.stats.model_usage["model of a"].output_tokens == 5
    assert by_id["bad"].error and "the server is gone" in by_id["bad"].error.message
    means = {score.name: score.metrics["mean"].value for score in log.results.scores}
    assert means == {"return/a": 0.5, "outcome/a": 0.75, "return/b": -0.5, "outcome/b": 0.25, "return": 0.0}

    chosen = tmp_path / "a.eval"
    assert write_inspect(run_of(tmp_path / "run", *played), chosen, Selection(agents=("b",))) == 2
    alone = next(sample for sample in read_eval_log(str(chosen)).samples or [] if sample.id == "one")
    assert [message.role for message in alone.messages] == ["user", "assistant"]
    assert alone.scores and alone.scores["return"].value == -1.0


@needs_inspect
def test_a_sample_begins_with_its_agents_role(tmp_path: Path) -> None:
    from inspect_ai.log import read_eval_log

    roles = {"a": Role("You \ud800 look.", (LOOK,)), "b": Role(tools=(LOOK,))}
    turns = [Turn("a", "Well?", Response("Blue.")), Turn("b", "Well?", Response("Grey."))]
    write_inspect(run_of(tmp_path / "run", episode(*turns, roles=roles)), tmp_path / "log.eval")
    (sample,) = read_eval_log(str(tmp_path / "log.eval")).samples or []
    assert [(message.role, message.text) for message in sample.messages] == [
        ("system", "You ? look."),
        ("user", "Well?"),
        ("assistant", "Blue."),
        ("user", "Well?"),
        ("assistant", "Grey."),
    ]
    assert sample.input == "Well?", "the policy is the same for every sample; what is asked is not"


@needs_inspect
def test_the_same_game_twice_makes_two_samples(tmp_path: Path) -> None:
    """A training run plays its evaluation before and after under the same ids."""
    from inspect_ai.log import read_eval_log

    twice = [episode(Turn("a", "?", Response(text))) for text in ("before", "after")]
    write_inspect(run_of(tmp_path / "run", *twice), tmp_path / "log.eval")
    samples = read_eval_log(str(tmp_path / "log.eval")).samples or []
    assert sorted(sample.output.completion for sample in samples) == ["after", "before"]


def test_a_missing_inspect_is_an_error_that_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **more: Any) -> Any:
        if name.startswith("inspect_ai"):
            raise ModuleNotFoundError(f"No module named {name!r}", name="inspect_ai")
        return real(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingPackage, match=r"marl-gem\[inspect\]"):
        write_inspect(run_of(tmp_path / "run", episode(Turn("a", "?", Response("!")))), tmp_path / "log.eval")
    assert not (tmp_path / "log.eval").exists()


# The command

app = typer.Typer(pretty_exceptions_enable=False)
app.command("export")(export)
app.command("nothing")(lambda: None)  # with a single command typer leaves its name out


def run_export(*arguments: str | Path) -> Any:
    result = CliRunner().invoke(app, ["export", *map(str, arguments)])
    if isinstance(result.exception, MarlGemError):
        raise result.exception
    return result


def test_the_command(tmp_path: Path) -> None:
    run = run_of(tmp_path / "runs" / "a", episode(Turn("a", "?", Response("!")), returns={"a": 1.0}))
    with (run.path / "episodes.jsonl").open("a") as file:
        file.write("no episode\n")
    result = run_export(run.path, "--out", tmp_path / "x.jsonl")
    assert result.exit_code == 0 and "1 rows of 1 episodes" in result.stdout
    assert "1 lines were left out" in result.stderr and len(read(tmp_path / "x.jsonl")) == 1
    with pytest.raises(MarlGemError, match="there is no agent 'b' in a; its agents are a"):
        run_export(run.path, "--out", tmp_path / "y.jsonl", "--agent", "b")
    run_of(tmp_path / "runs" / "b", episode(Turn("a", "?", Response("!"))))
    with pytest.raises(MarlGemError, match="choose one with --run"):
        run_export(tmp_path / "runs", "--out", tmp_path / "y.jsonl")
    assert run_export(tmp_path / "runs", "--run", "a", "--success", "--out", tmp_path / "y.jsonl").exit_code == 0
    assert run_export(run.path, "--out", tmp_path / "z", "--format", "parquet").exit_code == 2


def test_no_key_of_this_machine_goes_into_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-0123456789")
    run = run_of(tmp_path / "run", episode(Turn("a", "?", Response("!"))))
    (run.folder / "config.json").write_text(json.dumps({"scenario": "x", "api_key": "sk-canary-0123456789"}))
    write_chat(run, tmp_path / "x.jsonl")
    if importlib.util.find_spec("inspect_ai"):
        write_inspect(run, tmp_path / "x.eval")
    for file in tmp_path.glob("x.*"):
        assert b"canary" not in file.read_bytes()
        if file.suffix == ".eval":
            import zipfile

            with zipfile.ZipFile(file) as archive:
                assert all(b"canary" not in archive.read(name) for name in archive.namelist())
