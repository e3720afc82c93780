"""A Lewis signalling game: a sender sees a state, a receiver hears a signal, and nothing says what a signal means.

Two who play well have made a code; which one is chance, so that partners who have never met agree in 1 of n cases
(Lewis, Convention, 1969). Reinforcement learners often end in partial pooling, where two states share a signal
(Barrett, 2006).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log2
from typing import Any

from marl_gem.analysis import Node, Strategy
from marl_gem.env import MultiAgentEnv
from marl_gem.errors import InvalidOption
from marl_gem.policies import ScriptedPolicy
from marl_gem.policies.base import Info
from marl_gem.selectors.sequential import SequentialSelector
from marl_gem.types import Metadata, Observation, Role

STATES = ("red", "green", "blue", "white", "black", "brown", "pink", "gold")
SIGNALS = ("ba", "di", "ku", "lo", "me", "ri", "so", "tu")


class Signalling(MultiAgentEnv):
    """One round: the sender answers with a signal in brackets, the receiver with a state.

    Rewards: 1 to both if the receiver names the state, else 0. An answer that is none of the listed ones is illegal and
    ends the game with 0.

    Args:
        states: how many states and signals, from 2 to 8. A code that is agreed on earns 1, chance 1 / states.
    """

    possible_agents = ("sender", "receiver")
    selector = SequentialSelector()
    metadata = Metadata(turn_order="sequential", reward_range=(0.0, 1.0))

    def __init__(self, states: int = 3) -> None:
        if not 2 <= states <= len(STATES):
            raise InvalidOption(f"Signalling takes 2 to {len(STATES)} states, not {states}")
        self.answers = {
            "sender": [f"[{signal}]" for signal in SIGNALS[:states]],
            "receiver": [f"[{state}]" for state in STATES[:states]],
        }
        self.possible_actions = (*self.answers["sender"], *self.answers["receiver"])

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        self.state = self.rng.choice(self.answers["receiver"])
        self.send(f"You see {self.state[1:-1]}.", to="sender")

    def role(self, agent: str) -> Role:
        task = {
            "sender": "You see a colour and send a signal, which the other hears",
            "receiver": "You hear a signal of the other, who sees a colour, and name that colour",
        }[agent]
        return Role(f"{task}. Both win if the colour is named. Answer with one of {', '.join(self.answers[agent])}.")

    def legal_actions(self, agent: str) -> Sequence[str]:
        return list(self.answers[agent])

    def render(self) -> str:
        signals = [message.text for message in self.message_log if message.sender == "sender"]
        return f"The state: {self.state}. The signal: {signals[0] if signals else 'none yet'}. Returns: {self.returns}"

    def _process_action(self, agent: str, action: str) -> None:
        answer = next((answer for answer in self.answers[agent] if answer in action), "")
        if not answer:
            self.infos[agent]["illegal"] = f"{action[:80]!r} has none of {', '.join(self.answers[agent])}"
        if agent == "sender" and answer:
            self.send(answer, to="receiver", sender="sender")
            return
        right = answer == self.state
        self.send(f"{'Right' if right else 'Wrong'}: it was {self.state[1:-1]}.")
        self.rewards = dict.fromkeys(self.agents, float(right))
        self.terminations = dict.fromkeys(self.agents, True)


def policy(scenario: str, options: Mapping[str, Any]) -> ScriptedPolicy:
    """The policy behind `scripted:code`: the first signal means the first state, and so on."""
    words = dict(zip((*STATES, *SIGNALS), (*SIGNALS, *STATES), strict=True))

    def answer(observation: Observation, info: Info) -> str:
        word = str(observation).rstrip(".]").rpartition(" ")[2].lstrip("[")
        return f"[{words.get(word, SIGNALS[0])}]"

    return ScriptedPolicy(answer, "scripted:code")


def analyse(env: MultiAgentEnv, strategy: Strategy) -> dict[str, float]:
    """The registered analysis of two policies, the sender's and the receiver's.

    Args:
        env: a fresh env, which is reset.
        strategy: the policies' probabilities.

    Returns:
        `success`: the probability that both win; `information`: what the signal says about the state, in bits, from 0
        to log2 of the number of states; `illegal`: the greatest probability of an illegal answer.
    """
    sends: dict[str, Mapping[str, float]] = {}
    hears: dict[str, Mapping[str, float]] = {}
    seed = 0
    while len(sends) < len(env.possible_actions or ()) / 2:
        env.reset(seed=seed)
        seed += 1
        node = Node(env)
        assert isinstance(node.state, Signalling)
        if node.state.state in sends:
            continue
        decision = node.decision("sender")
        sends[node.state.state] = strategy(decision)
        for signal in decision.actions if not hears else ():
            hears[signal] = strategy(node.child({"sender": signal}).decision("receiver"))
    number = len(sends)
    success = sum(sends[state].get(signal, 0.0) * hears[signal].get(state, 0.0) for state in sends for signal in hears)
    shares = {signal: sum(sent.get(signal, 0.0) for sent in sends.values()) / number for signal in hears}
    information = sum(
        p / number * log2(p / shares[signal])
        for sent in sends.values()
        for signal in hears
        if (p := sent.get(signal, 0.0)) > 0
    )
    illegal = max(1 - sum(given.values()) for given in (*sends.values(), *hears.values()))
    return {"success": success / number, "information": information, "illegal": max(illegal, 0.0)}
