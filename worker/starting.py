"""What is decided when a prepared job gets its row: pure, apart from the engine's own objects."""

import msgspec

from shared.failures import Failure
from shared.messages import ChoiceResume, Part, RunJob
from worker.engine.engine import EngineInfo, TextCodec
from worker.engine.sequence import Sequence as ChoiceText
from worker.engine.stops import StopStrings


class Opening(msgspec.Struct, frozen=True):
    """How the attempt begins: its text state, and what of earlier attempts is not shown yet."""

    text: ChoiceText
    replayed: tuple[int, ...]
    unshown: tuple[Part, ...]


def refusal(run: RunJob, prompt_tokens: int, digest: str, info: EngineInfo) -> Failure | None:
    """Why this prompt cannot run on this model, if so."""
    if prompt_tokens >= info.context_tokens:
        return context_length_exceeded(prompt_tokens, info.context_tokens)
    if _resumes(run) and _changed(run, digest, info):
        return Failure("model_changed", "The model has changed since the answer was begun.")
    return None


def context_length_exceeded(prompt_tokens: int, context_tokens: int) -> Failure:
    """In the words that clients of OpenAI's API look for."""
    message = (
        f"This model's maximum context length is {context_tokens} tokens. However, your messages "
        f"resulted in {prompt_tokens} tokens. Please reduce the length of the messages."
    )
    return Failure("context_length_exceeded", message, param="messages")


def clamped(max_tokens: int | None, prompt_tokens: int, context_tokens: int) -> int:
    """Completion tokens the job may have: what it asked for, within the room left."""
    room = context_tokens - prompt_tokens
    return room if max_tokens is None else min(max_tokens, room)


def opening(run: RunJob, stops: StopStrings, codec: TextCodec, info: EngineInfo) -> Opening:
    """The attempt's beginning.

    Raises:
        ResumeDiverged: when the tokens of earlier attempts do not give what was shown of them.
    """
    text = ChoiceText(codec.detokenizer(), info.eos_tokens, stops)
    resumed = first_choice(run)
    if resumed is None:
        return Opening(text, (), ())
    unshown = text.resume(
        resumed.tokens,
        items=resumed.items,
        chars=resumed.emitted_chars,
        digest=resumed.emitted_digest,
    )
    return Opening(text, resumed.tokens, unshown)


def first_choice(run: RunJob) -> ChoiceResume | None:
    """Where the only choice stands; None for a first attempt."""
    return run.resume[0] if run.resume else None


def _resumes(run: RunJob) -> bool:
    return any(choice.tokens for choice in run.resume)


def _changed(run: RunJob, digest: str, info: EngineInfo) -> bool:
    other_prompt = run.prompt_digest is not None and run.prompt_digest != digest
    other_model = run.fingerprint is not None and run.fingerprint != info.fingerprint
    return other_prompt or other_model
