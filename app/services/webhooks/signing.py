"""Signatures as Standard Webhooks has them."""

import base64
import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from standardwebhooks.webhooks import Webhook

SECRET_BYTES: Final = 32
SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - what secrets begin with
HINT_CHARS: Final = 4


def new_secret() -> str:
    """A new signing secret, as receivers configure it."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def hint(secret: str) -> str:
    """Enough of a secret to tell it from others."""
    return f"{SECRET_PREFIX}…{secret.rstrip('=')[-HINT_CHARS:]}"


def signed(name: str, body: bytes, keys: Sequence[str], now: datetime) -> dict[str, str]:
    """The headers of one try: the same id each time, the time of this one, and a signature by each
    key."""
    text = body.decode()
    signatures = (Webhook(key).sign(name, now, text) for key in keys)
    return {
        "content-type": "application/json",
        "user-agent": "mlxq-webhooks",
        "webhook-id": name,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": " ".join(signatures),
    }
