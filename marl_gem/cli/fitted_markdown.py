"""Markdown for a terminal, with tables that keep to its width."""

from __future__ import annotations

from typing import Any, ClassVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Markdown, TableElement

from marl_gem.cli.fitted_table import FittedTable


class FittedMarkdown(Markdown):
    """Markdown whose tables are `FittedTable`s."""

    class _Table(TableElement):
        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            header = self.header.row if self.header else None
            table = FittedTable(*(cell.content for cell in (header.cells if header else ())))
            for row in self.body.rows if self.body else ():
                table.add_row(*(cell.content for cell in row.cells))
            yield table

    elements: ClassVar[dict[str, Any]] = {**Markdown.elements, "table_open": _Table}
