"""Reading an official checkout without running it, and saying clearly what is missing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import marl_gem
from marl_gem.errors import InvalidOption, RecordError, UnavailableScenario
from marl_gem.scenarios.tau import catalog, data_folder, official
from marl_gem.scenarios.tau.env import TauEnv

TASKS = '''
from tau_bench.types import Task, Action
import os
os.system("touch {canary}")  # must not run

TASKS_TEST = [
    Task(
        annotator="0",
        user_id="mei_1",
        instruction="You are Mei. You want " "to cancel. You don't say \\"please\\".",
        actions=[
            Action(name="cancel", kwargs={{"order_id": "#W1", "amount": -1.5, "ids": ["1"], "deep": {{"a": None}}}}),
            Action(
                name="think", kwargs={{}},  # a comment
            ),
        ],
        outputs=["12.34"],
    ),
    Task(annotator="1", user_id="ana_2", instruction="""Two
lines""", actions=[], outputs=[]),
]
'''
TOOL = """
class {name}(Tool):
    @staticmethod
    def invoke(data, order_id):
        raise SystemExit("must not run")

    @staticmethod
    def get_info():
        return {{
            "type": "function",
            "function": {{"name": "{tool}", "description": "Do " "it.", "parameters": {{"type": "object"}}}},
        }}
"""


USER = """
class LLMUserSimulationEnv(BaseUserSimulationEnv):
    def build_system_prompt(self, instruction):
        instruction_display = (
            ("\\n\\nInstruction: " + instruction + "\\n")
            if instruction is not None
            else ""
        )
        return f\"\"\"You play a customer.{instruction_display}
Rules:
- Say '###STOP###' when you are done.\"\"\"
"""
TABLES = {"retail": ("orders", "products", "users"), "airline": ("flights", "reservations", "users")}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A small checkout of our own making, in the official layout."""
    root = tmp_path / "tau-bench"
    for name in data_folder.DOMAINS:
        folder = root / "tau_bench" / "envs" / name
        (folder / "data").mkdir(parents=True)
        (folder / "tools").mkdir()
        for table in TABLES[name]:
            (folder / "data" / f"{table}.json").write_text('{"#W1": {"status": "pending"}, "#W2": {}}')
        (folder / "data" / "__init__.py").write_text("raise SystemExit('must not run')")
        (folder / "wiki.md").write_text("# Policy\nBe kind.")
        (folder / "tasks_test.py").write_text(TASKS.format(canary=tmp_path / "ran"), "utf-8")
        for tool in ("think", "cancel"):
            (folder / "tools" / f"{tool}.py").write_text(TOOL.format(name=tool.title(), tool=tool))
        (folder / "tools" / "__init__.py").write_text("from .think import Think\nALL_TOOLS = [Cancel, Think]\n")
    (root / "tau_bench" / "envs" / "user.py").write_text(USER)
    return root


def contents(folder: Path) -> dict[str, bytes]:
    """Every file by its path within a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_import_reads_tasks_and_tools_and_runs_nothing(checkout: Path, tmp_path: Path) -> None:
    counts = official.import_checkout(checkout, tmp_path / "into")
    assert counts == {
        name: {"records": 6, "test tasks": 2, "tools": 2, "official user prompts": 1} for name in data_folder.DOMAINS
    }
    first, second = json.loads((tmp_path / "into" / "airline" / "tasks_test.json").read_text())
    assert first == {
        "annotator": "0",
        "user_id": "mei_1",
        "instruction": 'You are Mei. You want to cancel. You don\'t say "please".',
        "actions": [
            {"name": "cancel", "kwargs": {"order_id": "#W1", "amount": -1.5, "ids": ["1"], "deep": {"a": None}}},
            {"name": "think", "kwargs": {}},
        ],
        "outputs": ["12.34"],
    }
    assert second["instruction"] == "Two\nlines"
    tools = json.loads((tmp_path / "into" / "retail" / "tools.json").read_text())
    assert [tool["function"]["name"] for tool in tools] == ["cancel", "think"]
    assert tools[0]["function"]["description"] == "Do it."
    assert (tmp_path / "into" / "retail" / "policy.md").read_text() == "# Policy\nBe kind."
    assert (
        tmp_path / "into" / "retail" / "data" / "orders.json"
    ).read_bytes() == b'{"#W1": {"status": "pending"}, "#W2": {}}'
    assert not (tmp_path / "ran").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"tau-bench", "into"}  # no scratch is left


def test_a_second_import_replaces_the_files_of_the_first(checkout: Path, tmp_path: Path) -> None:
    official.import_checkout(checkout, tmp_path / "into")
    first = contents(tmp_path / "into")
    (tmp_path / "into" / "retail" / "policy.md").write_text("old")
    (tmp_path / "into" / "airline" / "data" / "users.json").unlink()
    official.import_checkout(checkout, tmp_path / "into")
    assert contents(tmp_path / "into") == first


def test_what_the_user_put_beside_an_import_stays(checkout: Path, tmp_path: Path) -> None:
    into = tmp_path / "into"
    official.import_checkout(checkout, into)
    (into / "retail" / "user.md").write_text("You are brief. {instruction} {stop}")
    (into / "retail" / "tasks_mine.json").write_text("[]")
    (into / "airline" / "notes" / "deep").mkdir(parents=True)
    (into / "airline" / "notes" / "deep" / "a.txt").write_text("mine")
    (into / "airline" / "empty").mkdir()
    (into / "airline" / "link").symlink_to("notes")
    before = contents(into)
    official.import_checkout(checkout, into)
    assert contents(into) == before
    assert (into / "airline" / "empty").is_dir() and (into / "airline" / "link").readlink() == Path("notes")
    assert {path.name for path in tmp_path.iterdir()} == {"tau-bench", "into"}


# The prompt of the official user simulator


def test_the_official_user_prompt_is_read_without_running_it(checkout: Path, tmp_path: Path) -> None:
    official.import_checkout(checkout, tmp_path / "into")
    prompt = "You play a customer.\n\nInstruction: {instruction}\n\nRules:\n- Say '{stop}' when you are done."
    for name in data_folder.DOMAINS:
        assert (tmp_path / "into" / name / "user_official.md").read_text() == prompt


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "class LLMUserSimulationEnv:\n    pass",
        USER.replace("###STOP###", "stop"),
        USER.replace("{instruction_display}", "{self.instruction}"),
        USER.replace("{instruction_display}", "{instruction_display!r}"),
        USER.replace("{instruction_display}", "{f(instruction)}"),
        USER.replace('("\\n\\nInstruction: " + instruction + "\\n")', "instruction_display"),
        USER.replace('("\\n\\nInstruction: " + instruction + "\\n")', " + ".join(["instruction"] * 900)),
    ],
)
def test_without_a_prompt_that_can_be_read_there_is_none(checkout: Path, tmp_path: Path, text: str | None) -> None:
    file = checkout / "tau_bench" / "envs" / "user.py"
    file.unlink() if text is None else file.write_text(text)
    counts = official.import_checkout(checkout, tmp_path / "into")
    assert counts["retail"]["official user prompts"] == 0
    assert not (tmp_path / "into" / "retail" / "user_official.md").exists()


# Checkouts that are not as expected


@pytest.mark.parametrize(
    ("file", "text", "complaint"),
    [
        (
            "retail/tasks_test.py",
            "TASKS = [Task(user_id=open('x'), instruction='', actions=[])]",
            "line 1.*plain value",
        ),
        ("retail/tasks_test.py", "TASKS = [Task(instruction='', actions=[])]", "line 1: there is no user_id"),
        ("retail/tasks_test.py", "TASKS = [Task(user_id='', instruction='', actions=load())]", "no list of Action"),
        ("retail/tasks_test.py", "TASKS = load()", "no list of Task"),
        ("retail/tasks_test.py", "TASKS = [", "cannot be read"),
        ("retail/tools/cancel.py", "class Cancel:\n    def get_info():\n        return info()", "line 3.*plain value"),
        ("retail/tools/__init__.py", "ALL_TOOLS = [Missing]", "no get_info was found for .'Missing'."),
        ("retail/tools/__init__.py", "", "no list ALL_TOOLS"),
        ("airline/data/flights.json", "{", "cannot be read"),
        ("airline/data/flights.json", "[" * 100_000, "nested too deeply"),
        ("airline/data/flights.json", "[]", "no table"),
        ("airline/data/flights.json", "{}", "airline lacks records in data/flights.json: .*no complete checkout"),
        ("retail/tasks_test.py", f"TASKS = [{'-' * 300_000}1]", "cannot be read"),
        ("retail/tools/cancel.py", f"X = {'-' * 300_000}1", "cannot be read"),
        ("user.py", f"X = {'-' * 300_000}1", "cannot be read"),
        ("retail/tasks_test.py", f"[Task(user_id={'-' * 2000}1, instruction='', actions=[])]", "line 1.*plain value"),
    ],
)
def test_a_file_that_is_not_as_expected_is_named_and_nothing_is_written(
    checkout: Path, tmp_path: Path, file: str, text: str, complaint: str
) -> None:
    official.import_checkout(checkout, tmp_path / "into")
    before = sorted(path.read_bytes() for path in (tmp_path / "into").rglob("*") if path.is_file())
    (checkout / "tau_bench" / "envs" / file).write_text(text)
    with pytest.raises(RecordError, match=complaint) as raised:
        official.import_checkout(checkout, tmp_path / "into")
    assert file.rpartition("/")[2] in str(raised.value)
    assert sorted(path.read_bytes() for path in (tmp_path / "into").rglob("*") if path.is_file()) == before
    assert {path.name for path in tmp_path.iterdir()} == {"tau-bench", "into"}


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("airline", "tasks_test.py"),
        ("retail", "tasks_test.py"),
        ("airline", "data/flights.json"),
        ("retail", "data/users.json"),
        ("retail", "wiki.md"),
        ("airline", "tools/__init__.py"),
    ],
)
def test_a_checkout_without_a_part_says_which_is_missing(checkout: Path, tmp_path: Path, name: str, file: str) -> None:
    (checkout / "tau_bench" / "envs" / name / "tasks_train.py").write_text(TASKS.format(canary=tmp_path / "ran"))
    (checkout / "tau_bench" / "envs" / name / file).unlink()
    with pytest.raises(RecordError, match=f"{name} lacks {file}: this is no complete checkout .*git clone https"):
        official.import_checkout(checkout, tmp_path / "into")
    assert not (tmp_path / "into").exists()


def test_all_that_is_missing_is_named_at_once(checkout: Path, tmp_path: Path) -> None:
    folder = checkout / "tau_bench" / "envs" / "retail"
    shutil.rmtree(folder / "data")
    (folder / "tasks_test.py").rename(folder / "tasks.py")
    with pytest.raises(
        RecordError, match=r"lacks tasks_test\.py, data/orders\.json, data/products\.json, data/users\.json"
    ):
        official.import_checkout(checkout, tmp_path / "into")


@pytest.mark.parametrize(
    "linked", ["retail/wiki.md", "airline/tasks_test.py", "retail/data/users.json", "airline/tools/think.py", "user.py"]
)
def test_a_link_out_of_the_checkout_is_not_followed(checkout: Path, tmp_path: Path, linked: str) -> None:
    file = checkout / "tau_bench" / "envs" / linked
    outside = tmp_path / "outside"
    file.rename(outside)
    file.symlink_to(outside)
    with pytest.raises(RecordError, match=f"{linked} is a link out of the checkout, to {outside}"):
        official.import_checkout(checkout, tmp_path / "into")
    assert not (tmp_path / "into").exists()


def test_nor_is_a_linked_folder(checkout: Path, tmp_path: Path) -> None:
    data = checkout / "tau_bench" / "envs" / "retail" / "data"
    data.rename(tmp_path / "data")
    data.symlink_to(tmp_path / "data")
    with pytest.raises(RecordError, match="is a link out of the checkout"):
        official.import_checkout(checkout, tmp_path / "into")


def test_a_link_within_the_checkout_is_followed(checkout: Path, tmp_path: Path) -> None:
    envs = checkout / "tau_bench" / "envs"
    (envs / "retail" / "wiki.md").rename(checkout / "wiki.md")
    (envs / "retail" / "wiki.md").symlink_to(checkout / "wiki.md")
    (tmp_path / "link").symlink_to(checkout)
    official.import_checkout(tmp_path / "link", tmp_path / "into")
    assert (tmp_path / "into" / "retail" / "policy.md").read_text() == "# Policy\nBe kind."
    assert not (tmp_path / "into" / "retail" / "policy.md").is_symlink()


def test_what_is_no_checkout_says_how_to_get_one(checkout: Path, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"git clone https://github\.com/sierra-research/tau-bench"):
        official.import_checkout(tmp_path / "nowhere", tmp_path / "into")
    shutil.rmtree(checkout / "tau_bench" / "envs" / "airline")
    with pytest.raises(RecordError, match="airline is missing"):
        official.import_checkout(checkout, tmp_path / "into")
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.tex").write_text("")
    with pytest.raises(RecordError, match="airline is missing"):
        official.import_checkout(checkout, tmp_path / "precious")


def test_a_folder_with_something_else_is_not_replaced(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.tex").write_text("")
    with pytest.raises(RecordError, match="holds something else"):
        official.import_checkout(checkout, tmp_path / "precious")
    assert (tmp_path / "precious" / "thesis.tex").exists()


def test_nor_is_one_that_holds_more_than_an_import_wrote(checkout: Path, tmp_path: Path) -> None:
    official.import_checkout(checkout, tmp_path / "into")
    (tmp_path / "into" / "oracle").mkdir()
    (tmp_path / "shops" / "retail").mkdir(parents=True)
    (tmp_path / "shops" / "retail" / "thesis.tex").write_text("")
    (tmp_path / "file").write_text("thesis")
    for name in ("into", "shops", "file"):
        with pytest.raises(RecordError, match="holds something else; name another folder with --into"):
            official.import_checkout(checkout, tmp_path / name)
    assert (tmp_path / "into" / "oracle").is_dir() and (tmp_path / "shops" / "retail" / "thesis.tex").is_file()
    assert (tmp_path / "file").read_text() == "thesis"
    assert {path.name for path in tmp_path.iterdir()} == {"tau-bench", "into", "shops", "file"}


def test_half_a_folder_says_what_is_missing_and_how_to_get_it(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its orders every call of a shop is refused, the tasks' own too, so that an oracle would solve all."""
    official.import_checkout(checkout, tmp_path / "into")
    monkeypatch.setenv(data_folder.VARIABLE, str(tmp_path / "into"))
    (tmp_path / "into" / "retail" / "tools.json").unlink()
    (tmp_path / "into" / "retail" / "data" / "users.json").write_text("{}")
    (tmp_path / "into" / "retail" / "data" / "products.json").unlink()
    catalog.domain.cache_clear()
    with pytest.raises(RecordError, match=r"data/products\.json, data/users\.json.*marl-gem tau import tau-bench"):
        catalog.domain("retail")
    monkeypatch.setenv(data_folder.VARIABLE, "x" * 5000)
    assert "marl-gem tau import" in data_folder.missing("retail")


def test_one_load_serves_corrected_and_uncorrected_envs() -> None:
    corrected, plain = (marl_gem.make("tau:retail-mini-v0", corrected=how) for how in (True, False))
    assert isinstance(corrected, TauEnv) and isinstance(plain, TauEnv)
    assert corrected.domain.corrected and not plain.domain.corrected
    assert corrected.domain.database is plain.domain.database
    with pytest.raises(InvalidOption, match="corrected is true or false, not 'perhaps'"):
        marl_gem.make("tau:retail-mini-v0", corrected="perhaps")


def test_missing_data_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog.domain.cache_clear()
    monkeypatch.delenv(data_folder.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert data_folder.home() == tmp_path / "marl_gem" / "tau_bench"
    with pytest.raises(UnavailableScenario, match=r"git clone .*marl-gem tau import"):
        catalog.domain("retail")
    monkeypatch.setenv(data_folder.VARIABLE, str(tmp_path / "elsewhere"))
    with pytest.raises(UnavailableScenario, match="elsewhere"):
        catalog.domain("airline")


@pytest.mark.slow
def test_a_large_checkout_is_imported(checkout: Path, tmp_path: Path) -> None:
    """As many tasks as the official train split."""
    one = (
        'Task(user_id="u", instruction="'
        + "word " * 60
        + '", actions=['
        + 'Action(name="a", kwargs={"b": ["1", "2"]}), ' * 6
    )
    for name in data_folder.DOMAINS:
        (checkout / "tau_bench" / "envs" / name / "tasks_test.py").write_text(f"TASKS = [{(one + ']), ') * 500}]")
    assert official.import_checkout(checkout, tmp_path / "into")["retail"]["test tasks"] == 500
