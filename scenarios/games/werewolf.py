"""Werewolf: wolves kill by night, a seer looks at players, and all talk and vote by day."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from marl_gem.env import MultiAgentEnv
from marl_gem.errors import InvalidOption
from marl_gem.messages import Channel
from marl_gem.selectors.phases import Phase, PhaseSelector
from marl_gem.types import Metadata, Role

LONGEST = 500
"""So many characters of what a player says are heard."""

NOBODY = "nobody"
PROMPTS = {
    "night": "Night. Say to the wolves whom to kill, with the name in brackets: {names}.",
    "vision": "Night. Whom do you look at? Answer with a name in brackets: {names}.",
    "talk": "Say something to everybody.",
    "vote": "Vote: whom does the village hang? Answer with a name in brackets: {names}.",
}
ROLES = {
    "wolf": "You are a wolf; the wolves are {wolves}. You win when as many wolves as others are left.",
    "seer": "You are the seer: each night you see of one player whether it is a wolf. You win when no wolf is left.",
    "villager": "You are a villager. You win when no wolf is left.",
}


class Werewolf(MultiAgentEnv):
    """Nights and days, until no wolf is left or as many wolves as others.

    By night the wolves hear one another and kill whom most of them name, or if they name nobody, somebody; the seer
    is shown whether a player is a wolf. By day everybody talks in turn, then all vote at once, and who is named most
    is hanged. Ties are broken by lot. The dead leave, and everybody hears whether they were wolves.

    Rewards, at the end: the winning side shares 1, the losing side -1, the dead too.

    Args:
        players: from 4 to 20.
        wolves: from 1 to less than half of the players.
        rounds: how often everybody speaks in a day, from 1 to 5.
    """

    selector: PhaseSelector
    metadata = Metadata(zero_sum=True, turn_order="mixed", reward_range=(-1.0, 1.0))
    channels: Mapping[str, Channel] = {"wolves": Channel(lambda env: env.wolves)}

    def __init__(self, players: int = 8, wolves: int = 2, rounds: int = 1) -> None:
        if not (4 <= players <= 20 and 1 <= wolves < players / 2 and 1 <= rounds <= 5):
            raise InvalidOption(
                f"Werewolf takes 4 to 20 players, wolves for less than half of them and 1 to 5 rounds, not {players}, "
                f"{wolves} and {rounds}"
            )
        self.possible_agents = tuple(f"player_{index}" for index in range(players))
        self.selector = PhaseSelector(
            Phase("night", group="wolves", together=True),
            Phase("vision", group="seer"),
            Phase("talk", rounds=rounds),
            Phase("vote", together=True),
        )
        self._number = wolves

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        *wolves, self.seer = self.rng.sample(self.possible_agents, self._number + 1)
        self.wolves = sorted(wolves)
        self.selector.groups |= {"wolves": self.wolves, "seer": [self.seer]}
        self.victim = ""
        for agent in self.agents:
            self.infos[agent] = {"team": "wolves" if agent in wolves else "village", "role": self.role_of(agent)}
        self.send(f"The village sleeps. The players: {', '.join(self.agents)}.")

    def role_of(self, agent: str) -> str:
        """An agent's role: "wolf", "seer" or "villager"."""
        return "wolf" if agent in self.wolves else "seer" if agent == self.seer else "villager"

    def role(self, agent: str) -> Role:
        text = ROLES[self.role_of(agent)].format(wolves=" and ".join(self.wolves))
        return Role(f"You play Werewolf, {len(self.wolves)} wolves among {len(self.possible_agents)}. {text}")

    def observe(self, agent: str) -> str:
        heard = "\n".join(map(str, self.new_messages(agent)))
        if self.terminations.get(agent):
            return heard
        names = ", ".join(self.legal_actions(agent) or ())
        return f"{heard}\n{PROMPTS[self.selector.phase].format(names=names)}".lstrip()

    def legal_actions(self, agent: str) -> list[str] | None:
        phase = self.selector.phase
        barred = {"night": self.wolves, "vision": [self.seer], "talk": self.agents, "vote": [agent]}[phase]
        names = [other for other in self.agents if other not in barred] + [NOBODY] * (phase == "vote")
        return None if phase == "talk" else [f"[{name}]" for name in names]

    def _process_actions(self, actions: dict[str, str]) -> None:
        if self.selector.phase == "talk":
            for agent, text in actions.items():
                self.send(text[:LONGEST], sender=agent)
            return
        named = {agent: self._named(agent, text) for agent, text in actions.items()}
        if self.selector.phase == "night":
            for wolf, text in actions.items():
                self.send(text[:LONGEST], to="wolves", sender=wolf)
            self.victim = self.rng.choice(_most(named.values()) or [a for a in self.agents if a not in self.wolves])
        elif self.selector.phase == "vision" and named[self.seer]:
            side = "a wolf" if named[self.seer] in self.wolves else "no wolf"
            self.send(f"You see that {named[self.seer]} is {side}.", to=self.seer)
        elif self.selector.phase == "vote":
            self.send("The votes: " + ", ".join(f"{agent} for {name or NOBODY}" for agent, name in named.items()) + ".")
            self._leave(self.rng.choice(_most(name or NOBODY for name in named.values())), "is hanged")
        if self.selector.phase == "vision" or (self.selector.phase == "night" and self.seer not in self.agents):
            self._leave(self.victim, "was killed in the night")

    def _named(self, agent: str, text: str) -> str:
        """The first player that an action names in brackets, if it may be named; else empty."""
        found = re.search(r"\[(\w{1,20})\]", text)
        if found and found[0] in (self.legal_actions(agent) or ()):
            return "" if found[1] == NOBODY else found[1]
        self.infos[agent]["illegal"] = f"{text[:80]!r} names none of {self.legal_actions(agent)}"
        return ""

    def _leave(self, agent: str, how: str) -> None:
        """A player dies, or nobody does; see whether the game is over."""
        if agent == NOBODY:
            return self.send("Nobody is hanged.")
        self.send(f"{agent} {how}; it was {'a' if agent in self.wolves else 'no'} wolf.")
        self.terminations[agent] = True
        left = [other for other in self.agents if other != agent]
        wolves = sum(other in self.wolves for other in left)
        if 0 < wolves < len(left) - wolves:
            return None
        self.send(f"The {'wolves' if wolves else 'village'} won. The wolves were {' and '.join(self.wolves)}.")
        self.terminations = dict.fromkeys(self.agents, True)
        others = len(self.possible_agents) - len(self.wolves)
        for player in self.possible_agents:
            wolf = player in self.wolves
            self.rewards[player] = (1 if wolf == bool(wolves) else -1) / (len(self.wolves) if wolf else others)
        return None

    def render(self) -> str:
        lines = [f"{self.selector.phase}: {', '.join(self.acting) or 'the game is over'}"]
        for agent in self.possible_agents:
            lines.append(f"{agent}  {self.role_of(agent)}{'' if agent in self.agents else ', has left'}")
        return "\n".join([*lines, *map(str, self.message_log[-3:])])


def _most(names: Iterable[str]) -> list[str]:
    """The names that come most often, without empty ones."""
    counts = Counter(filter(None, names))
    return sorted(name for name, count in counts.items() if count == max(counts.values()))
