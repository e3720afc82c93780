"""A model's policy as probabilities of legal actions, for exact analyses."""

from __future__ import annotations

import math
from collections.abc import Mapping

from marl_gem.analysis import Decision, Strategy
from marl_gem.llm.transformers import TransformersLLM
from marl_gem.policies import LLMPolicy, Policy


def strategy_of(policies: Mapping[str, Policy]) -> Strategy | None:
    """The probability of each legal action, by the policy that holds the deciding agent's seat.

    The probabilities are those at temperature 1; what is missing to 1 is that of illegal responses. Decisions with
    equal prompts are computed once.

    Returns:
        None if a policy is no model in this process, or samples at another temperature than 1, so that nobody can say.
    """
    models = {}
    for agent, policy in policies.items():
        if not (isinstance(policy, LLMPolicy) and isinstance(policy.llm, TransformersLLM)):
            return None
        if policy.sampling.temperature != 1 or policy.sampling.top_p != 1:
            return None
        models[agent] = (policy, policy.llm)
    known: dict[tuple[str, tuple[int, ...]], dict[str, float]] = {}

    def probabilities(decision: Decision) -> Mapping[str, float]:
        policy, llm = models[decision.agent]
        shown = policy.view(decision.role, decision.history)
        if not isinstance(shown, list):
            raise TypeError("a view that awaits something cannot be analysed")
        prompt = llm.encode(shown, decision.role.tools)
        key = (decision.agent, prompt)
        if key not in known:
            known[key] = {
                action: math.exp(llm.logprob(prompt, llm.encode_answer(action))) for action in decision.actions
            }
        return known[key]

    return probabilities
