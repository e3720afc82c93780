"""What a run measures, and where it is written: metrics.jsonl and episodes.jsonl."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from marl_gem.errors import JournalError
from marl_gem.runs.folder import EPISODES, METRICS
from marl_gem.runs.journal import Journal, read_rows
from marl_gem.runs.lock import RunLock
from marl_gem.runs.metric_names import renamed
from marl_gem.types import Episode, to_json

Stage: TypeAlias = Literal["imitation", "before", "training", "after"]
"""The part of a run that a row of metrics belongs to."""

Row: TypeAlias = dict[str, Any]

_FIELDS: dict[str, tuple[type, ...]] = {"update": (int,), "stage": (str,), "seconds": (int, float), "episodes": (int,)}
"""What every row has."""

METRIC_FORMULAS = {
    "update": "the number of updates when the row was written; 0 before the first",
    "stage": '"imitation", "before" (measured before the updates), "training" or "after"',
    "step": "in imitation: the number of optimizer steps of all policies",
    "policy": "in imitation of several policies: the one that took the step",
    "loss": "the algorithm's loss over the whole update, divided by its number of transitions; in imitation the "
    "cross-entropy a turn, in nats",
    "entropy": "mean over sampled tokens of -sum_v p(v) ln p(v) at the temperature of sampling, nats",
    "kl": "mean over sampled tokens of sum_v p(v) ln(p(v) / p_ref(v)), nats; 0 where the weight of the pull is 0",
    "logprob_diff": "mean over sampled tokens of ln p(token) now minus ln p(token) when it was sampled, nats; 0 "
    "on-policy up to rounding; in imitation the mean of ln p(token)",
    "logprob_diff_abs": "mean over sampled tokens of the absolute value of that difference, nats",
    "logprob_diff_max": "the greatest absolute value of that difference, nats",
    "sampling_kl": "mean over sampled tokens of exp(d) - 1 - d, d as in logprob_diff: an estimate (k3) of how far the "
    "policy that sampled diverges from the present one, nats",
    "staleness": "with `training.staleness`: the mean over turns of how many updates the weights that sampled them "
    "were behind those that learned from them",
    "staleness_max": "the greatest of these",
    "win_rate": "the policy's mean score against an opponent, over the episodes in which it learned alone: 1 for a win "
    "or a success, 0.5 for a draw; results count 0.95 as much with each further update",
    "rating": "strength on Elo's scale, from all the results that win_rate is made of: 1000 for the average of those "
    "who met, 200 more for an expected score of 76% (Bradley and Terry's model)",
    "cut": "the share of turns whose answer was cut short at the greatest length",
    "kl_paid": 'with `kl_in = "reward"`: the mean over turns of the sum of ln p(token) - ln p_ref(token), nats',
    "critic_loss": "half the mean squared error of the critic's values in its last step",
    "gradient_norm": "the Euclidean norm of the gradient of all parameters before it is scaled down to max_grad_norm",
    "tokens": "how many sampled tokens the policy learned from",
    "tokens_per_second": "these tokens, divided by the wall time of one of the policy's steps",
    "mfu": "on a GPU that is known: the operations that a step needs, without what is computed twice to save memory, "
    "divided by what the device could do in that time in bfloat16",
    "turns": "how many transitions the policy learned from",
    "rows": "how many rows of tokens they were merged into",
    "reward": "mean over episodes of what the seat was trained with in place of the scenario's rewards, where its "
    "policy has a `reward`",
    "return": "mean undiscounted return of the seat over the episodes in which it learned",
    "episodes_played": "how many episodes of the update were played to their end",
    "failed": "how many episodes of the update failed; they are left out",
    "illegal": "the share of turns with an illegal action",
    "score": "the run's score, measured: see the report",
    "score_interval": "the 95% interval of the score: [low, high]",
    "first_score": "in co-evolution, before the first update: the score of the first phase's seating",
    "measurement": "the whole measurement: who held which seat, and how that went",
    "matchups": "measured at the end of a phase: its seatings",
    "seconds": "wall time since the run began to train, in seconds, without measuring",
    "seconds_playing": "wall time of the update's episodes, in seconds; with `training.staleness` how long the update "
    "waited for them",
    "seconds_learning": "wall time of the update's gradients and steps, in seconds",
    "episodes": "how many episodes stand in episodes.jsonl before the next row's",
}
"""What the names in a row mean, up to a slash: `entropy/user` is the entropy of the policy `user`. An algorithm adds
its own, see `METRICS` in its file."""


class MetricsLog:
    """The two files of a run, opened to go on after a given update.

    Every row of metrics says how many episodes were written before it. What a resumed run will write again (later
    updates, the last measurement) is removed from both files when the log is opened.

    Args:
        folder: the run's.
        updates: the last update that counts; -1 starts an empty log.
        lock: the run's, which is checked before anything is written.
        written: is called with each row that is on disk.

    Raises:
        JournalError: a file cannot be read or written.
    """

    def __init__(
        self,
        folder: Path,
        updates: int = -1,
        lock: RunLock | None = None,
        written: Callable[[Row], None] = lambda row: None,
    ) -> None:
        self.rows = [row for row in read_metrics(folder) if row["update"] <= updates and row["stage"] != "after"]
        self._episode_count = max((row["episodes"] for row in self.rows), default=0)
        self._written = written
        self._metrics, self._episodes = Journal(folder / METRICS, lock), Journal(folder / EPISODES, lock)
        self._metrics.keep(len(self.rows))
        self._episodes.keep(self._episode_count)

    def write(self, update: int, stage: Stage, metrics: Row, episodes: Sequence[Episode] = ()) -> None:
        """Add episodes, then a row of metrics; both are on disk when this returns.

        Raises:
            JournalError: they cannot be written.
        """
        if episodes:
            self._episodes.append(to_json(episode).encode("ascii") for episode in episodes)
        self._episode_count += len(episodes)
        row = {"update": update, "stage": stage, **metrics, "episodes": self._episode_count}
        self._metrics.append([json.dumps(row).encode("ascii")])
        self.rows.append(row)
        self._written(row)


def read_metrics(folder: Path) -> list[Row]:
    """The rows of a run's metrics.jsonl, without a last one that was cut off; none if there is no file.

    Rows of older runs are given under today's names.

    Raises:
        JournalError: the file cannot be read, or a line is damaged; the message gives its number.
    """
    rows = [renamed(row) for row in read_rows(folder / METRICS)]
    for number, row in enumerate(rows, 1):
        if not all(isinstance(row.get(name), kinds) for name, kinds in _FIELDS.items()):
            raise JournalError(
                f"{folder / METRICS}, line {number}, is damaged: it lacks one of {', '.join(_FIELDS)}. Put the file "
                "back from a copy, or start a new run under another name"
            )
    return rows
