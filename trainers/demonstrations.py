"""Episodes to imitate: played by random legal play, or by the policies that the configuration seats for it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from marl_gem.errors import ConfigError
from marl_gem.llm.transformers import TransformersLLM
from marl_gem.rollout import Job, collect
from marl_gem.seeding import derive_seed
from marl_gem.trainers.config import TrainConfig
from marl_gem.trainers.seating import training_ground
from marl_gem.trainers.transitions import Trajectory, Transition, whole
from marl_gem.types import Episode, Observation
from marl_gem.views import Exchange, View


def play(config: TrainConfig) -> Sequence[Episode]:
    """As many demonstrations as the configuration asks for, less those that failed."""
    ground = training_ground(config)
    seating = {agent: ground.fixed(config.imitation.seats.get(agent, "random")) for agent in ground.agents}
    jobs = [Job(derive_seed(config.seed, "random game", game), seating) for game in range(config.imitation.games)]
    return whole(collect(ground.make, jobs))


def texts(demonstrations: Sequence[Episode]) -> list[str]:
    """What a tokenizer for these should know: instructions (each once), observations and answers."""
    told = dict.fromkeys(role.instructions for one in demonstrations for role in one.roles.values())
    turns = [turn for one in demonstrations for turn in one.turns]
    spoken = [text for turn in turns for text in (*_shown(turn.observation), turn.response.text)]
    return [*told, *spoken]


def stretches(
    demonstrations: Iterable[Episode], agents: Collection[str], llm: TransformersLLM, view: View
) -> list[Trajectory]:
    """The turns of these agents as transitions that are worth imitating: advantage 1.

    Turns of one agent whose prompts extend one another are together, so that they are read at once.

    Args:
        llm: the model that is to imitate them; it tells how messages become tokens.
        view: what the model will be shown.

    Raises:
        ConfigError: one is longer than what the model reads.
    """
    found: list[Trajectory] = []
    for episode in demonstrations:
        histories: dict[str, list[Exchange]] = {}
        newest: dict[str, Trajectory] = {}
        for turn in episode.turns:
            agent = turn.agent
            if agent not in agents:
                continue
            role, history = episode.roles[agent], histories.setdefault(agent, [])
            prompt = llm.encode(view(role, [*history, Exchange(turn.observation, None)]), role.tools)
            history.append(Exchange(turn.observation, turn.response))
            if agent not in newest or not _extends(prompt, newest[agent][-1]):
                newest[agent] = []
                found.append(newest[agent])
            answer = llm.encode_answer(turn.response.text)
            if len(prompt) + len(answer) > llm.context:
                raise ConfigError(
                    f"a turn of {agent!r} to imitate has {len(prompt)} + {len(answer)} tokens, but {llm.name} reads "
                    f"{llm.context}; set policy.context higher, or a policy.view that shows less"
                )
            newest[agent].append(_worth_imitating(episode.scenario, agent, prompt, answer))
    return found


def _extends(prompt: tuple[int, ...], before: Transition) -> bool:
    shown = before.prompt_ids + before.action_ids
    return prompt[: len(shown)] == shown


def _worth_imitating(scenario: str, agent: str, prompt: tuple[int, ...], answer: tuple[int, ...]) -> Transition:
    return Transition(
        scenario=scenario,
        agent=agent,
        prompt_ids=prompt,
        action_ids=answer,
        logprobs=(0.0,) * len(answer),
        version=0,
        reward=0.0,
        value=0.0,
        advantage=1.0,
    )


def _shown(observation: Observation) -> list[str]:
    """The texts of an observation."""
    if isinstance(observation, str):
        return [observation]
    return [part["text"] for part in observation if "text" in part]
