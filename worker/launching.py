"""Reading the launch record, before anything else happens in the process."""

import os
import sys
from typing import BinaryIO

import msgspec

from shared.launch import LAUNCH_BYTES_MAX, LaunchRecord, decode_launch
from shared.limits import PROTOCOL_VERSION

_LENGTH_BYTES = 4


class NoLaunchRecord(Exception):
    """Standard input held no launch record."""


class OtherProtocol(Exception):
    """The parent speaks another version of the protocol."""


class _Version(msgspec.Struct):
    """The one field that every version of the record has."""

    protocol: int


def read_launch(stream: BinaryIO) -> LaunchRecord:
    """The record.

    Raises:
        NoLaunchRecord: when the input ends early or holds something else.
        OtherProtocol: when it is the record of another protocol version.
    """
    length = int.from_bytes(_exactly(stream, _LENGTH_BYTES), "big")
    if length > LAUNCH_BYTES_MAX:
        raise NoLaunchRecord(f"a launch record of {length} bytes, {LAUNCH_BYTES_MAX} are taken")
    body = _exactly(stream, length)
    try:
        # Looked at alone, since the record of another version may not decode as ours.
        version = msgspec.msgpack.decode(body, type=_Version).protocol
        if version != PROTOCOL_VERSION:
            raise OtherProtocol(
                f"this worker speaks protocol {PROTOCOL_VERSION}, the parent {version}"
            )
        return decode_launch(body)
    except msgspec.MsgspecError as error:
        raise NoLaunchRecord(f"standard input holds no launch record: {error}") from error


def detach_input() -> None:
    """Let nothing read standard input again; its end has no meaning."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, sys.stdin.fileno())
    os.close(nothing)


def _exactly(stream: BinaryIO, length: int) -> bytes:
    data = stream.read(length)
    if len(data) < length:
        raise NoLaunchRecord("standard input ended before the launch record was whole")
    return data
