"""marl-gem view: runs and episodes, in the browser or in the terminal."""

from __future__ import annotations

import html
import sys
import webbrowser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated
from urllib.parse import urlencode

import typer
from rich.markup import escape

from marl_gem import bounds
from marl_gem.cli.terminal import number, out
from marl_gem.errors import MarlGemError
from marl_gem.runs.library import RunLibrary
from marl_gem.runs.reader import RunReader
from marl_gem.viewer.query import FILTERS, LINES, SORTS, Query, select

LISTED = 50
"""So many episodes are listed in a terminal by default."""


def view(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...", help="A run's folder, a folder of runs, or a JSONL file. The curves of several overlap."
        ),
    ],
    text: Annotated[bool, typer.Option("--text", help="Show it here, in the terminal.")] = False,
    episode: Annotated[str | None, typer.Option(help="Show this episode: the number of its line, or its id.")] = None,
    agent: Annotated[str | None, typer.Option(help="This agent's view; in a list, episodes with this agent.")] = None,
    model: Annotated[str | None, typer.Option(help="Only episodes with this model.")] = None,
    filters: Annotated[
        list[str] | None, typer.Option("--filter", help=f"Only {', '.join([*FILTERS, *LINES])}. May be repeated.")
    ] = None,
    search: Annotated[str, typer.Option(help="Only episodes with this text in an observation or a response.")] = "",
    sort: Annotated[str, typer.Option(help=f"Order by {', '.join(SORTS)}, the greatest first.")] = "",
    reverse: Annotated[bool, typer.Option("--reverse", help="Reverse the order.")] = False,
    count: Annotated[
        int | None,
        number(bounds.SHOWN, "-n", help=f"List so many; by default {LISTED} in a terminal, else all. 0: all."),
    ] = None,
    run: Annotated[str | None, typer.Option(help="Which run, if there are several.")] = None,
    port: Annotated[
        int | None, number(bounds.PORT, help="Where the page is served; by default a port that is free.")
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
    bundle: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write static pages into this folder, to be shared, and serve nothing."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a bundle that is there.")] = False,
) -> None:
    """Look at runs and episodes: on a page in the browser, with --text in the terminal, or as a bundle to share."""
    library = RunLibrary(*paths, with_empty=not text)
    chosen = _choose(library, run)
    query = Query(frozenset(filters or ()), agent or "", model or "", search, sort, reverse)
    if chosen is None and (episode or query != Query()):
        raise MarlGemError(f"there are several runs; choose one with --run: {', '.join(library.runs())}")
    if bundle is not None:
        _bundle(library, chosen if run else None, bundle, query, count, force)
    elif text:
        _show(library, chosen, query, episode, agent or "", count)
    else:
        if chosen:
            chosen.read_ahead(0)  # while the browser starts
        several = [run.name for run in library.runs().values() if run.is_training] if len(paths) > 1 else []
        overlaid = f"#/training?{urlencode([('run', name) for name in sorted(several)])}" if several else ""
        _serve(library, overlaid or _address(chosen, query, episode, agent), port, browser)


def _show(
    library: RunLibrary, run: RunReader | None, query: Query, episode: str | None, agent: str, count: int | None
) -> None:
    from marl_gem.viewer.text import show_episodes, show_runs, show_transcript

    if run is None:
        show_runs(out, library)
    elif episode is not None:
        show_transcript(out, run, run.find(episode), agent)
    else:
        most = count if count is not None else LISTED if out.is_terminal else 0
        show_episodes(out, run, select(run, query), most or None)


def _bundle(
    library: RunLibrary, run: RunReader | None, folder: Path, query: Query, count: int | None, force: bool
) -> None:
    from marl_gem.viewer.bundle import EPISODES, write_bundle

    shared = RunLibrary(run.path) if run else library
    most = EPISODES if count is None else count or None
    written = write_bundle(shared, folder, query, most, force=force)
    size = f"{written.runs} runs, {written.episodes} episodes, {written.bytes / 1e6:.1f} MB"
    out.print(f"[bold]{escape(str(written.index))}[/]: {size}", soft_wrap=True)
    if written.left_out:
        out.print(f"{written.left_out} episodes are left out; -n 0 takes all, up to 500 MB")


def _serve(library: RunLibrary, address: str, port: int | None, browser: bool) -> None:
    from marl_gem.viewer.server import Server

    server = Server(library, port)
    sys.setswitchinterval(0.0005)  # answers come between the lines of a run that is read meanwhile
    with TemporaryDirectory(prefix="marl-gem-") as private:
        try:
            out.print(f"{escape(str(library.root))} is shown at [bold]{server.url}{escape(address)}[/]", soft_wrap=True)
            out.print("[dim]Ctrl-C ends it. On another machine: ssh -L PORT:localhost:PORT, or --text[/]")
            if browser:
                webbrowser.open(_door(Path(private), server.url + address).as_uri())
            server.serve_forever(poll_interval=0.1)
        except KeyboardInterrupt:
            out.print("ended")
        finally:
            server.server_close()


def _door(folder: Path, url: str) -> Path:
    """A file that leads to the page. A browser's command line, which all users can see, names this file, and no token.

    Jupyter does the same. The folder can be read by this user alone.
    """
    file = folder / "open.html"
    file.write_text(
        '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
        f'<meta http-equiv="refresh" content="0; url={html.escape(url)}"><a href="{html.escape(url)}">marl_gem</a>\n',
        "utf-8",
    )
    return file


def _choose(library: RunLibrary, name: str | None) -> RunReader | None:
    """The run with this name, or the only run there is."""
    names = list(library.runs())
    if name is not None:
        return library.open(name)
    return library.open(names[0]) if len(names) == 1 else None


def _address(run: RunReader | None, query: Query, episode: str | None, agent: str | None) -> str:
    """The part of the page's address after the #."""
    if run is None:
        return ""
    values = {"seat": query.seat, "model": query.model, "text": query.text, "sort": query.sort}
    parameters = [("run", run.name), *((name, value) for name, value in values.items() if value)]
    parameters += [("filter", name) for name in sorted(query.filters)] + ([("reverse", "1")] if query.reverse else [])
    if episode is None:
        return f"#/run?{urlencode(parameters)}" if len(parameters) > 1 else ""
    return f"#/episode?{urlencode([*parameters, ('key', run.find(episode).key), ('agent', agent or '')])}"
