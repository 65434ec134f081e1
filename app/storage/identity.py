"""Who this store is, how often it was opened, and whether it is the one that was closed."""

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import msgspec

from app.storage.incarnation import Opened, read_opened, write_opened
from shared.ids import StoreId

_SET = (
    "INSERT INTO meta (key, value) VALUES (?, ?)"
    " ON CONFLICT (key) DO UPDATE SET value = excluded.value"
)
_TOKEN = "opened"  # noqa: S105 - the key of a row


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """``store_id`` is made once; ``parent_epoch`` counts opens from 1; ``feed_epoch`` is renewed
    when the database was put back from a backup: numbers that were given since then are given
    again, to other reports."""

    store_id: StoreId
    parent_epoch: int
    feed_epoch: str


def next_start(driver: sqlite3.Connection, path: Path) -> Identity:
    """Count one more start of a parent, durably."""
    last, token = read_opened(path), uuid4().hex
    driver.execute("BEGIN IMMEDIATE")
    try:
        known = {str(k): str(v) for k, v in driver.execute("SELECT key, value FROM meta")}
        identity = _next(known, last, path)
        tokens = (known[_TOKEN], token) if _TOKEN in known else (token,)
        write_opened(path, Opened.now(path, identity.parent_epoch, *tokens))
        values = {**msgspec.structs.asdict(identity), _TOKEN: token}
        driver.executemany(_SET, [(key, str(value)) for key, value in values.items()])
        driver.execute("COMMIT")
    except BaseException:
        driver.rollback()
        raise
    write_opened(path, Opened.now(path, identity.parent_epoch, token))
    return identity


def _next(known: Mapping[str, str], last: Opened | None, path: Path) -> Identity:
    parent_epoch = int(known.get("parent_epoch", "0"))
    feed_epoch = known.get("feed_epoch")
    if feed_epoch is None or _restored(known, last, path):
        feed_epoch = uuid4().hex
    return Identity(
        store_id=StoreId(known.get("store_id") or f"store_{uuid4().hex}"),
        # Workers of before a restore obey no lower one.
        parent_epoch=max(parent_epoch, last.parent_epoch if last is not None else 0) + 1,
        feed_epoch=feed_epoch,
    )


def _restored(known: Mapping[str, str], last: Opened | None, path: Path) -> bool:
    token = known.get(_TOKEN)
    return token is not None if last is None else not last.is_this(path, token)
