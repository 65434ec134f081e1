"""What went wrong in an attempt, as data: sent, stored, shown. Exceptions never cross the wire."""

import msgspec


class Failure(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """One reason, with a stable code from the table in ``app/domain/errors.py``.

    ``retryable`` says whether another attempt of the same job could succeed; ``param`` names the
    request field at fault, if one is.
    """

    code: str
    message: str
    retryable: bool = False
    param: str | None = None
