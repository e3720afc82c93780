"""Our scenarios in other people's trainers: they answer some seats, and get tokens, rewards and advantages back.

    outside_model   a language model that is asked elsewhere: a function from prompts to completions
    seat_runner     `SeatRunner`: whose seats are whose, and many episodes at once
    stepped         one episode that the other side steps: question, answer, question, ...
    samples         what was played, in the shape that trainers want: prompt, completion, mask, reward, advantages
    tool_environment  a scenario as a class whose methods are tools
    advantages      per-agent advantages (ReBN) of any trainer's rewards
    trl, verifiers, openenv, tinker, skyrl_gym, verl   one adapter each; only these import the package that they name

An adapter's module is imported by its full name, such as `marl_gem.integrations.trl`.
"""

from marl_gem.integrations.advantages import per_agent_advantages, turn_advantages
from marl_gem.integrations.outside_model import Completion, Generate, OutsideModel, Request
from marl_gem.integrations.samples import Sample, samples
from marl_gem.integrations.seat_runner import SeatRunner, Start
from marl_gem.integrations.stepped import LoopThread, Question, SteppedEpisode

__all__ = [
    "Completion",
    "Generate",
    "LoopThread",
    "OutsideModel",
    "Question",
    "Request",
    "Sample",
    "SeatRunner",
    "Start",
    "SteppedEpisode",
    "per_agent_advantages",
    "samples",
    "turn_advantages",
]
