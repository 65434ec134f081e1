"""One statement for many rows.

``executemany`` takes the interpreter's lock back after every row, so the event loop and the writer
stand in each other's way; and SQLite begins anew for each. A statement whose rows have nothing to
do with each other can take its values as a table instead. Texts are made for a few numbers of rows
only, so that they stay prepared.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import Final

from app.storage.driver import Driver
from app.storage.operations import PARAMETER, Statement, Values

WIDTHS: Final = (64, 16, 4)
"""Numbers of rows that there are texts for; the rest go one by one."""

_VALUES: Final = re.compile(r" VALUES \((.*)\)\Z", re.DOTALL)


def change(driver: Driver, statement: Statement, rows: Sequence[Values]) -> int:
    """Execute a statement for all of these; returns how many rows changed in sum.

    Two that name the same row change it once if they come ``together``: the sum tells.
    """
    changed, done = 0, 0
    if statement.together:
        for width in WIDTHS:
            while len(rows) - done >= width:
                values = [value for row in rows[done : done + width] for value in row]
                changed += driver.execute(_text(statement, width), values).rowcount
                done += width
    if done < len(rows):
        changed += driver.executemany(statement.numbered, rows[done:]).rowcount
    return changed


@cache
def _text(statement: Statement, width: int) -> str:
    """The statement over a table ``given`` of so many rows.

    Raises:
        ValueError: it is neither an update nor an insert of values.
    """
    names = list(dict.fromkeys(PARAMETER.findall(statement.sql)))
    columns = {name: f"given.column{place}" for place, name in enumerate(names, 1)}
    named = PARAMETER.sub(lambda found: columns[found[1]], statement.sql)
    row = f"({', '.join('?' * len(names))})"
    source = f" FROM (VALUES {', '.join([row] * width)}) AS given"
    values = _VALUES.search(named)
    if values is not None:
        return f"{named[: values.start()]} SELECT {values[1]}{source}"
    done, where, conditions = named.partition(" WHERE ")
    if not where or " FROM " in done:
        raise ValueError(f"not a statement for many rows: {named}")
    return f"{done}{source}{where}{conditions}"
