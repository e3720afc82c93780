"""A scenario as an agent loop of verl, and per-agent return normalization as one of its advantage estimators.

    # agent.yaml, named by actor_rollout_ref.rollout.agent.agent_loop_config_path
    - name: tictactoe
      _target_: marl_gem.integrations.verl.SeatAgentLoop
      scenario: ta:TicTacToe-v0
      others: {player_1: random}

Rows of the data set name the loop in `agent_name` and how the episode starts in `start`, see `Start.to_text`.

Tested with verl 0.9.1, against a server that answers from a script. See docs/other-trainers.md.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from marl_gem.errors import ConfigError, MissingPackage
from marl_gem.integrations.advantages import per_agent_advantages
from marl_gem.integrations.outside_model import Completion, Request
from marl_gem.integrations.samples import samples
from marl_gem.integrations.seat_runner import SeatRunner, Start
from marl_gem.trainers.batch import completed

try:
    from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput
    from verl.trainer.ppo.core_algos import register_adv_est
except ImportError as error:
    raise MissingPackage(error.name or "verl", "verl", "an agent loop of verl") from error

_runners: dict[tuple[str, int], SeatRunner] = {}


class SeatAgentLoop(AgentLoopBase):  # type: ignore[misc]
    """Plays an episode for each row, with verl's server in some seats; one of them is trained.

    Args:
        scenario: an id or a table.
        others: who holds each seat that is not verl's.
        seat: the one whose tokens are trained, if the row has no column `seat`; by default the first of verl's. The
            other seats of verl are answered by the same weights, and not trained.
        positional, keywords: what verl gives to every loop.
    """

    def __init__(
        self,
        *positional: Any,
        scenario: Any,
        others: Mapping[str, Any] | None = None,
        seat: str = "",
        **keywords: Any,
    ) -> None:
        super().__init__(*positional, **keywords)
        others = {agent: other if isinstance(other, str) else list(other) for agent, other in (others or {}).items()}
        scenario = scenario if isinstance(scenario, str) else dict(scenario)
        key = json.dumps([scenario, others]), id(self.tokenizer)
        if key not in _runners:  # verl makes a loop for each row
            _runners[key] = SeatRunner(scenario, others=others, tokenizer=self.tokenizer)
        self._runner, self._seat = _runners[key], seat

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        seat = str(row.get("seat") or self._seat or self._runner.seats[0])
        ids = {agent: uuid.uuid4().hex for agent in self._runner.seats}  # a server answers one id's turns by its cache

        def answer_as(agent: str) -> Any:
            async def ask(request: Request) -> Completion:
                output = await self.server_manager.generate(
                    request_id=ids[agent], prompt_ids=list(request.prompt_ids), sampling_params=sampling_params
                )
                return Completion(tuple(output.token_ids), tuple(output.log_probs or ()))

            async def answer(requests: list[Request]) -> Sequence[Completion]:
                return await asyncio.gather(*map(ask, requests))

            return answer

        start = Start.from_text(str(row.get("start", 0)), repeat=uuid.uuid4().int % 2**31)
        episodes = await self._runner.play({agent: answer_as(agent) for agent in self._runner.seats}, [start])
        found = samples(completed(episodes), [seat])
        if len(found) != 1:
            raise ConfigError(f"the turns of {seat!r} are {len(found)} sequences, and verl takes one for each row")
        (sample,) = found
        length = self.rollout_config.response_length
        return AgentLoopOutput(
            prompt_ids=list(sample.prompt_ids),
            response_ids=list(sample.completion_ids[:length]),
            response_mask=list(sample.mask[:length]),
            response_logprobs=list(sample.logprobs[:length]) or None,
            reward_score=sample.reward,
            num_turns=2 * sample.turns,
            metrics={},
            extra_fields={"seat": seat},
        )


@register_adv_est("marl_gem_rebn")  # type: ignore[untyped-decorator]
def rebn(token_level_rewards: Any, response_mask: Any, **_: Any) -> tuple[Any, Any]:
    """Each row's reward, normalized over the batch, on its tokens; for trainings of one seat (and one scenario).

    `algorithm.adv_estimator=marl_gem_rebn`, once this module is imported where the trainer runs. verl tells an
    estimator nothing of a row but its prompt's id, so seats cannot be told apart here.
    """
    scores = token_level_rewards.sum(dim=-1)
    values = per_agent_advantages(scores.tolist(), ["seat"] * len(scores))
    advantages = scores.new_tensor(values).unsqueeze(-1) * response_mask
    return advantages, advantages
