"""Wrappers: an env around an env, which changes one thing.

    env = marl_gem.make("ta:TicTacToe-v0")
    env = RecordEpisodes(EpisodeStatistics(TimeLimit(ParseAction(env, boxed()), 20)), "runs/loop")

    TimeLimit            truncates after a number of steps
    ParseAction          finds the action in a longer response: boxed, tagged, matching
    MapObservation       changes the text that agents observe
    StepPenalty, RewardScale, RewardClip
    EpisodeStatistics    return, steps and turns of each episode, and means
    RecordEpisodes       writes episodes to a file
    ShowHistory          shows agents a view of their history, for loops from text to text
    RewardEnv            pays a reward that is a function of turns or episodes
    ToolEnv              gives agents tools, whose answers come back to the caller

A wrapper is an env: whatever takes an env takes it wrapped. Wrappers that do not work in some order raise a
ConfigError that names the right order. For other wrappers, derive from `Wrapper`, `ObservationWrapper` or
`RewardWrapper`.
"""

from typing import TYPE_CHECKING

from marl_gem.lazy import lazy_names

if TYPE_CHECKING:
    from marl_gem.wrappers.base import Wrapper
    from marl_gem.wrappers.history import ShowHistory
    from marl_gem.wrappers.limits import TimeLimit
    from marl_gem.wrappers.observations import MapObservation, ObservationWrapper
    from marl_gem.wrappers.parse import ParseAction, Parser, boxed, matching, tagged
    from marl_gem.wrappers.record import RecordEpisodes
    from marl_gem.wrappers.reward_env import RewardEnv
    from marl_gem.wrappers.rewards import RewardClip, RewardScale, RewardWrapper, StepPenalty
    from marl_gem.wrappers.statistics import EpisodeStatistics, Statistics
    from marl_gem.wrappers.tool_env import ToolEnv
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "EpisodeStatistics": "statistics",
            "MapObservation": "observations",
            "ObservationWrapper": "observations",
            "ParseAction": "parse",
            "Parser": "parse",
            "RecordEpisodes": "record",
            "RewardClip": "rewards",
            "RewardEnv": "reward_env",
            "RewardScale": "rewards",
            "RewardWrapper": "rewards",
            "ShowHistory": "history",
            "Statistics": "statistics",
            "StepPenalty": "rewards",
            "TimeLimit": "limits",
            "ToolEnv": "tool_env",
            "Wrapper": "base",
            "boxed": "parse",
            "matching": "parse",
            "tagged": "parse",
        },
    )

__all__ = [
    "EpisodeStatistics",
    "MapObservation",
    "ObservationWrapper",
    "ParseAction",
    "Parser",
    "RecordEpisodes",
    "RewardClip",
    "RewardEnv",
    "RewardScale",
    "RewardWrapper",
    "ShowHistory",
    "Statistics",
    "StepPenalty",
    "TimeLimit",
    "ToolEnv",
    "Wrapper",
    "boxed",
    "matching",
    "tagged",
]
