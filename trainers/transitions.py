"""From episodes to training rows.

A transition is one turn in tokens. A trajectory is the transitions of one agent in one episode. A row is
what the model reads at once: transitions whose prompts extend one another share one, so that every sampled
token is trained once and every shared prefix is computed once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from marl_gem.errors import ConfigError, MarlGemError
from marl_gem.trainers.advantages import Baseline, discounted_returns, rebn
from marl_gem.types import Episode

NORMALIZATIONS = ("agent", "all", "none")


def whole(episodes: Sequence[Episode]) -> list[Episode]:
    """The episodes that were played to their end. One that failed teaches nothing; its neighbours do.

    Raises:
        MarlGemError: all failed; the message tells the first one's error.
    """
    played = [episode for episode in episodes if episode.error is None]
    if episodes and not played and (error := episodes[0].error):
        scenario = episodes[0].scenario
        raise MarlGemError(f"every game of {scenario} failed, in {error.origin} ({error.type}): {error.message}")
    return played


class Transition(msgspec.Struct, frozen=True):
    """A turn in tokens.

    `logprobs` are those the tokens were drawn with, `version` is the policy's that drew them. `value` is
    the discounted return from this turn on; `advantage` is what the turn's tokens are weighted with.
    """

    scenario: str
    agent: str
    prompt_ids: tuple[int, ...]
    action_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    version: int
    reward: float
    value: float
    advantage: float = 0.0


Trajectory = list[Transition]


def trajectories(episode: Episode, agents: Collection[str], gamma: float) -> list[Trajectory]:
    """The trajectories of these agents; those without a turn have none.

    Raises:
        ConfigError: a turn holds no tokens, because no model in this process answered it.
    """
    found = []
    for agent in agents:
        turns = episode.turns_of(agent)
        if any(not turn.response.token_ids for turn in turns):
            raise ConfigError(f"{agent!r} in episode {episode.id} answered without tokens; only models can be trained")
        values = discounted_returns([turn.reward for turn in turns], gamma)
        trajectory = [
            Transition(
                scenario=episode.scenario,
                agent=agent,
                prompt_ids=turn.response.prompt_ids,
                action_ids=turn.response.token_ids,
                logprobs=turn.response.logprobs,
                version=turn.response.version,
                reward=turn.reward,
                value=value,
            )
            for turn, value in zip(turns, values, strict=True)
        ]
        if trajectory:
            found.append(trajectory)
    return found


def with_advantages(
    batch: Sequence[Trajectory], normalization: str = "agent"
) -> tuple[list[Trajectory], dict[str, Baseline]]:
    """Give every transition its advantage.

    Args:
        batch: the whole batch, before any subsampling.
        normalization: "agent" is per-agent ReBN, "all" one normalization over all agents, "none" takes the
            returns as they are.

    Returns:
        the trajectories with advantages, and what each group was normalized with.

    Raises:
        ConfigError: there is no such normalization.
    """
    if normalization not in NORMALIZATIONS:
        raise ConfigError(f"there is no normalization {normalization!r}; choose one of {', '.join(NORMALIZATIONS)}")
    flat = [transition for trajectory in batch for transition in trajectory]
    groups = [f"{t.scenario} {t.agent}" if normalization == "agent" else "all" for t in flat]
    values = [transition.value for transition in flat]
    advantages, baselines = rebn(values, groups)
    remaining = iter(values if normalization == "none" else advantages)
    credited = [
        [msgspec.structs.replace(transition, advantage=next(remaining)) for transition in trajectory]
        for trajectory in batch
    ]
    return credited, {str(group): baseline for group, baseline in baselines.items()}


@dataclass
class Row:
    """Tokens that the model reads at once, with what is trained on each of them.

    `weights[i]` is the sum of the advantages with which `ids[i]` was sampled, `counts[i]` how often it was
    (0 for what the model was only shown), `logprobs[i]` the sum of the log-probabilities it was drawn with.
    """

    ids: tuple[int, ...]
    weights: list[float]
    counts: list[int]
    logprobs: list[float]


def merge(batch: Iterable[Trajectory]) -> list[Row]:
    """Rows for these trajectories, as few as give the same gradient.

    Within a trajectory a transition extends the row before it if its prompt begins with that row's tokens.
    Rows of different trajectories with the same tokens become one, with their weights added up.
    """
    rows: dict[tuple[tuple[int, ...], tuple[bool, ...]], Row] = {}
    for trajectory in batch:
        for row in _rows(trajectory):
            key = (row.ids, tuple(map(bool, row.counts)))
            if (same := rows.get(key)) is None:
                rows[key] = row
            else:
                same.weights = [a + b for a, b in zip(same.weights, row.weights, strict=True)]
                same.counts = [a + b for a, b in zip(same.counts, row.counts, strict=True)]
                same.logprobs = [a + b for a, b in zip(same.logprobs, row.logprobs, strict=True)]
    return list(rows.values())


def _rows(trajectory: Trajectory) -> list[Row]:
    rows: list[Row] = []
    for transition in trajectory:
        prompt, action = transition.prompt_ids, transition.action_ids
        if not rows or prompt[: len(rows[-1].ids)] != rows[-1].ids:
            rows.append(Row((), [], [], []))
        row = rows[-1]
        shown = len(prompt) - len(row.ids)
        row.ids = prompt + action
        row.weights += [0.0] * shown + [transition.advantage] * len(action)
        row.counts += [0] * shown + [1] * len(action)
        row.logprobs += [0.0] * shown + list(transition.logprobs)
    return rows
