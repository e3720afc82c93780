"""Runs as people have them, for pictures of the page: each a small stand-in for a real one, made without a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from marl_gem.policies import RandomPolicy
from marl_gem.tools.calls import write_call
from marl_gem.types import Episode, EpisodeError, Response, Role, Turn, to_json
from tests.viewer.recorded import episode, failed, games, png, with_roles, write_run

GRADED = {"success": False, "failure": "data", "differences": ["orders #W7", "users ann_1"], "missing_outputs": ["154"]}


def training_run(folder: Path) -> Path:
    """What `make demo` leaves: kept episodes of tic-tac-toe, and the metrics of a few updates."""
    write_run(folder, games("game:TicTacToe-v0", 12), scenario="game:TicTacToe-v0", training={"updates": 8})
    rows: list[dict[str, Any]] = []
    for update in range(8):
        share = 0.4 + 0.06 * update
        row: dict[str, Any] = {"stage": "training", "update": update, "score": share, "episodes": 1 + update}
        row |= {"score_interval": [share - 0.1, share + 0.1], "loss": 1.0 / (1 + update), "entropy": 1.1 - share}
        row |= {
            "return/player_0": share,
            "return/player_1": -share,
            "kl": 0.01 * update,
            "illegal": 0.3 - 0.03 * update,
        }
        rows.append(row | {"grad_norm": 0.5, "episodes_per_second": 20.0})
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


def empty_run(folder: Path) -> Path:
    """A run that has not written an episode yet."""
    return write_run(folder, [])


def failed_run(folder: Path) -> Path:
    """Tasks that were not solved, an illegal move, an error, a limit, and attempts that failed."""
    turns = (
        Turn("user", "You want order #W7 cancelled.", Response("Please cancel #W7, and tell me what I get back.")),
        Turn(
            "assistant",
            "Please cancel #W7, and tell me what I get back.",
            Response(write_call("cancel_order", {"order": "#W7", "reason": "no longer needed", "items": [1, 2]})),
            info={"illegal": "cancel_order takes the arguments order, reason"},
        ),
        Turn(
            "assistant",
            [{"type": "tool_result", "name": "cancel_order", "text": '{"error": "unknown argument items", "code": 4}'}],
            Response("It is cancelled."),
        ),
    )
    unsolved = episode(0, turns=turns, returns={"user": 0.0, "assistant": 0.0})
    fields: dict[str, Any] = {"final_infos": {"user": GRADED, "assistant": GRADED}}
    error = EpisodeError("env", "ScenarioFault", "the scenario raised KeyError: 'order' in step 3", "assistant")
    return write_run(
        folder,
        [
            with_roles(0, turns=unsolved.turns, returns=unsolved.returns, **fields),
            episode(1, ending="error", error=error, final_infos={}),
            episode(2, ending="truncated", limit="turns", final_infos={"assistant": {}}),
        ],
        [failed(9)],
    )


def village(agents: int = 50, steps: int = 2) -> Episode:
    """Many agents that talk at the same time, in two teams; each hears what all said in the step before."""
    names = [f"{'wolf' if number % 5 == 0 else 'villager'}_{number}" for number in range(agents)]
    turns: list[Turn] = []
    heard = "Day breaks. Everybody talks."
    for step in range(1, steps + 1):
        texts = {
            name: f"I am {name}, and in step {step} I suspect {names[(i + step) % agents]}."
            for i, name in enumerate(names)
        }
        turns += [
            Turn(name, heard, Response(text), float(name.startswith("wolf") and step == steps), step=step)
            for name, text in texts.items()
        ]
        heard = "\n".join(f"{name}: {text}" for name, text in texts.items())
    rules = "You live in a village with wolves. Find them.\n" * 3
    return Episode(
        "village-1",
        "test:Village-v0",
        7,
        tuple(turns),
        {name: float(name.startswith("wolf")) for name in names},
        "terminated",
        models=dict.fromkeys(names, "qwen/Qwen3-4B-Instruct-2507"),
        roles={name: Role(rules) for name in names},
        final_infos={
            name: {"team": "wolves" if name.startswith("wolf") else "village", "final_observation": heard}
            for name in names
        },
    )


CHINESE = "今天天气怎么样？请告诉我苏黎世的天气，我想去散步。" * 3
ARABIC = "كيف حال الطقس اليوم في مدينة زيورخ؟ أريد أن أتنزه، 25 درجة (celsius) مناسبة."
MARKDOWN = f"""# Plan

1. **Ask** for the `order`
2. Cancel it, *then* refund
   - all of it

| item | price |
|---|--:|
| lamp | 12.50 |
| 椅子 | 80 |

```python
print("refund")
```

> {ARABIC}

See [the rules](https://example.com/rules) or ![a dot]({png()})"""


def languages_run(folder: Path) -> Path:
    """Chinese, Arabic, both within a line, and markdown."""
    turns = (
        Turn("用户", CHINESE, Response(f"{ARABIC}\n\n{CHINESE}")),
        Turn("مساعد", f"用户: {ARABIC}\n\n{CHINESE}", Response(f"{CHINESE} {ARABIC} OK.")),
        Turn("用户", "?", Response(MARKDOWN)),
        Turn(
            "مساعد",
            [{"type": "image", "url": png()}],
            Response(write_call("查询", {"城市": "苏黎世", "مدينة": ARABIC})),
        ),
    )
    fields: dict[str, Any] = {
        "turns": turns,
        "returns": {"用户": 1.0, "مساعد": 0.0},
        "models": {"用户": "通义千问", "مساعد": "نموذج"},
        "final_infos": {},
    }
    return write_run(folder, [episode(0, id="天气-1", **fields)])


def grid(folder: Path, models: int = 4) -> Path:
    """The matches of four models for two seats: 16 runs below a folder."""
    for first in range(models):
        for second in range(models):
            played = games("game:KuhnPoker-v0", 2, RandomPolicy())
            write_run(folder / f"user-{first}" / f"assistant-{second}", played, scenario="game:KuhnPoker-v0")
    return folder


def long_run(folder: Path, episodes: int = 20_000) -> Path:
    """Many short episodes."""
    line = to_json(games("game:KuhnPoker-v0", 1)[0])
    head, rest = line.split('"id":"', 1)
    rest = rest.partition('"')[2]
    folder.mkdir(parents=True)
    (folder / "episodes.jsonl").write_text("".join(f'{head}"id":"task-{n}"{rest}\n' for n in range(episodes)))
    (folder / "config.json").write_text(json.dumps({"scenario": "game:KuhnPoker-v0"}))
    return folder
