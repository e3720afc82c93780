"""The files that the command lines of `commands.py` name: good runs, damaged ones, and what is no run at all."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FIXTURES = {
    "old_eval": "tests/runs/old_format/evaluation",
    "old_tasks": "tests/runs/old_format/tasks",
    "old_tournament": "tests/runs/old_format/tournament",
    "old_training": "tests/trainers/old_run",
    "format_1": "tests/evaluation/format_1/eval",
}
DEEP = "[" * 100_000
SCENARIOS = """
import sys
from tests.toys import Chat, NumberGame

class Fine(NumberGame):
    pass

class Typed(NumberGame):
    def __init__(self, size: int, name: str = "x", shares: tuple[float, ...] = (0.5,), flag: bool = False):
        super().__init__()
        self.size = size + 1
        self.name = name.upper()
        self.possible_agents = tuple("ab"[: round(2 * max(shares))])

class Raises(NumberGame):
    def __init__(self, **options):
        raise KeyError("size")

class Exits(NumberGame):
    def __init__(self):
        sys.exit(0)

class Hostile(NumberGame):
    def observe(self, agent):
        raise RuntimeError("\\x1b]52;c;AAAA\\x07 [bold]broken[/] \\udc80")

def nothing():
    return None

number = 7
"""
TRAINING = """scenario = "game:KuhnPoker-v0"
[policy]
width = 8
layers = 1
heads = 1
context = 64
[imitation]
episodes = 10
steps = 2
[training]
updates = 1
episodes = 4
[evaluation]
final_episodes = 2
probe_episodes = 2
"""
Damage = Callable[[Path, random.Random], None]


def build(folder: Path, seed: int, make_runs: Callable[[Path], None]) -> None:
    """Fill an empty folder. `make_runs` adds fresh runs to the folder that it is given; they are damaged, too."""
    rng = random.Random(seed)
    good = folder / "good"
    for name, source in FIXTURES.items():
        shutil.copytree(ROOT / source, good / name)
    make_runs(good)
    for index in range(40):
        run = rng.choice(sorted(path for path in good.iterdir() if path.is_dir()))
        target = folder / f"damaged/{index:02d}-{run.name}"
        shutil.copytree(run, target)
        for _ in range(rng.choice((1, 1, 2, 3))):
            file = rng.choice(sorted(path for path in target.rglob("*") if path.is_file()))
            rng.choice(DAMAGES)(file, rng)
    _single_files(folder)
    _special_files(folder)


def _single_files(folder: Path) -> None:
    texts = {
        "empty.jsonl": "",
        "garbage.jsonl": "\x00\x1b]52;c;QQ==\x07 garbage \ud800\n{}\n[]\nnull\n7\n",
        "deep.jsonl": DEEP + "\n",
        "deep_object.jsonl": '{"a":' * 100_000 + "\n",
        "text.txt": "some text\n",
        "code.py": SCENARIOS,
        "raises.py": "1 / 0\n",
        "exits.py": "import sys\nsys.exit(0)\n",
        "syntax.py": "def\n",
        "good.toml": TRAINING,
        "syntax.toml": "a = = 1\n",
        "deep.toml": f"a = {'[' * 5000}{']' * 5000}\n",
        "types.toml": 'scenario = 7\npolicy = "x"\nseats = [1]\n[training]\nupdates = "many"\n',
        "unknown.toml": TRAINING + 'fluorescent = 1\nseats = {"player_0" = "nobody@nowhere"}\n',
        "numbers.toml": TRAINING.replace("width = 8", "width = 99999999999999999999").replace(
            "steps = 2", "steps = nan"
        ),
        "empty.toml": "",
        "names/\udcff.jsonl": "{}\n",
        "names/with space, comma=equals.jsonl": "{}\n",
        "names/[bold]markup[/].toml": TRAINING,
        "hf_list/config.json": "[]",
        "hf_text/config.json": '{"model_type": "gpt2", "n_layer": "many"}',
        "hf_unknown/config.json": '{"model_type": "nothing", "auto_map": {"AutoConfig": "code.Config"}}',
        "hf_deep/config.json": DEEP,
    }
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
    for name in ("empty", "hf_empty", "folder.jsonl", "folder.toml", "config/config.json", "runs"):
        (folder / name).mkdir(parents=True, exist_ok=True)


def _special_files(folder: Path) -> None:
    os.mkfifo(folder / "fifo")
    for name in ("full", "zero", "null"):
        (folder / name).symlink_to(f"/dev/{name}")
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("nowhere")
    (folder / "linked_run").symlink_to("good/old_eval")
    shutil.copytree(folder / "good/old_eval", folder / "readonly/run")
    shutil.copytree(folder / "good/old_eval", folder / "unreadable/run")
    (folder / "unreadable.jsonl").write_text("{}\n")
    for name in ("unreadable.jsonl", "unreadable/run/config.json", "unreadable/run/episodes.jsonl"):
        (folder / name).chmod(0)
    for path in ("readonly/run", "readonly"):
        (folder / path).chmod(0o555)


def _cut(file: Path, rng: random.Random) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: rng.randrange(len(content) + 1)])


def _flip(file: Path, rng: random.Random) -> None:
    content = bytearray(file.read_bytes())
    for _ in range(rng.choice((1, 1, 50)) if content else 0):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    file.write_bytes(content)


def _replace(file: Path, rng: random.Random) -> None:
    contents = (b"", b"[]", b"null", b"{}", b"7", b'"text"', b"\xff\xfe", b"\0" * 4096, b"NaN", b"1e999")
    deep = (DEEP.encode(), b'{"a":' * 100_000, b"[" * 5000 + b"]" * 5000, b'{"a":' * 5000 + b"1" + b"}" * 5000)
    file.write_bytes(rng.choice((*contents, *deep)))


def _become_other(file: Path, rng: random.Random) -> None:
    file.unlink()
    match rng.choice(("missing", "folder", "fifo", "loop", "zero", "unreadable")):
        case "folder":
            file.mkdir()
        case "fifo":
            os.mkfifo(file)
        case "loop":
            file.symlink_to(file.name)
        case "zero":
            file.symlink_to("/dev/zero")
        case "unreadable":
            file.touch(0)


def _change_json(file: Path, rng: random.Random) -> None:
    """Give a field of the JSON object in a file, or in the first line of it, another type, or remove it."""
    if not file.is_file() or file.suffix not in (".json", ".jsonl"):
        return
    first, newline, rest = file.read_text("utf-8", "replace").partition("\n" if file.suffix == ".jsonl" else "\0")
    try:
        values = json.loads(first)
    except (ValueError, RecursionError):
        return
    table = values
    while isinstance(table, dict) and table:
        key = rng.choice(sorted(table))
        if isinstance(table[key], dict) and table[key] and rng.random() < 0.6:
            table = table[key]
            continue
        if rng.random() < 0.3:
            del table[key]
        else:
            hostile: tuple[Any, ...] = (
                None,
                7,
                -1,
                1e308,
                10**400,
                "text",
                "",
                [],
                {},
                [[]],
                True,
                "\ud800\x1b[2J",
                "../../x",
            )
            table[key] = rng.choice(hostile)
        break
    file.write_text(json.dumps(values) + newline + rest, "utf-8")


DAMAGES: tuple[Damage, ...] = (_cut, _flip, _replace, _become_other, _change_json, _change_json, _change_json)
