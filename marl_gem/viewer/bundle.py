"""Static pages of runs, to be shared: the viewer's page with its answers in files, for any static server and file://.

    index.html      the page
    page.js         its script
    bundle.js       answers from the data files
    data/index.js   the list of runs
    data/N/run-0.js one run: its numbers, curves, configuration, report, and the rows of its table
    data/N/episodes-M.js   some of its episodes, as the page asks for them
    data/N/records-M.js    the records of these episodes, for a download
    data/N/comparison-M.js its comparison with run M, of the same scenario
    data/N/*.png    its pictures

Every data file is one call with a text, which holds JSON, so that nothing in a record is ever code. The tokens of
responses are left out.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec

import marl_gem
from marl_gem.errors import MarlGemError, RecordError
from marl_gem.llm.secrets import hide_in_urls, redact_value
from marl_gem.runs.checksum import FIELD as CHECKSUM
from marl_gem.runs.files import explained, replacing_folder
from marl_gem.runs.library import RunLibrary
from marl_gem.viewer.api import MOST_ROWS, Api
from marl_gem.viewer.query import Query
from marl_gem.viewer.scripts import read_page
from marl_gem.viewer.server import finite

MARKER = "marl-gem-bundle.json"
"""The file by which a folder is known to be a bundle, which may be replaced."""

EPISODES, TEXT, BYTES = 1_000, 200_000, 500_000_000
"""The most episodes of a run by default, the most characters of one text, and the most bytes of a bundle's data."""

CHUNK = 1_000_000
"""A file of episodes is closed at this many bytes."""

RECORD, COMPARED = 2_000_000, 50
"""The most bytes of one episode's record, and the most pairs of runs that are compared, each both ways."""

POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self' file:",
        "style-src 'self' file:",
        "img-src 'self' file: data:",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types bundle",
    ]
)
"""The page may load the bundle's files, show data: URLs, and nothing else; 'self' is no file: in all browsers."""

_SECRET = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)S?$", re.IGNORECASE)


class Written(msgspec.Struct):
    """What a bundle holds. `left_out` counts the episodes that were too many."""

    index: Path
    runs: int = 0
    episodes: int = 0
    left_out: int = 0
    bytes: int = 0


def write_bundle(
    library: RunLibrary, folder: Path, query: Query | None = None, most: int | None = EPISODES, *, force: bool = False
) -> Written:
    """Write static pages of all runs of a library, completely or not at all.

    Args:
        library: the runs.
        folder: the folder to make.
        query: which episodes, and in what order; None takes all.
        most: the most episodes of a run; None takes all.
        force: replace a folder that is a bundle.

    Raises:
        MarlGemError: the folder exists, and is no bundle or `force` is not given; or it cannot be written.
    """
    _check_target(folder, force)
    written = Written(folder / "index.html")
    with explained(folder, "write to"), replacing_folder(folder) as draft:
        _write_page(draft)
        writer = _Writer(Api(library), draft / "data", written)
        writer.write(list(library.runs()), query or Query(), most)
        (draft / MARKER).write_text(json.dumps({"marl_gem": marl_gem.__version__}))
    return written


def _check_target(folder: Path, force: bool) -> None:
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not (folder / MARKER).is_file():
        raise MarlGemError(f"{folder} exists and is no bundle, so it is not replaced; name a folder that is not there")
    if not force:
        raise MarlGemError(f"{folder} exists; --force replaces it")


def _write_page(folder: Path) -> None:
    page = read_page()
    head = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
    scripts = "".join(f'<script defer src="{name}"></script>\n' for name in ("bundle.js", "data/index.js", "page.js"))
    html = page["index.html"].replace('<meta charset="utf-8">\n', f'<meta charset="utf-8">\n{head}')
    html = html.replace('<script defer src="page.js"></script>\n', scripts)
    for name, text in {
        "index.html": html,
        "page.js": page["page.js"],
        "bundle.js": page["bundle.js"],
        "style.css": page["style.css"],
        "icon.svg": page["icon.svg"],
    }.items():
        (folder / name).write_text(text, "utf-8")


class _Writer:
    """Writes the data files."""

    def __init__(self, api: Api, folder: Path, written: Written) -> None:
        self._api, self._folder, self._written = api, folder, written
        self._secrets = [value for name, value in os.environ.items() if _SECRET.search(name)]

    def write(self, names: Sequence[str], query: Query, most: int | None) -> None:
        for number, name in enumerate(names):
            (self._folder / str(number)).mkdir(parents=True)
            self._write_run(number, name, query, most)
        listed = self._api.runs({})
        listed |= {"root": Path(listed["root"]).name, "runs": _without_url_secrets(listed["runs"])}
        comparisons = self._write_comparisons(list(names), listed["runs"])
        self._save("index", {"runs": listed, "names": list(names), "comparisons": comparisons})
        self._written.runs = len(names)

    def _write_run(self, number: int, name: str, query: Query, most: int | None) -> None:
        self._api.episodes({"run": [name], "sort": ["seed"]})  # waits until all of the run has been read
        answer = self._api.run({"run": [name]}) | {"path": name, "reading": None}
        answer |= {part: _without_url_secrets(answer[part]) for part in ("config", "report", "row", "results")}
        rows, chunks = [], []
        episodes: list[dict[str, Any]] = []
        records: list[str] = []
        size = 0
        for row in self._rows(name, query, most):
            episode = self._api.episode({"run": [name], "key": [row["key"]]})
            for turn in episode.get("turns", ()):
                turn["tokens"] = 0
            episode = _shortened(episode)
            record = self._record(name, row["key"])
            length = len(json.dumps(episode)) + len(record)
            if self._written.bytes + size + length > BYTES:
                self._written.left_out += 1
                continue
            size += length
            rows.append(row)
            chunks.append(sum(1 for _ in (self._folder / str(number)).glob("episodes-*")))
            episodes.append(episode)
            records.append(record)
            if size >= CHUNK:
                self._save_episodes(f"{number}/", chunks[-1], episodes, records)
                episodes, records, size = [], [], 0
        if episodes:
            self._save_episodes(f"{number}/", chunks[-1], episodes, records)
        self._written.episodes += len(rows)
        curves = self._api.curves({"run": [name]}) | {"ended": True} if answer["training"] else None
        answers = {"run": answer, "curves": curves, "rows": rows, "chunks": chunks}
        self._save(f"{number}/run-0", answers)
        for picture in answer["pictures"]:
            content = self._api.picture({"run": [name], "name": [picture]})
            self._written.bytes += len(content)
            (self._folder / str(number) / f"{answer['pictures'].index(picture)}.png").write_bytes(content)

    def _write_comparisons(self, names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
        """Compare the runs of the same kind and scenario, the newest first; the names of the files."""
        written = []
        runs = [row for row in rows if not row["parent"] and row["scenarios"]]
        alike = [(a, b) for a, b in combinations(runs, 2) if all(a[part] == b[part] for part in ("kind", "scenarios"))]
        for pair in alike[:COMPARED]:
            for before, after in (pair, pair[::-1]):
                with suppress(RecordError):  # of two grids without a match in common, for instance
                    answer = self._api.comparison({"run": [before["name"]], "run2": [after["name"]]})
                    name = f"{names.index(before['name'])}/comparison-{names.index(after['name'])}"
                    self._save(name, _without_url_secrets(answer))
                    written.append(name)
        return written

    def _record(self, name: str, key: str) -> str:
        """The line of an episode in its file; without secrets, and then without its checksum."""
        line: str = self._api.record({"run": [name], "key": [key]})["record"].strip()
        if len(line) > RECORD:
            return ""
        with suppress(ValueError, RecursionError):
            record = json.loads(line)
            if (shared := redact_value(record, self._secrets)) != record:
                return json.dumps({part: value for part, value in shared.items() if part != CHECKSUM})
        return line

    def _rows(self, name: str, query: Query, most: int | None) -> Iterator[dict[str, Any]]:
        """The rows of a run's table that fit the query, up to the most."""
        asked = {"run": [name], "filter": sorted(query.filters), "seat": [query.seat], "model": [query.model]}
        asked |= {"text": [query.text], "sort": [query.sort], "reverse": ["1" if query.reverse else ""]}
        start = 0
        while True:
            answer = self._api.episodes(asked | {"start": [str(start)], "count": [str(MOST_ROWS)]})
            for row in answer["rows"]:
                if most is not None and start >= most:
                    self._written.left_out += answer["total"] - most
                    return
                yield row
                start += 1
            if start >= answer["total"] or not answer["rows"]:
                return

    def _save_episodes(self, folder: str, chunk: int, episodes: list[dict[str, Any]], records: list[str]) -> None:
        self._save(f"{folder}episodes-{chunk}", episodes)
        self._save(f"{folder}records-{chunk}", dict(zip((each["key"] for each in episodes), records, strict=True)))

    def _save(self, name: str, value: Any) -> None:
        text = json.dumps(finite(redact_value(value, self._secrets)))
        content = f"bundle.add({json.dumps(name)}, {json.dumps(text)});\n"
        self._written.bytes += len(content)
        (self._folder / f"{name}.js").write_text(content, "ascii")


def _without_url_secrets(value: Any) -> Any:
    """The same without passwords and tokens in the URLs of its texts."""
    if isinstance(value, str):
        return hide_in_urls(value)
    if isinstance(value, dict):
        return {name: _without_url_secrets(part) for name, part in value.items()}
    return [_without_url_secrets(part) for part in value] if isinstance(value, list | tuple) else value


def _shortened(value: Any) -> Any:
    """The same with long texts cut; pictures stay as they are."""
    if isinstance(value, str) and len(value) > TEXT and not value.startswith("data:image/"):
        return f"{value[:TEXT]}\n\n(cut for sharing: the record has {len(value):,} characters)"
    if isinstance(value, dict):
        return {name: _shortened(part) for name, part in value.items()}
    return [_shortened(part) for part in value] if isinstance(value, list | tuple) else value
