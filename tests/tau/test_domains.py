"""Domains of one's own: the library under examples/ is sound, and what is wrong with a folder is told."""

from __future__ import annotations

import copy
import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import marl_gem
from marl_gem import registry
from marl_gem.errors import InvalidOption, RecordError, RegistryError, UnavailableScenario
from marl_gem.rollout import Job, collect
from marl_gem.scenarios.tau import register_domain
from marl_gem.scenarios.tau.database import Session
from marl_gem.scenarios.tau.domain import Domain, Task
from marl_gem.scenarios.tau.env import TauEnv
from marl_gem.scenarios.tau.folder import load_folder
from marl_gem.scenarios.tau.registration import VARIABLE, register_named
from marl_gem.testing import check_env
from marl_gem.tools.calls import write_call

LIBRARY = Path(__file__).parents[2] / "examples" / "library"
TODAY = date(2031, 5, 12)
GRADES = {"lookup", "one change", "several changes", "conditional", "refusal", "transfer"}


pytestmark = pytest.mark.usefixtures("restored_registry")


@cache
def library() -> Domain:
    return load_folder(LIBRARY)


def tasks() -> Iterator[tuple[str, int, Task]]:
    for split, members in library().splits.items():
        yield from ((split, index, task) for index, task in enumerate(members))


# The library


def test_the_library_is_whole() -> None:
    members, books = library().database.tables["members"], library().database.tables["books"]
    emails = [member["email"] for member in members.values()]
    assert len(set(emails)) == len(emails)
    for book_id, book in books.items():
        borrowers = [loan["member_id"] for loan in book["copies"].values() if loan]
        assert all(copy_id.startswith(f"{book_id}-") for copy_id in book["copies"])
        assert set(borrowers) | set(book["queue"]) <= members.keys()
        assert not set(borrowers) & set(book["queue"])
        assert not book["queue"] or all(book["copies"].values())  # nobody waits for what lies on the shelf
        assert all(date.fromisoformat(loan["due"]).year == TODAY.year for loan in book["copies"].values() if loan)
    assert f"Today is {TODAY}" in library().policy
    assert sum(file.stat().st_size for file in LIBRARY.rglob("*.*") if file.suffix != ".pyc") < 40_000


def test_its_tasks_are_of_every_grade() -> None:
    assert {split: len(members) for split, members in library().splits.items()} == {"test": 12, "train": 5}
    assert {task.grade for task in library().splits["test"]} == GRADES
    assert len({task.instruction for _, _, task in tasks()}) == 17


def test_its_instructions_tell_who_one_is_and_not_what_is_asked_for() -> None:
    for _, _, task in tasks():
        first = task.actions[0]
        assert first.name == "find_member" and first.arguments["email"] in task.instruction
        assert library().database.tables["members"][task.user_id]["email"] == first.arguments["email"]
        assert not [output for output in task.outputs if output in task.instruction]


def changes(task: Task) -> Iterator[tuple[str, dict[str, Any], Session]]:
    """Those of a task's own calls that change something, with the data before."""
    session = library().session(task)
    for action in task.actions:
        before = copy.deepcopy(session)
        answer = library().call(session, action.name, action.arguments)
        assert not answer.text.startswith("Error") and answer.note == ""
        if session.differences(before):
            yield action.name, action.arguments, before


def allowed(name: str, arguments: dict[str, Any], db: Session, member_id: str) -> bool:
    """What policy.md says of a change."""
    member = db["members"][member_id]
    holds = [book_id for book_id, book in db["books"].items() if member_id in book["queue"]]
    if name == "renew_loan":
        book = db["books"][arguments["copy_id"].partition("-")[0]]
        loan = book["copies"][arguments["copy_id"]]
        in_time = date.fromisoformat(loan["due"]) >= TODAY and loan["renewals"] < 2
        return bool(loan["member_id"] == member_id and in_time and not book["queue"] and member["fines"] < 5)
    if arguments["member_id"] != member_id:
        return False
    if name == "place_hold":
        book = db["books"][arguments["book_id"]]
        lendable = book["kind"] == "for all" or (book["kind"] == "adults only" and member["age"] == "adult")
        return bool(all(book["copies"].values()) and lendable and len(holds) < 3 and member["fines"] < 5)
    return name in ("cancel_hold", "pay_fine")


def test_its_tasks_do_only_what_the_policy_allows_and_as_much_as_their_grade_says() -> None:
    for _, _, task in tasks():
        made = list(changes(task))
        assert all(allowed(*change, task.user_id) for change in made), task.instruction
        assert library().hands_over(task) == (task.grade == "transfer")
        assert {"one change": len(made) == 1, "several changes": len(made) > 1, "conditional": True}.get(
            task.grade, made == []
        ), task.instruction


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("place_hold", {"member_id": "M103", "book_id": "B06"}),  # a child, and a book for adults
        ("place_hold", {"member_id": "M101", "book_id": "B05"}),  # to be read in the library
        ("place_hold", {"member_id": "M101", "book_id": "B08"}),  # on the shelf
        ("place_hold", {"member_id": "M106", "book_id": "B01"}),  # fines of 12.65
        ("renew_loan", {"copy_id": "B07-1"}),  # renewed twice
        ("renew_loan", {"copy_id": "B09-1"}),  # overdue
    ],
)
def test_what_the_policy_forbids_its_tools_do_and_the_reward_is_lost(call: str, arguments: dict[str, Any]) -> None:
    env = TauEnv(library(), task=0)
    env.reset(seed=0)
    env.step({"user": "Please!"})
    member_id = arguments.get("member_id") or {"B07-1": "M103", "B09-1": "M107"}[arguments["copy_id"]]
    assert not allowed(call, arguments, env.session, member_id)
    env.step({"assistant": write_call(call, arguments)})
    assert "Error" not in str(env.observe("assistant"))
    env.step({"assistant": "; ".join(env.task.outputs)})
    env.step({"user": "###STOP###"})
    assert env.returns["assistant"] == 0.0 and len(env.infos["assistant"]["differences"]) == 1


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        ({"name": "find_member", "email": "Dov@Penner.example "}, '{"member_id": "M104", "name": "Dov Penner"'),
        ({"name": "find_member", "email": "dov@quill.example"}, "Error: no member has this email address"),
        ({"name": "search_books", "words": "BELLS reed"}, '[{"book_id": "B03", "title": "A Field of Bells"'),
        ({"name": "search_books", "words": "bells corvin"}, "Error: no book has all these words"),
        ({"name": "search_books", "words": " "}, "Error: no book has all these words"),
        ({"name": "renew_loan", "copy_id": "B02-1"}, '{"member_id": "M102", "due": "2031-06-06", "renewals": 2}'),
        ({"name": "renew_loan", "copy_id": "B01-2"}, "Error: this copy is not on loan"),
        ({"name": "renew_loan", "copy_id": "B01-9"}, "Error: this copy is not on loan"),
        ({"name": "renew_loan", "copy_id": "B99-1"}, "Error: no book has this number"),
        ({"name": "renew_loan", "copy_id": "B03-1"}, "Error: other members wait for this book"),
        ({"name": "place_hold", "member_id": "M105", "book_id": "B10"}, "Error: the member has this book on loan"),
        ({"name": "place_hold", "member_id": "M108", "book_id": "B03"}, "Error: the member waits for this book"),
        ({"name": "place_hold", "member_id": "M999", "book_id": "B03"}, "Error: no member has this number"),
        ({"name": "place_hold", "member_id": "M101", "book_id": "B99"}, "Error: no book has this number"),
        ({"name": "place_hold", "member_id": "M101", "book_id": "B03"}, "A Field of Bells is on hold; place in the q"),
        ({"name": "cancel_hold", "member_id": "M105", "book_id": "B03"}, "Error: the member does not wait for this"),
        ({"name": "cancel_hold", "member_id": "M108", "book_id": "B99"}, "Error: no book has this number"),
        ({"name": "cancel_hold", "member_id": "M108", "book_id": "B03"}, "A Field of Bells is no longer on hold"),
        ({"name": "pay_fine", "member_id": "M104", "amount": 3.26}, "Error: the amount must be above 0 and at most"),
        ({"name": "pay_fine", "member_id": "M104", "amount": 0}, "Error: the amount must be above 0 and at most"),
        ({"name": "pay_fine", "member_id": "M101", "amount": 1}, "Error: the amount must be above 0 and at most"),
        ({"name": "pay_fine", "member_id": "M999", "amount": 1}, "Error: no member has this number"),
        ({"name": "pay_fine", "member_id": "M104", "amount": 3}, "Paid 3.00; left to pay: 0.25"),
        ({"name": "hand_over_to_librarian", "summary": "A book is lost."}, "A librarian takes over."),
    ],
    ids=str,
)
def test_what_its_tools_say_and_that_a_refusal_changes_nothing(call: dict[str, Any], answer: str) -> None:
    session, name = library().session(), call["name"]
    arguments = {key: value for key, value in call.items() if key != "name"}
    assert library().call(session, name, arguments).text.startswith(answer)
    changed = name in ("renew_loan", "place_hold", "cancel_hold", "pay_fine") and not answer.startswith("Error")
    assert bool(session.differences(library().session())) == changed


def test_its_members_have_what_the_books_say() -> None:
    session = library().session()
    library().call(session, "place_hold", {"member_id": "M108", "book_id": "B10"})
    found = json.loads(library().call(session, "find_member", {"email": "hugo@stile.example"}).text)
    assert found["loans"] == [{"copy_id": "B06-1", "title": "The Winter Clock", "due": "2031-05-19", "renewals": 0}]
    assert [(hold["book_id"], hold["place"]) for hold in found["holds"]] == [("B03", 1), ("B10", 3)]
    (book,) = json.loads(library().call(session, "search_books", {"words": "salt"}).text)
    assert (book["copies_on_the_shelf"], book["next_copy_due"], book["members_waiting"]) == (1, "2031-05-20", 0)


def test_it_keeps_the_promises_of_the_contract() -> None:
    for split in ("test", "train"):
        check_env(functools.partial(TauEnv, library(), split=split)).raise_if_failed()


def test_the_oracle_solves_it_and_the_floors_are_low() -> None:
    register_domain("my:Library-v0", LIBRARY)
    assert {"oracle", "noop", "transfer", "gold-without-words"} <= registry.policies("my:Library-v0").keys()
    for split, floors in {"test": (4, 1, 4), "train": (3, 1, 3)}.items():
        declared = library().trivial_baselines(split)
        count = len(library().splits[split])
        for script, floor in zip(("oracle", "noop", "transfer", "gold-without-words"), (count, *floors), strict=True):
            policy = registry.make_policy("my:Library-v0", script, {"split": split})
            jobs = [Job(index, policy, options={"task": index}) for index in range(count)]
            episodes = collect(functools.partial(marl_gem.make, "my:Library-v0", split=split), jobs)
            assert [episode.error for episode in episodes if episode.error] == []
            earned = [episode.returns["assistant"] for episode in episodes]
            assert sum(earned) == floor
            assert tuple(earned) == tuple(declared["gold" if script == "oracle" else script])


# From a folder to a scenario


def test_a_registered_domain_takes_the_options_of_the_env() -> None:
    domain = register_domain("my:Library-v0", str(LIBRARY), max_actions=3, transfer="strict")
    assert domain.name == "library" and domain.official == "library"
    env = marl_gem.make("my:Library-v0", task=4, split="train")
    assert isinstance(env, TauEnv) and env.domain is domain and env.scenario == "my:Library-v0"
    assert (env.max_actions, env.transfer, env.split) == (3, "strict", "train")
    env.reset(seed=0)
    assert env.task is domain.splits["train"][4]
    assert marl_gem.make("my:Library-v0", max_actions=5).max_actions == 5  # type: ignore[attr-defined]
    with pytest.raises(InvalidOption, match="It takes: split, task"):
        marl_gem.make("my:Library-v0", tasks=4)
    with pytest.raises(InvalidOption, match="split is one of test, train"):
        marl_gem.make("my:Library-v0", split="dev")
    with pytest.raises(RegistryError, match="registered already"):
        register_domain("my:Library-v0", LIBRARY)


TOOLS = """
from __future__ import annotations

from dataclasses import dataclass

from marl_gem.scenarios.tau.database import Session
from marl_gem.scenarios.tau.tool import Refused, tool


@dataclass
class Reply:
    text: str


@tool
def add(db: Session, key: str) -> str:
    \"\"\"Add one.\"\"\"
    if key not in db["t"]:
        raise Refused("no such thing")
    db["t"].edit(key)["n"] += STEP
    return Reply("added").text


@tool
def part(db: Session) -> str:
    \"\"\"Say good-bye.\"\"\"
    return "Good-bye."


STEP = 1
TOOLS = (add, part)
TERMINATING = ["part"]
"""
TASK = {"user_id": "u", "instruction": "i", "actions": [{"name": "add", "kwargs": {"key": "a"}}], "outputs": ["one"]}


def write(folder: Path, **changes: str | None) -> Path:
    """A small domain, with other files than it should have."""
    files = {
        "tools.py": TOOLS,
        "policy.md": "Be kind.",
        "data/t.json": '{"a": {"n": 1}}',
        "tasks_test.json": json.dumps([TASK]),
    } | changes
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if text is not None:
            (folder / name).write_text(text, "utf-8")
    return folder


def test_two_domains_whose_files_have_the_same_names_keep_apart(tmp_path: Path) -> None:
    path = list(sys.path)
    first = load_folder(write(tmp_path / "first"))
    second = load_folder(write(tmp_path / "second", **{"tools.py": TOOLS.replace("STEP = 1", "STEP = 10")}))
    assert (first.name, second.name) == ("first", "second")
    assert [domain.goal("test", 0)["t"]["a"]["n"] for domain in (first, second, first)] == [2, 11, 2]
    assert first.terminating == {"part"} and "tools" not in sys.modules and sys.path == path


def test_a_folder_is_read_anew_each_time(tmp_path: Path) -> None:
    load_folder(write(tmp_path))
    write(tmp_path, **{"tools.py": TOOLS.replace("STEP = 1", "STEP = 100")})
    assert load_folder(tmp_path).goal("test", 0)["t"]["a"]["n"] == 101


def test_a_relative_folder_and_a_domain_without_extras_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "small", **{"tools.py": TOOLS.replace('TERMINATING = ["part"]', "")})
    monkeypatch.chdir(tmp_path / "small")
    domain = load_folder(".")
    assert domain.name == "small" and domain.terminating == frozenset() and not domain.user_tools


def test_the_customer_may_have_tools_and_words_of_its_own(tmp_path: Path) -> None:
    tools = TOOLS.replace("TOOLS = (add, part)", "TOOLS = (part,)\nUSER_TOOLS = (add,)")
    domain = load_folder(write(tmp_path, **{"tools.py": tools, "user.md": "Want: {instruction} {x} End: {stop}"}))
    assert [spec.name for spec in domain.user_specs] == ["add"]
    assert domain.goal("test", 0)["t"]["a"]["n"] == 2
    env = TauEnv(domain, task=0)
    env.reset(seed=0)
    assert env.role("user").instructions == "Want: i {x} End: ###STOP###"


def test_a_task_may_bring_its_data(tmp_path: Path) -> None:
    task = TASK | {"actions": [{"name": "add", "kwargs": {"key": "b"}}], "data": {"t": {"b": {"n": 5}}}}
    domain = load_folder(write(tmp_path, **{"tasks_test.json": json.dumps([TASK, task])}))
    assert domain.goal("test", 1)["t"]["b"]["n"] == 6 and "b" not in domain.goal("test", 0)["t"]


def changed(*edits: tuple[str, str]) -> str:
    """The tools with some text replaced."""
    text = TOOLS
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return text


def tasks_with(**fields: Any) -> str:
    return json.dumps([TASK, TASK | fields])


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"tools.py": None}, r"no domain yet: it has no tools\.py \(its tools\)\. See docs/tau-domains\.md"),
        ({"policy.md": None, "data/t.json": None}, r"it has no policy\.md .*, no data/\*\.json \(its tables\)"),
        ({"tasks_test.json": None}, r"it has no tasks_\*\.json"),
        ({"tools.py": "TOOLS = ("}, r"tools\.py, line 1, does not run: SyntaxError: '\(' was never closed"),
        ({"tools.py": "import nothing_of_this_name"}, r"tools\.py, line 1, does not run: ModuleNotFoundError"),
        ({"tools.py": changed(("key: str", "key: bytes"))}, r"tools\.py, line 1\d, does not run: TypeError: .*bytes"),
        ({"tools.py": "# nothing"}, r"tools\.py has no TOOLS; end it with TOOLS = "),
        ({"tools.py": changed(("(add, part)", "()"))}, r"tools\.py has no TOOLS"),
        ({"tools.py": changed(("(add, part)", "(add)"))}, r"tools\.py: TOOLS is no tuple; write TOOLS = \(one,\)"),
        ({"tools.py": changed(('["part"]', '"part"'))}, r"TERMINATING is no tuple"),
        ({"tools.py": changed(('["part"]', '["leave"]'))}, r"TERMINATING names \['leave'\], not in TOOLS"),
        ({"tools.py": changed(("(add, part)", "(add, part, add)"))}, r"TOOLS holds two tools called add"),
        ({"tools.py": changed(("@tool\ndef part", "def part"))}, r"TOOLS holds <function part .*write @tool above"),
        ({"tools.py": changed(('db["t"].edit(key)', 'db["t"][key]'))}, r"changed what it only read: t 'a'\. All"),
        ({"policy.md": "", "data/t.json": '{"a": {"n": 1},}'}, r"data/t\.json is not JSON: .* line 1 column 1\d"),
        ({"data/t.json": "[]"}, r"data/t\.json holds no table; write it as"),
        ({"data/t.json": '{"a": 1}'}, r"data/t\.json holds no table"),
        ({"tasks_test.json": "[]"}, r"with at least one task"),
        ({"tasks_test.json": "5"}, r"tasks_test\.json does not hold tasks: it is no list"),
        ({"tasks_test.json": "[{]"}, r"tasks_test\.json is not JSON"),
        ({"tasks_test.json": '{"user_id": "u"}'}, r"tasks_test\.json does not hold tasks: it is no list"),
        (
            {"tasks_train.json": json.dumps([TASK, {"user_id": "u"}])},
            r"tasks_train.*KeyError\('instruction'\) in task 1",
        ),
        ({"tasks_test.json": tasks_with(outputs="one")}, r"Expected `array`, got `str`.*outputs.* in task 1"),
        ({"tasks_test.json": tasks_with(actions=[{"name": "add", "kwargs": ["a"]}])}, r"`object`, got `array`.*task 1"),
        ({"tasks_test.json": tasks_with(actions=["add"])}, r"does not hold tasks: TypeError.* in task 1"),
        (
            {"tasks_test.json": tasks_with(actions=[{"name": "ad", "kwargs": {}}])},
            r"tasks_test\.json, task 1: it calls 'ad', which is no tool; did you mean 'add'\?",
        ),
        (
            {"tasks_train.json": tasks_with(actions=[{"name": "add", "kwargs": {"key": "z"}}])},
            r'tasks_train\.json, task 1: its own call .*"key": "z".* is answered \'Error: no such thing\'; mend it',
        ),
        (
            {"tasks_test.json": tasks_with(actions=[{"name": "part", "kwargs": {"why": "late"}}])},
            r"task 1: its own call .* is answered .*unexpected keyword argument 'why'",
        ),
        (
            {
                "tools.py": changed(('return "Good-bye."', "return None")),
                "tasks_test.json": tasks_with(actions=[{"name": "part", "kwargs": {}}]),
            },
            r"task 1: .*part gave no answer",
        ),
        ({"tasks_test.json": tasks_with(data={"u": {"b": {}}})}, r"task 1: its data has a table 'u'.*data/u\.json"),
        ({"user.md": "You want {instruction}."}, r"user\.md lacks \{stop\}"),
        ({"user.md": "Say {stop} at the end."}, r"user\.md lacks \{instruction\}"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_told_with_its_place(changes: dict[str, str | None], told: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "domain", **changes)
    with pytest.raises(RecordError, match=re.compile(told, re.DOTALL)) as caught:
        register_domain("my:Domain-v0", folder)
    assert str(folder) in str(caught.value)
    assert "my:Domain-v0" not in [scenario.id for scenario in marl_gem.list("my")]


def test_of_many_mistakes_the_first_are_told_and_how_many_more_there_are(tmp_path: Path) -> None:
    wrong = TASK | {"actions": [{"name": "sing", "kwargs": {}}]}
    with pytest.raises(RecordError) as caught:
        load_folder(write(tmp_path, **{"tasks_test.json": json.dumps([TASK, *[wrong] * 8])}))
    first, *lines = str(caught.value).splitlines()
    assert first == f"{tmp_path} has tasks that cannot be solved:"
    assert [re.findall(r"task (\d)", line) for line in lines[:-1]] == [["1"], ["2"], ["3"], ["4"], ["5"]]
    assert lines[-1].strip() == "and 3 more"


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"there is no folder '.*nowhere'"):
        load_folder(tmp_path / "nowhere")


# The command line


def marl_gem_command(*words: str, folder: Path, domains: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "marl_gem.cli", *words],
        cwd=folder,
        env={**os.environ, VARIABLE: domains, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.slow
def test_a_variable_names_folders_for_the_command_line(tmp_path: Path) -> None:
    write(tmp_path / "small")
    domains = f"{LIBRARY}{os.pathsep}small"
    listed = marl_gem_command("list", "tau", folder=tmp_path, domains=domains)
    assert "tau:library-v0" in listed.stdout and "tau:small-v0" in listed.stdout
    checked = marl_gem_command("check", "tau:small-v0", folder=tmp_path, domains=domains)
    assert checked.returncode == 0 and re.search(r"^ok +processes", checked.stdout, re.MULTILINE), checked.stdout
    seats = ("--seat", "user=scripted:oracle", "--seat", "assistant=scripted:oracle", "--out", "run")
    done = marl_gem_command("eval", "tau:library-v0", *seats, "-o", "split=train", folder=tmp_path, domains=domains)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert "tau:library-v0" in json.dumps(report)
    lines = (tmp_path / "run" / "episodes.jsonl").read_text().splitlines()
    assert [json.loads(line)["returns"]["assistant"] for line in lines] == [1.0] * 5


def test_what_is_wrong_with_a_named_folder_is_told_to_whoever_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "broken", **{"tools.py": "TOOLS = ("})
    write(tmp_path / "sound")
    monkeypatch.setenv(VARIABLE, os.pathsep.join(["", str(tmp_path / "broken"), str(tmp_path / "sound")]))
    register_named()
    with pytest.raises(UnavailableScenario, match=rf"{VARIABLE}: .*broken/tools\.py, line 1, does not run"):
        marl_gem.make("tau:broken-v0")
    assert marl_gem.make("tau:sound-v0").reset(seed=0)
    assert "oracle" in registry.policies("tau:sound-v0")
    with pytest.raises(RegistryError, match=rf"{VARIABLE} names .*broken, and 'tau:broken-v0' is registered already"):
        register_named()


def test_without_the_variable_nothing_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    before = registry.list()
    register_named()
    assert registry.list() == before
