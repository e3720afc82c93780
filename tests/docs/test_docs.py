"""The pages under docs/ and the examples, run as they stand."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import LIMIT, ROOT, run, run_page, runnable
from tests.fake_server import serving
from tests.sandbox.machine import missing

PAGES = [path for path in sorted((ROOT / "docs").glob("*.md")) if runnable(path)]
MARKED = [
    pytest.param(page, marks=pytest.mark.slow if "$ marl-gem" in page.read_text("utf-8") else (), id=page.stem)
    for page in PAGES
]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
LEARNERS = {"numeric_rllib": "ray", "numeric_sb3": "sb3_contrib", "numeric_tianshou": "tianshou"}
"""Examples of packages that `make test-numeric` installs in an environment of their own."""

TRAINERS = "train_with_"
"""How the names of examples begin that the tests under tests/integrations run, each with its package."""

MODEL, SERVER = "Qwen/Qwen3-1.7B", "http://127.0.0.1:8000/v1"
"""Where pages expect a server with this model; one with scripted answers takes its part here."""

VLLM = ".venv-vllm/bin/python"
"""Where pages expect a Python that has vLLM; a stand-in takes its part."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving() as url:
        yield url


@pytest.mark.parametrize("page", MARKED)
def test_a_page_is_true(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    text = page.read_text("utf-8")
    if page.stem in ("sandbox", "code-and-terminal") and (reason := missing()):
        pytest.skip(reason)
    replace = {MODEL: "tiny", SERVER: request.getfixturevalue("url")} if SERVER in text else {}
    replace |= {VLLM: str(ROOT / "tests" / "fake_vllm" / "python")}
    run_page(text, tmp_path, replace)


def test_there_are_pages_and_examples() -> None:
    assert {"index", "tau-domains", "write-a-scenario", "self-play", "evaluate"} <= {page.stem for page in PAGES}
    listed = (ROOT / "docs" / "guides.md").read_text("utf-8")
    assert [page.name for page in PAGES if f"({page.name})" not in listed and page.stem != "index"] == []
    assert {"haggle", "conversation", "pettingzoo_in_text", *LEARNERS} <= {example.stem for example in EXAMPLES}


def test_what_a_page_says_is_printed_must_be_printed(tmp_path: Path) -> None:
    run_page("```python\nprint(1 + 1)  # 2\n```\n", tmp_path)
    with pytest.raises(AssertionError, match="'3' is not printed"):
        run_page("```python\nprint(1 + 1)  # 3\n```\n", tmp_path)
    with pytest.raises(AssertionError, match="ended with 1"):
        run_page("```python\nraise ValueError\n```\n", tmp_path)
    with pytest.raises(AssertionError, match="ended with 2"):
        run_page("```console\n$ marl-gem play game:Nothing-v0\n```\n", tmp_path)


@pytest.mark.parametrize(
    "example", [e for e in EXAMPLES if not e.stem.startswith(TRAINERS)], ids=lambda path: path.stem
)
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    learner = LEARNERS.get(example.stem)
    if learner and importlib.util.find_spec(learner) is None:
        pytest.skip(f"{learner} is not installed here; make test-numeric runs this example")
    assert len(run([str(example)], tmp_path, limit=600 if learner else LIMIT).splitlines()) > 3


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_says_how_it_is_run(example: Path) -> None:
    assert f"python examples/{example.name}" in example.read_text("utf-8")
