"""Runs, episodes and transcripts in a terminal; on a pipe as plain lines that other programs can read.

A list on a pipe has tabs between its columns and is never cut; a transcript has neither colours nor wrapped lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from marl_gem.errors import RecordError
from marl_gem.runs.index import Entry, Summary
from marl_gem.runs.library import RunLibrary
from marl_gem.runs.parts import Part
from marl_gem.runs.reader import RunReader
from marl_gem.types import Episode
from marl_gem.viewer.overview import Overview, overview
from marl_gem.viewer.transcript import ShownEnd, ShownRole, ShownTurn, transcript

COLOURS = ("blue", "dark_orange3", "dark_cyan", "magenta", "yellow4", "medium_purple3", "red3", "steel_blue")

SHORT = 200
"""How many characters of a call's arguments, or of instructions, stand in one line."""

_HIDDEN = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u202a-\\u202e\\u2066-\\u2069\\ud800-\\udfff]")


def visible(text: str) -> str:
    """Text that does nothing to a terminal: control characters, and those that no file can hold, by their number."""
    return _HIDDEN.sub(lambda found: f"[U+{ord(found[0]):04X}]", text)


def show_runs(out: Console, library: RunLibrary) -> None:
    """All runs, the newest first."""
    rows = []
    for run in library.runs().values():
        told = overview(run.entries())
        seats = ", ".join(f"{seat.agent} {_percent(seat.won, seat.won + seat.drew + seat.lost)}" for seat in told.seats)
        counts = (told.episodes, told.errors, told.owed, told.broken)
        rows.append([run.name, ", ".join(told.scenarios), *map(str, counts), seats])
        run.close()
    _table(out, ["run", "scenario", "episodes", "errors", "owed", "broken", "won"], rows)


def show_episodes(out: Console, run: RunReader, entries: Sequence[Entry], most: int | None = None) -> None:
    """Some episodes of a run, after a few lines about the whole.

    Args:
        out: where to.
        run: the run.
        entries: what to list.
        most: how many lines at most; None lists all.
    """
    told = overview(run.entries())
    agents = [seat.agent for seat in told.seats]
    if out.is_terminal:
        out.print(_heading(run, told))
    names = ["#", "episode", *agents, "end", "turns", "tokens", "cost", "seconds"]
    _table(out, names, [_row(entry, agents) for entry in entries[:most]])
    if (hidden := len(entries) - len(entries[:most])) and out.is_terminal:
        out.print(f"[dim]{hidden} more; -n 0 lists all[/]")


def show_transcript(out: Console, run: RunReader, entry: Entry, agent: str = "") -> None:
    """One episode, as the whole table sees it or as one agent does.

    What agents were told before their first turns, which may be pages, is told in a few lines to the whole table.

    Raises:
        RecordError: there is no such agent in it, or the line is no episode.
    """
    if not entry.summary:
        raise RecordError(f"line {entry.key} of {run.file_of(entry).path}: {entry.broken}")
    episode = run.read(entry)
    agents = list(episode.returns | episode.models | {turn.agent: "" for turn in episode.turns})
    if agent and agent not in agents:
        raise RecordError(f"there is no agent {agent!r} in episode {episode.id}; its agents are {', '.join(agents)}")
    styles = {name: f"bold {COLOURS[place % len(COLOURS)]}" for place, name in enumerate(agents)}
    shown = transcript(episode, agent)
    for line in _facts(entry, episode, styles):
        _print(out, line)
    for role in shown.roles:
        _show_role(out, role, styles.get(role.agent, "bold"), in_full=bool(agent))
    for turn in shown.turns:
        _show_turn(out, turn, styles[turn.agent])
    for end in shown.ends:
        _show_end(out, end, styles.get(end.agent, "bold"))


def _heading(run: RunReader, told: Overview) -> str:
    seats = [
        f"{escape(visible(seat.agent))} ({escape(visible(', '.join(seat.models)))}) won "
        f"[bold]{_percent(seat.won, seat.won + seat.drew + seat.lost)}[/], mean return {seat.mean_return:+.3g}"
        for seat in told.seats
    ]
    faults = f"{told.errors} errors, {told.owed} owed, {told.cut} cut by a limit, {told.illegal} with illegal moves"
    return "\n".join([f"[bold]{escape(visible(run.name))}[/]: {told.episodes} episodes, {faults}", *seats, ""])


def _row(entry: Entry, agents: Sequence[str]) -> list[str]:
    if not (episode := entry.summary):
        return [entry.key, entry.broken]
    returns = [_return(episode, agent) for agent in agents]
    cost = "" if episode.cost is None else f"${episode.cost:.4f}"
    numbers = [str(episode.turns), str(episode.tokens), cost, f"{episode.seconds:.1f}"]
    return [entry.key, episode.id, *returns, _ending(entry, episode), *numbers]


def _return(episode: Summary, agent: str) -> str:
    if agent not in episode.returns:
        return ""
    return f"{episode.returns[agent]:+g} {episode.outcomes.get(agent, '')}".strip()


def _ending(entry: Entry, episode: Summary) -> str:
    told = ["failed attempt"] if entry.key.startswith("e") else []
    told += [f"{episode.error.origin}: {episode.error.type}"] if episode.error else []
    told += [f"limit: {episode.limit}"] if episode.limit else []
    told += ["illegal"] if episode.illegal else []
    return ", ".join(told) or episode.ending


def _table(out: Console, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if not out.is_terminal:
        lines = [
            "\t".join(visible(cell).replace("\t", " ").replace("\n", " ") for cell in row) for row in [names, *rows]
        ]
        _plain(out, "\n".join(lines))
        return
    table = Table(*[escape(visible(name)) for name in names], box=None, header_style="bold", pad_edge=False)
    for row in rows:
        table.add_row(*[Text(visible(cell), overflow="ellipsis", no_wrap=True) for cell in row])
    out.print(table)


def _facts(entry: Entry, episode: Episode, styles: dict[str, str]) -> Iterator[Text]:
    place = f"line {entry.key}, seed {episode.seed}" + (f", repeat {episode.repeat}" if episode.repeat else "")
    yield Text.assemble((visible(episode.id), "bold"), visible(f"  {episode.scenario}, {place}, {episode.ending}"))
    if episode.limit:
        yield Text(visible(f"ended by the limit on {episode.limit}"), "yellow")
    for agent, style in styles.items():
        told = f"  {episode.models.get(agent, '')}  {episode.returns.get(agent, 0.0):+g}"
        outcome = entry.summary.outcomes.get(agent, "") if entry.summary else ""
        yield Text.assemble((visible(agent), style), visible(told), f" {outcome}" if outcome else "")
    if episode.error:
        where = f"{episode.error.type} in {episode.error.origin}" + (
            f", of {episode.error.agent}" if episode.error.agent else ""
        )
        yield Text(visible(f"{where}: {episode.error.message}"), "red")


def _show_role(out: Console, role: ShownRole, style: str, *, in_full: bool) -> None:
    _rule(out, Text.assemble((visible(role.agent), style), "'s role"))
    for part in role.parts if in_full else _shortened(role):
        _print(out, _part(part, "dim"), indent=4)


def _shortened(role: ShownRole) -> Iterator[Part]:
    """The beginning of the instructions, the names of the tools, and how to see the rest."""
    instructions = "\n".join(part.text for part in role.parts if part.kind == "text")
    tools = [part.name for part in role.parts if part.kind == "tool"]
    line = " ".join(instructions.split())
    if line:
        yield Part("text", line if len(line) <= SHORT else f"{line[:SHORT]}... ({len(instructions):,} characters)")
    if tools:
        yield Part("text", f"tools: {', '.join(tools)}")
    if tools or len(line) > SHORT:
        yield Part("text", f"(all of it: --agent {role.agent})")


def _show_turn(out: Console, turn: ShownTurn, style: str) -> None:
    reward = f"  {turn.reward:+g}" if turn.reward else ""
    title = Text.assemble(
        f"{turn.number} ", (visible(turn.agent), style), (reward, "green" if turn.reward > 0 else "red")
    )
    title.append(visible("".join(f"  {note}" for note in turn.notes)), "dim")
    _rule(out, title)
    if turn.illegal:
        _print(out, Text(visible(f"illegal: {turn.illegal}"), "yellow"))
    for part in turn.observation:
        _print(out, _part(part, "dim"), indent=4)
    for part in turn.response:
        _print(out, _part(part, ""))


def _show_end(out: Console, end: ShownEnd, style: str) -> None:
    _rule(out, Text.assemble((visible(end.agent), style), " at the end"))
    for part in end.observation:
        _print(out, _part(part, "dim"), indent=4)
    if end.info:
        _print(out, Text(visible(end.info), "dim"), indent=4)


def _part(part: Part, style: str) -> Text:
    match part.kind:
        case "reasoning":
            return Text(visible(f"(thought) {part.text}"), "italic dim")
        case "call":
            line = " ".join(piece.strip() for piece in part.text.splitlines())
            arguments = line if len(line) <= SHORT else part.text
            return Text.assemble("-> ", (visible(part.name), "bold"), visible(f" {arguments}"))
        case "broken call":
            return Text(visible(f"-> a broken call, {part.name}: {part.text}"), "red")
        case "tool":
            return Text.assemble("tool ", (visible(part.name), "bold"), (visible(f": {part.text}"), style))
        case "result":
            return Text.assemble("<- ", (visible(part.name or "tool"), "bold"), (visible(f" {part.text}"), style))
        case "image":
            return Text(visible(f"[picture: {part.text[:60]}]"), style)
        case "other":
            return Text(visible(f"[{part.name or 'part'}] {part.text}"), style)
    return Text(visible(part.text), style)


def _rule(out: Console, title: Text) -> None:
    if out.is_terminal:
        out.print(Rule(title, align="left", style="dim"))
    else:
        _plain(out, f"\n--- {title.plain}")


def _print(out: Console, text: Text, indent: int = 0) -> None:
    if out.is_terminal:
        out.print(Padding(text, (0, 0, 0, indent)))
    else:
        _plain(out, "\n".join(" " * indent + line for line in text.plain.split("\n")))


def _plain(out: Console, text: str) -> None:
    """A line as it is: rich would put spaces for its tabs."""
    out.file.write(f"{text}\n")


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "-"
