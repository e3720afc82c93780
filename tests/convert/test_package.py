"""The package as a whole: its names, missing libraries, registered conversions, the example."""

from __future__ import annotations

import importlib
import runpy
import subprocess
import sys

import pytest

gymnasium = pytest.importorskip("gymnasium")
pytest.importorskip("pettingzoo")


import marl_gem  # noqa: E402
from marl_gem.convert import from_pettingzoo  # noqa: E402
from marl_gem.policies import RandomPolicy, ScriptedPolicy  # noqa: E402
from marl_gem.rollout import Job, collect  # noqa: E402
from marl_gem.types import to_json  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
"""PettingZoo's and Gymnasium's checks warn of spaces that are not arrays."""
from tests.convert.envs import NATIVE, ROOT  # noqa: E402


def test_a_pettingzoo_game_is_registered_and_rolled_out_like_any_other() -> None:
    marl_gem.register("zoo:TestConnectFour-v0", lambda: from_pettingzoo(NATIVE["connect four"]), agents=2)
    first_column = ScriptedPolicy(lambda observation, info: info["legal_actions"][0])
    jobs = [Job(seed, {"player_0": RandomPolicy(), "player_1": first_column}) for seed in range(20)]
    episodes = collect(lambda: marl_gem.make("zoo:TestConnectFour-v0"), jobs)
    assert all(episode.error is None and episode.ending == "terminated" for episode in episodes)
    assert all(sum(episode.returns.values()) == 0 for episode in episodes)
    assert {episode.returns["player_0"] for episode in episodes} == {-1.0, 1.0}
    assert episodes[0].scenario == "zoo:TestConnectFour-v0" and to_json(episodes[0])


@pytest.mark.parametrize(
    ("missing", "use"),
    [
        ("pettingzoo", "from marl_gem.convert import to_aec"),
        ("pettingzoo", "from marl_gem.convert import from_pettingzoo; from_pettingzoo(print)"),
        ("gymnasium", "from marl_gem.convert import from_gymnasium"),
        ("gymnasium", "marl_gem.convert.FreeText()"),
    ],
)
def test_a_missing_package_is_named_with_what_installs_it(missing: str, use: str) -> None:
    code = f"""
import sys; sys.modules[{missing!r}] = None
import marl_gem, marl_gem.convert
try:
    {use}
except marl_gem.errors.MissingPackage as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert repr(missing) in done.stdout and "pip install 'marl-gem[pettingzoo]'" in done.stdout


def test_unknown_names_are_no_part_of_convert() -> None:
    module = importlib.import_module("marl_gem.convert")
    with pytest.raises(AttributeError, match="to_gym"):
        _ = module.to_gym
    assert all(hasattr(module, name) for name in module.__all__)


def test_the_example_plays(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pettingzoo.classic.connect_four_v3", exc_type=ImportError)
    runpy.run_path(str(ROOT / "examples" / "pettingzoo_in_text.py"), run_name="__main__")
    assert "wins" in capsys.readouterr().out
