"""Find out which of TextArena's games work: writes `catalog.json`.

    python -m scripts.textarena_survey --newer /path/to/python3.12

Every game is played with every number of players from 1 to 16, each in a process of its own with a time
limit, by players who mostly repeat something in brackets that they were shown. It works with a number of
players if all of them are in the game, nothing raises, the same seed gives the same episode, and a fork goes
on like the original. Games that this Python cannot parse are tried with the one given as `--newer`; it needs
marl_gem and TextArena too. Run it where NLTK's data, numpy and keys are not set up as well, and what a game
wants is noted all the same; its number of players is then read from TextArena's own list.
"""

from __future__ import annotations

import argparse
import functools
import importlib.metadata
import json
import multiprocessing
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from marl_gem.errors import MarlGemError
from marl_gem.scenarios.textarena import catalog
from marl_gem.scenarios.textarena.env import TextArenaEnv
from scripts.textarena_contests import is_zero_sum

MOST_PLAYERS = 16
STEPS = 80
SECONDS = 20.0
_BRACKETED = re.compile(r"\[[^\[\]\n]{1,20}\]")
_TAGGER = "averaged_perceptron_tagger_eng"


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--newer", help="a newer Python, for games that this one cannot parse")
    parser.add_argument("--games", help="only these, with commas between; prints what was found and writes nothing")
    arguments = parser.parse_args()
    from textarena.envs.registration import ENV_REGISTRY

    catalog.entries = lambda: {}  # type: ignore[assignment]  # what an older survey found must not limit this one
    games = [game for game in ENV_REGISTRY if not game.endswith(("-raw", "-train"))]
    games = arguments.games.split(",") if arguments.games else games
    with ThreadPoolExecutor(2) as pool:
        found = dict(zip(games, pool.map(survey, games), strict=True))
    unread = [game for game, entry in found.items() if "SyntaxError" in entry.get("broken", "")]
    if unread and arguments.newer:
        found.update(_with(arguments.newer, unread))
    if arguments.games:
        print(json.dumps(found))
        return
    catalog.FILE.write_text(as_text(found, importlib.metadata.version("textarena")), encoding="utf-8")


def as_text(found: Mapping[str, Any], version: str) -> str:
    """The catalog as it is written: one game a line."""
    lines = (f"  {json.dumps(game)}: {json.dumps(entry)}" for game, entry in found.items())
    head = f'{{\n "made_by": "scripts/textarena_survey.py", "textarena": "{version}",\n "games": {{\n'
    return head + ",\n".join(lines) + "\n }\n}\n"


def survey(game: str) -> dict[str, Any]:
    """What the catalog is to say of one game."""
    if game in _OUTDATED:
        return {"broken": _OUTDATED[game]}
    players: list[int] = []
    needs, failures = set(_modules(game)), []
    for number in range(1, _AT_MOST.get(game.partition("-v0")[0], MOST_PLAYERS) + 1):
        failure = _apart(_failure, game, number)
        if not failure:
            players.append(number)
        elif wanted := _wanted(game, failure):
            return {"players": _declared(game), "needs": sorted(needs | wanted)}
        elif not failure.startswith(_WRONG_NUMBER):
            failures.append(failure)
            if failure == _TOO_LONG:
                break
    if not players:
        return {"broken": re.sub(r"\S*/textarena/envs/", "", failures[0])[:200]}
    entry: dict[str, Any] = {"players": players}
    if players == [2] and _apart(_is_zero_sum, game, seconds=6 * SECONDS) is True:
        entry["zero_sum"] = True
    return {**entry, "needs": sorted(needs)} if needs else entry


_AT_MOST = {"Briscola": 2, "Golf": 2}
"""With more players, these end by methods that their state does not have; chance play hardly gets there."""

_OUTDATED = {"BabyAiText-v0": "it calls methods that its state has not any more"}
"""What cannot be found out here, for want of a module that hardly any machine has."""

_WRONG_NUMBER = "AssertionError"
_TOO_LONG = f"it hangs, or takes more than {SECONDS:g} seconds"


def _wanted(game: str, failure: str) -> set[str]:
    """What the game misses on this machine, going by what it said when it failed."""
    if "Resource" in failure and "not found" in failure:
        return {"nltk:words", f"nltk:{_TAGGER}"} if _TAGGER in _source(game) else {"nltk:words"}
    if "OPENROUTER_API_KEY" in failure:
        return {"key:OPENROUTER_API_KEY"}
    missing = re.match(r"ModuleNotFoundError: No module named '(?!textarena)(\w+)", failure)
    return {f"module:{missing[1]}"} if missing else set()


def _with(python: str, games: list[str]) -> dict[str, Any]:
    """What a newer Python finds."""
    command = [python, "-m", __spec__.name, "--games", ",".join(games)]
    found: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    version = subprocess.run([python, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    for entry in found.values():
        if not entry.get("broken"):
            entry["needs"] = [*entry.get("needs", []), "python:" + ".".join(version.split(".")[:2])]
    return found


# One game, in a process of its own


def _apart(function: Callable[..., Any], *arguments: Any, seconds: float = SECONDS) -> Any:
    """What a function of a game returns; a text that says why there is nothing, if it hangs or its process ends."""
    fork = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    process = fork.Process(target=_send, args=(sender, function, arguments), daemon=True)
    process.start()
    sender.close()
    try:
        return receiver.recv() if receiver.poll(seconds) else _TOO_LONG
    except EOFError:
        return "its process died"
    finally:
        process.kill()
        process.join()


def _send(sender: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    with Path(os.devnull).open("w") as nowhere:
        sys.stdout = sys.stderr = nowhere
        sender.send(function(*arguments))


def _is_zero_sum(game: str) -> bool:
    return is_zero_sum(game, _source(game))


def _failure(game: str, number: int) -> str:
    """Why the game does not work with so many players; empty if it does."""
    try:
        return _check(game, number)
    except MarlGemError as error:
        cause = error.__cause__ or error
        return f"{type(cause).__name__}: {cause}"


def _check(game: str, number: int) -> str:
    env = TextArenaEnv(game, number)
    episodes = []
    for seed in (1, 2, 1):
        env.reset(seed=seed)
        episodes.append(list(_play_on(env, seed)))
    if env.game.state.num_players != number or (number == 1 and "Multi" in type(env.game.state).__name__):
        return f"{_WRONG_NUMBER}: it is not for so many"
    if unread := [line for episode in episodes for line in episode if "could not read" in line]:
        return unread[0]
    if not _alike(episodes[0], episodes[2]):
        return "the same seed gives different episodes"
    env.reset(seed=3)
    env.step(dict.fromkeys(env.acting, "[0]"))
    fork = env.fork()
    return "" if _alike(_play_on(env, 4), _play_on(fork, 4)) else "a fork goes another way"


def _play_on(env: TextArenaEnv, seed: int) -> Iterator[str]:
    """Play, and tell all that happens."""
    dice, started = random.Random(seed), time.monotonic()
    while not env.done and env.steps < STEPS and time.monotonic() < started + SECONDS / 8:
        (agent,) = env.acting
        seen = env.observe(agent)
        said = _BRACKETED.findall(env.role(agent).instructions + seen)
        action = dice.choice([*said, "[1]", "[0 1]"]) if dice.random() < 0.9 else "What now?"
        _, rewards, _, _, infos = env.step({agent: action})
        yield f"{agent}: {seen} -> {action} {rewards} {infos}"


def _alike(one: Iterable[str], other: Iterable[str]) -> bool:
    """As far as both go: either may have been cut off for time."""
    return all(a == b for a, b in zip(one, other, strict=False))


# What stands in the sources


@functools.cache
def _source(game: str) -> str:
    """The source of the module that makes the game, without importing it."""
    from textarena.envs.registration import ENV_REGISTRY

    entry_point = ENV_REGISTRY[game].entry_point
    import textarena

    path = Path(str(textarena.__file__)).parent.joinpath(*entry_point.partition(":")[0].split(".")[1:])
    file = path.with_suffix(".py")
    return file.read_text(encoding="utf-8") if file.exists() else ""


def _modules(game: str) -> list[str]:
    """Modules that the game imports, and that neither Python nor TextArena brings along."""
    named = set(re.findall(r"^\s*(?:from|import) +([a-z_0-9]+)", _source(game), re.M))
    named |= {name.strip() for line in re.findall(r"^import +(.+)$", _source(game), re.M) for name in line.split(",")}
    named = {name.partition(" ")[0].partition(".")[0] for name in named}
    required = {line for line in importlib.metadata.requires("textarena") or () if "extra" not in line}
    brought = {"textarena", *sys.stdlib_module_names, *required}
    return [f"module:{name}" for name in named - brought if name]


def _declared(game: str) -> list[int]:
    """The number of players according to the comment above the game in TextArena's list."""
    import textarena.envs

    lines = Path(str(textarena.envs.__file__)).read_text(encoding="utf-8").splitlines()
    where = next(i for i, line in enumerate(lines) if f'id="{game}"' in line)
    comment = next(line for line in reversed(lines[:where]) if re.match(r"#.*Player", line))
    bounds = [int(number) for number in re.findall(r"\d+", comment)]
    return list(range(bounds[0], bounds[-1] + 1))


if __name__ == "__main__":
    main()
