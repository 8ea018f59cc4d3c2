"""Ledgers as older releases made them, from their own words."""

import json
import sqlite3
from contextlib import closing

#: What the first release ran, letter by letter.
FIRST = (
    "CREATE TABLE IF NOT EXISTS decisions (id INTEGER PRIMARY KEY, time_s REAL NOT NULL, route TEXT NOT NULL, "
    "reason TEXT NOT NULL, model TEXT NOT NULL, cost_usd REAL, saved_usd REAL, record TEXT NOT NULL)",
    "CREATE INDEX IF NOT EXISTS decisions_time ON decisions (time_s)",
)
#: One of its rows; of what came later it knows nothing.
RECORD = {
    "time_s": 1_700_000_000.5,
    "route": "upstream",
    "reason": "below-threshold",
    "policy": "threshold",
    "mode": "shadow",
    "chat": True,
    "model": "big",
    "stream": False,
    "status": 200,
    "tools_offered": ["a", "b"],
    "tools_called": ["a"],
    "confidence": 0.5,
    "failures": [],
    "uncovered": False,
    "fingerprint": "f00d",
    "overhead_s": 0.001,
    "engine_s": 0.02,
    "queue_s": 0.0,
    "total_s": 0.4,
    "usage": {
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "cached_tokens": 0,
        "reasoning_tokens": 0,
        "estimated": False,
    },
    "cost_usd": 0.25,
    "saved": None,
    "saved_usd": None,
    "comparison": "agree",
    "error": "",
    "reinitialized": True,
    "engine_ran": True,
    "content": "",
}


def first(path, *, records=1, version=1, **fields):
    """A ledger with schema 1; `version` 0 is one whose maker was killed before it said so. `fields`: in the record."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        for statement in FIRST:
            connection.execute(statement)
        row = [RECORD[name] for name in ("time_s", "route", "reason", "model", "cost_usd", "saved_usd")]
        with connection:
            connection.executemany(
                "INSERT INTO decisions (time_s, route, reason, model, cost_usd, saved_usd, record) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                ([*row, json.dumps({**RECORD, **fields})] for _ in range(records)),
            )
        connection.execute(f"PRAGMA user_version={version}")


#: What the first release with PostgreSQL ran, letter by letter but for what the server adds by itself.
FIRST_IN_POSTGRES = (
    "CREATE TABLE needle_router_decisions (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
    "time_s DOUBLE PRECISION NOT NULL, route TEXT NOT NULL, reason TEXT NOT NULL, model TEXT NOT NULL, "
    "cost_usd DOUBLE PRECISION, saved_usd DOUBLE PRECISION, record JSONB NOT NULL, policy TEXT, mode TEXT, "
    "status BIGINT, confidence DOUBLE PRECISION, fingerprint TEXT, comparison TEXT, instance TEXT)",
    "CREATE INDEX ON needle_router_decisions (time_s)",
    "CREATE TABLE needle_router_schema (version INTEGER NOT NULL)",
    "INSERT INTO needle_router_schema VALUES (2)",
)


def first_in_postgres(database, *, records=1, **fields):
    """Tables with schema 2; `fields` are added to the record, which is no column of theirs."""
    for statement in FIRST_IN_POSTGRES:
        database.ask(statement)
    database.ask(
        "INSERT INTO needle_router_decisions (time_s, route, reason, model, cost_usd, record, policy, mode, status, "
        "confidence, fingerprint, comparison, instance) SELECT 1700000000.5, 'upstream', 'below-threshold', 'big', "
        "0.25, %s::jsonb, 'threshold', 'shadow', 200, 0.5, 'f00d', 'agree', 'old' FROM generate_series(1, %s)",
        json.dumps({**RECORD, **fields}),
        records,
    )
