"""marl_gem: a multi-agent gym for language-model agents."""

from marl_gem import links as links  # first: raises an ImportError in a clone without symbolic links

# isort: split
from typing import TYPE_CHECKING

from marl_gem.lazy import lazy_names

if TYPE_CHECKING:
    from marl_gem.env import MultiAgentEnv
    from marl_gem.registry import list as list
    from marl_gem.registry import make, register
    from marl_gem.selectors.base import AgentSelector
    from marl_gem.selectors.directed import DirectedSelector
    from marl_gem.selectors.graph import END, GraphSelector
    from marl_gem.selectors.parallel import ParallelSelector
    from marl_gem.selectors.phases import Phase, PhaseSelector
    from marl_gem.selectors.random import RandomSelector
    from marl_gem.selectors.sequential import SequentialSelector
    from marl_gem.types import Episode, Metadata, Observation, Response, Role, ToolSpec, Turn
    from marl_gem.vector import VectorEnv
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "AgentSelector": "selectors.base",
            "DirectedSelector": "selectors.directed",
            "END": "selectors.graph",
            "Episode": "types",
            "GraphSelector": "selectors.graph",
            "Metadata": "types",
            "MultiAgentEnv": "env",
            "Observation": "types",
            "ParallelSelector": "selectors.parallel",
            "Phase": "selectors.phases",
            "PhaseSelector": "selectors.phases",
            "RandomSelector": "selectors.random",
            "Response": "types",
            "Role": "types",
            "SequentialSelector": "selectors.sequential",
            "ToolSpec": "types",
            "Turn": "types",
            "VectorEnv": "vector",
            "list": "registry",
            "make": "registry",
            "register": "registry",
        },
    )

__version__ = "0.1.0"

__all__ = [
    "END",
    "AgentSelector",
    "DirectedSelector",
    "Episode",
    "GraphSelector",
    "Metadata",
    "MultiAgentEnv",
    "Observation",
    "ParallelSelector",
    "Phase",
    "PhaseSelector",
    "RandomSelector",
    "Response",
    "Role",
    "SequentialSelector",
    "ToolSpec",
    "Turn",
    "VectorEnv",
    "make",
    "register",
]
