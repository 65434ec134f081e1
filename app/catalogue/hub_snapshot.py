"""Fetch one repository from the Hugging Face hub into its cache.

    python -m app.catalogue.hub_snapshot ORG/NAME CACHE_DIR

A process of its own, so that the hub's client is never imported by the server. The size goes to
standard error before the download. On failure one line goes to standard output; the exit status is
3 when the hub cannot be reached, else 1. An interrupted download goes on at the next try.
"""

import sys
from typing import Any, cast

import huggingface_hub
from huggingface_hub.errors import (
    DryRunError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)

NOT_REACHABLE = 3

# What mlx-lm itself fetches.
ALLOWED = [
    "*.json", "*.jsonl", "model*.safetensors", "tokenizer.model", "*.tiktoken", "tiktoken.model",
    "*.txt", "*.jinja", "*.py",
]  # fmt: skip


def fetch(repository: str, cache_dir: str) -> tuple[int, str]:
    """Download what mlx-lm needs. Returns the exit status and, on failure, one line."""
    download = cast("Any", huggingface_hub).snapshot_download  # partly untyped
    try:
        plan = download(repository, cache_dir=cache_dir, allow_patterns=ALLOWED, dry_run=True)
        total = sum(file.file_size for file in plan if file.will_download)
        print(f"{repository}: {total / 1e6:.1f} MB to download", file=sys.stderr)
        download(repository, cache_dir=cache_dir, allow_patterns=ALLOWED)
    except RepositoryNotFoundError:
        return 1, "there is no such repository, or it is private and HF_TOKEN is not set"
    except (DryRunError, LocalEntryNotFoundError) as error:
        cause = _root_cause(error)
        if isinstance(cause, HfHubHTTPError):
            return 1, _line(cause)
        return NOT_REACHABLE, _line(cause)
    except (HfHubHTTPError, OSError, ValueError) as error:
        return 1, _line(error)
    return 0, ""


def _root_cause(error: BaseException) -> BaseException:
    """The first of the chain, or the hub's own answer where there is one in it."""
    while error.__cause__ is not None and not isinstance(error, HfHubHTTPError):
        error = error.__cause__
    return error


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def main() -> int:
    """Run from the command line."""
    status, line = fetch(sys.argv[1], sys.argv[2])
    if line:
        print(line)
    return status


if __name__ == "__main__":
    sys.exit(main())
