"""Runs, episodes and transcripts in a terminal, or as plain lines for other programs.

On a pipe, a list has tabs between its columns and complete cells, and a transcript has no colours or wrapped lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from marl_gem.errors import RecordError
from marl_gem.printable import printable, printable_line
from marl_gem.runs.entries import Entry, Summary
from marl_gem.runs.library import RunLibrary
from marl_gem.runs.parts import Part
from marl_gem.runs.reader import RunReader
from marl_gem.types import Episode
from marl_gem.viewer.messages import ShownPart
from marl_gem.viewer.overview import Overview, overview
from marl_gem.viewer.text_curves import curve_rows
from marl_gem.viewer.transcript import ShownEnd, ShownRole, ShownTurn, transcript

COLOURS = ("blue", "dark_orange3", "dark_cyan", "magenta", "yellow4", "medium_purple3", "red3", "steel_blue")

SHORT = 200
"""The most characters of a call's arguments, or of instructions, in one line."""


def show_runs(out: Console, library: RunLibrary) -> None:
    """List all runs, the newest first."""
    rows = []
    for run in library.runs().values():
        total = overview(run.entries())
        shares = ", ".join(f"{agent.agent} {_percent(agent.successes, agent.episodes)}" for agent in total.agents)
        counts = (total.episodes, total.errors, total.pending, total.broken)
        rows.append([run.name, ", ".join(total.scenarios), *map(str, counts), shares])
        run.close()
    _table(out, ["run", "scenario", "episodes", "errors", "pending", "broken", "success"], rows)


def show_episodes(out: Console, run: RunReader, entries: Sequence[Entry], most: int | None = None) -> None:
    """List episodes of a run, in a terminal after a few lines about the run.

    Args:
        out: where to write.
        run: the run.
        entries: what to list.
        most: the most lines; None lists all.
    """
    total = overview(run.entries())
    agents = [agent.agent for agent in total.agents]
    if out.is_terminal:
        out.print(_heading(run, total))
        _show_curves(out, run)
    names = ["#", "episode", *agents, "end", "turns", "tokens", "cost", "seconds"]
    _table(out, names, [_row(entry, agents) for entry in entries[:most]])
    if run.is_training and not out.is_terminal:
        _plain(out, "")
        _show_curves(out, run)
    if (hidden := len(entries) - len(entries[:most])) and out.is_terminal:
        out.print(f"[dim]{hidden} more; -n 0 lists all[/]")


def _show_curves(out: Console, run: RunReader) -> None:
    """A training run's curves, a line each; nothing for another run."""
    if run.is_training:
        _table(out, ["metric", "curve", "first", "last", "best"], curve_rows(run.metrics, run.config))
        if out.is_terminal:
            out.print()


def show_transcript(out: Console, run: RunReader, entry: Entry, agent: str = "") -> None:
    """Show one episode: all agents, with their roles shortened, or one agent's view, with its complete role.

    Raises:
        RecordError: the episode has no such agent, or the line is no episode.
    """
    if not entry.summary:
        raise RecordError(f"line {entry.key} of {run.file_of(entry).path}: {entry.broken}")
    episode = run.read(entry)
    agents = list(episode.returns | episode.models | {turn.agent: "" for turn in episode.turns})
    if agent and agent not in agents:
        raise RecordError(f"there is no agent {agent!r} in episode {episode.id}; its agents are {', '.join(agents)}")
    styles = {name: f"bold {COLOURS[index % len(COLOURS)]}" for index, name in enumerate(agents)}
    shown = transcript(episode, agent)
    for line in _facts(entry, episode, styles):
        _print(out, line)
    for role in shown.roles:
        _show_role(out, role, styles.get(role.agent, "bold"), in_full=bool(agent))
    for before, turn in zip([None, *shown.turns], shown.turns, strict=False):
        together = sum(other.step == turn.step for other in shown.turns) if turn.step else 1
        if together > 1 and not (before and before.step == turn.step):
            _print(out, Text(f"\nstep {turn.step}: {together} agents at the same time", "bold"))
        _show_turn(out, turn, styles[turn.agent], in_full=bool(agent))
    for end in shown.ends:
        _show_end(out, end, styles.get(end.agent, "bold"), in_full=bool(agent))


def _heading(run: RunReader, total: Overview) -> str:
    faults = (
        f"{total.errors} errors, {total.pending} pending, {total.truncated} truncated, "
        f"{total.illegal} with illegal moves"
    )
    agents = [
        f"{escape(printable(agent.agent))} ({escape(printable(', '.join(agent.models)))}) "
        f"{'won' if agent.contests else 'succeeded in'} [bold]{_percent(agent.successes, agent.episodes)}[/], "
        f"mean return {agent.mean_return:+.3g}"
        for agent in total.agents
    ]
    return "\n".join([f"[bold]{escape(printable(run.name))}[/]: {total.episodes} episodes, {faults}", *agents, ""])


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
    outcome = episode.outcomes.get(agent)
    return f"{episode.returns[agent]:+g} {outcome.label if outcome else ''}".strip()


def _ending(entry: Entry, episode: Summary) -> str:
    notes = ["failed attempt"] if entry.key.startswith("e") else []
    notes += [f"{episode.error.origin}: {episode.error.type}"] if episode.error else []
    notes += [f"limit: {episode.limit}"] if episode.limit else []
    notes += ["illegal"] if episode.illegal else []
    return ", ".join(notes) or episode.ending


def _table(out: Console, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if not out.is_terminal:
        lines = ["\t".join(printable_line(cell) for cell in row) for row in [names, *rows]]
        _plain(out, "\n".join(lines))
        return
    table = Table(*[escape(printable(name)) for name in names], box=None, header_style="bold", pad_edge=False)
    for row in rows:
        table.add_row(*[Text(printable_line(cell), overflow="ellipsis", no_wrap=True) for cell in row])
    out.print(table)


def _facts(entry: Entry, episode: Episode, styles: dict[str, str]) -> Iterator[Text]:
    source = f"line {entry.key}, seed {episode.seed}" + (f", repeat {episode.repeat}" if episode.repeat else "")
    yield Text.assemble((printable(episode.id), "bold"), printable(f"  {episode.scenario}, {source}, {episode.ending}"))
    if episode.limit:
        yield Text(printable(f"ended by the limit on {episode.limit}"), "yellow")
    for agent, style in styles.items():
        facts = f"  {episode.models.get(agent, '')}  {episode.returns.get(agent, 0.0):+g}"
        outcome = entry.summary.outcomes.get(agent) if entry.summary else None
        yield Text.assemble((printable(agent), style), printable(facts), f" {outcome.label}" if outcome else "")
    if episode.error:
        where = f"{episode.error.type} in {episode.error.origin}" + (
            f", of {episode.error.agent}" if episode.error.agent else ""
        )
        yield Text(printable(f"{where}: {episode.error.message}"), "red")


def _show_role(out: Console, role: ShownRole, style: str, *, in_full: bool) -> None:
    _rule(out, Text.assemble((printable(role.agent), style), "'s role"))
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


def _show_turn(out: Console, turn: ShownTurn, style: str, *, in_full: bool) -> None:
    reward = f"  {turn.reward:+g}" if turn.reward else ""
    title = Text.assemble(
        f"{turn.number} ", (printable(turn.agent), style), (reward, "green" if turn.reward > 0 else "red")
    )
    title.append(printable("".join(f"  {note}" for note in turn.notes)), "dim")
    _rule(out, title)
    if turn.illegal:
        _print(out, Text(printable(f"illegal: {turn.illegal}"), "yellow"))
    for seen in turn.observation if in_full else _once(turn.observation):
        _print(out, _part(seen, "dim"), indent=4)
    for part in turn.response:
        _print(out, _part(part, ""))


def _once(parts: Sequence[ShownPart]) -> Iterator[Part]:
    """An observation without what was printed before: others' messages, and texts that all are shown."""
    heard: list[str] = []
    for part in parts:
        if part.turn and part.kind == "text" and part.name:
            heard.append(f"{part.name} ({part.turn})")
            continue
        if heard:
            yield Part("text", f"heard {', '.join(heard)}")
            heard = []
        if part.turn and part.kind == "text":
            yield Part("text", f"as in turn {part.turn}: {part.text.strip().splitlines()[0][:SHORT]}")
        else:
            yield part
    if heard:
        yield Part("text", f"heard {', '.join(heard)}")


def _show_end(out: Console, end: ShownEnd, style: str, *, in_full: bool) -> None:
    _rule(out, Text.assemble((printable(end.agent), style), " at the end"))
    for part in end.observation if in_full else _once(end.observation):
        _print(out, _part(part, "dim"), indent=4)
    if end.info:
        _print(out, Text(printable(end.info), "dim"), indent=4)


def _part(part: Part, style: str) -> Text:
    match part.kind:
        case "reasoning":
            return Text(printable(f"(thought) {part.text}"), "italic dim")
        case "call":
            line = " ".join(piece.strip() for piece in part.text.splitlines())
            arguments = line if len(line) <= SHORT else part.text
            return Text.assemble("-> ", (printable(part.name), "bold"), printable(f" {arguments}"))
        case "broken call":
            return Text(printable(f"-> a broken call, {part.name}: {part.text}"), "red")
        case "tool":
            return Text.assemble("tool ", (printable(part.name), "bold"), (printable(f": {part.text}"), style))
        case "result":
            return Text.assemble("<- ", (printable(part.name or "tool"), "bold"), (printable(f" {part.text}"), style))
        case "image":
            return Text(printable(f"[picture: {part.text[:60]}]"), style)
        case "other":
            return Text(printable(f"[{part.name or 'part'}] {part.text}"), style)
    return Text(printable(part.text), style)


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
    """Write a line unchanged; rich would replace its tabs with spaces."""
    out.file.write(f"{text}\n")


def _percent(part: int, total: int) -> str:
    return f"{100 * part / total:.1f}%" if total else "-"
