"""Tools: functions that agents may call, the resources they use, and how calls are written and read.

    @tool                 a tool of a function, a class or a bound method
    Tool                  what answers calls: a spec, and `await tool.call(arguments, context)`
    ToolResult, Image     the answer
    ToolError             raised by a tool, for the model to read
    Context               what a tool may know besides its arguments: agent, seed, env
    Resource              a process, a database, a page of a browser
    ResourcePool          at most so many of them, used again and again
    load_tools            tools by name, as a command line or a configuration gives them
    register_tool         a name for a tool, or for what makes tools (`makes_tools`)
    @reward               a reward: a function of a turn or an episode, for one agent
    rubrics               what a text is worth: exact match, F1, a pattern, a schema, a model as judge

`wrappers.RewardEnv` pays rewards in any scenario. `wrappers.ToolEnv` gives tools to the agents of any scenario.
"""

from marl_gem.tools.context import Context, Leases
from marl_gem.tools.functions import FunctionTool, Tool, tool, tool_spec
from marl_gem.tools.names import load_tools, makes_tools, register_tool, registered_tools
from marl_gem.tools.resources import Resource, ResourcePool
from marl_gem.tools.result import Image, ToolError, ToolResult
from marl_gem.tools.rewards import Reward, load_reward, reward

__all__ = [
    "Context",
    "FunctionTool",
    "Image",
    "Leases",
    "Resource",
    "ResourcePool",
    "Reward",
    "Tool",
    "ToolError",
    "ToolResult",
    "load_reward",
    "load_tools",
    "makes_tools",
    "register_tool",
    "registered_tools",
    "reward",
    "tool",
    "tool_spec",
]
