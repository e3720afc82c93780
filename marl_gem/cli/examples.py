"""What stands below the options in a command's help: how to name a policy, and commands to copy."""

from __future__ import annotations

WHO = (
    "[bold]WHO[/] names a policy: random, human, scripted:NAME (marl-gem list SCENARIO names them), a run's folder or "
    "RUN@UPDATES, replay:RUN, MODEL@URL, litellm:PROVIDER/MODEL, hf:FOLDER. Values follow behind commas: "
    "MODEL@URL,temperature=0.7. [bold]SCENARIO[/] is an id from marl-gem list, module:Class, or path/to/file.py:Class. "
    "marl-gem COMMAND -h shows examples."
)

EXAMPLES = {
    "list": ("list", "list ta --agents 2", "list game:KuhnPoker-v0"),
    "new": ("new auction --agents 4 --turns parallel",),
    "play": (
        "play game:KuhnPoker-v0 --seat player_0=human",
        "play ta:TicTacToe-v0 --seat '*=random' -n 100",
        "play my_game.py:MyGame -o rounds=3 --seat 'player_*=tiny@http://127.0.0.1:8000/v1'",
    ),
    "eval": (
        "eval ta:TicTacToe-v0 --seat player_0=tiny@http://127.0.0.1:8000/v1,temperature=0 -n 50",
        "eval tau:desk-v0 --grid --seat user=scripted:expert --seat user=scripted:novice --seat assistant=runs/desk",
        "eval --out runs/eval-1 --resume",
    ),
    "tournament": (
        "tournament game:KuhnPoker-v0 --player old=runs/kuhn@100 --player new=runs/kuhn --player luck=random -n 200",
    ),
    "mcp": ("mcp game:TicTacToe-v0 --seat player_1=scripted:perfect", "mcp tau:desk-v0 --as assistant"),
    "train": (
        "train tictactoe",
        "train game:KuhnPoker-v0 --set training.updates=100 --name kuhn",
        "train --resume runs/kuhn",
    ),
    "view": ("view runs", "view runs/demo --text"),
    "compare": ("compare runs/eval-1 runs/eval-2",),
    "regrade": ("regrade runs/eval-1", "regrade runs/eval-1 --reward rubrics.py:polite --out runs/polite"),
    "export": (
        "export runs/demo --out chats.jsonl",
        "export runs/grid --out good.parquet --agent assistant --success --grade hard",
    ),
    "check": ("check my_game.py:MyGame", "check game:KuhnPoker-v0 --only seeding"),
    "playthrough": ("playthrough game:KuhnPoker-v0 --seed 3",),
}
"""Command lines by command, without the program's name."""


def examples(command: str) -> str:
    """A command's examples, as text below its options."""
    lines = "\n\n".join(f"  marl-gem {line}".replace("[", "\\[") for line in EXAMPLES[command])
    return f"[bold]Examples[/]\n\n{lines}"
