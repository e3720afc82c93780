"""TRL's GRPOTrainer plays our scenarios: `rollout_func`, per-agent advantages, and `environment_factory`.

    rollout = Rollout(SeatRunner("ta:TicTacToe-v0", tokenizer=tokenizer))
    trainer = PerAgentGRPOTrainer(
        model, rollout.reward, args=config, train_dataset=starts(range(64)), processing_class=tokenizer,
        rollout_func=rollout,
    )

Tested with TRL 1.16. See docs/other-trainers.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from itertools import islice
from typing import Any

from marl_gem.errors import ConfigError, MissingPackage
from marl_gem.integrations.advantages import per_agent_advantages
from marl_gem.integrations.outside_model import Completion, Request
from marl_gem.integrations.samples import Sample, samples
from marl_gem.integrations.seat_runner import SeatRunner, Start
from marl_gem.trainers.batch import completed, discounted_returns
from marl_gem.types import Episode

try:
    from accelerate.utils import gather_object
    from datasets import Dataset
    from trl import GRPOTrainer
except ImportError as error:
    raise MissingPackage(error.name or "trl", "trl", "a training by TRL") from error


def starts(seeds: Iterable[int], options: Iterable[Mapping[str, Any]] = ({},)) -> Dataset:
    """A data set for a `Rollout`: a prompt for each of these seeds with each of these reset options."""
    return Dataset.from_list([{"prompt": Start(s, o).to_text()} for s in seeds for o in options])


class Rollout:
    """A `rollout_func`: each prompt names how an episode starts, see `starts`.

    All turns of a seat in an episode are one completion, whose `env_mask` leaves out what the model was shown. With k
    seats the episodes of every k-th prompt are played, and give the completions of all k seats; so no token that the
    model sampled is thrown away, and a group of GRPO has one seat and one start.

    Args:
        runner: its seats are trained; it needs the tokenizer, and a view such as `chat` whose prompts only grow.
        gamma: discounts from one turn of an agent to its next, for `PerAgentGRPOTrainer`.
    """

    def __init__(self, runner: SeatRunner, *, gamma: float = 1.0) -> None:
        self.runner, self.gamma = runner, gamma
        self.episodes: list[Episode] = []
        """Those of the last call."""
        self._played = 0

    def __call__(self, prompts: list[str], trainer: GRPOTrainer) -> dict[str, list[Any]]:
        seats = self.runner.seats
        size = trainer.num_generations if trainer.model.training else trainer.num_generations_eval
        if len(prompts) % (size * len(seats)):
            raise ConfigError(
                f"{len(prompts)} prompts in this process are no multiple of {size} generations times {len(seats)} "
                "seats; set per_device_train_batch_size, steps_per_generation or num_generations so that they are"
            )
        groups = [prompts[first : first + size] for first in range(0, len(prompts), size)][:: len(seats)]
        begun = [Start.from_text(str(prompt)) for group in groups for prompt in group]
        first = self._played + trainer.accelerator.process_index * 10**9
        self._played += len(begun)
        begun = [start._replace(repeat=first + index) for index, start in enumerate(begun)]
        self.episodes = self.runner.play_sync(partial(_generate, trainer), begun)
        completed(self.episodes)  # raises if all have failed
        rows = [
            self._row(episode, seat, trainer)
            for group in range(len(groups))
            for seat in seats
            for episode in self.episodes[group * size : (group + 1) * size]
        ]
        columns: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
        if any(values is None for values in columns["logprobs"]):
            columns["logprobs"] = None  # transformers' own generation gives none
        return columns

    def reward(self, *, seat_reward: list[float | None], **_: Any) -> list[float | None]:
        """The reward function: the seat's return in its episode, None where that failed or the seat never acted."""
        return seat_reward

    def _row(self, episode: Episode, seat: str, trainer: GRPOTrainer) -> dict[str, Any]:
        found = samples([episode], [seat])
        if len(found) > 1:
            raise ConfigError(
                f"the turns of {seat!r} in {episode.scenario} are {len(found)} sequences, and TRL takes one for each "
                "episode: use the view `chat`, and a context that holds the longest episode"
            )
        if not found:  # the episode failed, or the seat never acted: a row that trains nothing
            end = trainer.processing_class.eos_token_id
            sample = Sample(episode.id, episode.scenario, seat, (end,), (end,), (0,), (), (0.0,), 0.0, 0)
        else:
            (sample,) = found
        turns = episode.turns_of(seat) if found else []
        return {
            "prompt_ids": list(sample.prompt_ids),
            "completion_ids": list(sample.completion_ids),
            "logprobs": list(sample.logprobs) or None,
            "env_mask": list(sample.mask),
            "seat_reward": sample.reward if found else None,
            "seat": f"{episode.scenario} {seat}",
            "turn_returns": discounted_returns([turn.reward for turn in turns], self.gamma),
            "turn_lengths": [len(turn.response.token_ids) for turn in turns],
        }


def _generate(trainer: GRPOTrainer, requests: list[Request]) -> list[Completion]:
    """The trainer's own generation, by vLLM or transformers, with its sampling settings."""
    prompts = [list(request.prompt_ids) for request in requests]
    completions, logprobs = trainer._generate_single_turn(prompts, None, {}, 1)
    found = logprobs or [()] * len(completions)
    return [Completion(tuple(ids), tuple(values)) for ids, values in zip(completions, found, strict=True)]


class PerAgentGRPOTrainer(GRPOTrainer):  # type: ignore[misc]
    """GRPOTrainer with per-agent return batch normalization (ReBN) in place of group-normalized advantages.

    Each turn's advantage is its discounted return, normalized over all turns of the same agent in the batch of all
    processes. It needs a `Rollout` as its `rollout_func`.
    """

    def _generate(self, prompts: list[Any]) -> Any:
        generated = super()._generate(prompts)
        self._rows = generated[5], generated[2]  # the further fields of the rollout, and its masks
        return generated

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        fields, masks = self._rows
        turns = [
            (agent, value)
            for agent, values in zip(fields["seat"], fields["turn_returns"], strict=True)
            for value in values
        ]
        everybody = gather_object(turns)  # of all processes, in their order
        advantages = per_agent_advantages([value for _, value in everybody], [agent for agent, _ in everybody])
        counts = gather_object([len(turns)])
        here = iter(advantages[sum(counts[: self.accelerator.process_index]) :])
        tokens = output["completion_mask"].new_zeros(output["completion_mask"].shape, dtype=output["advantages"].dtype)
        for row, (mask, lengths) in enumerate(zip(masks, fields["turn_lengths"], strict=True)):
            sampled = iter([index for index, value in enumerate(mask) if value])
            for length in lengths:
                tokens[row, list(islice(sampled, length))] = next(here)
        output["advantages"] = tokens
        return output
