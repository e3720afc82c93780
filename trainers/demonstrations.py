"""Episodes to imitate, played by random legal play or by the policies that the configuration names for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from marl_gem.errors import ConfigError
from marl_gem.llm.models import Models
from marl_gem.llm.transformers import TransformersLLM
from marl_gem.prefixes import prefix_groups
from marl_gem.rollout import Job, collect
from marl_gem.seeding import derive_seed
from marl_gem.specs import load_policy
from marl_gem.trainers.batch import Trajectory, Transition, completed
from marl_gem.trainers.schedule import shares
from marl_gem.trainers.sections import TrainConfig
from marl_gem.types import Episode, Observation
from marl_gem.views import Exchange, View


def collect_demonstrations(config: TrainConfig) -> list[list[Episode]]:
    """For each scenario its demonstrations, as many as the configuration asks for, less those that failed."""
    counts = shares(config.imitation.episodes, [scenario.weight for scenario in config.scenarios])
    models = Models(wait=config.wait)
    found, index = [], 0
    for scenario, count in zip(config.scenarios, counts, strict=True):
        spec = scenario.spec
        seating = {
            agent: load_policy(config.imitation.seats.get(agent, "random"), spec, agents=(agent,), models=models)
            for agent in spec.inspect().agents
        }
        seeds = [derive_seed(config.seed, "random game", index + episode) for episode in range(count)]
        found.append(
            completed(collect(spec.make, [Job(seed, seating, options=scenario.reset) for seed in seeds], warn=False))
        )
        index += count
    return found


def demonstration_texts(demonstrations: Iterable[Episode]) -> list[str]:
    """What a tokenizer for these should know: instructions (each once), observations and responses."""
    demonstrations = list(demonstrations)
    instructions = dict.fromkeys(role.instructions for episode in demonstrations for role in episode.roles.values())
    turns = [turn for episode in demonstrations for turn in episode.turns]
    texts = [text for turn in turns for text in (*_texts(turn.observation), turn.response.text)]
    return [*instructions, *texts]


def demonstration_trajectories(
    demonstrations: Iterable[Episode], agents: Iterable[str], llm: TransformersLLM, view: View
) -> list[Trajectory]:
    """The turns of these agents as transitions with advantage 1.

    Turns of one agent whose prompts extend one another form a trajectory, so that they share a row.

    Args:
        demonstrations: episodes of one scenario.
        agents: whose turns are imitated.
        llm: the model that is to imitate them; it gives the tokens of messages.
        view: what the model will be shown.

    Raises:
        ConfigError: a turn is longer than what the model reads.
    """
    agents = set(agents)
    found: list[tuple[int, Trajectory]] = []
    for episode in demonstrations:
        order: dict[str, list[int]] = {}  # for each agent the indices of its turns
        for index, turn in enumerate(episode.turns):
            if turn.agent in agents:
                order.setdefault(turn.agent, []).append(index)
        in_episode: list[tuple[int, Trajectory]] = []
        for agent, indices in order.items():
            transitions = _transitions(episode, agent, llm, view)
            for group in prefix_groups((t.prompt_ids, t.action_ids) for t in transitions):
                in_episode.append((indices[group[0]], [transitions[turn] for turn in group]))
        found += sorted(in_episode, key=lambda entry: entry[0])
    return [trajectory for _, trajectory in found]


def _transitions(episode: Episode, agent: str, llm: TransformersLLM, view: View) -> Trajectory:
    """All turns of an agent in one episode."""
    role, history = episode.roles[agent], list[Exchange]()
    transitions = []
    for index, turn in enumerate(episode.turns_of(agent)):
        prompt = llm.encode(view(role, [*history, Exchange(turn.observation, None)]), role.tools)
        history.append(Exchange(turn.observation, turn.response))
        response = llm.encode_answer(turn.response.text)
        if len(prompt) + len(response) > llm.context:
            raise ConfigError(
                f"a turn of {agent!r} to imitate has {len(prompt)} + {len(response)} tokens, but {llm.name} reads "
                f"{llm.context}; set policy.context higher, or a policy.view that shows less"
            )
        transitions.append(
            Transition(
                episode=episode.id,
                group=episode.id,
                turn=index,
                scenario=episode.scenario,
                agent=agent,
                prompt_ids=prompt,
                action_ids=response,
                logprobs=(0.0,) * len(response),
                version=0,
                reward=0.0,
                return_=0.0,
                advantage=1.0,
            )
        )
    return transitions


def _texts(observation: Observation) -> Sequence[str]:
    if isinstance(observation, str):
        return [observation]
    return [part["text"] for part in observation if "text" in part]
