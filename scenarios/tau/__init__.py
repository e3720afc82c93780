"""TAU-bench with two real agents, a customer and an assistant, as `tau:<Name>-v0`."""

from pathlib import Path

from marl_gem.registry import register, register_policy
from marl_gem.scenarios.tau import official

_MINI = Path(__file__).parent / "mini"
_MAKE = "marl_gem.scenarios.tau.catalog:make"

for _name, _what in (("retail", "an online shop"), ("airline", "an airline")):
    register(
        f"tau:{_name}-v0",
        _MAKE,
        description=f"TAU-bench: a customer of {_what} and an assistant with tools, both agents.",
        agents=2,
        unavailable=official.missing(_name),
        name=_name,
    )
    register(
        f"tau:{_name}-mini-v0",
        _MAKE,
        description=f"The same with a small world of our own: {_what}, nothing to download.",
        agents=2,
        unavailable="" if (_MINI / _name / "policy.md").is_file() else "its world is still being made",
        name=f"{_name}-mini",
    )

for _script, _what in {
    "oracle": "Makes each task's own calls and says what must be said; as the user, tells its instruction and stops.",
    "gold-without-words": "A floor: makes each task's own calls and says nothing of use.",
    "noop": "A floor: calls nothing, but says what must be said.",
    "transfer": "A floor: hands over to a human at once.",
}.items():
    register_policy("tau", _script, "marl_gem.scenarios.tau.scripts:policy", description=_what, script=_script)
