"""The typed record a worker reads from standard input before anything else.

It comes as one msgpack document after a 4-byte big-endian length. The end of standard input means
nothing afterwards: workers outlive their parent. A worker whose input ends before the record is
whole exits with ``EXIT_NO_LAUNCH_RECORD``.
"""

from typing import Final, Literal

import msgspec

from shared.ids import GenerationId, StoreId
from shared.limits import PROTOCOL_VERSION

EXIT_OK: Final = 0
EXIT_NO_LAUNCH_RECORD: Final = 64
EXIT_LOAD_FAILED: Final = 65
EXIT_PROTOCOL: Final = 66
EXIT_ORPHANED: Final = 67
EXIT_ENGINE_LOST: Final = 68

LAUNCH_BYTES_MAX: Final = 1024 * 1024


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the worker computes. Zero or "auto" leaves the choice to the worker."""

    engine: Literal["mlx", "scripted"] = "mlx"
    model_path: str
    rows: int = 16
    prefetch: int = 4
    prefill_chunk_tokens: int = 128
    context_tokens: int = 0
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    dequantize: Literal["auto", "always", "never"] = "auto"
    device: Literal["auto", "cpu", "gpu"] = "auto"
    blas: Literal["auto", "openblas", "none"] = "auto"
    blas_threads: int = 0
    scripted: str = ""


class LaunchRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a worker needs to know before its first ``Hello``."""

    protocol: int = PROTOCOL_VERSION
    generation: GenerationId
    store: StoreId
    epoch: int
    model: str
    endpoint: str
    cache_dir: str
    engine: EngineSettings
    heartbeat_interval_s: float = 1.0
    orphan_grace_s: float = 60.0
    prepare_timeout_s: float = 30.0
    prepare_threads: int = 1
    frame_buffer_bytes_max: int = 64 * 1024 * 1024
    log_level: str = "info"


def encode_launch(record: LaunchRecord) -> bytes:
    """The bytes to write to the worker's standard input."""
    body = msgspec.msgpack.encode(record)
    return len(body).to_bytes(4, "big") + body


def decode_launch(body: bytes) -> LaunchRecord:
    """The record from the bytes after the length.

    Raises:
        msgspec.ValidationError: when the document is not a launch record.
    """
    return msgspec.msgpack.decode(body, type=LaunchRecord)
