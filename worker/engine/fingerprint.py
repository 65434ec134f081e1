"""A digest over everything that decides which tokens a model computes.

Two generations of workers with the same fingerprint continue each other's jobs. It covers: config
and generation config, tokenizer files and chat template, the dtype computed in and whether weights
were dequantized, and of every weight file its size, its safetensors header (names, shapes, types
and offsets) and its content: all of it up to 16 MiB, else 64 blocks spread evenly. Another
fine-tune of a model changes every block of its weights; a change of single numbers in a large file
may pass unnoticed.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_WHOLE_BYTES_MAX: Final = 16 * 1024 * 1024
_SAMPLES: Final = 64
_SAMPLE_BYTES: Final = 4_096
_HEADER_BYTES_MAX: Final = 64 * 1024 * 1024
_SMALL_PATTERNS: Final = ("*.json", "*.jinja", "*.model", "*.tiktoken", "*.txt")
_NOT_COVERED: Final = frozenset(
    {"README.txt", "LICENSE.txt", "MODEL.json", "model.safetensors.index.json"}
)


def fingerprint(path: Path, *, dtype: str, dense: bool) -> str:
    """Hexadecimal digest of the model in this directory, computed with this dtype."""
    digest = hashlib.sha256(f"1:{dtype}:{dense}".encode())
    for file in _small_files(path):
        digest.update(_named(file.name, file.read_bytes()))
    for file in sorted(path.glob("*.safetensors")):
        digest.update(_named(file.name, str(file.stat().st_size).encode()))
        for block in _weight_blocks(file):
            digest.update(block)
    return digest.hexdigest()[:32]


def _named(name: str, content: bytes) -> bytes:
    """Name and length first, so that no two sets of files run into the same bytes."""
    return f"{name}:{len(content)}:".encode() + content


def _small_files(path: Path) -> list[Path]:
    found = {file for pattern in _SMALL_PATTERNS for file in path.glob(pattern)}
    return sorted(file for file in found if file.name not in _NOT_COVERED)


def _weight_blocks(file: Path) -> Iterator[bytes]:
    size = file.stat().st_size
    with file.open("rb") as stream:
        if size <= _WHOLE_BYTES_MAX:
            yield stream.read()
            return
        length = int.from_bytes(stream.read(8), "little")
        yield stream.read(min(length, _HEADER_BYTES_MAX))
        for n in range(_SAMPLES):
            stream.seek((size - _SAMPLE_BYTES) * n // (_SAMPLES - 1))
            yield stream.read(_SAMPLE_BYTES)
