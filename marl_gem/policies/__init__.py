"""Who acts: policies and the agents that they make.

base            `Policy`, `Agent`, and `PolicyPerSeat`, which joins several policies into one
scripted        a function or a list of texts
random          any legal action
human           a person at the terminal
language_model  a language model behind a view of the agent's history
continuation    what was played so far in another episode, and then another policy
replay          what was recorded in a run
"""

from marl_gem.policies.base import Agent, Info, Policy, PolicyPerSeat
from marl_gem.policies.human import HumanPolicy
from marl_gem.policies.language_model import LLMPolicy, summarizer
from marl_gem.policies.random import RandomPolicy
from marl_gem.policies.scripted import ScriptedPolicy

__all__ = [
    "Agent",
    "HumanPolicy",
    "Info",
    "LLMPolicy",
    "Policy",
    "PolicyPerSeat",
    "RandomPolicy",
    "ScriptedPolicy",
    "summarizer",
]
