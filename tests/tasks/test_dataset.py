"""Data sets as scenarios: rows of every kind, columns, splits, rewards and tools; and what is wrong with a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import marl_gem
from marl_gem import registry
from marl_gem.errors import ConfigError, InvalidOption, RecordError, RegistryError
from marl_gem.evaluation import evaluate
from marl_gem.scenarios.tasks import Item, QuestionEnv, Score, register_dataset
from marl_gem.testing import Plan, check_env
from marl_gem.tools import Context, reward
from marl_gem.types import Episode

ROWS: list[dict[str, Any]] = [
    {"id": f"sum-{n}", "prompt": f"What is {n} + 1?", "answer": n + 1, "grade": "easy" if n < 5 else "hard"}
    for n in range(8)
]
CALL = '<tool_call>{"name": "calculator", "arguments": {"expression": "2 + 1"}}</tool_call>'


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    with registry.preserved():
        yield


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def play(env: Any, answer: str, **options: Any) -> tuple[float, dict[str, Any]]:
    """The return of an episode of one answer, and its last info."""
    env.reset(seed=3, options=options)
    *_, infos = env.step({"solver": answer})
    return env.returns["solver"], infos["solver"]


def item_of(env: Any) -> Item:
    return env.unwrapped.item  # type: ignore[no-any-return]


def test_a_file_becomes_a_scenario(tmp_path: Path) -> None:
    register_dataset("my:Sums-v0", write(tmp_path / "sums.jsonl", ROWS))
    env = marl_gem.make("my:Sums-v0", task="sum-2")
    observations, infos = env.reset(seed=0)
    assert observations == {"solver": "What is 2 + 1?"}
    assert infos == {"solver": {"item": "sum-2", "task": 2}}
    assert play(env, r"It is \boxed{3}.") == (
        1.0,
        {
            **{"item": "sum-2", "task": 2, "answer": "3", "expected": "3", "success": True, "failure": ""},
            "final_observation": "What is 2 + 1?",
        },
    )
    assert play(env, "<answer>4</answer>")[1]["failure"] == "wrong answer"
    assert play(env, "3")[0] == 1.0


def test_tasks_are_chosen_by_number_and_id() -> None:
    register_dataset("my:Sums-v0", ROWS)
    env = marl_gem.make("my:Sums-v0")
    assert (env.tasks, env.grades) == (8, ("easy",) * 5 + ("hard",) * 3)
    assert env.reset(options={"task": 6})[1]["solver"]["item"] == "sum-6"
    assert env.reset(options={"task": "sum-1"})[1]["solver"]["task"] == 1
    for wrong in ("sum-9", 8, -1, True, 1.0):
        with pytest.raises(InvalidOption, match=r"task|id"):
            env.reset(options={"task": wrong})


def test_the_contract_holds() -> None:
    register_dataset("my:Sums-v0", ROWS, tools="calculator")
    quick = Plan(seeds=(0, 1), steps=10, copies=4, seconds=0.3)
    only = ["plays", "seeding", "infos", "records", "purity", "forking", "isolation", "reset", "metadata", "ending"]
    check_env(lambda: marl_gem.make("my:Sums-v0"), quick, only=only).raise_if_failed()


def test_splits_by_column_and_by_file(tmp_path: Path) -> None:
    register_dataset("my:A-v0", [{**row, "split": "test" if n > 5 else "train"} for n, row in enumerate(ROWS)])
    register_dataset("my:B-v0", {"dev": write(tmp_path / "dev.jsonl", ROWS[:3]), "test": ROWS})
    assert [marl_gem.make("my:A-v0", **options).tasks for options in ({}, {"split": "test"})] == [6, 2]
    assert [marl_gem.make("my:B-v0", **options).tasks for options in ({}, {"split": "test"})] == [3, 8]
    with pytest.raises(InvalidOption, match="dev, test"):
        marl_gem.make("my:B-v0", split="train")


def test_parquet_datasets_and_functions_give_the_same(tmp_path: Path) -> None:
    datasets, parquet = pytest.importorskip("datasets"), pytest.importorskip("pyarrow.parquet")  # 3 s to import
    table = datasets.Dataset.from_list(ROWS)
    parquet.write_table(table.data.table, tmp_path / "sums.parquet")
    sources = [tmp_path / "sums.parquet", table, datasets.DatasetDict(train=table), lambda: ROWS, lambda: {"all": ROWS}]
    for number, source in enumerate(sources):
        register_dataset(f"my:Sums{number}-v0", source)
        env = marl_gem.make(f"my:Sums{number}-v0", task="sum-7")
        env.reset(seed=0)
        assert item_of(env) == Item("sum-7", "What is 7 + 1?", "8", "hard")


def test_other_columns_and_the_rest_of_a_row() -> None:
    rows = [{"question": "Which is big?", "gold": ["Rome", "Roma"], "level": 2, "source": "a page"}]
    register_dataset("my:Q-v0", rows, columns={"prompt": "question", "answer": "gold", "grade": "level"})
    env = marl_gem.make("my:Q-v0", answer_in="text")
    assert play(env, "the roma!")[0] == 1.0
    assert item_of(env) == Item("0", "Which is big?", ["Rome", "Roma"], "2", fields={"source": "a page"})


def test_rewards_by_name() -> None:
    rows = [{"prompt": "?", "answer": "the red house"}]
    register_dataset("my:F1-v0", rows, reward="f1")
    value, info = play(marl_gem.make("my:F1-v0"), "red door")
    assert (value, info["success"]) == (0.5, False)
    register_dataset("my:Pattern-v0", [{"prompt": "?", "answer": r"^\d+$"}], reward="matches")
    assert [play(marl_gem.make("my:Pattern-v0"), text)[0] for text in ("12", "x")] == [1.0, 0.0]
    register_dataset("my:Schema-v0", [{"prompt": "?", "answer": '{"type": "array"}'}], reward="fits_schema")
    assert [play(marl_gem.make("my:Schema-v0"), text)[0] for text in ("[1]", "{}", "[")] == [1.0, 0.0, 0.0]


def test_rewards_that_are_functions() -> None:
    async def near(answer: str, item: Item) -> Score:
        return Score(0.25, False, "far")

    @reward
    def long(episode: Episode, agent: str, context: Context) -> float:
        return len(context.env.unwrapped.item.fields["extra"])

    rows = [{"prompt": "?", "extra": "abc"}]
    register_dataset("my:Near-v0", rows, reward=near)
    value, info = play(marl_gem.make("my:Near-v0"), "x")
    assert (value, info["failure"]) == (0.25, "far")
    register_dataset("my:Long-v0", rows, reward=long)
    assert play(marl_gem.make("my:Long-v0"), "x")[0] == 3.0
    register_dataset("my:Equal-v0", rows, reward=lambda answer, item: answer == "x")
    assert [play(marl_gem.make("my:Equal-v0"), text)[0] for text in "xy"] == [1.0, 0.0]


def test_a_reward_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def score(answer, item):\n    return 0.5\n")
    register_dataset("my:Half-v0", ROWS, reward=f"{tmp_path / 'mine.py'}:score")
    assert play(marl_gem.make("my:Half-v0"), "x")[0] == 0.5
    for wrong in ("exact", f"{tmp_path / 'mine.py'}:none", 3):
        with pytest.raises(ConfigError):
            register_dataset("my:Wrong-v0", ROWS, reward=wrong)  # type: ignore[arg-type]


def test_tools_of_all_rows_and_of_some() -> None:
    register_dataset("my:T-v0", [{**ROWS[2]}, {**ROWS[3], "tools": ["shout"]}], tools=["calculator", shout])
    env = marl_gem.make("my:T-v0")
    for task, names in ((0, ["calculator", "shout"]), (1, ["shout"]), (0, ["calculator", "shout"])):
        env.reset(seed=0, options={"task": task})
        assert [tool.name for tool in env.role("solver").tools] == names
    observations, *_ = env.step({"solver": CALL})
    assert observations["solver"][0]["text"] == "3"
    assert env.step({"solver": "3"})[1] == {"solver": 1.0}
    register_dataset("my:U-v0", [{**ROWS[2], "tools": ["telephone"]}], tools=["calculator"])
    with pytest.raises(ConfigError, match="telephone"):
        marl_gem.make("my:U-v0").reset(seed=0)


def shout(text: str) -> str:
    """Say it loudly."""
    return text.upper()


PNG = bytes.fromhex("89504e470d0a1a0a") + b"picture"


def test_images_are_observed(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    images = ["a.png", PNG, {"bytes": PNG, "path": None}, "https://example.org/b.png"]
    register_dataset("my:I-v0", write(tmp_path / "i.jsonl", [{**ROWS[0], "images": "a.png"}]))
    observation = marl_gem.make("my:I-v0").reset(seed=0)[0]["solver"]
    assert [part["type"] for part in observation] == ["image", "text"]
    register_dataset("my:J-v0", {"all": [{**ROWS[0], "images": [*images[1:]]}]})
    *shown, _ = marl_gem.make("my:J-v0").reset(seed=0)[0]["solver"]
    assert shown == [observation[0], observation[0], {"type": "image", "url": "https://example.org/b.png"}]
    for wrong in ("none.png", b"no image", 7):
        register_dataset(f"my:W{type(wrong).__name__}-v0", [{**ROWS[0], "images": wrong}])
        with pytest.raises(RecordError, match="row 0: images"):
            marl_gem.make(f"my:W{type(wrong).__name__}-v0")


def test_the_gold_answer_and_a_guess_as_policies() -> None:
    register_dataset("my:Sums-v0", ROWS, tools="calculator")
    for name, most in (("gold", 1.0), ("guess", 0.0)):
        report = evaluate("my:Sums-v0", registry.make_policy("my:Sums-v0", name), concurrency=1).report
        assert report.episodes.counted == 8 and report.matches[0].agents["solver"].success.mean == most


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"prompt": "?", "answer": }', "line 2: no JSON"),
        ('{"prompt": "?", "answer": NaN}', "line 2: no JSON"),
        ("[1]", "line 2: a row is an object"),
        ('{"answer": "1"}', "line 2: there is no column 'prompt'; there are answer"),
        ('{"prompt": "?"}', "line 2: there is no column 'answer'"),
        ('{"prompt": "", "answer": "1"}', "line 2: prompt is a text that is not empty"),
        ('{"prompt": 5, "answer": "1"}', "line 2: prompt is a text"),
        ('{"prompt": "?", "answer": {"a": 1}}', "line 2: answer is a text, a number or a list"),
        ('{"prompt": "?", "answer": null}', "line 2: answer is a text"),
        ('{"prompt": "?", "answer": []}', "line 2: answer is a text"),
        ('{"prompt": "?", "answer": "1", "id": 1.5}', "line 2: id is a text or a whole number"),
        ('{"prompt": "?", "answer": "1", "id": "first"}', "line 2: the id 'first' is that of .*line 1 already"),
        ('{"prompt": "?", "answer": "1", "tools": "all"}', "line 2: tools is a list"),
        ('{"prompt": "?", "answer": "1", "grade": true}', "line 2: grade is a text"),
        ('{"prompt": "?", "answer": "1", "grade": "easy"}', "line 1: there is no grade"),
        ('{"prompt": "?", "answer": "1", "split": 3}', "line 2: split is a text"),
        ("\udcff", "line 2: no JSON"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "broken.jsonl"
    first = '{"id": "first", "prompt": "?", "answer": "1"}\n'
    path.write_bytes(f"{first}{line}\n".encode("utf-8", "surrogateescape"))
    register_dataset("my:Broken-v0", path)
    with pytest.raises(RecordError, match=rf"broken\.jsonl, {message}"):
        marl_gem.make("my:Broken-v0")


def test_what_is_no_data_set(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "text.csv").touch()
    (tmp_path / "no.parquet").write_bytes(b"no parquet")
    (tmp_path / "object.json").write_text("{}")
    wrong = ["none.jsonl", "text.csv", "empty.jsonl", "no.parquet", "object.json"]
    for number, source in enumerate([*(tmp_path / name for name in wrong), 3, {}, [3], lambda: 1 / 0]):
        register_dataset(f"my:Wrong{number}-v0", source)  # type: ignore[arg-type]
        with pytest.raises(RecordError):
            marl_gem.make(f"my:Wrong{number}-v0")
    with pytest.raises(RegistryError):
        register_dataset("Wrong-v0", ROWS)
    with pytest.raises(ConfigError, match="question"):
        register_dataset("my:Wrong-v0", ROWS, columns={"question": "prompt"})
    register_dataset("my:Named-v0", ROWS, columns={"images": "pictures"})
    with pytest.raises(RecordError, match="pictures"):
        marl_gem.make("my:Named-v0")


def test_where_an_answer_is_written() -> None:
    register_dataset("my:Sums-v0", ROWS)
    env = marl_gem.make("my:Sums-v0", task=2, answer_in="boxed", unanswered_reward=-0.5)
    assert isinstance(env, QuestionEnv)
    assert env.role("solver").instructions.endswith(r"within \boxed{}.")
    value, info = play(env, "3")
    assert (value, info["failure"], info["answer"]) == (-0.5, "no answer", None)
    assert play(env, r"\boxed{1} or rather \boxed{3}")[0] == 1.0
    tagged = marl_gem.make("my:Sums-v0", task=2, answer_in="tags", instructions="Say it.")
    assert tagged.role("solver").instructions == "Say it."
    assert [play(tagged, text)[0] for text in ("<answer>3</answer>", "3", r"\boxed{3}")] == [1.0, 0.0, 0.0]
    for wrong in ({"answer_in": "a box"}, {"unanswered_reward": float("nan")}, {"task": "none"}):
        with pytest.raises(InvalidOption):
            marl_gem.make("my:Sums-v0", **wrong)
