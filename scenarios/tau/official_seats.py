"""Both seats as the published scores of TAU-bench were made: the strategy `official`.

    assistant   temperature 0, no limit on tokens; of several calls in one answer only the first stays in the history
    user        temperature 1, no limit on tokens

They go with the scenario's option official=true, which has the rules of the environment:

    marl-gem eval tau:retail-v0 --option official=true --seat assistant=M@URL,strategy=official \\
        --seat user=M@URL,strategy=official

Source: sierra-research/tau-bench, `agents/tool_calling_agent.py` and `envs/user.py`.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import msgspec

from marl_gem.env import MultiAgentEnv
from marl_gem.errors import ConfigError
from marl_gem.llm import LLM, Sampling
from marl_gem.policies import LLMPolicy, Policy
from marl_gem.scenarios.tau.env import RESPOND, TauEnv
from marl_gem.tools.calls import CLOSE, read_calls
from marl_gem.types import Message, Response, ToolCall, ToolSpec


def assistant(policy: Policy, env: MultiAgentEnv) -> LLMPolicy:
    """The official tool-calling agent: the most likely tokens, as many as the back end allows, one call at a time.

    The policy's own temperature and limits are replaced.

    Args:
        policy: a language model.
        env: an env of the scenario, only to look at.

    Raises:
        ConfigError: `policy` is no LLMPolicy, or the scenario is not made with official=true.
    """
    made = _with_sampling(policy, env, Sampling(max_tokens=None, temperature=0.0))
    made.llm = _FirstCallAlone(made.llm)
    return made


def user(policy: Policy, env: MultiAgentEnv) -> LLMPolicy:
    """The official user simulator's sampling: temperature 1, as many tokens as the back end allows.

    Its prompt comes with the option official=true. Arguments and errors are those of `assistant`.
    """
    return _with_sampling(policy, env, Sampling(max_tokens=None, temperature=1.0))


def _with_sampling(policy: Policy, env: MultiAgentEnv, sampling: Sampling) -> LLMPolicy:
    if not isinstance(policy, LLMPolicy):
        raise ConfigError(f"official takes a language model, not {policy.name}; other strategies cannot go below it")
    if not (isinstance(env, TauEnv) and env.official):
        raise ConfigError("strategy=official goes with the scenario's own rules: add --option official=true")
    made = copy.copy(policy)
    made.sampling = sampling
    return made


class _FirstCallAlone:
    """A model whose answers keep the first of several calls, as the official agent's history does.

    This is done to the model, not to the agent, so that the agent never remembers the others. An answer whose
    first call is `respond` stays as it is, as it does officially.
    """

    def __init__(self, llm: LLM) -> None:
        self._llm = llm

    @property
    def name(self) -> str:
        return self._llm.name

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, seed: int, tools: Sequence[ToolSpec] = ()
    ) -> Response:
        response = await self._llm.complete(messages, sampling, seed, tools)
        _, calls = read_calls(response.text)
        if len(calls) < 2 or (isinstance(calls[0], ToolCall) and calls[0].name == RESPOND):
            return response
        text = response.text[: response.text.index(CLOSE) + len(CLOSE)]
        return msgspec.structs.replace(response, text=text, token_ids=(), logprobs=())
