"""Bytes to messages and back.

A message is one ZeroMQ message part holding a msgpack list of messages of one direction: a list,
because one hand-over for many messages costs a third of many hand-overs.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from shared.messages import ToParent, ToWorker
from shared.requests import JobRequest


class MalformedFrame(Exception):
    """The peer sent bytes that are no message of this direction: its fault, counted and dropped."""


_ENCODER = msgspec.msgpack.Encoder()
_TO_PARENT = msgspec.msgpack.Decoder(list[ToParent])
_TO_WORKER = msgspec.msgpack.Decoder(list[ToWorker])
_BODY = msgspec.msgpack.Decoder(JobRequest)

# The array headers of the msgpack format, by how many elements fit.
_FIXARRAY_MAX: Final = 0x0F
_FIXARRAY: Final = 0x90
_ARRAY16_MAX: Final = 0xFFFF
_ARRAY16: Final = 0xDC
_ARRAY32: Final = 0xDD


def encode(messages: Sequence[ToParent] | Sequence[ToWorker]) -> bytes:
    """One message part for these messages, in order."""
    return _ENCODER.encode(messages)


def encode_message(message: ToParent | ToWorker) -> bytes:
    """One message without the list around it, to be kept and joined into a part later."""
    return _ENCODER.encode(message)


def join_encoded(messages: Sequence[bytes]) -> bytes:
    """The same message part as ``encode`` makes, from messages that are encoded already."""
    return b"".join((_array_header(len(messages)), *messages))


def encode_body(request: JobRequest) -> bytes:
    """A command's body as it is cut into ``BodyPart`` messages."""
    return _ENCODER.encode(request)


def decode_body(data: bytes) -> JobRequest:
    """The request from its joined parts.

    Raises:
        MalformedFrame: when the bytes are anything else.
    """
    try:
        return _BODY.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise MalformedFrame(str(error)) from error


def decode_to_parent(data: bytes) -> list[ToParent]:
    """What a worker said.

    Raises:
        MalformedFrame: when the bytes are anything else.
    """
    try:
        return _TO_PARENT.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise MalformedFrame(str(error)) from error


def decode_to_worker(data: bytes) -> list[ToWorker]:
    """What the parent said.

    Raises:
        MalformedFrame: when the bytes are anything else.
    """
    try:
        return _TO_WORKER.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise MalformedFrame(str(error)) from error


def _array_header(length: int) -> bytes:
    if length <= _FIXARRAY_MAX:
        return bytes((_FIXARRAY | length,))
    if length <= _ARRAY16_MAX:
        return bytes((_ARRAY16,)) + length.to_bytes(2, "big")
    return bytes((_ARRAY32,)) + length.to_bytes(4, "big")
