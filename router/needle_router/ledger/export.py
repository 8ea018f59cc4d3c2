"""Records for other programs: JSON lines, CSV, or a SQLite file with one flat table.

Whatever stands in a ledger may have been chosen by a client, the name of a tool for instance. Spreadsheets run a cell
that begins like a formula, so in CSV such a text begins with an apostrophe instead.
"""

from __future__ import annotations

import csv
import io
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from needle_router.ledger.flat import COLUMNS, flat
from needle_router.ledger.place import Place
from needle_router.ledger.rows import record_of
from needle_router.ledger.stores import store_of
from needle_router.records import DecisionRecord

#: What spreadsheets take for the beginning of a formula, and what they skip before one.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
BATCH = 1000
Written = tuple[DecisionRecord, str | None]


def written(place: Place, *, since_s: float, until_s: float) -> Iterator[Written]:
    """Records and the instances that wrote them, oldest first. Raises `LedgerError` and `ValueError`."""
    with store_of(place).reading() as ledger:
        for instance, text in ledger.records(since_s):
            record = record_of(text)
            if record.time_s < until_s:
                yield record, instance


def to_jsonl(rows: Iterable[Written], out: BinaryIO) -> int:
    """One object a line: the record as it is, and `instance`."""
    count = 0
    for count, (record, instance) in enumerate(rows, 1):  # noqa: B007  # returned
        out.write(b'{"instance":' + orjson.dumps(instance) + b"," + orjson.dumps(record)[1:] + b"\n")
    return count


def to_csv(rows: Iterable[Written], out: BinaryIO) -> int:
    """A line of names, then one a record; RFC 4180, UTF-8, empty for what is unknown."""
    text = io.TextIOWrapper(out, "utf-8", newline="")
    writer, count = csv.writer(text), 0
    writer.writerow(COLUMNS)
    for count, (record, instance) in enumerate(rows, 1):  # noqa: B007  # returned
        writer.writerow([harmless(value) for value in flat(record, instance)])
    text.detach()
    return count


def harmless(value: Any) -> Any:
    """A text that no spreadsheet takes for a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def to_sqlite(rows: Iterable[Written], path: Path) -> int:
    """One table, `decisions`, in a new file; every column has one type. Raises `OSError` when it cannot be written."""
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    insert = f"INSERT INTO decisions VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608  # our own constants
    count, left = 0, iter(rows)
    try:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(f"CREATE TABLE decisions ({columns})")
            while batch := [flat(*row) for row in islice(left, BATCH)]:
                connection.executemany(insert, batch)
                count += len(batch)
    except sqlite3.Error as error:
        raise OSError(str(error)) from error
    return count


#: Formats that can go to any stream, standard output too.
STREAMS: Mapping[str, Callable[[Iterable[Written], BinaryIO], int]] = {"jsonl": to_jsonl, "csv": to_csv}
FORMATS = (*STREAMS, "sqlite")
