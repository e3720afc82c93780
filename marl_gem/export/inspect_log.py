"""Episodes as a log of inspect_ai: a sample for each episode, with its conversation in the order of the turns."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import marl_gem
from marl_gem.errors import MissingPackage
from marl_gem.export.selection import EVERYTHING, Selected, Selection, select
from marl_gem.export.target import export_target
from marl_gem.runs.parts import Part, observation_parts, response_parts
from marl_gem.runs.reader import RunReader
from marl_gem.tools.calls import ids_of_calls
from marl_gem.types import Episode, Role, Turn

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample
    from inspect_ai.model import ChatMessage, ContentImage, ContentText, ModelUsage
    from inspect_ai.scorer import Score

VALUES = {"win": 1.0, "draw": 0.5, "loss": 0.0, "success": 1.0, "failure": 0.0}
"""The score of each outcome."""


def write_inspect(
    runs: RunReader | Sequence[RunReader], path: Path, selection: Selection = EVERYTHING, *, force: bool = False
) -> int:
    """Write the finished episodes of runs as an .eval file.

    A sample holds the turns of the selected agents in their order: what each observed, as a user's message, and its
    response, both with the agent's name in their metadata. Its scores are "return", the sum of an agent's rewards, and
    "outcome", 1 for a win or a solved task, 1/2 for a draw, otherwise 0; where several agents are selected, they have
    the agent's name behind a slash. It has the episode's time, the time that models took, and the tokens of each model.
    All samples are in memory at once.

    Args:
        runs: the run, or several, such as the combinations of a grid.
        path: the file; it appears when it is complete.
        selection: which episodes and agents.
        force: replace the file if it exists.

    Returns:
        the number of samples.

    Raises:
        MissingPackage: inspect_ai is not installed.
        RecordError: a run cannot be read, or the file not written.
    """
    try:
        from inspect_ai.log import write_eval_log
    except ImportError as error:
        raise MissingPackage(error.name or "inspect_ai", "inspect", "writing a log of inspect") from error
    runs = [runs] if isinstance(runs, RunReader) else list(runs)
    with export_target(path, force=force, keep=[file for run in runs for file in run.paths]) as draft:
        log = inspect_log(runs, selection)
        write_eval_log(log, draft, format="eval")
    return len(log.samples or [])


def inspect_log(runs: Sequence[RunReader], selection: Selection = EVERYTHING) -> EvalLog:
    """The log itself, as `write_inspect` writes it."""
    from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalResults, EvalSpec, EvalStats

    samples: dict[tuple[str, int], EvalSample] = {}
    scenarios, models, epochs = dict[str, None](), dict[str, None](), 1
    for found in select(runs, selection):
        episode = found.episode
        scenarios[episode.scenario] = None
        models |= dict.fromkeys(episode.models.get(agent, "none") for agent in found.agents)
        epochs = max(epochs, episode.repeat + 1)
        sample = _sample(found, f"{found.run.name}:" if len(runs) > 1 else "")
        if (sample.id, sample.epoch) in samples:  # a training run evaluates the same games more than once
            sample.id = f"{sample.id}:line {found.entry.key}"
        samples[str(sample.id), sample.epoch] = sample
    kept = list(samples.values())
    changed = max(run.changed for run in runs)
    return EvalLog(
        status="success",
        eval=EvalSpec(
            created=datetime.datetime.fromtimestamp(changed, datetime.UTC).isoformat(),
            task=_clean(", ".join(scenarios)) or "unknown",
            model=_clean(", ".join(models)) or "none",
            dataset=EvalDataset(name=", ".join(run.name for run in runs), samples=len(kept)),
            config=EvalConfig(epochs=epochs),
            packages={"marl_gem": marl_gem.__version__},
        ),
        results=EvalResults(
            total_samples=len(kept),
            completed_samples=sum(sample.error is None for sample in kept),
            scores=[_mean(kept, name) for name in dict.fromkeys(name for s in kept for name in s.scores or {})],
        ),
        stats=EvalStats(model_usage=_added(sample.model_usage for sample in kept)),
        samples=kept,
    )


def _added(usages: Iterable[Mapping[str, ModelUsage]]) -> dict[str, ModelUsage]:
    """The tokens of each model in all samples."""
    total: dict[str, ModelUsage] = {}
    for usage in usages:
        for model, used in usage.items():
            total[model] = total[model] + used if model in total else used
    return total


def _mean(samples: Sequence[EvalSample], name: str) -> Any:
    from inspect_ai.log import EvalMetric, EvalScore

    values = [sample.scores[name].as_float() for sample in samples if sample.scores and name in sample.scores]
    mean = EvalMetric(name="mean", value=sum(values) / len(values) if values else 0.0)
    return EvalScore(name=name, scorer=name, scored_samples=len(values), metrics={"mean": mean})


def _sample(found: Selected, prefix: str) -> EvalSample:
    from inspect_ai.log import EvalError, EvalSample
    from inspect_ai.model import ModelOutput

    episode = found.episode
    turns = [turn for turn in episode.turns if turn.agent in found.agents]
    conversation = list(_conversation(turns))
    systems = [message for agent in found.agents for message in _system(episode, agent)]
    last = episode.models.get(turns[-1].agent, "none") if turns else "none"
    error = f"{episode.error.type}: {episode.error.message}" if episode.error else ""
    return EvalSample(
        id=_clean(f"{prefix}{episode.id}"),
        epoch=episode.repeat + 1,
        input=conversation[0].text if conversation else "",
        target="",
        messages=[*systems, *conversation],
        output=ModelOutput.from_content(_clean(last), conversation[-1].text if conversation else ""),
        scores=dict(_scores(found)),
        model_usage=_usage(episode, turns),
        total_time=episode.seconds,
        working_time=min(episode.seconds, sum(turn.response.seconds for turn in turns)),
        error=EvalError(message=_clean(error), traceback="", traceback_ansi="") if error else None,
        metadata={
            "agents": {_clean(agent): _clean(episode.models.get(agent, "none")) for agent in found.agents},
            "seed": str(episode.seed),
            "run": _clean(found.run.name),
            "line": found.entry.key,
            "ending": episode.ending,
            "limit": episode.limit,
            "task": found.task,
            "grade": _clean(found.grade),
            "rewards": [turn.reward for turn in turns],
        },
    )


def _scores(found: Selected) -> Iterator[tuple[str, Score]]:
    """The scores of a sample by name."""
    from inspect_ai.scorer import Score

    for agent in found.agents:
        suffix = f"/{_clean(agent)}" if len(found.agents) > 1 else ""
        yield f"return{suffix}", Score(value=found.episode.returns.get(agent, 0.0))
        if outcome := found.outcomes.get(agent):
            yield f"outcome{suffix}", Score(value=VALUES[outcome.label], explanation=outcome.reason or outcome.label)


def _usage(episode: Episode, turns: Sequence[Turn]) -> dict[str, ModelUsage]:
    """The tokens that each model read and wrote."""
    from inspect_ai.model import ModelUsage

    used: dict[str, list[int]] = {}
    for turn in turns:
        counts = used.setdefault(_clean(episode.models.get(turn.agent, "none")), [0, 0])
        counts[0] += turn.response.usage.get("prompt_tokens", 0)
        counts[1] += turn.response.usage.get("completion_tokens", 0)
    return {
        model: ModelUsage(input_tokens=read, output_tokens=wrote, total_tokens=read + wrote)
        for model, (read, wrote) in used.items()
    }


def _system(episode: Episode, agent: str) -> list[ChatMessage]:
    """The instructions of the agent's role, if they are recorded."""
    from inspect_ai.model import ChatMessageSystem

    instructions = episode.roles.get(agent, Role()).instructions
    return [ChatMessageSystem(content=_clean(instructions), metadata={"agent": agent})] if instructions else []


def _conversation(turns: Sequence[Turn]) -> Iterator[ChatMessage]:
    """Observations and responses in their order. Results of tools are joined to their calls by ids, in order."""
    from inspect_ai.model import ChatMessageAssistant, ChatMessageTool, ChatMessageUser, ContentReasoning, ContentText
    from inspect_ai.tool import ToolCall

    last_calls: dict[str, list[ToolCall]] = {}
    for number, turn in enumerate(turns):
        about, calls = {"agent": _clean(turn.agent)}, last_calls.get(turn.agent, [])
        seen = observation_parts(turn.observation)
        for index, part in enumerate(part for part in seen if part.kind == "result"):
            call = calls[index] if index < len(calls) else None
            yield ChatMessageTool(
                content=_clean(part.text),
                function=_clean(part.name),
                tool_call_id=call.id if call else None,
                metadata=about,
            )
        rest = [part for part in seen if part.kind != "result"]
        if rest or not seen:
            yield ChatMessageUser(content=[_content(part) for part in rest], metadata=about)
        parts = response_parts(turn.response)
        made = [part for part in parts if part.kind == "call"]
        ids = ids_of_calls(turn.response.call_ids, len(made), f"call-{number}-{{}}".format)
        last_calls[turn.agent] = calls = [
            ToolCall(_clean(id), _clean(part.name), json.loads(_clean(part.text)))
            for id, part in zip(ids, made, strict=True)
        ]
        content: list[Any] = [
            ContentReasoning(reasoning=_clean(part.text))
            if part.kind == "reasoning"
            else ContentText(text=_clean(part.text))
            for part in parts
            if part.kind != "call"
        ]
        yield ChatMessageAssistant(content=content, tool_calls=calls or None, metadata=about)


def _content(part: Part) -> ContentText | ContentImage:
    from inspect_ai.model import ContentImage, ContentText

    if part.kind == "image":
        return ContentImage(image=_clean(part.text))
    return ContentText(text=_clean(part.text))


def _clean(text: str) -> str:
    """The same without lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode("utf-8")
