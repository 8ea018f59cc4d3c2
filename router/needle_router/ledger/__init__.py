"""The record of decisions: one row a request, in a SQLite file or a PostgreSQL database.

A request never waits for it and never fails because of it: records go into a bounded queue, one thread writes them in
batches, and whatever goes wrong there costs records, which are counted.

    place      where records are kept, and how that is shown
    rows       a record as a row, and back
    store      the port: open, write, prune, read
    sqlite     a file; `schema` brings it up to date
    postgres   a database that several replicas write to
    writer     the queue and the thread
"""

from needle_router.ledger.place import Database, Place, default_path, place_of
from needle_router.ledger.reading import read_ledger
from needle_router.ledger.store import LedgerError
from needle_router.ledger.writer import Ledger

__all__ = ["Database", "Ledger", "LedgerError", "Place", "default_path", "place_of", "read_ledger"]
