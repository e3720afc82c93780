"""marl_gem: a multi-agent gym for language-model agents."""

from marl_gem.env import MultiAgentEnv
from marl_gem.registry import list, make, register
from marl_gem.selectors.base import AgentSelector
from marl_gem.selectors.directed import DirectedSelector
from marl_gem.selectors.parallel import ParallelSelector
from marl_gem.selectors.sequential import SequentialSelector
from marl_gem.types import Episode, Observation, Response, Role, ToolSpec, Turn

__version__ = "0.1.0"

__all__ = [
    "AgentSelector",
    "DirectedSelector",
    "Episode",
    "MultiAgentEnv",
    "Observation",
    "ParallelSelector",
    "Response",
    "Role",
    "SequentialSelector",
    "ToolSpec",
    "Turn",
    "list",
    "make",
    "register",
]
