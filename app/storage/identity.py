"""Who this store is, how often it was opened, and which numbering its feed has."""

from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import msgspec

from app.storage.driver import Driver
from app.storage.feed_mark import FeedMark, Mark
from shared.ids import StoreId

_SET = (
    "INSERT INTO meta (key, value) VALUES (?, ?)"
    " ON CONFLICT (key) DO UPDATE SET value = excluded.value"
)


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """``store_id`` is made once; ``parent_epoch`` counts opens from 1; ``feed_epoch`` is renewed
    when the database was put back from a backup: numbers that were given since it was made are
    given again, to other reports."""

    store_id: StoreId
    parent_epoch: int
    feed_epoch: str


def next_start(driver: Driver, path: Path) -> Identity:
    """Count one more start of a parent of this database, durably."""
    mark = FeedMark(path)
    before = mark.read()
    driver.execute("BEGIN IMMEDIATE")
    try:
        known = {str(k): str(v) for k, v in driver.execute("SELECT key, value FROM meta")}
        ((last,),) = driver.execute("SELECT last FROM feed").fetchall()
        identity = _next(known, before, last)
        values = msgspec.structs.asdict(identity)
        driver.executemany(_SET, [(key, str(value)) for key, value in values.items()])
        driver.execute("COMMIT")
    except BaseException:
        driver.rollback()
        raise
    now = Mark(feed_epoch=identity.feed_epoch, last=last, parent_epoch=identity.parent_epoch)
    mark.write(now, durably=True)
    return identity


def _next(known: Mapping[str, str], before: Mark | None, last: int) -> Identity:
    feed_epoch = known.get("feed_epoch")
    if before is None or before.feed_epoch != feed_epoch or last < before.last:
        feed_epoch = None
    # Workers of the time before a restore obey no lower one.
    parent_epoch = max(int(known.get("parent_epoch", "0")), before.parent_epoch if before else 0)
    return Identity(
        store_id=StoreId(known.get("store_id") or f"store_{uuid4().hex}"),
        parent_epoch=parent_epoch + 1,
        feed_epoch=feed_epoch or uuid4().hex,
    )
