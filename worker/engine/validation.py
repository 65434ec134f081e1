"""What an engine refuses before a row is touched. An invalid row inside a step costs all rows."""

from collections.abc import Container

from worker.engine.engine import EngineInfo, RowId, RowSpec


def validate(spec: RowSpec, info: EngineInfo, live: Container[RowId]) -> None:
    """Check a spec against the model.

    Raises:
        ValueError: which says what is wrong.
    """
    if spec.row in live:
        raise ValueError(f"row {spec.row} is in the batch already")
    if not spec.prompt:
        raise ValueError("the prompt is empty")
    if spec.max_tokens < 1:
        raise ValueError("max_tokens must be at least 1")
    length = len(spec.prompt) + len(spec.replayed)
    if length + spec.max_tokens > info.context_tokens:
        raise ValueError(
            f"{length} tokens and {spec.max_tokens} to come exceed "
            f"the context of {info.context_tokens}"
        )
    for tokens in (spec.prompt, spec.replayed):
        if tokens and not 0 <= min(tokens) <= max(tokens) < info.vocab_size:
            raise ValueError(f"a token is outside the vocabulary of {info.vocab_size}")
