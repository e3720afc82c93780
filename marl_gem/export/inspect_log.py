"""Episodes as a log of inspect_ai: one sample, with its own conversation, for each agent and episode."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import marl_gem
from marl_gem.errors import MissingPackage
from marl_gem.export.target import export_target
from marl_gem.runs.index import Entry
from marl_gem.runs.parts import Part, observation_parts, response_parts
from marl_gem.runs.reader import RunReader
from marl_gem.types import Episode, Role, Turn

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample
    from inspect_ai.model import ChatMessage, ContentImage, ContentText

VALUES = {"win": 1.0, "draw": 0.5, "loss": 0.0, "success": 1.0, "failure": 0.0}
"""The score of each outcome."""


def write_inspect(run: RunReader, path: Path, *, agent: str = "", success: bool = False, force: bool = False) -> int:
    """Write a run's finished episodes as an .eval file.

    The samples' scores are "return", the sum of the agent's rewards, and "outcome": 1 for a win or a solved task, 1/2
    for a draw, otherwise 0. All samples are in memory at once.

    Args:
        run: the run.
        path: the file; it appears when it is complete.
        agent: write only this agent's samples.
        success: write only the samples of agents that succeeded: they won a contest, or solved a task.
        force: replace the file if it exists.

    Returns:
        the number of samples.

    Raises:
        MissingPackage: inspect_ai is not installed.
        RecordError: the run cannot be read, or the file not written.
    """
    try:
        from inspect_ai.log import write_eval_log
    except ImportError as error:
        raise MissingPackage(error.name or "inspect_ai", "inspect", "writing a log of inspect") from error
    with export_target(path, force=force, keep=run.paths) as draft:
        log = inspect_log(run, agent=agent, success=success)
        write_eval_log(log, draft, format="eval")
    return len(log.samples or [])


def inspect_log(run: RunReader, *, agent: str = "", success: bool = False) -> EvalLog:
    """The log itself, as `write_inspect` writes it."""
    from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalResults, EvalSpec

    entries = run.entries()
    samples: dict[tuple[str, int], EvalSample] = {}
    scenarios, models, epochs = dict[str, None](), dict[str, None](), 1
    for entry, episode in run.episodes():
        scenarios[episode.scenario] = None
        models |= dict.fromkeys(episode.models.values())
        epochs = max(epochs, episode.repeat + 1)
        for sample in _samples(entry, episode, agent, success):
            if (sample.id, sample.epoch) in samples:  # a training run evaluates the same games more than once
                sample.id = f"{sample.id}:line {entry.key}"
            samples[str(sample.id), sample.epoch] = sample
    kept = list(samples.values())
    return EvalLog(
        status="success",
        eval=EvalSpec(
            created=datetime.datetime.fromtimestamp(run.changed, datetime.UTC).isoformat(),
            task=_clean(", ".join(scenarios)) or "unknown",
            model=_clean(", ".join(models)) or "none",
            dataset=EvalDataset(name=run.name, samples=len(kept)),
            config=EvalConfig(epochs=epochs),
            packages={"marl_gem": marl_gem.__version__},
        ),
        results=EvalResults(
            total_samples=len(kept),
            completed_samples=sum(sample.error is None for sample in kept),
            scores=[_mean(kept, name) for name in ("return", "outcome")] if entries else [],
        ),
        samples=kept,
    )


def _mean(samples: Sequence[EvalSample], name: str) -> Any:
    from inspect_ai.log import EvalMetric, EvalScore

    values = [sample.scores[name].as_float() for sample in samples if sample.scores and name in sample.scores]
    mean = EvalMetric(name="mean", value=sum(values) / len(values) if values else 0.0)
    return EvalScore(name=name, scorer=name, scored_samples=len(values), metrics={"mean": mean})


def _samples(entry: Entry, episode: Episode, agent: str, success: bool) -> Iterator[EvalSample]:
    from inspect_ai.log import EvalError, EvalSample
    from inspect_ai.model import ModelOutput, ModelUsage
    from inspect_ai.scorer import Score

    outcomes = entry.summary.outcomes if entry.summary else {}
    for name in dict.fromkeys(turn.agent for turn in episode.turns):
        outcome = outcomes.get(name)
        if agent not in ("", name) or (success and not (outcome and outcome.success)):
            continue
        turns = episode.turns_of(name)
        model, conversation = _clean(episode.models.get(name, "none")), list(_conversation(turns))
        read, wrote = (
            sum(turn.response.usage.get(kind, 0) for turn in turns) for kind in ("prompt_tokens", "completion_tokens")
        )
        scores = {"return": Score(value=episode.returns.get(name, 0.0))}
        if outcome:
            scores["outcome"] = Score(value=VALUES[outcome.label], explanation=outcome.reason or outcome.label)
        error = f"{episode.error.type}: {episode.error.message}" if episode.error else ""
        yield EvalSample(
            id=_clean(f"{episode.id}:{name}"),
            epoch=episode.repeat + 1,
            input=conversation[0].text,
            target="",
            messages=[*_system(episode, name), *conversation],
            output=ModelOutput.from_content(model, conversation[-1].text),
            scores=scores,
            model_usage={model: ModelUsage(input_tokens=read, output_tokens=wrote, total_tokens=read + wrote)},
            total_time=episode.seconds,
            error=EvalError(message=_clean(error), traceback="", traceback_ansi="") if error else None,
            metadata={
                "agent": _clean(name),
                "seed": str(episode.seed),
                "line": entry.key,
                "ending": episode.ending,
                "rewards": [turn.reward for turn in turns],
            },
        )


def _system(episode: Episode, agent: str) -> list[ChatMessage]:
    """The instructions of the agent's role, if they are recorded."""
    from inspect_ai.model import ChatMessageSystem

    instructions = episode.roles.get(agent, Role()).instructions
    return [ChatMessageSystem(content=_clean(instructions))] if instructions else []


def _conversation(turns: Sequence[Turn]) -> Iterator[ChatMessage]:
    """An agent's observations and responses. Results of tools are joined to their calls by ids, in order."""
    from inspect_ai.model import ChatMessageAssistant, ChatMessageTool, ChatMessageUser, ContentReasoning, ContentText
    from inspect_ai.tool import ToolCall

    calls: list[ToolCall] = []
    for number, turn in enumerate(turns):
        seen = observation_parts(turn.observation)
        for index, part in enumerate(part for part in seen if part.kind == "result"):
            call = calls[index] if index < len(calls) else None
            yield ChatMessageTool(
                content=_clean(part.text), function=_clean(part.name), tool_call_id=call.id if call else None
            )
        rest = [part for part in seen if part.kind != "result"]
        if rest or not seen:
            yield ChatMessageUser(content=[_content(part) for part in rest])
        parts = response_parts(turn.response)
        calls = [
            ToolCall(f"call-{number}-{index}", _clean(part.name), json.loads(_clean(part.text)))
            for index, part in enumerate(part for part in parts if part.kind == "call")
        ]
        content: list[Any] = [
            ContentReasoning(reasoning=_clean(part.text))
            if part.kind == "reasoning"
            else ContentText(text=_clean(part.text))
            for part in parts
            if part.kind != "call"
        ]
        yield ChatMessageAssistant(content=content, tool_calls=calls or None)


def _content(part: Part) -> ContentText | ContentImage:
    from inspect_ai.model import ContentImage, ContentText

    if part.kind == "image":
        return ContentImage(image=_clean(part.text))
    return ContentText(text=_clean(part.text))


def _clean(text: str) -> str:
    """The same without lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode("utf-8")
