"""Registers generated problems of mathematics as `math:<subject>-v0`."""

from importlib.util import find_spec

from marl_gem.registry import register
from marl_gem.scenarios.tasks import gem
from marl_gem.scenarios.tasks.pictures import PICTURED
from marl_gem.scenarios.tasks.problems import GENERATORS
from marl_gem.scenarios.tasks.registration import register_question_policies

_NO_PICTURES = "" if find_spec("PIL") else "pillow is not installed: pip install 'marl-gem[math]'"

for _subject in (*GENERATORS, *PICTURED):
    _about = "with a picture" if _subject in PICTURED else "in words"
    register(
        f"math:{_subject}-v0",
        "marl_gem.scenarios.tasks.mathematics:Problems",
        description=f"Generated problems: {_subject.replace('-', ' ')} {_about}, exact answers, five grades.",
        agents=1,
        turn_order="sequential",
        unavailable=_NO_PICTURES if _subject in PICTURED else "",
        subject=_subject,
    )
register(
    "math:all-v0",
    "marl_gem.scenarios.tasks.mathematics:Problems",
    description="Generated problems of all subjects; a report has each subject and grade.",
    agents=1,
    turn_order="sequential",
    unavailable=_NO_PICTURES,
    subject="all",
)
gem.register_sets("math")
register_question_policies("math")
