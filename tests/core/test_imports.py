"""Imports run one way, and `import marl_gem` brings nothing heavy along."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = {"torch", "transformers", "litellm", "textarena", "networkx", "numpy"}

LAYERS = [
    {
        "links",
        "lazy",
        "errors",
        "faults",
        "bounds",
        "plain_data",
        "types",
        "seeding",
        "overrides",
        "prefixes",
        "printable",
    }
    | {"open_files"},
    {"awaiting", "selectors", "env_threads", "episode_clock", "messages", "step_results", "text_picture", "views"}
    | {"tools"},
    {"llm", "runs"},
    {"env"},
    {"policies", "episode_builder"},
    {"analysis", "wrappers", "convert", "vector"},
    {"episode_play", "rollout", "registry", "specs", "testing"},
    {"evaluation"},
    {"export", "viewer"},
    {"scenarios", "trainers"},
    {"integrations"},
    {"cli"},
]
"""What a layer may import lies above it in this list, or is a sibling that does not import back."""

LAYER = {part: number for number, layer in enumerate(LAYERS) for part in layer}
FILES = [
    *(ROOT / "marl_gem").glob("*.py"),
    *(path for folder in (ROOT / "marl_gem").iterdir() if not folder.is_symlink() for path in folder.rglob("*.py")),
    *(path for folder in ("selectors", "scenarios", "trainers") for path in (ROOT / folder).rglob("*.py")),
]


def part_of(path: Path) -> str:
    """The part of the house a file belongs to: `env`, `selectors`, `llm`, ..."""
    place = path.relative_to(ROOT).parts
    return (place[1] if place[0] == "marl_gem" else place[0]).removesuffix(".py")


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def parts_imported(path: Path) -> set[str]:
    names = (name.split(".") for name in imports(path))
    return {name[1] for name in names if name[0] == "marl_gem" and len(name) > 1 and name[1] in LAYER}


def test_every_part_has_a_layer() -> None:
    assert len(FILES) > 30
    assert {part_of(path) for path in FILES} - {"__init__"} <= LAYER.keys()


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_arrows(path: Path) -> None:
    part = part_of(path)
    if part == "__init__":
        assert parts_imported(path) <= {"links", "lazy", "env", "registry", "selectors", "types", "vector"}
        return
    wrong = {other for other in parts_imported(path) if other != part and LAYER[other] > LAYER[part]}
    assert not wrong, f"{part} must not import {wrong}"


def test_siblings_do_not_import_each_other_in_a_circle() -> None:
    arrows = {part: set[str]() for part in LAYER}
    for path in FILES:
        if part_of(path) in arrows:
            arrows[part_of(path)] |= parts_imported(path) - {part_of(path)}
    while free := {part for part, needed in arrows.items() if not needed & arrows.keys()}:
        for part in free:
            del arrows[part]
    assert not arrows, f"these import one another: {arrows}"


def module_of(path: Path) -> str:
    """A file's module, by its name inside the package: scenarios/tau/env.py is marl_gem.scenarios.tau.env."""
    inside = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("marl_gem", *(inside[1:] if inside[0] == "marl_gem" else inside))).removesuffix(".__init__")


def module_graph() -> dict[str, set[str]]:
    """Which of our modules each module imports, also inside functions. A package is the module of its __init__."""
    graph = {module_of(path): set[str]() for path in FILES}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                full = [f"{node.module}.{alias.name}" for alias in node.names]
                names = [name if name in graph else node.module for name in full]
            else:
                continue
            graph[module_of(path)].update(graph.keys() & set(names))
    return graph


def circle_in(graph: Mapping[str, set[str]]) -> list[str]:
    """Modules that import one another, each the next and the last the first; empty if there are none."""
    left = {module: set(imported) for module, imported in graph.items()}
    while free := [module for module, imported in left.items() if not imported & left.keys()]:
        for module in free:
            del left[module]
    if not left:
        return []
    walk = [min(left)]
    while walk[-1] not in walk[:-1]:
        walk.append(min(left[walk[-1]] & left.keys()))
    return walk[walk.index(walk[-1]) :]


def test_no_modules_import_each_other_in_a_circle() -> None:
    circle = circle_in(module_graph())
    assert not circle, (
        f"these modules import each other: {' -> '.join(circle)}. Move what both need into a module of its own"
    )


def test_the_graph_of_modules_sees_through_the_links() -> None:
    graph = module_graph()
    assert "marl_gem.scenarios.tau.domain" in graph["marl_gem.scenarios.tau.env"]
    assert "marl_gem.llm.models" in graph["marl_gem.scenarios.tau.reward"]  # imported inside a function
    assert circle_in({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == ["b", "c", "b"]
    assert circle_in({"a": {"b"}, "b": set()}) == []


def test_scenarios_and_trainers_never_import_each_other() -> None:
    for path in FILES:
        if part_of(path) == "scenarios":
            assert "trainers" not in parts_imported(path), path
        if part_of(path) == "trainers":
            assert "scenarios" not in parts_imported(path), path


def test_export_and_viewer_never_import_each_other() -> None:
    for path in FILES:
        assert not {part_of(path), *parts_imported(path)} >= {"export", "viewer"} or part_of(path) == "cli", path


@pytest.mark.parametrize("package", ["torch", "transformers", "safetensors", "tokenizers"])
def test_only_trainers_and_one_back_end_import_torch(package: str) -> None:
    users = {path for path in FILES if package in {name.partition(".")[0] for name in imports(path)}}
    files = (
        "chat_template.py",
        "continuous.py",
        "pretrained.py",
        "slot_cache.py",
        "token_sampling.py",
        "transformers.py",
    )
    back_end = {ROOT / "marl_gem" / "llm" / name for name in files}
    allowed = {path for path in FILES if part_of(path) == "trainers"} | back_end
    assert users and users <= allowed


def test_selectors_is_no_package_of_its_own_at_the_root() -> None:
    """With an `__init__.py` it would shadow Python's own module whenever the root is on sys.path."""
    assert not (ROOT / "selectors" / "__init__.py").exists()
    code = "import selectors, asyncio; print(selectors.__file__, hasattr(selectors, 'DefaultSelector'))"
    file, works = run(code).split()
    assert works == "True" and not Path(file).is_relative_to(ROOT)


def test_the_three_folders_are_links() -> None:
    for name in ("selectors", "scenarios", "trainers"):
        assert (ROOT / "marl_gem" / name).resolve() == ROOT / name


@pytest.mark.parametrize("broken", [["selectors"], ["scenarios", "selectors", "trainers"]])
def test_a_clone_without_links_says_what_to_do(tmp_path: Path, broken: list[str]) -> None:
    """Git for Windows writes a text file with the target where it may not make a link."""
    shutil.copytree(ROOT / "marl_gem", tmp_path / "marl_gem", ignore=shutil.ignore_patterns("__pycache__", "page"))
    for name in broken:
        shutil.rmtree(tmp_path / "marl_gem" / name)
        (tmp_path / "marl_gem" / name).write_text(f"../{name}")
    command = [sys.executable, "-c", "import marl_gem"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    finished = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert finished.returncode == 1
    message = finished.stderr.splitlines()[-1]
    assert message.startswith("ImportError: " + " ".join(f"marl_gem/{name}" for name in broken) + ": a text file where")
    for advice in ("git config core.symlinks true", "Developer Mode", "pip install marl-gem"):
        assert advice in message


@pytest.mark.parametrize(
    "first",
    [
        "[getattr(marl_gem, name) for name in marl_gem.__all__];",
        "marl_gem.list();",
        "marl_gem.make('game:KuhnPoker-v0').reset();",
    ],
)
def test_what_import_marl_gem_leaves_out(first: str) -> None:
    loaded = set(run(f"import sys, marl_gem; {first} print(*sys.modules)").split())
    assert "marl_gem" in loaded
    assert not loaded & HEAVY


def run(code: str) -> str:
    """What a fresh interpreter prints, started in the repository's root, which is on its sys.path."""
    finished = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout
