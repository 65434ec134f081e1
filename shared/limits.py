"""Every bound that both sides of the wire must agree on, with its unit.

Bounds that one side alone enforces are settings of that side. A limit here is part of the protocol:
changing one is a protocol change.
"""

from typing import Final

PROTOCOL_VERSION: Final = 1
"""Compared in ``Hello``; a difference is refused with both numbers."""

MESSAGE_BYTES_MAX: Final = 4 * 1024 * 1024
"""``ZMQ_MAXMSGSIZE`` on both sockets: a peer that sends more is disconnected by libzmq."""

FRAME_BYTES_MAX: Final = 1024 * 1024
"""Frames are cut at this size, and a command body above it travels in ``Part`` messages."""

REPLAY_WINDOW_FRAMES: Final = 64
"""Frames a worker sends again in one go before it waits for an ``Ack``."""

SOCKET_HWM_MESSAGES: Final = 256
"""High-water mark per peer and direction; credit keeps traffic far under it."""

PARTS_MAX: Final = 64
"""Parts one command body may be cut into (64 MiB, above the largest body setting)."""

IPC_PATH_BYTES_MAX: Final = 100
"""Longest socket path: Linux takes 107 bytes, macOS 103; both minus room for libzmq."""

MESSAGES_MAX: Final = 10_000
"""Chat messages in one request."""

STOP_STRINGS_MAX: Final = 4
STOP_STRING_CHARS_MAX: Final = 4_096

SEED_MAX: Final = 2**64 - 1
"""Seeds are unsigned 64-bit; negative int64 seeds of clients are masked into this range."""
