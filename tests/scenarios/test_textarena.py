"""TextArena's games behind our contract: catalog, rules, legal moves, randomness."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

textarena = pytest.importorskip("textarena")

from textarena import ObservationType as Kind  # noqa: E402
from textarena.envs.registration import ENV_REGISTRY  # noqa: E402

import marl_gem  # noqa: E402
from marl_gem.errors import (  # noqa: E402
    InvalidOption,
    MissingPackage,
    UnavailableScenario,
    UnknownScenario,
)
from marl_gem.policies import ScriptedPolicy  # noqa: E402
from marl_gem.rollout import Job, collect  # noqa: E402
from marl_gem.runs.outcomes import outcomes  # noqa: E402
from marl_gem.scenarios.textarena import catalog  # noqa: E402
from marl_gem.scenarios.textarena.env import TextArenaEnv  # noqa: E402
from marl_gem.scenarios.textarena.legal import LEGAL  # noqa: E402
from marl_gem.testing import Plan, check_metadata  # noqa: E402
from marl_gem.types import Metadata  # noqa: E402
from tests.scenarios.textarena_play import FAILING, SLOW, WORKING, finish, play, play_on  # noqa: E402

# The catalog


def run_python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **environment}
    )
    return done.stdout


def test_the_list_needs_no_textarena() -> None:
    code = """
import sys; sys.modules["textarena"] = None
import marl_gem
print(len(marl_gem.list("ta")))
try:
    marl_gem.make("ta:TicTacToe-v0")
except marl_gem.errors.MissingPackage as error:
    print(error)
"""
    number, message = run_python(code).splitlines()
    assert int(number) == len(catalog.entries()) == 238
    assert "pip install 'marl-gem[textarena]'" in message
    assert issubclass(MissingPackage, ImportError)


def test_the_catalog_knows_all_games_of_textarena() -> None:
    games = {game for game in ENV_REGISTRY if not game.endswith(("-raw", "-train"))}
    assert games == set(catalog.entries())
    assert len(WORKING) >= 180


def test_an_unknown_game_names_its_neighbours() -> None:
    with pytest.raises(UnknownScenario, match="Did you mean 'ta:TicTacToe-v0'"):
        marl_gem.make("ta:TikTakToe-v0")
    with pytest.raises(UnknownScenario):
        TextArenaEnv("NoSuchGame-v0", 2)


@pytest.mark.parametrize("game", FAILING)
def test_a_game_that_cannot_work_says_why_and_what_helps(game: str) -> None:
    with pytest.raises(UnavailableScenario, match=r"cannot work here: .+") as raised:
        marl_gem.make(f"ta:{game}")
    assert re.search("pip install|nltk.downloader|environment variable|run it with|choose another", str(raised.value))


def test_needs_are_looked_for_on_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    monkeypatch.setattr(catalog, "_nltk_folders", lambda: [tmp_path])
    needy = catalog.Entry(
        needs=("key:OPENROUTER_API_KEY", "nltk:words", "module:no_such_module", "module:json", "python:3.11")
    )
    help_text = catalog.unavailable(needy)
    assert "OPENROUTER_API_KEY" in help_text
    assert "python -m nltk.downloader words" in help_text
    assert "pip install no_such_module" in help_text
    assert "json" not in help_text
    assert "3.11" not in help_text
    monkeypatch.setenv("OPENROUTER_API_KEY", "a key")
    (tmp_path / "corpora" / "words").mkdir(parents=True)
    assert catalog.unavailable(catalog.Entry(needs=("key:OPENROUTER_API_KEY", "nltk:words"))) == ""
    assert catalog.waits(needy)


@pytest.mark.parametrize(
    ("game", "number"), [("TicTacToe-v0", 3), ("2048-v0", 2), ("Taboo-v0", 5), ("SecretMafia-v0", 5), ("Snake-v0", 0)]
)
def test_wrong_numbers_of_players_are_refused(game: str, number: int) -> None:
    with pytest.raises(InvalidOption, match=f"not {number}"):
        marl_gem.make(f"ta:{game}", num_players=number)


def test_wrong_options_are_refused() -> None:
    for options in ({"observe": "bord"}, {"error_allowance": -1}, {"num_players": "two"}, {"boardsize": 4}):
        with pytest.raises(InvalidOption):
            marl_gem.make("ta:TicTacToe-v0", **options)
    with pytest.raises(InvalidOption):
        marl_gem.make("ta:TicTacToe-v0").reset(options={"board": 4})


@pytest.mark.parametrize("game", [game for game in WORKING if game not in SLOW])
def test_every_working_game_plays_repeats_and_forks(game: str) -> None:
    spec = next(scenario for scenario in marl_gem.list("ta") if scenario.id == f"ta:{game}")
    env = marl_gem.make(spec.id)
    assert len(env.possible_agents) == spec.agents[0]
    first = play(env, seed=11, steps=6)
    assert play(marl_gem.make(spec.id), seed=11, steps=6) == first
    env.reset(seed=12)
    list(play_on(env, random.Random(5), 2))
    fork = env.fork()
    assert list(play_on(env, random.Random(6), 4)) == list(play_on(fork, random.Random(6), 4))


@pytest.mark.parametrize("game", [game for game in WORKING if catalog.entry(game).zero_sum])
def test_declared_contests_are_zero_sum(game: str) -> None:
    env = marl_gem.make(f"ta:{game}")
    assert env.metadata == Metadata(zero_sum=True, turn_order="sequential", reward_range=(-1.0, 1.0))
    check_metadata(lambda: marl_gem.make(f"ta:{game}"), Plan(steps=40))
    env.reset(seed=0)
    while not env.done and env.steps < 60:
        env.step({env.acting[0]: "What now?"})
    assert sum(env.returns.values()) == 0


def test_games_without_a_winner_or_for_more_players_declare_no_contest() -> None:
    for game in ("NewRecruit-v0", "GuessTheNumber-v0", "Snake-v0", "ThreePlayerTicTacToe-v0"):
        assert marl_gem.make(f"ta:{game}").metadata == Metadata(turn_order="sequential")


def test_an_episode_of_a_contest_has_a_winner() -> None:
    jobs = [Job(0, ScriptedPolicy(["What now?"] * 9)), Job(1, ScriptedPolicy([f"[{n}]" for n in range(9)]))]
    for episode in collect(lambda: marl_gem.make("ta:TicTacToe-v0"), jobs):
        results = sorted(str(outcome.result) for outcome in outcomes(episode).values())
        assert results == ["loss", "win"]


# Like TextArena's own games


def by_hand(game: str, players: int, seed: int, actions: list[str]) -> tuple[list[Any], Any]:
    """TextArena's own loop with these actions: who was shown which messages, and the game at the end."""
    before = random.getstate()
    env, shown = textarena.make(f"{game}-raw"), []
    env.reset(num_players=players, seed=seed)
    for action in actions:
        shown.append(env.get_observation())
        done, _ = env.step(action)
        if done:
            break
    random.setstate(before)
    return shown, env


SAMPLE = {
    "TicTacToe-v0": 2,
    "ConnectFour-v0": 2,
    "KuhnPoker-v0-long": 2,
    "PigDice-v0-short": 2,
    "Blackjack-v0": 1,
    "Minesweeper-v0": 1,
    "Battleship-v0": 2,
    "Stratego-v0": 2,
    "TruthAndDeception-v0": 2,
    "LiarsDice-v0": 3,
    "Snake-v0": 4,
    "ThreePlayerGOPS-v0": 3,
    "Poker-v0": 4,
    "SecretMafia-v0": 6,
    "SettlersOfCatan-v0": 4,
}


@pytest.mark.parametrize(("game", "players"), SAMPLE.items())
def test_a_hosted_game_equals_textarenas_own(game: str, players: int) -> None:
    env = marl_gem.make(f"ta:{game}", num_players=players)
    record = play(env, seed=3)
    shown, raw = by_hand(game, players, 3, [action for action, *_ in record[1:]])
    assert len(shown) == len(record) - 1
    observations = [record[0][0]] + [step[0] for _, step, _ in record[1:]]
    for (seat, messages), observation in zip(shown, observations, strict=False):
        ((agent, text),) = observation.items()
        assert agent == f"player_{seat}"
        news = [message for message in messages if message[2] is not Kind.PROMPT]
        own = [message for message in news if message[2] is Kind.PLAYER_ACTION and (message[0] == seat or players == 1)]
        for message in news:
            assert message in own or str(message[1]) in text
    if env.done:
        assert env.returns == {f"player_{seat}": reward for seat, reward in raw.state.rewards.items()}


def test_a_prompt_becomes_the_role() -> None:
    env = marl_gem.make("ta:TicTacToe-v0")
    assert env.role("player_0").instructions == ""
    observations, _ = env.reset(seed=1)
    assert env.role("player_0").instructions.startswith("You are Player 0 in Tic Tac Toe.")
    assert env.role("player_1").instructions.startswith("You are Player 1 in Tic Tac Toe.")
    assert "You are Player" not in observations["player_0"]


def test_who_has_nothing_new_to_read_is_told_that_it_is_its_turn() -> None:
    observations, _ = marl_gem.make("ta:GuessTheNumber-v0").reset(seed=1)
    assert observations == {"player_0": "[GAME] It is your turn."}


# Invalid moves, eliminations, rewards


def test_an_error_is_told_to_the_mover_and_the_second_one_loses() -> None:
    env = marl_gem.make("ta:TicTacToe-v0")
    env.reset(seed=1)
    infos = finish(env, "no move")
    assert env.acting == ("player_0",)
    assert "does not follow the correct format" in infos["player_0"]["illegal"]
    assert "attempted an invalid move" in env.observe("player_0")
    infos = finish(env, "[9]")
    assert env.done
    assert env.returns == {"player_0": -1.0, "player_1": 1.0}
    assert infos["player_0"]["illegal"] == infos["player_1"]["reason"] == "9. Must be between 0 and 8."
    assert "illegal" not in infos["player_1"]


def test_a_good_move_forgives_the_error_before() -> None:
    env = marl_gem.make("ta:TicTacToe-v0")
    env.reset(seed=1)
    infos = finish(env, "no move", "[4]")
    assert "illegal" not in infos["player_0"]
    assert env.acting == ("player_1",)


@pytest.mark.parametrize(("allowance", "errors"), [(0, 1), (1, 2), (3, 4)])
def test_the_allowance_for_errors_can_be_set(allowance: int, errors: int) -> None:
    env = marl_gem.make("ta:ConnectFour-v0", error_allowance=allowance)
    env.reset(seed=1)
    finish(env, *["no move"] * errors)
    assert env.done
    assert env.steps == errors


def test_the_eliminated_end_at_once_and_their_late_rewards_count() -> None:
    env = marl_gem.make("ta:LiarsDice-v0", num_players=3, error_allowance=0)
    env.reset(seed=1)
    loser = env.acting[0]
    _, rewards, terminations, _, infos = env.step({loser: "I bid nothing."})
    assert terminations == {agent: agent == loser for agent in env.possible_agents}
    assert infos[loser]["reason"] == "Eliminated."
    assert "eliminated" in infos[loser]["final_observation"]
    assert rewards[loser] == env.returns[loser] == 0.0
    assert loser not in env.agents
    second = env.acting[0]
    _, rewards, *_ = env.step({second: "Neither do I."})
    assert env.done
    assert loser not in rewards
    assert env.returns == {loser: -1.0, second: 0.0, "player_2": 1.0}


@pytest.mark.parametrize("game", ["LiarsDice-v0", "Snake-v0", "SecretMafia-v0", "Surround-v0", "MarketEntryGame-v0"])
def test_nobody_acts_after_the_end_of_its_part(game: str) -> None:
    env = marl_gem.make(f"ta:{game}", num_players=6)
    for seed in range(3):
        ended: set[str] = set()
        for _, (observations, _, terminations, _, _), _ in play(env, seed, steps=300)[1:]:
            ended |= {agent for agent, over in terminations.items() if over}
            assert not ended & set(observations)
        assert ended == set(env.possible_agents)


def test_a_game_that_loses_all_its_players_ends() -> None:
    env = marl_gem.make("ta:PublicGoodsGame-v0", num_players=2, error_allowance=0)
    env.reset(seed=1)
    while not env.done:
        finish(env, "nothing that makes sense")
    assert env.returns == {"player_0": -1.0, "player_1": -1.0}


def test_reasons_given_as_rewards_are_put_right() -> None:
    for game in ("Countdown-v0", "Cryptarithm-v0", "Slitherlink-v0", "ThreeCardMonte-v0"):
        env = marl_gem.make(f"ta:{game}")
        env.reset(seed=1)
        infos = finish(env, "?", "?")
        assert env.done
        assert 0.0 <= env.returns["player_0"] <= 1.0
        assert "ad action" in infos["player_0"]["illegal"] or "Invalid action" in infos["player_0"]["illegal"]


def test_the_fifteen_puzzle_can_be_solved() -> None:
    env: Any = marl_gem.make("ta:FifteenPuzzle-v0")
    env.reset(seed=1)
    tiles = [*range(1, 15), None, 15]
    env.game.board = [tiles[i : i + 4] for i in range(0, 16, 4)]
    infos = finish(env, "[left]")
    assert env.returns == {"player_0": 1.0}
    assert "solved" in infos["player_0"]["reason"]


def test_tak_can_be_won() -> None:
    env: Any = marl_gem.make("ta:Tak-v0")
    env.reset(seed=1)
    env.game._check_win = lambda player: True
    finish(env, "[place () {(0,0): [F0]}]")
    assert env.returns == {"player_0": 1.0, "player_1": -1.0}


def test_a_game_without_end_is_truncated() -> None:
    env = marl_gem.make("ta:SimpleNegotiation-v0-long", max_steps=3)
    env.reset(seed=1)
    for _ in range(2):
        finish(env, "Let us talk.")
    _, _, terminations, truncations, infos = env.step({env.acting[0]: "Bye."})
    assert env.done
    assert not any(terminations.values())
    assert all(truncations.values())
    assert all("final_observation" in info for info in infos.values())


# Legal moves


HOSTED_LEGAL = [
    game
    for game in WORKING
    if game in ENV_REGISTRY
    and ENV_REGISTRY[game].entry_point.partition(":")[2] in LEGAL
    and not game.startswith(("2048-v0-", "Othello-v0-", "PigDice-v0-"))
]


@pytest.mark.parametrize("game", HOSTED_LEGAL)
def test_legal_play_is_never_called_invalid(game: str) -> None:
    env = marl_gem.make(f"ta:{game}")
    for seed in range(6):
        dice = random.Random(seed)
        observations, infos = env.reset(seed=seed)
        while not env.done and env.steps < 150:
            (agent,) = observations
            legal = infos[agent].get("legal_actions")
            if not legal:
                break  # stuck: some boards leave a player without a move
            observations, *_, infos = env.step({agent: dice.choice(legal)})
            assert not any("illegal" in info for info in infos.values())


@pytest.mark.parametrize(
    ("game", "texts"),
    [
        ("TicTacToe-v0", [f"[{i}]" for i in range(-1, 11)]),
        ("ConnectFour-v0", [f"[col {i}]" for i in range(9)]),
        ("KuhnPoker-v0", ["[check]", "[bet]", "[call]", "[fold]", "[raise]"]),
        ("Nim-v0", [f"[{i} {j}]" for i in range(5) for j in range(7)]),
        (
            "Chopsticks-v0",
            [f"[attack {i} {j}]" for i in (0, 1) for j in (0, 1)]
            + [f"[split {i} {j}]" for i in range(9) for j in range(9)],
        ),
        ("UltimateTicTacToe-v0", [f"[{i} {j}]" for i in range(9) for j in range(9)]),
        ("2048-v0", ["[Up]", "[Down]", "[Left]", "[Right]"]),
    ],
)
def test_no_legal_move_is_missing(game: str, texts: list[str]) -> None:
    env = marl_gem.make(f"ta:{game}", error_allowance=5)
    for seed in range(3):
        dice = random.Random(seed)
        env.reset(seed=seed)
        for _ in range(8):
            if env.done:
                break
            (agent,) = env.acting
            found = []
            for text in texts:
                fork = env.fork()
                *_, infos = fork.step({agent: text})
                found += [] if "illegal" in infos[agent] else [text]
            assert sorted(found) == sorted(env.legal_actions(agent) or [])
            env.step({agent: dice.choice(found)})


def test_legal_moves_are_those_of_the_player_to_move() -> None:
    env = marl_gem.make("ta:TicTacToe-v0")
    env.reset(seed=1)
    assert len(env.legal_actions("player_0") or []) == 9
    assert env.legal_actions("player_1") is None
    assert marl_gem.make("ta:SimpleNegotiation-v0").reset(seed=1)[1]["player_0"] == {}


# Randomness


def test_the_seed_decides() -> None:
    env = marl_gem.make("ta:PigDice-v0-short")
    assert play(env, seed=1) == play(marl_gem.make("ta:PigDice-v0-short"), seed=1)
    dealt = {marl_gem.make("ta:KuhnPoker-v0").reset(seed=seed)[0]["player_1"] for seed in range(20)}
    assert len(dealt) == 3


def test_global_generators_stay_as_they_are() -> None:
    numpy = pytest.importorskip("numpy")
    before = random.getstate(), numpy.random.get_state()[1].tolist()
    for game in ("PigDice-v0", "KuhnPoker-v0", "RushHour-v0", "TwoDollar-v0", "Set-v0", "Sokoban-v0", "Minesweeper-v0"):
        play(marl_gem.make(f"ta:{game}"), seed=5, steps=10)
    assert random.getstate() == before[0]
    assert numpy.random.get_state()[1].tolist() == before[1]


def test_others_draw_from_the_global_generator_as_ever() -> None:
    marl_gem.make("ta:PigDice-v0").reset(seed=1)
    shown, _ = by_hand("PigDice-v0", 2, 7, ["[roll]"] * 12)
    again, _ = by_hand("PigDice-v0", 2, 7, ["[roll]"] * 12)
    assert shown == again
    before = random.getstate()
    textarena.make("PigDice-v0-raw").reset(num_players=2, seed=7)
    assert random.getstate() != before
    random.setstate(before)
    with pytest.raises(AttributeError):  # what is put right for hosted games is so for them alone
        textarena.SinglePlayerState(1).set_winners(player_ids=[0], reason="")


def test_numpys_stand_in_draws_from_the_episode() -> None:
    numpy = pytest.importorskip("numpy")
    from marl_gem.scenarios.textarena.randomness import Dice, _Numpy

    stand_in, before = _Numpy(numpy), numpy.random.get_state()[1].tolist()
    draws = []
    for _ in range(2):
        with Dice(random.Random(3), 3):
            draws.append(stand_in.random.choice(1_000, size=5).tolist())
    assert draws[0] == draws[1]
    assert numpy.random.get_state()[1].tolist() == before
    assert stand_in.zeros(3).tolist() == [0.0, 0.0, 0.0]


def test_forty_games_in_eight_threads_equal_forty_games_in_a_row() -> None:
    games = ["PigDice-v0-short", "KuhnPoker-v0-long", "LiarsDice-v0", "Poker-v0", "Minesweeper-v0"]
    jobs = [(games[i % len(games)], i) for i in range(40)]

    def job(what: tuple[str, int]) -> list[Any]:
        return play(marl_gem.make(f"ta:{what[0]}"), what[1])

    in_a_row = [job(what) for what in jobs]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(job, jobs)) == in_a_row


@pytest.mark.slow
def test_processes_agree_whatever_the_order_of_their_sets() -> None:
    code = """
import hashlib, random
import marl_gem
for game in ("Taboo-v0", "MemoryGame-v0", "Poker-v0", "Set-v0", "LogicPuzzle-v0", "TwoDollar-v0", "Battleship-v0"):
    env = marl_gem.make(f"ta:{game}")
    observations, _ = env.reset(seed=9)
    print(game, repr([observations, [env.role(agent) for agent in env.agents]]))
"""
    assert run_python(code, PYTHONHASHSEED="1") == run_python(code, PYTHONHASHSEED="2")


def test_a_fork_goes_its_own_way() -> None:
    env = marl_gem.make("ta:PigDice-v0")
    env.reset(seed=3)
    finish(env, "[roll]")
    fork = env.fork()
    ahead = list(play_on(env, random.Random(1), 20))
    assert fork.steps == 1
    assert list(play_on(fork, random.Random(1), 20)) == ahead


def test_games_leave_their_arguments_and_roles_alone() -> None:
    kwargs = json.dumps(ENV_REGISTRY["Countdown-v0-raw"].kwargs)
    env: Any = marl_gem.make("ta:Countdown-v0")
    first = play(env, seed=1)
    play(marl_gem.make("ta:Othello-v0"), seed=1, steps=4)
    assert play(env, seed=1) == first
    assert json.dumps(ENV_REGISTRY["Countdown-v0-raw"].kwargs) == kwargs
    env = marl_gem.make("ta:TicTacToe-v0")
    env.reset(seed=1)
    env.game.state.role_mapping[0] = "Jester"
    env.reset(seed=1)
    assert env.game.state.role_mapping[0] == "Player 0"


def test_hosted_games_print_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for game in ("SettlersOfCatan-v0", "NewRecruit-v0", "SantoriniBaseFixed-v0", "FrozenLake-v0-hardcore"):
        play(marl_gem.make(f"ta:{game}"), seed=2, steps=20)
    assert capsys.readouterr().out == ""
