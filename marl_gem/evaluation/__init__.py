"""Evaluation: episodes in a journal, numbers with intervals, a report to read, runs that resume.

    from marl_gem.evaluation import evaluate
    from marl_gem.policies import RandomPolicy

    result = evaluate("game:TicTacToe-v0", {"player_0": policy, "player_1": RandomPolicy()}, n=200, out="runs/first")
    result.report.matches[0].agents["player_0"].success

run           evaluate, tournament, and `run`, which plays any plan
plan          what is to be played
budget        the limits of a run
playing       what is pending is played within a budget, and stored
result_store  the episodes of a run
summary       what a report needs of an episode
tally         counts of wins, draws, losses and successes
head_to_head  a policy against an opponent, in every seat
regrade       recorded episodes that are scored again; rescored says what changed
estimates     means with intervals, pass^k
by_tag        results by team and role
tasks         success by task, reasons, trivial baselines
tournament    standings and ratings
report        the records of report.json; build makes them, markdown and pictures show them
"""

from marl_gem.evaluation.budget import Budget
from marl_gem.evaluation.plan import Numbers, Plan, Player, plan_evaluation, plan_grid, plan_tournament
from marl_gem.evaluation.playing import Progress
from marl_gem.evaluation.report import Report, read_report
from marl_gem.evaluation.run import Result, evaluate, run, run_async, tournament

__all__ = [
    "Budget",
    "Numbers",
    "Plan",
    "Player",
    "Progress",
    "Report",
    "Result",
    "evaluate",
    "plan_evaluation",
    "plan_grid",
    "plan_tournament",
    "read_report",
    "run",
    "run_async",
    "tournament",
]
