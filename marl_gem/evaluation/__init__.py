"""Evaluation that survives anything: episodes in a journal, numbers with intervals, a report to read.

from marl_gem.policies import RandomPolicy
from marl_gem.evaluation import evaluate

result = evaluate("game:TicTacToe-v0", {"player_0": policy, "player_1": RandomPolicy()}, n=200, out="runs/first")
result.report["matches"][0]["agents"]["player_0"]["success"]

run           plays a plan: evaluate, tournament, and what they share
plan          what is to be played
result_store  what it has come to so far
journal       episodes on disk
summary       what the numbers need of an episode
estimates     means with intervals, pass^k
tasks         where and why agents do not succeed, and trivial_baselines
tournament    standings and ratings
tally         counts of wins, draws, losses and successes
head_to_head  a policy against an opponent, in every seat
report        all numbers of a run; markdown and pictures show them
"""

from marl_gem.evaluation.plan import Ground, Numbers, Plan, Player, plan_evaluation, plan_grid, plan_tournament
from marl_gem.evaluation.run import Budget, Progress, Result, evaluate, play, run, tournament

__all__ = [
    "Budget",
    "Ground",
    "Numbers",
    "Plan",
    "Player",
    "Progress",
    "Result",
    "evaluate",
    "plan_evaluation",
    "plan_grid",
    "plan_tournament",
    "play",
    "run",
    "tournament",
]
