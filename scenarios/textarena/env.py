"""TextArena's games as a MultiAgentEnv.

A TextArena game is one object with the turn, a queue of messages for every player, and rewards at the end. The env
makes a fresh object for every episode, without TextArena's wrappers, passes it the mover's text, shows each player its
queued messages, and reads turns, errors, eliminations and rewards from its state. It changes no rules.
"""

from __future__ import annotations

import copy
import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

from marl_gem.env import MultiAgentEnv
from marl_gem.errors import InvalidOption, ScenarioFault, UnavailableScenario, UnknownScenario
from marl_gem.scenarios.textarena import catalog
from marl_gem.scenarios.textarena.legal import LEGAL
from marl_gem.scenarios.textarena.library import GAMES
from marl_gem.scenarios.textarena.randomness import Dice, isolate
from marl_gem.scenarios.textarena.rendering import ADMIN, BOARD, PROMPT, Message, as_lines, of_kind
from marl_gem.scenarios.textarena.state import eliminated, mend, starting, tags
from marl_gem.selectors.directed import DirectedSelector
from marl_gem.types import Metadata, Role

LONGEST = 4_000
"""The game reads this many characters of a text, from its end."""

View: TypeAlias = Literal["all", "board"]
Turn: TypeAlias = tuple[int, list[Message]]
"""The player to move, from 0, and its queued messages."""


class TextArenaEnv(MultiAgentEnv):
    """One of TextArena's games.

    Args:
        game: TextArena's id without suffix, for instance "TicTacToe-v0".
        num_players: the number of players; None: the fewest that the game works with.
        observe: "all" shows every message since the agent last acted, as "[GAME] ..." or "[Player 1] ...".
            "board" shows the newest board and the error in the agent's last move: short prompts for games whose
            board is their whole state. An agent that has not got a board sees all messages.
        error_allowance: the number of invalid moves in a row that only give a warning, from 0; the next one has the
            game's own consequences, mostly a loss. None: the game's own number, mostly 1.

    `infos[mover]["illegal"]` is the error in an invalid move, `infos[agent]["reason"]` is why the game ended for that
    agent. Games that deal roles and teams have them in the infos of `reset`. Rewards come at the end. An agent that the
    game eliminates is terminated at once; a reward that it gets at the end is only in `returns`.

    The game reads the last 4,000 characters of a text, because the time of some of its patterns grows with the square
    of the length or faster. `infos[mover]["clipped"]` is the number of characters that were left out.

    If a text makes the game's code raise, the game is played again up to there with an empty text in its place. If the
    empty text raises too, `step` raises ScenarioFault.

    Raises:
        InvalidOption: a value is not allowed.
        UnknownScenario, UnavailableScenario: TextArena has no such game, or cannot load it here.
        MissingPackage: TextArena is not installed.
    """

    selector = DirectedSelector()
    max_steps = 1000
    metadata = Metadata(turn_order="sequential")

    def __init__(
        self,
        game: str,
        num_players: int | None = None,
        *,
        observe: View = "all",
        error_allowance: int | None = None,
    ) -> None:
        if observe not in get_args(View):
            raise InvalidOption(f"ta:{game}: observe is one of {get_args(View)}, not {observe!r}")
        if error_allowance is not None and (not isinstance(error_allowance, int) or error_allowance < 0):
            raise InvalidOption(f"ta:{game}: error_allowance is a whole number from 0 up, not {error_allowance!r}")
        entry = catalog.entry(game)
        seats = range(_players(game, num_players, entry.players))
        self.possible_agents = tuple(f"player_{seat}" for seat in seats)
        self.blocking = catalog.waits(entry)
        if entry.zero_sum:
            self.metadata = Metadata(zero_sum=True, turn_order="sequential", reward_range=(-1.0, 1.0))
        self._seats = dict(zip(self.possible_agents, seats, strict=True))
        self._id, self._view, self._error_allowance = game, observe, error_allowance
        self._roles: dict[str, Role] = {}
        _factory(game)  # raises if something is missing

    # The contract

    def role(self, agent: str) -> Role:
        """The prompt that the game sends to this player at the start; no tools."""
        return self._roles.get(agent, Role())

    def observe(self, agent: str) -> str:
        text = self._shown.get(agent)
        return self._render(agent, self.game.state.observations[self._seats[agent]]) if text is None else text

    def render(self) -> str:
        """The game's own board, where it draws one."""
        try:
            board = copy.deepcopy(self.game).get_board_str()  # some draw into their state
        except Exception:  # it has none, or none at this moment
            board = None
        picture = super().render()
        return f"{picture.partition(chr(10))[0]}\n{board}" if isinstance(board, str) and board.strip() else picture

    def legal_actions(self, agent: str) -> list[str] | None:
        if self._legal is None or self.game.state.current_player_id != self._seats[agent]:
            return None
        return self._legal(self.game) or None  # in a few games a player can be without a legal move

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        self._history: list[str] = []
        self._shown: dict[str, str] = {}
        self._boards: dict[str, list[Message]] = {}
        turn = self._start()
        if self.game.state.done:
            raise ScenarioFault(f"ta:{self._id}: the game is over before the first move")
        self._legal = LEGAL.get(type(self.game).__name__)
        self._give_turn(turn)
        for agent, seat in self._seats.items():
            self.infos[agent] = tags(self.game, seat)

    def _process_actions(self, actions: dict[str, str]) -> None:
        ((agent, text),) = actions.items()
        del self._shown[agent]
        if len(text) > LONGEST:
            self.infos[agent]["clipped"] = len(text) - LONGEST
            text = text[-LONGEST:]
        try:
            turn = self._play(text)
        except Exception as error:
            if self.blocking:
                raise  # the service failed, not the text
            turn = self._take_back(agent, error)
        state = self.game.state
        if state.illegal is not None:
            self.infos[agent].setdefault("illegal", state.illegal)
            state.illegal = None
        if turn is None:
            self._finish(state)
        else:
            if self._may_eliminate:
                self._eliminate(turn[0])
            self._give_turn(turn)

    # The game

    def _start(self) -> Turn:
        """Make and reset a fresh game with this episode's seed; the first turn."""
        self._dice = Dice(self.rng, self.seed)
        with self._dice:
            self.game = game = _factory(self._id)()
            with starting(game):
                game.reset(num_players=len(self._seats), seed=self.seed)
            state = game.state
            state.illegal = None
            state.role_mapping = dict(state.role_mapping)  # TextArena shares one default dict between games
            if self._error_allowance is not None:
                state.error_allowance = self._error_allowance
            for agent, seat in self._seats.items():
                messages = state.observations[seat]
                self._roles[agent] = Role("\n\n".join(text for _, text, kind in messages if kind is PROMPT))
                state.observations[seat] = [message for message in messages if message[2] is not PROMPT]
            self._may_eliminate = len(self._seats) > 2 or hasattr(state, "elimination_order")
            return game.get_observation()  # type: ignore[no-any-return]

    def _play(self, text: str) -> Turn | None:
        """Pass the mover's text to the game; the next turn, None if the game is over."""
        game = self.game
        with self._dice:
            done, _ = game.step(text)
            turn = None if done or game.state.done else game.get_observation()
        self._history.append(text)
        return turn

    def _take_back(self, agent: str, error: Exception) -> Turn | None:
        """An action made the game raise: replay the episode up to there and play an empty text instead."""
        history, self._history = self._history, []
        self.rng.seed(self.seed)
        self._start()
        for text in history:
            self._play(text)
        self.infos[agent]["illegal"] = f"The game could not read this action ({type(error).__name__}: {error})."
        return self._play("")

    def _give_turn(self, turn: Turn) -> None:
        """Show the player to move its queued messages."""
        seat, messages = turn
        agent = self.possible_agents[seat]
        if self.terminations.get(agent, True):
            raise ScenarioFault(f"ta:{self._id} gives the turn to {agent!r}, whom it has eliminated")
        self._shown[agent] = self._render(agent, messages) or "[GAME] It is your turn."
        if self._view == "board" and (board := of_kind(messages, BOARD)[-1:]):
            self._boards[agent] = board
        self.selector.direct(agent)

    def _eliminate(self, mover: int) -> None:
        """Terminate the agents that the game has eliminated, except the one to move."""
        for seat in eliminated(self.game) - {mover}:
            agent = self.possible_agents[seat]
            if agent in self.terminations:
                self.terminations[agent] = True
                self.infos[agent]["reason"] = "Eliminated."

    def _finish(self, state: Any) -> None:
        """Set the rewards of all players, also of eliminated ones, and terminate the agents."""
        if not isinstance(state.rewards, Mapping):
            raise ScenarioFault(f"ta:{self._id} ended and gave the rewards {state.rewards!r}, not one for each player")
        for seat, reward in state.rewards.items():
            if seat not in self._seats.values():
                raise ScenarioFault(f"ta:{self._id} rewards a player {seat!r}, who is not in the game")
            self.rewards[self.possible_agents[seat]] = reward
        for agent in self.terminations:
            self.terminations[agent] = True
            self.infos[agent]["reason"] = str(state.game_info[self._seats[agent]].get("reason") or "The game is over.")

    def _render(self, agent: str, messages: Sequence[Message]) -> str:
        if self._view == "board" and (board := of_kind(messages, BOARD)[-1:] or self._boards.get(agent)):
            messages = [*board, *of_kind(messages, ADMIN)]
        return as_lines(messages, self._seats[agent], self.game.state.role_mapping, len(self._seats) == 1)


def _players(game: str, wanted: int | None, possible: Sequence[int]) -> int:
    if wanted is None and possible:
        return possible[0]
    if not isinstance(wanted, int) or wanted < 1 or (possible and wanted not in possible):
        bounds = f"{' or '.join(map(str, possible))} players" if possible else "num_players from 1 up"
        raise InvalidOption(f"ta:{game} is for {bounds}, not {wanted!r}")
    return wanted


@functools.cache
def _factory(game: str) -> Callable[[], Any]:
    """A function that makes a fresh game, with its module imported and its randomness isolated."""
    spec = GAMES.get(f"{game}-raw") or GAMES.get(game)
    if spec is None:
        raise UnknownScenario(f"TextArena has no game {game!r}; marl_gem.list('ta') shows all")
    made_by = spec.entry_point
    if isinstance(made_by, str):
        module, _, name = made_by.partition(":")
        try:
            made_by = getattr(importlib.import_module(module), name)
        except Exception as error:  # a module may raise anything, for instance NLTK's LookupError
            raise UnavailableScenario(f"ta:{game} cannot be loaded: {type(error).__name__}: {error}") from error
    isolate()
    mend()
    if all(isinstance(value, int | float | str | None) for value in spec.kwargs.values()):
        return functools.partial(made_by, **spec.kwargs)
    return lambda: made_by(**copy.deepcopy(spec.kwargs))  # games may change their arguments
