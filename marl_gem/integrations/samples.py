"""What was played, in the shape that trainers want: token sequences with a mask, a reward, and advantages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from marl_gem.errors import ConfigError
from marl_gem.integrations.advantages import TurnAdvantages
from marl_gem.prefixes import prefix_groups
from marl_gem.types import Episode, Turn


class Sample(msgspec.Struct, frozen=True):
    """Turns of one agent in one episode, as one sequence of tokens.

    `prompt_ids` is the prompt of the first of these turns; `completion_ids` is all that follows, and `mask` is 1 where
    the model sampled it, and 0 for what it was shown between its turns. `logprobs` and `advantages` have a number for
    each of `completion_ids`, 0 where the mask is; `logprobs` is empty if the other side gave none. `reward` is the
    agent's return in the episode, the same for all of its samples. `turns` counts the turns in the sample.
    """

    episode: str
    scenario: str
    agent: str
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    mask: tuple[int, ...]
    logprobs: tuple[float, ...]
    advantages: tuple[float, ...]
    reward: float
    turns: int


def samples(
    episodes: Iterable[Episode], seats: Sequence[str] = (), advantages: TurnAdvantages | None = None
) -> list[Sample]:
    """The samples of these episodes, episode by episode and seat by seat; those that failed have none.

    A seat whose prompts extend one another has one sample in an episode, as with the view `chat`; otherwise it has
    several, as few as there can be.

    Args:
        episodes: played with a model that gives tokens in these seats.
        seats: by default all agents that took a turn.
        advantages: of each turn, see `turn_advantages`; 0 by default.

    Raises:
        ConfigError: a turn of these seats has no tokens.
    """
    found = []
    for episode in episodes:
        if episode.error is not None:
            continue
        for agent in seats or tuple(dict.fromkeys(turn.agent for turn in episode.turns)):
            turns = episode.turns_of(agent)
            if any(not (turn.response.prompt_ids and turn.response.token_ids) for turn in turns):
                raise ConfigError(
                    f"{agent!r} in episode {episode.id} answered without tokens, so nothing of it can be trained; give "
                    "SeatRunner the tokenizer, and let `generate` return Completion(token_ids=...)"
                )
            values = (advantages or {}).get((episode.id, agent), [0.0] * len(turns))
            for group in prefix_groups((turn.response.prompt_ids, turn.response.token_ids) for turn in turns):
                found.append(_sample(episode, agent, [turns[i] for i in group], [values[i] for i in group]))
    return found


def _sample(episode: Episode, agent: str, turns: Sequence[Turn], values: Sequence[float]) -> Sample:
    prompt = turns[0].response.prompt_ids
    ids, mask, logprobs, advantages = list(prompt), [0] * len(prompt), [0.0] * len(prompt), [0.0] * len(prompt)
    for turn, value in zip(turns, values, strict=True):
        shown, sampled = turn.response.prompt_ids[len(ids) :], turn.response.token_ids
        ids += [*shown, *sampled]
        mask += [0] * len(shown) + [1] * len(sampled)
        logprobs += [0.0] * len(shown) + list(turn.response.logprobs)
        advantages += [0.0] * len(shown) + [value] * len(sampled)
    start = len(prompt)
    complete = all(turn.response.logprobs for turn in turns)
    return Sample(
        episode=episode.id,
        scenario=episode.scenario,
        agent=agent,
        prompt_ids=prompt,
        completion_ids=tuple(ids[start:]),
        mask=tuple(mask[start:]),
        logprobs=tuple(logprobs[start:]) if complete else (),
        advantages=tuple(advantages[start:]),
        reward=episode.returns.get(agent, 0.0),
        turns=len(turns),
    )
