"""Ways to spoil a checkpoint: by accident, and on purpose."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from marl_gem.trainers.checkpoint import newest
from marl_gem.trainers.checkpoint_state import checksum_of
from tests.llm.folders import CODE, change_json


@dataclass(frozen=True)
class Attack:
    """A kind of damage.

    Args:
        name: what is done.
        promise: what must hold.
        spoil: does it to a run's folder, from a random generator; code that must not run writes the file that is given
            last. Returns what was done.
        must_be_refused: whether reading must be an error.
        must_be_equal: whether what is read without an error must be what was written.
    """

    name: str
    promise: str
    spoil: Callable[[random.Random, Path, Path], str]
    must_be_refused: bool = False
    must_be_equal: bool = False


def _files(run: Path) -> list[Path]:
    return sorted(path for path in newest(run).rglob("*") if path.is_file())


def flip(rng: random.Random, run: Path, mark: Path) -> str:
    """Flip some bits of a file."""
    file = rng.choice(_files(run))
    content = bytearray(file.read_bytes())
    bits = [rng.randrange(8 * len(content)) for _ in range(rng.choice([1, 1, 8]))]
    for bit in bits:
        content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)
    return f"bits {bits} of {file.name} flipped"


def cut(rng: random.Random, run: Path, mark: Path) -> str:
    """Cut a file short, empty it, or make it longer."""
    file = rng.choice(_files(run))
    content = file.read_bytes()
    end = rng.choice([0, rng.randrange(len(content)), len(content) - 1])
    file.write_bytes(content[:end] if rng.random() < 0.7 else content + bytes(rng.randrange(1, 99)))
    return f"{file.name} cut to {end} bytes, or made longer"


def move(rng: random.Random, run: Path, mark: Path) -> str:
    """Remove a file, rename it, or put it in the place of another; also between policies."""
    first, second = rng.sample(_files(run), 2)
    kind = rng.choice(["remove", "rename", "swap", "copy"])
    if kind == "remove":
        first.unlink()
    elif kind == "rename":
        first.rename(first.with_name(f"old-{first.name}"))
    elif kind == "swap":
        contents = first.read_bytes(), second.read_bytes()
        first.write_bytes(contents[1])
        second.write_bytes(contents[0])
    else:
        shutil.copy(first, second)
    return f"{kind} {first.name}, {second.name}"


def add(rng: random.Random, run: Path, mark: Path) -> str:
    """Add a file, a link, a pipe or a device's name, or replace a file by one of them."""
    file = rng.choice(_files(run))
    kind = rng.choice(["file", "file", "code", "link", "folder link", "pipe", "endless", "name"])
    if kind in ("file", "code"):
        name = rng.choice(["modeling_x.py", "adapter_config.json", "model.safetensors.index.json", ".lock", "x\n.json"])
        (file.parent / name).write_text(CODE.format(mark=str(mark)) if kind == "code" else "{}")
    elif kind == "folder link":
        (newest(run) / "more").symlink_to("/etc")
    elif kind == "name":
        newest(run).rename(newest(run).with_name("update-000077"))
    else:
        elsewhere = run / "elsewhere"
        file.rename(elsewhere)
        if kind == "pipe":
            os.mkfifo(file)
        else:
            file.symlink_to("/dev/zero" if kind == "endless" else elsewhere)
    return f"{kind} at {file.name}"


WRONG: list[Any] = [
    *(None, True, False, -1, 0, 1, 7, 1 << 40, 10**30, -(10**30), 1.5, 1e308, float("inf"), float("nan")),
    *("", "x", "../../x", "/etc/passwd", "\ud800", "\x1b[2J", "9" * 5000, "qwen@http://127.0.0.1:9/v1", "os:system"),
    *([], {}, [[]], [None], {"": None}, {"x": {"y": []}}, ["a", 1]),
]


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values in nested data."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [place for key, item in inner for place in _places(item, (*path, key))]


def alter(rng: random.Random, values: Any) -> str:
    """Replace, remove or add something anywhere in plain data."""
    path = rng.choice(_places(values))
    target = values
    for key in path[:-1]:
        target = target[key]
    if rng.random() < 0.2:
        del target[path[-1]]
        return f"without {path}"
    wrong = rng.choice(WRONG)
    if rng.random() < 0.1:
        for _ in range(rng.choice([20, 40, 90])):
            wrong = [wrong]
    target[path[-1]] = wrong
    return f"{path} = {wrong!r:.80}"


def description(rng: random.Random, run: Path, mark: Path) -> str:
    """Change state.json as somebody does who means it: with a checksum that is right, or in a format without."""
    file = newest(run) / "state.json"
    values = json.loads(file.read_text())
    del values["checksum"]
    if rng.random() < 0.5:
        values["format"] = 3
    done = ", ".join(alter(rng, values) for _ in range(rng.choice([1, 1, 1, 3])))
    if values.get("format") == 4:
        values["checksum"] = checksum_of(values)
    file.write_text(json.dumps(values))
    return f"state.json: {done}"


def relisted(run: Path) -> None:
    """Make the description fit what the files are now."""
    folder = newest(run)
    listed = {}
    for file in _files(run):
        content = file.read_bytes()
        listed[file.relative_to(folder).as_posix()] = [len(content), hashlib.sha256(content).hexdigest()]
    listed.pop("state.json")
    change_json(folder / "state.json", files=listed, format=3, checksum=...)


def model(rng: random.Random, run: Path, mark: Path) -> str:
    """Change a model's JSON files."""
    file = rng.choice([file for file in _files(run) if file.suffix == ".json" and file.parent.name == "model"])
    values = json.loads(file.read_text())
    done = alter(rng, values)
    file.write_text(json.dumps(values))
    relisted(run)
    return f"{file.name}: {done}"


def tensors(rng: random.Random, run: Path, mark: Path) -> str:
    """Change the tensors of a file: their names, shapes, types and numbers."""
    file = rng.choice([file for file in _files(run) if file.suffix == ".safetensors" and load_file(file)])
    content = load_file(file)
    name = rng.choice(sorted(content))
    kind = rng.choice(["gone", "renamed", "shorter", "not a number", "infinite", "more", "all gone"])
    value = content.pop(name)
    if kind == "renamed":
        content[f"{name}.x"] = value
    elif kind == "shorter":
        content[name] = torch.zeros([size + 1 for size in value.shape] or [2])
    elif kind in ("not a number", "infinite"):
        content[name] = torch.full_like(value, float("nan" if kind == "not a number" else "inf"))
    elif kind == "more":
        content |= {name: value, "transformer.h.7.ln_1.bias": torch.zeros(8)}
    elif kind == "all gone":
        content = {}
    save_file(content, file, metadata={"format": "pt"})
    relisted(run)
    return f"{file.name}: {name} is {kind}"


def code(rng: random.Random, run: Path, mark: Path) -> str:
    """Ask for Python code in every way that a folder can, all files listed."""
    folder = rng.choice([file.parent for file in _files(run) if file.name == "tokenizer.json"])
    (folder / "foreign.py").write_text(CODE.format(mark=str(mark)))
    auto = {"AutoConfig": "foreign.Config", "AutoModelForCausalLM": "foreign.Model", "AutoTokenizer": ["foreign.T"] * 2}
    kind = rng.choice(["model", "tokenizer", "both", "attention", "adapter", "elsewhere"])
    if kind in ("model", "both", "adapter"):
        change_json(folder / "config.json", model_type="foreign", auto_map=auto)
    if kind in ("tokenizer", "both"):
        change_json(folder / "tokenizer_config.json", tokenizer_class="T", auto_map=auto)
    if kind == "attention":
        change_json(folder / "config.json", attn_implementation="somebody/kernels:attention")
    if kind == "adapter":
        (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(folder)}))
    if kind == "elsewhere":
        change_json(
            folder / "config.json", model_type="foreign", auto_map={"AutoConfig": "somebody/code--foreign.Config"}
        )
    relisted(run)
    return f"code: {kind}"


_EQUAL = "an error, or the very model that was written"
_ERROR = "an error that says what is wrong"
_CALM = "no traceback, no hang, no code runs, no memory beyond the limit"

ATTACKS = (
    Attack("bits of a checkpoint are flipped", _EQUAL, flip, must_be_equal=True),
    Attack("a checkpoint's file is cut or longer", _EQUAL, cut, must_be_equal=True),
    Attack("a checkpoint's files are moved", _EQUAL, move, must_be_equal=True),
    Attack("a checkpoint gets more files, links, pipes", _ERROR, add, must_be_refused=True),
    Attack("a checkpoint's description is forged", _CALM, description),
    Attack("a checkpoint's model is described anew", _CALM, model),
    Attack("a checkpoint's tensors are others", _ERROR, tensors, must_be_refused=True),
    Attack("a checkpoint's model asks for code", _CALM, code),
)
