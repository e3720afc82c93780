"""A scenario as an OpenEnv server, and a client that plays it, as any trainer with OpenEnv would.

    pip install 'marl-gem[openenv]'
    python examples/train_with_openenv.py

Where the server is a machine of its own, put `app` into a module and run `uvicorn module:app` there.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from openenv.core.generic_client import GenericEnvClient

from marl_gem.integrations import SeatRunner
from marl_gem.integrations.openenv import create_app

runner = SeatRunner("game:TicTacToe-v0", others={"player_1": "random"})
app = create_app(runner)


def main() -> None:
    with served(app) as url, GenericEnvClient(base_url=url).sync() as client:
        print(f"{runner.info.scenario} at {url}; the client holds {', '.join(runner.seats)}")
        for seed in range(3):
            result = client.reset(seed=seed)
            turns = 0
            while not result.done:
                result = client.step({"text": answer(result.observation)})
                turns += 1
            print(f"seed {seed}: {turns} turns, returns {result.observation['returns']}")


def answer(observation: dict[str, Any]) -> str:
    """The place of a model: it reads `instructions` and `text`, and gives a text."""
    return str(random.choice(observation["legal_actions"]))


@contextmanager
def served(app: Any) -> Iterator[str]:
    """The address of a server in this process, on any free port."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


if __name__ == "__main__":
    main()
