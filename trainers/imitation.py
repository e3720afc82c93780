"""The warm start: a fresh model learns to answer at all, by imitating random legal play."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from marl_gem.errors import MarlGemError
from marl_gem.llm.transformers import TransformersLLM
from marl_gem.trainers.learner import Learner
from marl_gem.trainers.transitions import Transition, merge
from marl_gem.types import Episode, Role
from marl_gem.views import Exchange, View


def imitate(
    learner: Learner,
    llm: TransformersLLM,
    view: View,
    episodes: Sequence[Episode],
    roles: dict[str, Role],
    *,
    steps: int,
    batch: int,
    learning_rate: float,
    seed: int,
) -> Iterator[dict[str, float]]:
    """Train `learner` to give the answers of `episodes`, and yield each step's metrics.

    Every step learns from `batch` turns drawn at random; `loss` is the cross-entropy a turn, in nats. The
    learning rate falls linearly to a tenth.

    Args:
        llm: the model that is trained; it tells how messages become tokens.
        view: what the model will be shown.
        roles: what each agent was told before its first turn.
    """
    turns = [turn for episode in episodes for turn in _demonstrations(llm, view, episode, roles)]
    rng = random.Random(seed)
    for step in range(steps):
        rows = merge([turn] for turn in rng.choices(turns, k=batch))
        rate = learning_rate * (1 - 0.9 * step / steps)
        yield learner.update(rows, learning_rate=rate, denominator=batch)


def example_texts(episodes: Sequence[Episode], roles: dict[str, Role]) -> list[str]:
    """What a tokenizer for these episodes should know: instructions, observations and answers."""
    spoken = [text for e in episodes for t in e.turns for text in (t.observation, t.response.text)]
    return [role.instructions for role in roles.values()] + [text for text in spoken if isinstance(text, str)]


def check_played(episodes: Sequence[Episode]) -> Sequence[Episode]:
    """The same episodes, if all were played to their end.

    Raises:
        MarlGemError: one failed; the message tells its error.
    """
    for episode in episodes:
        if (error := episode.error) is not None:
            raise MarlGemError(f"a game of {episode.scenario} failed in {error.origin} ({error.type}): {error.message}")
    return episodes


def _demonstrations(llm: TransformersLLM, view: View, episode: Episode, roles: dict[str, Role]) -> Iterator[Transition]:
    """Every turn of an episode as a transition that is worth imitating: advantage 1."""
    histories: dict[str, list[Exchange]] = {}
    for turn in episode.turns:
        history = histories.setdefault(turn.agent, [])
        messages = view(roles[turn.agent], [*history, Exchange(turn.observation, None)])
        history.append(Exchange(turn.observation, turn.response))
        answer = llm.encode_answer(turn.response.text)
        yield Transition(
            scenario=episode.scenario,
            agent=turn.agent,
            prompt_ids=llm.encode(messages),
            action_ids=answer,
            logprobs=(0.0,) * len(answer),
            version=0,
            reward=turn.reward,
            value=0.0,
            advantage=1.0,
        )
