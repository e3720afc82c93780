"""What is known of each line of a file of episodes without reading it again."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from marl_gem.errors import RecordError
from marl_gem.runs.outcomes import Outcome, judge
from marl_gem.runs.outline import cost_of, decode_outline, read_outline
from marl_gem.types import Ending, Episode, EpisodeError, read_json

JUDGED_INFOS = ("success", "failure", "illegal")
"""The keys of a last info that an outcome depends on."""


class Summary(msgspec.Struct, gc=False):
    """An episode in a few fields.

    `returns` and `models` hold a value for each agent. `illegal` counts the illegal moves of the agents that made any.
    `final_infos` holds what decides the outcome: `success`, `failure` and `illegal`, of the agents that have them.
    `tokens` counts what all models read and wrote; `cost` is in US dollars, without responses from a cache, and None if
    the price of any other is unknown; `seconds` is the time that the episode took; `tags` the teams and roles; `task`
    the task's number where the scenario numbers its tasks. `outcomes` is filled in by `RunReader`, because older
    records do not say whether they are contests, and all episodes of a run together do.
    """

    id: str
    scenario: str
    seed: int
    repeat: int
    turns: int
    returns: dict[str, float]
    models: dict[str, str]
    illegal: dict[str, int]
    final_infos: dict[str, dict[str, Any]]
    zero_sum: bool | None
    ending: Ending
    error: EpisodeError | None
    limit: str
    tokens: int
    cost: float | None
    seconds: float
    tags: dict[str, dict[str, str]] = {}
    outcomes: dict[str, Outcome] = {}
    task: int | None = None


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One line of a file.

    `key` is its name within a run: the number of the line, with an "e" before it in the file of failed attempts.
    `offset` and `size` are in bytes. `summary` is None if the line is no episode; `broken` then says why.
    """

    key: str
    offset: int
    size: int
    summary: Summary | None
    broken: str = ""


def entry_of(key: str, offset: int, line: bytes) -> Entry:
    """The entry of a line that begins at an offset in bytes."""
    try:
        return Entry(key, offset, len(line), _summary(line))
    except (RecordError, ValueError, RecursionError) as error:
        if not line.endswith(b"\n"):
            return Entry(key, offset, len(line), None, "the line is not finished; it is being written, or was cut off")
        return Entry(key, offset, len(line), None, str(error))


def _summary(line: bytes) -> Summary:
    episode = read_outline(line)
    if isinstance(episode, Episode):  # a summary holds no lone surrogates
        episode = decode_outline(without_surrogates(line))
    illegal: dict[str, int] = {}
    costs = []
    for turn in episode.turns:
        costs.append(cost_of(turn.response))
        if "illegal" in turn.info:
            illegal[turn.agent] = illegal.get(turn.agent, 0) + 1
    return Summary(
        id=episode.id,
        scenario=episode.scenario,
        seed=episode.seed,
        repeat=episode.repeat,
        turns=len(episode.turns),
        returns=episode.returns,
        models=episode.models,
        illegal=illegal,
        final_infos={
            agent: kept
            for agent, info in episode.final_infos.items()
            if (kept := {name: info[name] for name in JUDGED_INFOS if name in info})
        },
        zero_sum=episode.zero_sum,
        ending=episode.ending,
        error=episode.error,
        limit=episode.limit,
        tokens=episode.usage.get("prompt_tokens", 0) + episode.usage.get("completion_tokens", 0),
        cost=None if None in costs else sum(cost or 0.0 for cost in costs),
        seconds=episode.seconds,
        task=_task(episode.options.get("task")),
        tags=episode.tags,
    )


def _task(value: msgspec.Raw | None) -> int | None:
    """The number of a task in the options of `reset`; an option of this name may also be something else."""
    text = bytes(value or b"")
    return int(text) if text.isdigit() and len(text) < 16 else None


def judge_summary(summary: Summary, contest: bool) -> None:
    """Fill in what an episode came to; `contest` says whether it was one, where its record does not."""
    if not summary.error:
        summary.outcomes = judge(
            summary.returns,
            summary.final_infos,
            contest=contest if summary.zero_sum is None else summary.zero_sum,
            illegal=summary.illegal,
            limit=summary.limit,
            ending=summary.ending,
            tags=summary.tags,
        )


def without_surrogates(line: bytes) -> bytes:
    """The same JSON with question marks for lone surrogates, which msgspec's decoder refuses.

    Raises:
        ValueError: it is not JSON.
    """
    return json.dumps(read_json(line.decode("utf-8")), ensure_ascii=False).encode("utf-8", "replace")
