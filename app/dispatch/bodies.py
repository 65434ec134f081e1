"""Large command bodies: cut by the parent, put together by the worker.

A body over ``FRAME_BYTES_MAX`` leaves the command and follows it in pieces, so that no single
message delays a heartbeat or meets the socket's size limit.
"""

from hashlib import sha256

import msgspec

from shared.codec import encode_body
from shared.limits import FRAME_BYTES_MAX
from shared.messages import BodyPart, RunJob, ToWorker


def run_job_messages(run: RunJob, encoded: bytes | None = None) -> list[ToWorker]:
    """The command itself, or the command without its body and then the pieces of it. ``encoded`` is
    the request as ``encode_body`` makes it, where that was made before."""
    body = encoded or (encode_body(run.request) if run.request else b"")
    if len(body) <= FRAME_BYTES_MAX:
        return [run]
    pieces = [body[at : at + FRAME_BYTES_MAX] for at in range(0, len(body), FRAME_BYTES_MAX)]
    head = msgspec.structs.replace(
        run, request=None, body_digest=sha256(body).hexdigest(), body_parts=len(pieces)
    )
    return [
        head,
        *(
            BodyPart(run.epoch, run.command, n, len(pieces), piece)
            for n, piece in enumerate(pieces)
        ),
    ]
