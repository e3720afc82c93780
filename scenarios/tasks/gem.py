"""GEM's ids (https://github.com/axon-rl/gem): which run here, which need data, and how to get these.

Its data sets are read from the folder that the environment variable MARL_GEM_DATA names: `math:GSM8K` from
`math/GSM8K.jsonl`, `.json` or `.parquet` in it. They have GEM's ids.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from marl_gem.registry import register
from marl_gem.scenarios.tasks.reasoning_levels import highest_levels

if TYPE_CHECKING:  # to register takes none of these, which take long to import
    from marl_gem.env import MultiAgentEnv
    from marl_gem.scenarios.tasks.dataset import Dataset, Scorer

VARIABLE = "MARL_GEM_DATA"

_EVAL = "axon-rl/math-eval"
_SEARCH = "axon-rl/search-eval"

SETS: dict[str, str] = {
    "math:ASDiv2K": "axon-rl/ASDIV-2k",
    "math:DeepScaleR40K": "axon-rl/DeepScaleR-40K",
    "math:GSM8K": "axon-rl/GSM-8k",
    "math:Geometry3K": "axon-rl/geometry3k",
    "math:Math12K": "axon-rl/MATH-12k",
    "math:Math8K-3to5": "axon-rl/MATH-lvl3to5-8k",
    "math:Orz57K": "axon-rl/ORZ-57k",
    "eval:AIME24": f"{_EVAL}, split aime24",
    "eval:AMC": f"{_EVAL}, split amc",
    "eval:MATH500": f"{_EVAL}, split math",
    "eval:Minerva": f"{_EVAL}, split minerva",
    "eval:OlympiadBench": f"{_EVAL}, split olympiad_bench",
    "qa:HotpotQA": "axon-rl/HotpotQA",
    "qa:NaturalQuestions": "axon-rl/NaturalQuestions",
    "eval:QaOpen": "google-research-datasets/nq_open, split validation",
    "eval:2Wiki": f"{_SEARCH}, split 2wiki",
    "eval:Bamboogle": f"{_SEARCH}, split bamboogle",
    "eval:HotpotQA": f"{_SEARCH}, split hotpotqa",
    "eval:Musique": f"{_SEARCH}, split musique",
    "eval:NaturalQuestions": f"{_SEARCH}, split nq",
    "eval:PopQA": f"{_SEARCH}, split popqa",
    "eval:TriviaQA": f"{_SEARCH}, split tq",
    **{f"logic:RuleTaker-d{depth}": f"axon-rl/RuleTaker-d{depth}-70k" for depth in (0, 1, 2, 3, 5)},
}
"""The ids of GEM's data sets of questions, and where they are on the hub."""

CODE = {
    "code:CodeContest": "axon-rl/CodeContest",
    "code:PrimeIntellect15k": "axon-rl/PrimeIntellect-15k",
    "code:Taco8k": "axon-rl/TACO-8k",
    "eval:CodeContest": "axon-rl/CodeContest, split test",
}
"""Those of programs."""

GAMES = {
    "Crosswords": ("", "-easy", "-hard", "-random"),
    "FifteenPuzzle": ("", "-easy", "-hard", "-random"),
    "Game2048": ("", "-easy", "-hard", "-extreme-hard", "-random"),
    "GuessTheNumber": ("", "-easy", "-hard", "-random"),
    "Hangman": ("", "-easy", "-hard", "-random"),
    "Mastermind": ("", "-easy", "-hard", "-random"),
    "Minesweeper": ("", "-easy", "-hard", "-random"),
    "Sokoban": ("", "-easy", "-hard", "-random"),
    "Sudoku": ("", "-easy", "-hard", "-random"),
    "TowerofHanoi": ("", "-easy", "-hard", "-random"),
    "WordSearch": ("", "-easy", "-hard", "-random"),
    "Wordle": ("", "-easy", "-hard", "-random"),
}
"""Its games, `game:<name>-v0<variant>`."""

IN_TEXTARENA = {"Game2048": "2048", "TowerofHanoi": "TowerOfHanoi"}
"""TextArena's names of games, where they differ."""

MATHEMATICS = frozenset(
    [id for id in SETS if id.startswith("math:")]
    + ["eval:AIME24", "eval:AMC", "eval:MATH500", "eval:Minerva", "eval:OlympiadBench"]
)
"""The sets whose answers math-verify compares; the others go by exact match."""


class Id(NamedTuple):
    """One of GEM's ids: what it is here ("runs", "needs data", "as another id", "no"), and more about that."""

    id: str
    here: str
    how: str


def register_sets(family: str) -> None:
    """Register the data sets of a family of ids; those whose file is missing say what to do."""
    for id, hub in SETS.items():
        if id.partition(":")[0] == family:
            file = file_of(id)
            register(
                id,
                functools.partial(make, id),
                description=f"GEM's {id}, from a file of {hub}.",
                agents=1,
                turn_order="sequential",
                unavailable="" if file else f"its data are not here: {how_to_get(id)}",
            )


def make(id: str, **options: Any) -> MultiAgentEnv:
    """An env of one of the sets; see `dataset.make_env` for the options.

    Raises:
        RecordError: its file is broken; the message gives the line.
    """
    from marl_gem.scenarios.tasks.dataset import by_exact_match, make_env
    from marl_gem.scenarios.tasks.mathematics import by_math_verify

    scorer: Scorer = by_math_verify if id in MATHEMATICS else by_exact_match
    return make_env(_data(id, file_of(id) or Path()), scorer, None, (), **options)


@functools.cache
def _data(id: str, file: Path) -> Dataset:
    from marl_gem.scenarios.tasks.dataset import Dataset
    from marl_gem.scenarios.tasks.forms import any_form

    return Dataset(file, {}, any_form, needs_answer=True)


def file_of(id: str) -> Path | None:
    """The file with the data of an id, None if there is none."""
    family, _, name = id.partition(":")
    folder = os.environ.get(VARIABLE)
    files = [Path(folder, family, f"{name}{suffix}") for suffix in (".jsonl", ".json", ".parquet")] if folder else []
    return next((file for file in files if file.is_file()), None)


def how_to_get(id: str) -> str:
    """What to do to have the data of an id."""
    family, _, name = id.partition(":")
    return f"save {SETS[id]} of the Hugging Face hub as ${VARIABLE}/{family}/{name}.jsonl or .parquet"


def ids() -> list[Id]:
    """All of GEM's ids, sorted."""
    found = [Id(f"rg:{name}", "runs", "extra `reasoning`") for name in highest_levels()]
    found.append(Id("rg:composite", "no", "it needs a list of other data sets"))
    found += [Id(id, "needs data", how_to_get(id)) for id in SETS]
    found += [Id(id, "needs data", f"`{hub}` of the Hugging Face hub") for id, hub in CODE.items()]
    for name, variants in GAMES.items():
        ours = f"ta:{IN_TEXTARENA.get(name, name)}-v0"
        how = f"TextArena's game, without GEM's changes: `{ours}`"
        found += [Id(f"game:{name}-v0{variant}", "as another id", how) for variant in variants]
    return sorted(found)


def table() -> str:
    """The table of docs/gem-ids.md."""
    found = ids()
    counts = ", ".join(f"{sum(one_id.here == here for one_id in found)} {here}" for here in ("runs", "needs data"))
    lines = [f"{len(found)} ids: {counts}.", "", "| GEM's id | here | how |", "|---|---|---|"]
    return "\n".join(lines + [f"| `{id}` | {here} | {how} |" for id, here, how in found]) + "\n"
