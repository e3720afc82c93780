"""Tasks with a database, as `db:<Name>-v0`: queries as a tool on SQLite, the state and the answer judged at the end.

env.py       `DatabaseEnv`
shop.py      a shop's database and its tasks
session.py   SQLite in a sandbox, restored for each episode
policies.py  scripted policies: the solution, and doing nothing
"""

from marl_gem.registry import register, register_policy
from marl_gem.scenarios.tasks.requirements import missing

register(
    "db:Shop-v0",
    "marl_gem.scenarios.tasks.database.env:DatabaseEnv",
    description="Nine tasks of three grades on the SQLite database of a shop: questions, repairs, migrations.",
    turn_order="sequential",
    unavailable=missing(),
)
for _script, _what in {
    "solution": "Runs the task's queries, and gives the answer.",
    "noop": "Trivial baseline: makes no query.",
}.items():
    register_policy(
        "db", _script, "marl_gem.scenarios.tasks.database.policies:policy", description=_what, script=_script
    )
