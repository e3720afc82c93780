"""Episodes as chat rows, as JSON lines or Parquet, for trainers of language models.

A row is what one agent read and wrote in one episode:

    run, episode, line                      the run's name, the episode, and its line in episodes.jsonl
    scenario, seed, repeat, task, grade     what was played; the seed is text, the task's number is null without tasks
    agent, model, team, role, ending        the agent, its model, its team and role, and how the episode ended
    outcome                                 "win", "draw" or "loss" of a contest, "success" or "failure" of a task
    return                                  the sum of the agent's rewards
    turns, rewards                          the turns of the episode in this row, from 1, and their rewards
    messages                                role, content, reasoning_content, name, train; with native calls also
                                            tool_calls and tool_call_id
    tools                                   the agent's tools, as a JSON text: a list of
                                            {"type": "function", "function": {name, description, parameters}}
    images                                  the URLs that <image> stands for in the contents, in order
    input_ids, loss_mask, logprobs          of equal length: tokens, 1 for tokens that the agent sampled in this row,
                                            and the log-probabilities of these (0 for all others)

Turns whose prompts extend one another share a row, so that every sampled token is trained once; where the prompt was
cut or changed, a new row begins. `train` marks the row's responses in the same way. The messages begin with the
instructions of the agent's role, as the system message. They are the complete conversation, whatever view of it the
model had; the tokens are what it read. Records of older versions have no roles, so their rows have neither system
message nor tools.

Every row has all columns, with values of one type. Unknown lists are empty; the first rows are chosen so that they
show each list filled if any row does, because `datasets` infers the types from them. Tools are text because Arrow
would add the keys of all schemas to each schema; TRL reads this form: https://github.com/huggingface/trl/pull/5118
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from marl_gem import views
from marl_gem.export.native_calls import with_native_calls
from marl_gem.export.parquet import parquet_writer
from marl_gem.export.selection import EVERYTHING, Selection, select
from marl_gem.export.target import export_target
from marl_gem.llm.wire_messages import function_schema
from marl_gem.prefixes import prefix_groups
from marl_gem.runs.outcomes import Outcome
from marl_gem.runs.reader import RunReader
from marl_gem.types import Episode, Observation, Response, Role, Turn

Row = dict[str, Any]

LISTS = ("images", "input_ids", "loss_mask", "logprobs")
"""The columns that may be empty."""

IMAGE = "<image>"


@dataclass
class Written:
    """How many rows were written, from how many episodes, and how many episodes with an error were left out."""

    rows: int = 0
    episodes: int = 0
    errors: int = 0


def write_chat(
    runs: RunReader | Sequence[RunReader],
    path: Path,
    selection: Selection = EVERYTHING,
    *,
    native_calls: bool = False,
    force: bool = False,
) -> Written:
    """Write the finished episodes of runs as chat rows. Episodes that ended with an error are left out.

    Args:
        runs: the run, or several, such as the combinations of a grid.
        path: the file; it appears when it is complete. One that ends in .parquet is a Parquet file, any other JSON
            lines.
        selection: which rows.
        native_calls: whether messages hold their calls of tools apart from their text, see `rows`.
        force: replace the file if it exists.

    Raises:
        RecordError: a run cannot be read, or the file not written.
        MissingPackage: a Parquet file needs pyarrow.
    """
    runs = [runs] if isinstance(runs, RunReader) else list(runs)
    written = Written()
    writer = parquet_writer if path.suffix == ".parquet" else _lines
    with (
        export_target(path, force=force, keep=[file for run in runs for file in run.paths]) as draft,
        writer(draft, native_calls) as write,
    ):
        for found in select(runs, selection):
            about = {"run": found.run.name, "line": found.entry.key, "task": found.task, "grade": found.grade}
            made = rows(found.episode, found.outcomes, native_calls=native_calls)
            kept = [row | about for row in made if row["agent"] in found.agents]
            for row in kept:
                write(row)
            written.rows += len(kept)
            written.episodes += bool(kept)
            written.errors += found.episode.error is not None
    return written


@contextmanager
def _lines(path: Path, native_calls: bool) -> Iterator[Callable[[Row], None]]:
    """A writer of JSON lines, which puts the first rows that fill a list before all others."""
    filled: set[str] = set()
    with (
        path.open("w", encoding="ascii") as head,
        TemporaryFile("w+", encoding="ascii", dir=path.parent) as body,
    ):

        def write(row: Row) -> None:
            nonlocal filled
            shown = {name for name in LISTS if row[name]}
            shown |= {"task"} if row["task"] is not None else set()
            shown |= {"tool_calls"} if any(message.get("tool_calls") for message in row["messages"]) else set()
            (head if shown - filled else body).write(json.dumps(row) + "\n")
            filled |= shown

        yield write
        body.seek(0)
        shutil.copyfileobj(body, head)


def rows(
    episode: Episode, outcomes: Mapping[str, Outcome] | None = None, *, native_calls: bool = False
) -> Iterator[Row]:
    """The rows of an episode, agent after agent; none if it ended with an error.

    What follows from the run is left empty: `run`, `line`, `task`, `grade`.

    Args:
        episode: any episode.
        outcomes: what it came to, for `outcome`.
        native_calls: calls of tools are in the `tool_calls` of their messages, as chat APIs have them, and not in the
            text. The results name them by `tool_call_id`. A call that could not be read stays in the text.
    """
    if episode.error:
        return
    for agent in dict.fromkeys(turn.agent for turn in episode.turns):
        role = episode.roles.get(agent, Role())
        turns = [(number, turn) for number, turn in enumerate(episode.turns, 1) if turn.agent == agent]
        for sequence in _sequences(turns):
            messages, images, ids = _messages(role, turns, sequence)
            if native_calls:
                messages = with_native_calls(messages, ids)
            yield _clean(
                {
                    "run": "",
                    "episode": episode.id,
                    "line": "",
                    "scenario": episode.scenario,
                    "seed": str(episode.seed),
                    "repeat": episode.repeat,
                    "task": None,
                    "grade": "",
                    "agent": agent,
                    "model": episode.models.get(agent, ""),
                    "team": episode.tags.get(agent, {}).get("team", ""),
                    "role": episode.tags.get(agent, {}).get("role", ""),
                    "ending": episode.ending,
                    "outcome": outcomes[agent].label if outcomes and agent in outcomes else "",
                    "return": float(episode.returns.get(agent, 0.0)),
                    "turns": sequence.turns,
                    "rewards": [float(turn.reward) for number, turn in turns if number in sequence.turns],
                    "messages": messages,
                    "tools": json.dumps([function_schema(tool) for tool in role.tools], ensure_ascii=False),
                    "images": images,
                    "input_ids": sequence.ids,
                    "loss_mask": sequence.mask,
                    "logprobs": sequence.logprobs if sequence.has_logprobs else [],
                }
            )


@dataclass
class _Sequence:
    """Tokens of consecutive prompts and responses of one agent, and the turns that they belong to."""

    turns: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    has_logprobs: bool = True


def _sequences(turns: Sequence[tuple[int, Turn]]) -> list[_Sequence]:
    """The fewest sequences; turns without tokens share one until a turn with tokens comes."""
    tokens = [_tokens(turn.response) for _, turn in turns]
    return [_sequence([turns[index] for index in group]) for group in prefix_groups(tokens)]


def _tokens(response: Response) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The tokens of prompt and response; both empty if either is unknown."""
    known = response.prompt_ids and response.token_ids
    return (response.prompt_ids, response.token_ids) if known else ((), ())


def _sequence(turns: Sequence[tuple[int, Turn]]) -> _Sequence:
    """One sequence of turns whose prompts extend one another."""
    sequence = _Sequence()
    for number, turn in turns:
        prompt, sampled = map(list, _tokens(turn.response))
        shown = len(prompt) - len(sequence.ids)
        logprobs = list(map(float, turn.response.logprobs))
        known = len(logprobs) == len(turn.response.token_ids)
        sequence.turns.append(number)
        sequence.ids = prompt + sampled
        sequence.mask += [0] * shown + [1] * len(sampled)
        sequence.logprobs += [0.0] * shown + (logprobs if known else [0.0] * len(sampled))
        sequence.has_logprobs &= known
    return sequence


def _messages(
    role: Role, turns: Sequence[tuple[int, Turn]], sequence: _Sequence
) -> tuple[list[Row], list[str], dict[int, tuple[str, ...]]]:
    """The conversation up to the sequence's end, as the chat view writes it, the URLs of its images, and the ids of the
    calls in its messages."""
    seen = [(number, turn) for number, turn in turns if number <= sequence.turns[-1]]
    answers = iter(seen)
    messages: list[Row] = []
    images: list[str] = []
    ids: dict[int, tuple[str, ...]] = {}
    for message in views.chat(role, [views.Exchange(turn.observation, turn.response) for _, turn in seen]):
        if message["role"] == "assistant":
            number, turn = next(answers)
            content, _ = _text(message["content"])
            ids[len(messages)] = turn.response.call_ids
            messages.append(_message("assistant", content, turn.response.reasoning, train=number in sequence.turns))
            continue
        content, shown = _text(message["content"])
        messages.append(_message(message["role"], content, name=message.get("name", "")))
        images += shown
    return messages, images, ids


def _message(role: str, content: str, reasoning: str = "", name: str = "", train: bool = False) -> Row:
    return {"role": role, "content": content, "reasoning_content": reasoning, "name": name, "train": train}


def _text(content: Observation) -> tuple[str, list[str]]:
    """A content as text, and the URLs of its images."""
    if isinstance(content, str):
        return content, []
    texts, images = [], []
    for part in content:
        match part:
            case {"type": "image", "url": str(url)}:
                texts.append(IMAGE)
                images.append(url)
            case {"text": str(text)}:
                texts.append(text)
            case _:
                texts.append(json.dumps(part))
    return "\n".join(texts), images


def _clean(value: Any) -> Any:
    """The same without lone surrogates, which Arrow does not read."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {name: _clean(part) for name, part in value.items()}
    if isinstance(value, list) and value and not isinstance(value[0], int | float):
        return [_clean(part) for part in value]
    return value
