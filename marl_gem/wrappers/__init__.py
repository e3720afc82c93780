"""Wrappers: an env around an env, which changes one thing.

    env = marl_gem.make("ta:TicTacToe-v0")
    env = RecordEpisodes(EpisodeStatistics(TimeLimit(ParseAction(env, boxed()), 20)), "runs/loop")

    TimeLimit            truncates after a number of steps
    ParseAction          gives the env the action within a longer answer: boxed, tagged, matching
    MapObservation       changes the text that agents observe
    StepPenalty, RewardScale, RewardClip
    EpisodeStatistics    tells what episodes came to
    RecordEpisodes       writes episodes to a file
    ShowHistory          shows agents a view of their history, for loops from text to text

A wrapper is an env: whatever takes an env takes it wrapped. Wrappers that in some order make no sense say so
when they are put together. For others, derive from `Wrapper`, `ObservationWrapper` or `RewardWrapper`.
"""

from marl_gem.wrappers.base import Wrapper
from marl_gem.wrappers.history import ShowHistory
from marl_gem.wrappers.limits import TimeLimit
from marl_gem.wrappers.observations import MapObservation, ObservationWrapper
from marl_gem.wrappers.parse import ParseAction, Parser, boxed, matching, tagged
from marl_gem.wrappers.record import RecordEpisodes
from marl_gem.wrappers.rewards import RewardClip, RewardScale, RewardWrapper, StepPenalty
from marl_gem.wrappers.statistics import EpisodeStatistics, Statistics

__all__ = [
    "EpisodeStatistics",
    "MapObservation",
    "ObservationWrapper",
    "ParseAction",
    "Parser",
    "RecordEpisodes",
    "RewardClip",
    "RewardScale",
    "RewardWrapper",
    "ShowHistory",
    "Statistics",
    "StepPenalty",
    "TimeLimit",
    "Wrapper",
    "boxed",
    "matching",
    "tagged",
]
