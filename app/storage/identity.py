"""Who this store is, and how often it was opened."""

import sqlite3
from uuid import uuid4

import msgspec

from shared.ids import StoreId

_SET = (
    "INSERT INTO meta (key, value) VALUES (?, ?)"
    " ON CONFLICT (key) DO UPDATE SET value = excluded.value"
)


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """``store_id`` and ``feed_epoch`` are made once; ``parent_epoch`` counts opens from 1."""

    store_id: StoreId
    parent_epoch: int
    feed_epoch: str


def next_start(driver: sqlite3.Connection) -> Identity:
    """Count one more start of a parent, durably."""
    driver.execute("BEGIN IMMEDIATE")
    try:
        known = {str(k): str(v) for k, v in driver.execute("SELECT key, value FROM meta")}
        identity = Identity(
            store_id=StoreId(known.get("store_id") or f"store_{uuid4().hex}"),
            parent_epoch=int(known.get("parent_epoch", "0")) + 1,
            feed_epoch=known.get("feed_epoch") or uuid4().hex,
        )
        values = msgspec.structs.asdict(identity)
        driver.executemany(_SET, [(key, str(value)) for key, value in values.items()])
        driver.execute("COMMIT")
    except BaseException:
        driver.rollback()
        raise
    return identity
