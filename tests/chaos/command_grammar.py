"""Command lines at random, from the commands and options that there are.

The grammar reads the commands of `marl_gem.cli.app`, so a new option is attacked as soon as it exists. Values come from
what fits the option, else from what fits no option.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import typer.main

from marl_gem.cli import app

STREAMS = ("file", "full", "closed", "broken pipe")
"""Where the output goes: most often to files."""


class CommandLine(NamedTuple):
    """A command line, and what it runs in.

    Attributes:
        words: what follows `marl-gem`.
        out, err: of `STREAMS`.
        input: what it can read; None where its input is closed.
        ascii: whether the terminal knows ASCII alone.
    """

    words: list[str]
    out: str = "file"
    err: str = "file"
    input: str | None = ""
    ascii: bool = False


class Parameter(NamedTuple):
    """An option or an argument of a command: `flag` is empty for an argument."""

    name: str
    flag: str
    kind: str
    repeated: bool
    required: bool


def commands() -> dict[tuple[str, ...], list[Parameter]]:
    """The parameters of every command, by its words."""
    return dict(_commands((), typer.main.get_command(app)))


def _commands(words: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], list[Parameter]]]:
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from _commands((*words, name), inner)
    else:
        yield words, [_parameter(parameter) for parameter in command.params]


def _parameter(parameter: Any) -> Parameter:
    option = parameter.param_type_name == "option"
    flag = max(parameter.opts, key=len) if option else ""
    types = str(getattr(parameter, "type_descriptor", None) or parameter.type).lower()
    kinds = ["flag"] if option and parameter.is_flag else [kind for kind in ("path", "int", "float") if kind in types]
    repeated = parameter.multiple if option else parameter.nargs == -1
    return Parameter(parameter.name or "", flag, kinds[0] if kinds else "text", repeated, parameter.required)


class Grammar:
    """Draws command lines for a world that `command_world.build` made; without `training` none needs torch."""

    def __init__(self, world: Path, seed: int, *, training: bool = True) -> None:
        self.rng = random.Random(seed)
        self.commands = {
            words: parameters for words, parameters in commands().items() if training or words != ("train",)
        }
        self.training = training
        names = sorted({str(path.relative_to(world)) for path in world.rglob("*") if "model" not in path.parts})
        self.paths = names
        self.runs = [name for name in names if name.startswith(("good/", "damaged/")) and name.count("/") == 1]
        self.runs += ["linked_run", "readonly/run", "unreadable/run", "."]
        self.files = [name for name in names if "/" not in name or name.startswith("names/")]
        self._fitting: dict[str, Callable[[], str]] = {
            "scenario": self._scenario, "name": self._name, "names": self._scenario, "what": self._trainable,
            "seats": lambda: f"{self._agent()}={self._who()}", "players": lambda: f"{self._agent()}={self._who()}",
            "wrappers": self._wrapper, "options": self._option, "settings": self._setting,
            "n": self._number, "games": self._number, "concurrency": self._number, "agent": self._agent,
            "only": self._choice("reset", "fork", "nothing", "seeds"), "model": self._choice("random", "tiny"),
            "episode": self._choice("1", "0.0", "e1", "99", "-1"), "run": lambda: self.rng.choice(self.runs),
            "turn_order": self._choice("sequential", "parallel", "mixed"), "format": self._choice("chat", "inspect"),
            "filters": self._choice("won", "lost", "errors", "truncated"), "sort": self._choice("turns", "tokens"),
            "port": self._choice("0", "1", "65535", "65536", "99999999"), "search": self._choice("a", "[bold]", "("),
        }  # fmt: skip

    def draw(self) -> CommandLine:
        """A command line."""
        rng = self.rng
        if rng.random() < 0.02:
            return CommandLine([self._hostile() for _ in range(rng.randrange(3))])
        name, parameters = rng.choice(sorted(self.commands.items()))
        words = [*name, *self._values(parameters)]
        if rng.random() < 0.03:
            words.insert(rng.randrange(len(words) + 1), self._hostile())
        if rng.random() < 0.03 and len(words) > 1:
            del words[rng.randrange(1, len(words))]
        out = rng.choice(STREAMS) if rng.random() < 0.12 else "file"
        err = rng.choice(STREAMS) if rng.random() < 0.06 else "file"
        input = rng.choice((None, "", "\n\n\n", "[bet]\n" * 9, "1\nq\n", "\x04\x1b[A\n")) if rng.random() < 0.3 else ""
        return CommandLine(words, out, err, input, ascii=rng.random() < 0.1)

    def _values(self, parameters: Sequence[Parameter]) -> list[str]:
        rng = self.rng
        spoiled = rng.choice((0.0, 0.0, 0.1, 0.3))  # the share of values that fit no option
        words: list[str] = []
        for parameter in rng.sample(parameters, len(parameters)):
            if parameter.name in ("help", "browser") or rng.random() > (0.95 if parameter.required else 0.7):
                continue
            if (
                parameter.flag
                and not parameter.required
                and rng.random() > (6 if parameter.name in _LIKELY else 2.5) / len(parameters)
            ):
                continue
            for _ in range(rng.choice((1, 2)) if parameter.repeated or rng.random() < 0.03 else 1):
                value = self._hostile() if rng.random() < spoiled else self._fit(parameter)
                if parameter.kind == "flag":
                    words.append(parameter.flag)
                elif parameter.flag:
                    words += [parameter.flag, value] if rng.random() < 0.8 else [f"{parameter.flag}={value}"]
                else:
                    words.append(value)
        return [*words, "--no-browser"] if any(parameter.name == "browser" for parameter in parameters) else words

    def _fit(self, parameter: Parameter) -> str:
        if parameter.name in self._fitting:
            return self._fitting[parameter.name]()
        return {"path": self._path, "int": self._number, "float": self._number}.get(parameter.kind, self._text)()

    def _choice(self, *texts: str) -> Callable[[], str]:
        return lambda: self.rng.choice(texts)

    def _number(self) -> str:
        return self.rng.choice(("1", "1", "1", "2", "3", "7", self.rng.choice(_NUMBERS)))

    def _path(self) -> str:
        rng = self.rng
        fresh = f"new/{rng.randrange(3)}/{rng.choice(('run', 'x.jsonl', 'x.txt', 'x.sqlite', 'x.eval'))}"
        run = rng.choice(self.runs)
        return rng.choice((fresh, fresh, run, run, rng.choice(self.files), rng.choice(self.paths), rng.choice(_PATHS)))

    def _text(self) -> str:
        return self.rng.choice(("a", "text", self._path(), self._hostile()))

    def _scenario(self) -> str:
        usual = ("game:KuhnPoker-v0", "game:KuhnPoker-v0", "game:TicTacToe-v0", "tau:desk-v0")
        return self.rng.choice((*usual, *usual, self.rng.choice(_SCENARIOS), self.rng.choice(_SCENARIOS)))

    def _name(self) -> str:
        return self.rng.choice(("game", "ta", "tau", "nothing", "demo", "", "..", "a/b", self._scenario()))

    def _trainable(self) -> str:
        files = [name for name in self.files if name.endswith(".toml")]
        return self.rng.choice(("good.toml", "good.toml", self.rng.choice(files), self._scenario(), self._path()))

    def _agent(self) -> str:
        return self.rng.choice(("player_0", "player_0", "player_1", "user", "assistant", "a", "nobody", "", "\u202e"))

    def _who(self) -> str:
        run = self.rng.choice((*self.runs, "old_training", "good/old_training"))
        hostile: tuple[str, ...] = (
            self.rng.choice(_POLICIES),
            f"random,{self._assignment()}",
            f"{run},{self._assignment()}",
        )
        files: tuple[str, ...] = (f"replay:{run}", f"replay:{self._path()}")
        if self.training:
            files += (run, f"{run}@2", f"hf:{self._path()}")
        else:
            hostile = ("", "@", "x@", f"random,{self._assignment()}")
        return self.rng.choice(("random", "random", "human", "scripted:expert", *_MODELS, *files, *hostile))

    def _assignment(self) -> str:
        names = ("temperature", "top_p", "max_tokens", "strategy", "view", "price", "judge", "api_key_env", "nothing")
        return f"{self.rng.choice(names)}={self.rng.choice((self._number(), self._hostile()))}"

    def _wrapper(self) -> str:
        names = ("time_limit", "reward_scale", "reward_clip", "parse_action", "show_history", "step_penalty")
        value = self.rng.choice(
            ("3", self._number(), "boxed", "matching:(", "window:8", "low=0,high=1", self._hostile())
        )
        return f"{self.rng.choice((*names, 'record_episodes', 'episode_statistics', 'nothing'))}={value}"

    def _option(self) -> str:
        names = ("max_steps", "size", "name", "shares", "flag", "split", "task", "num_players", "a.b.c", "", "self")
        value = self.rng.choice((self._number(), self._hostile(), "true", "[1, 2]", "{a = 1}"))
        return f"{self.rng.choice(names)}={value}"

    def _setting(self) -> str:
        value = self.rng.choice((self._number(), "1", "0", self._hostile(), "true", "[]", "{a = 1}"))
        return f"{self.rng.choice(_SETTINGS)}={value}"

    def _hostile(self) -> str:
        return self.rng.choice(
            (*_HOSTILE, self.rng.choice(_NUMBERS), self.rng.choice(_PATHS), self.rng.choice(self.files))
        )


_LIKELY = ("folder", "resume", "to", "record", "seats", "players", "options", "wrappers", "settings", "n", "text")
_NUMBERS = (
    *("nan", "inf", "-inf", "-1", "0", "-0.0", "1e400", "1e-400", "1e308", "10000000000", "9" * 30, "9" * 5000, "0x10"),
    *("1_000", " 2 ", "\uff12", "\u0662", "1.5", "1e3", "true", "", "18446744073709551616", "-9223372036854775809"),
)
_PATHS = (
    *(
        "",
        ".",
        "..",
        "new",
        "/",
        "/dev/null",
        "/dev/zero",
        "/dev/full",
        "/dev/stdin",
        "/proc/self/mem",
        "/proc/self/fd",
    ),
    *(
        "a" * 300,
        "a/" * 3000,
        "~",
        "new/\udcff\n\x1b[2J",
        "new/[red]x[/]",
        "-",
        "--",
        "good/../good",
        "zero/x",
        "fifo/x",
    ),
)
_SCENARIOS = (
    *("code.py:Fine", "code.py:Typed", "code.py:Raises", "code.py:Exits", "code.py:Hostile", "code.py:nothing"),
    *("code.py:number", "code.py:Missing", "raises.py:X", "exits.py:X", "syntax.py:X", "missing.py:X", "fifo:X"),
    *("code:Fine", "json:loads", "os:abort_", "tests.toys:Chat", "tests.toys:Village", "tests.toys:OneAnswer", "game:"),
    *(":", "::", "game:kuhn", "ta:TicTacToe-v0", "ta:Chess-v0", "tau:retail-v0", "tau:desk-v0", "", "game:\udcff-v0"),
)
_MODELS = ("hf:", "tiny@http://127.0.0.1:9/v1", "litellm:openai/x", "litellm:", "scripted:")
_POLICIES = (
    *("", ",", "@", "@http://127.0.0.1:9/v1", "x@", "x@http://", "x@http://[::1", "x@ftp://127.0.0.1", "x@127.0.0.1"),
    *(
        "x@http://user:secret@127.0.0.1:9/v1",
        "x@http://127.0.0.1:99999/v1",
        "run@-1",
        "good/old_training@99",
        "hf:good",
    ),
    *("replay:", "replay:fifo", "replay:zero", "scripted:\udcff", "human,temperature=1", "random@5", "x" * 5000),
)
_SETTINGS = (
    *(
        "training.updates",
        "training.episodes",
        "training.learning_rate",
        "policy.width",
        "policy.context",
        "policy.view",
    ),
    *("imitation.steps", "imitation.learning_rate", "seed", "device", "threads", "algorithm.name", "algorithm.options"),
    *(
        "policy.view",
        "seats",
        "phases",
        "evaluation.opponents",
        "evaluation.final_episodes",
        "scenario",
        "scenarios",
        "policy",
        "",
    ),
    *("training.updates.x", "policy.start_from", "options", "wrappers", "nothing", "a.b.c", ".", "training.gamma"),
)
_HOSTILE = (
    *(
        "",
        " ",
        "\n",
        "\t",
        "=",
        "a=",
        "=a",
        "a=b",
        ",",
        ":",
        "-",
        "--",
        "-x",
        "--nothing",
        "--help",
        "\u202e",
        "\U0001f600",
    ),
    *("\udcff\udc80", "\x1b]52;c;QUJD\x07", "\x1b[2J", "[bold]", "[/]", "[/red]", "[link=http://x]y[/link]", "%s%n{0}"),
    *("$(id)", "`id`", "../../../etc/passwd", "A" * 100_000, "[" * 5000, "[" * 5000 + "]" * 5000, "{a=" * 5000),
    *("a=" + "[" * 5000 + "]" * 5000, "a=" + "{a=" * 5000, ".".join("a" * 5000) + "=1", "a=1979-05-27T07:32:00Z"),
    *('a="""', "a='\\ud800'", "a=nan", "a=[nan, inf]", "a=0xffffffffffffffffffff", "a=" + "9" * 5000, "\x7f"),
)
