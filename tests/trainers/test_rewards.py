"""Rewards that a policy is trained with in place of the scenario's, and partners that are hosted elsewhere."""

from __future__ import annotations

import asyncio
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import fmean, pstdev
from typing import Any

import pytest

from marl_gem.errors import ConfigError, MarlGemError, TrainingError
from marl_gem.trainers.config import parse
from marl_gem.trainers.config_text import to_toml
from marl_gem.trainers.measurement import measure
from marl_gem.trainers.rewards import SeatEpisodes, SeatReward, curriculum
from marl_gem.trainers.start import start
from marl_gem.types import Episode
from tests.fake_server import FakeServer, status
from tests.trainers.support import babble, desk, kuhn, warmed_up


def pair(*assignments: str) -> Any:
    """One policy for each of two seats, and random play in the third."""
    return babble("Babble", {"a": "one", "b": "two", "c": "random"}, "imitation.steps=0", *assignments)


def by_hand(episodes: list[Episode], seat: str, rewards: list[float]) -> dict[tuple[int, ...], float]:
    """The sum of advantages by per-agent ReBN at each answer, where all turns of an episode return its reward."""
    turns = [(turn.response, reward) for e, reward in zip(episodes, rewards, strict=True) for turn in e.turns_of(seat)]
    returns = [reward for _, reward in turns]
    sums: dict[tuple[int, ...], float] = {}
    for response, reward in turns:
        key = response.prompt_ids + response.token_ids
        sums[key] = sums.get(key, 0.0) + (reward - fmean(returns)) / pstdev(returns)
    return sums


def credited(rows: list[Any]) -> dict[tuple[int, ...], float]:
    """The sum of advantages that was learned from at each row's last token."""
    return {row.ids: row.advantages[-1] for row in rows}


def played(success: float, group: str) -> Episode:
    infos = {"user": {"success": False}, "assistant": {"success": bool(success)}}
    returns = {"user": 5.0, "assistant": success}
    return Episode(id=group, scenario="x", seed=0, turns=(), returns=returns, final_infos=infos, ending="terminated")


def first_turns(batch: SeatEpisodes, factor: float = 1.0, shift: float = 0.0) -> list[float]:
    """For the tests: the first token of the seat's first answer."""
    return [factor * episode.turns_of(batch.seat)[0].response.token_ids[0] + shift for episode in batch.episodes]


def broken(batch: SeatEpisodes) -> list[float]:
    return [float("nan")] * len(batch.episodes)


class TestCurriculum:
    def test_by_hand(self) -> None:
        given = [(1, "x"), (0, "y"), (1, "x"), (0, "x"), (1, "x"), (0, "y")]
        episodes = [played(success, group) for success, group in given]
        groups = [group for _, group in given]
        expected = {0.5: [0.75, 0.5, 0.75, 0.75, 0.75, 0.5], 0.75: [1.0, 0.25, 1.0, 1.0, 1.0, 0.25]}
        for target, rewards in expected.items():
            assert curriculum(SeatEpisodes("user", episodes, groups), target) == rewards

    def test_a_group_is_rewarded_alike_and_advantages_compare_groups(self, steps: list[dict[str, Any]]) -> None:
        seats = 'seats={player_0 = "one", player_1 = "two"}'
        tables = ("training.group_size=4", "policies.two.reward=curriculum=0.5", "training.opponent_pool_fraction=0")
        loop, _ = warmed_up(kuhn(seats, *tables))
        steps.clear()
        metrics, episodes = loop.update()
        won = [float(episode.returns["player_0"] > 0) for episode in episodes]
        rewards = [1 - abs(fmean(won[index - index % 4 :][:4]) - 0.5) for index in range(16)]
        assert metrics["reward/player_1"] == pytest.approx(fmean(rewards)) and "reward/player_0" not in metrics
        assert len(set(rewards)) > 1
        assert credited(steps[1]["rows"]) == pytest.approx(by_hand(episodes, "player_1", rewards))

    @pytest.mark.parametrize(
        ("algorithm", "complaint"),
        [("{name = 'grpo', options = {group_size = 4}}", "GRPO, which compares these, learns nothing"), ("rebn", None)],
    )
    def test_what_compares_the_episodes_of_a_group_would_learn_nothing(
        self, algorithm: str, complaint: str | None
    ) -> None:
        tables = (
            f"policies.user.algorithm={algorithm}",
            "policies.user.reward=curriculum=0.5",
            "training.group_size=4",
        )
        if complaint is None:
            assert desk(*tables).training.group_size == 4
        else:
            with pytest.raises(ConfigError, match=complaint):
                desk(*tables)


@pytest.mark.usefixtures("babble_games")
class TestOwnRewards:
    def test_a_function_from_a_module_replaces_the_rewards_of_its_seat_alone(self, steps: list[dict[str, Any]]) -> None:
        reward = f"policies.two.reward={__name__}:first_turns=2,shift=1"
        metrics, episodes = start(pair(reward, "training.gamma=1"))[0].update()
        expected = [2.0 * episode.turns_of("b")[0].response.token_ids[0] + 1 for episode in episodes]
        assert metrics["reward/b"] == pytest.approx(fmean(expected))
        assert metrics["return/b"] == pytest.approx(fmean(episode.returns["b"] for episode in episodes))
        assert credited(steps[1]["rows"]) == pytest.approx(by_hand(episodes, "b", expected))

    @pytest.mark.parametrize(
        ("reward", "complaint"),
        [
            ("no.module:f", "no.module:f' cannot be imported: ModuleNotFoundError"),
            (f"{__name__}:first_turns,speed=1", "has no option 'speed'; it takes factor, shift"),
            (f"{__name__}:broken=1", "takes no options"),
        ],
    )
    def test_what_cannot_be_called_is_an_error_before_the_run(self, reward: str, complaint: str) -> None:
        with pytest.raises(ConfigError, match=complaint):
            pair(f"policies.two.reward={reward}")

    def test_a_function_gives_one_finite_number_for_each_episode(self) -> None:
        reward = SeatReward.parse(f"{__name__}:broken")
        assert reward is not None
        with pytest.raises(TrainingError, match="one finite number for each of the 2 episodes of 'user'"):
            reward(SeatEpisodes("user", [played(1, "x")] * 2, ["x", "x"]))

    def test_tables_are_written_as_toml_and_read_back(self) -> None:
        config = pair("policies.two.reward=curriculum=0.5", "training.group_size=3", "policies.one.algorithm=rae")
        assert parse(tomllib.loads(to_toml(config)), "test") == config


@contextmanager
def served(server: FakeServer) -> Iterator[FakeServer]:
    """The server on an event loop of its own, in a thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(server.start(), loop).result(10)
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


@pytest.mark.usefixtures("babble_games")
class TestHostedPartner:
    def test_it_plays_in_training_and_measurement_and_its_failures_teach_nothing(
        self, steps: list[dict[str, Any]]
    ) -> None:
        server = FakeServer(*[status(400, "no such thing")] * 3, answer=lambda body: "yes")
        with served(server):
            seats = {"a": "one", "b": "one", "c": f"tiny@{server.url},wait=0.1"}
            loop = start(babble("Babble", seats, "imitation.steps=0"))[0]
            first, episodes = loop.update()
            assert (first["failed"], first["episodes_played"]) == (3, 6)
            assert steps[0]["denominator"] == 6 * 4
            assert all(e.turns_of("c")[0].response.text == "yes" for e in episodes if e.error is None)
            second, _ = loop.update()
            assert (second["failed"], second["episodes_played"]) == (0, 9)
            server.script.append(status(400, "no such thing"))
            measured, _ = measure(loop, 4, "final")
            (matchup,) = measured.matchups
            assert matchup.failed == 1 and {counts.games for counts in matchup.agents.values()} == {3}
        with pytest.raises(MarlGemError, match="every episode of test:Babble-v0 failed"):
            loop.update()
        assert loop.updates == 2
