"""CSV as a table in which every row has its line. Ragged rows, repeated names and bad quotes are reported together."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from cmbs.documents.findings import MAX_FINDINGS, Finding, InvalidDocument, Place, Rule, Unreadable
from cmbs.documents.text import decode_text

# Only these end a line: a form feed or a Unicode line separator is a character of its cell.
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
MAX_COLUMNS = 1_000
MAX_ROWS = 100_000
MAX_TABLE_BYTES = 64 << 20


class Row(NamedTuple):
    """A line of a table: as many cells as there are columns, without the space around them."""

    line: int
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table by its columns. `lines` are those that its rows begin in, `cells` the texts of each column."""

    name: str
    columns: tuple[str, ...]
    lines: tuple[int, ...]
    cells: tuple[tuple[str, ...], ...]

    def texts(self, name: str) -> tuple[str, ...]:
        """The cells of a column, in the order of the rows."""
        return self.cells[self.columns.index(name)]

    def column(self, name: str) -> Iterator[tuple[int, str]]:
        """The cells of a column, each with its line."""
        return zip(self.lines, self.texts(name), strict=True)


def read_table(data: bytes, name: str, delimiter: str = ",") -> Table:
    """The table in a CSV file with a header, in UTF-8; `InvalidDocument` has what is wrong with it."""
    try:
        lines = _read_rows(decode_text(data, MAX_TABLE_BYTES), delimiter)
        header = next(lines, None)
        if header is None:
            raise Unreadable(Rule.SYNTAX, "the table is empty; its first line names the columns", None)
        rows: list[Row] = []
        findings = list(_check_header(header, delimiter))
        for row in lines if not findings else ():
            place = Place(row.line, 1)
            if len(row.cells) != len(header.cells):
                message = f"the header has {len(header.cells)} columns, this row {len(row.cells)}"
                findings.append(Finding(Rule.RAGGED_ROW, message, place=place))
            rows.append(row)
            if len(rows) > MAX_ROWS:
                findings.append(Finding(Rule.TOO_LARGE, f"a table has at most {MAX_ROWS:,} rows", place=place))
            if len(rows) > MAX_ROWS or len(findings) >= MAX_FINDINGS:
                break
    except Unreadable as exc:
        raise InvalidDocument(name, [exc.finding]) from exc
    if findings:
        raise InvalidDocument(name, findings)
    cells = tuple(zip(*(row.cells for row in rows), strict=True)) if rows else ((),) * len(header.cells)
    return Table(name, header.cells, tuple(row.line for row in rows), cells)


def _read_rows(text: str, delimiter: str) -> Iterator[Row]:
    """Rows that are not blank; a row begins where the one before it ended."""
    reader = csv.reader(_LINE.findall(text), delimiter=delimiter, strict=True)
    begins = 1
    try:
        for cells in reader:
            if cells and any(map(str.strip, cells)):
                yield Row(begins, tuple(map(str.strip, cells)))
            begins = reader.line_num + 1
    except csv.Error as exc:
        raise Unreadable(Rule.SYNTAX, f"not CSV: {exc}", Place(begins, 1)) from exc


def _check_header(header: Row, delimiter: str) -> Iterator[Finding]:
    place = Place(header.line, 1)
    if len(header.cells) > MAX_COLUMNS:
        yield Finding(Rule.TOO_LARGE, f"a table has at most {MAX_COLUMNS:,} columns", place=place)
        return
    seen: set[str] = set()
    for number, column in enumerate(header.cells, 1):
        if not column:
            yield Finding(Rule.MISSING_FIELD, f"column {number} has no name", place=place)
        elif column in seen:
            yield Finding(Rule.DUPLICATE_FIELD, f"column `{column}` is there twice", place=place)
        seen.add(column)
    if len(header.cells) == 1 and delimiter == ",":
        other = next((each for each in (";", "\t", "|") if each in header.cells[0]), None)
        if other is not None:
            shown = "tab" if other == "\t" else other
            message = f"one column only: the cells seem to be divided by `{shown}`; give it as `--delimiter`"
            yield Finding(Rule.SYNTAX, message, place=place)
