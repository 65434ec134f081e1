"""The ``Idempotency-Key`` header: the same key and the same request are the same job."""

import hashlib
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from app.domain.draft import IdempotencyKey
from app.domain.errors import InvalidRequest

HEADER: Final = "Idempotency-Key"
REPLAYED: Final = {"idempotent-replayed": "true"}
"""Sent with an answer about a job that was there before."""

KEY_CHARS_MAX: Final = 255

_PRINTABLE: Final = re.compile(rf"[\x21-\x7e](?:[\x20-\x7e]{{0,{KEY_CHARS_MAX - 2}}}[\x21-\x7e])?")
_CANONICAL: Final = msgspec.json.Encoder(order="deterministic")


def idempotency_key(
    headers: Mapping[str, str], path: str, request: msgspec.Struct
) -> IdempotencyKey | None:
    """The key that came with a request to ``path``, if one did.

    The digest is of the request as it was understood, so that neither spaces, nor the order of
    fields, nor a null in the place of an absent field makes another one of it.

    Raises:
        InvalidRequest: the header is empty, too long, or not printable ASCII.
    """
    key = headers.get(HEADER)
    if key is None:
        return None
    if not _PRINTABLE.fullmatch(key):
        text = f"Invalid '{HEADER}': it must be 1 to {KEY_CHARS_MAX} printable ASCII characters."
        raise InvalidRequest(text, param=HEADER)
    digest = hashlib.sha256(_CANONICAL.encode(request)).hexdigest()
    return IdempotencyKey(key=key, method="POST", path=path, digest=digest)
