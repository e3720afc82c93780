"""A scenario behind OpenEnv's own server, played by its generic client."""

from __future__ import annotations

import runpy
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("openenv")

import uvicorn
from openenv.core.generic_client import GenericEnvClient

from marl_gem.errors import EpisodeOver, InvalidAction
from marl_gem.integrations import SeatRunner
from marl_gem.integrations.openenv import ScenarioAction, ScenarioEnvironment, create_app
from tests.docs.pages import ROOT
from tests.toys import NumberGame, SimultaneousNumbers, always


@contextmanager
def served(app: Any) -> Iterator[str]:
    """The address of a server of this app, on any free port."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", ws_ping_interval=None))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def test_a_generic_client_plays_two_games_at_the_same_time() -> None:
    app = create_app(SeatRunner("game:TicTacToe-v0", others={"player_1": "random"}))
    with (
        served(app) as url,
        GenericEnvClient(base_url=url).sync() as first,
        GenericEnvClient(base_url=url).sync() as second,
    ):
        results = {client: client.reset(seed=seed) for client, seed in ((first, 1), (second, 2))}
        for client in (first, second):
            assert results[client].observation["agent"] == "player_0"
            assert "tic-tac-toe" in results[client].observation["instructions"].lower()
        while not all(result.done for result in results.values()):
            for client, result in results.items():
                if not result.done:
                    results[client] = client.step({"text": result.observation["legal_actions"][0]})
        for result in results.values():
            assert result.observation["returns"]["player_0"] == result.reward in (-1.0, 0.0, 1.0)
        again = first.reset(seed=1)
        assert not again.done and first.state()["step_count"] == 0


def test_a_client_may_hold_several_seats() -> None:
    for game, returns in ((NumberGame, {"a": 2.0, "b": 4.0}), (SimultaneousNumbers, {"a": 4.0, "b": 8.0})):
        env = ScenarioEnvironment(SeatRunner(game))
        observation = env.reset(seed=0)
        while not observation.done:
            observation = env.step(ScenarioAction(text={"a": "1", "b": "2"}[observation.agent]))
        assert observation.returns == returns and observation.reward == sum(returns.values())
        env.close()


def test_who_is_not_asked_is_refused_and_a_reset_leaves_an_episode() -> None:
    env = ScenarioEnvironment(SeatRunner(NumberGame, others={"b": always("7")}))
    with pytest.raises(EpisodeOver, match="call reset first"):
        env.step(ScenarioAction(text="1"))
    env.reset(seed=0)
    with pytest.raises(InvalidAction, match="'a' is asked now, not 'b'"):
        env.step(ScenarioAction(text="1", agent="b"))
    env.step(ScenarioAction(text="1", agent="a"))
    assert env.reset().text == "step 0"
    env.close()
    env.close()


def test_the_example_plays(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "train_with_openenv.py"), run_name="__main__")
    assert "seed 2: " in capsys.readouterr().out
