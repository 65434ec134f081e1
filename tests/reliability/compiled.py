"""Reading without threads: engines that share what SQLAlchemy has compiled."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import sqlalchemy as sa

_COMPILED: Final[dict[Any, Any]] = {}


@lru_cache(maxsize=1)
def _dialect() -> sa.Dialect:
    """One for all, since what is compiled is kept by it. It is ready once it has connected."""
    engine = sa.create_engine("sqlite://")
    engine.connect().close()
    return engine.dialect


def reading_engine(connect: Callable[[], Any], pool: type[sa.Pool]) -> sa.Engine:
    """An engine on these connections; transactions are begun by hand."""
    engine = sa.create_engine("sqlite://", creator=connect, poolclass=pool)
    engine.dialect = _dialect()
    return engine.execution_options(compiled_cache=_COMPILED, isolation_level="AUTOCOMMIT")
