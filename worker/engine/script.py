"""What the scripted engine can be told to do: by its settings, and by any prompt.

`EngineSettings.scripted` is a JSON object with the fields of `Script`; unknown ones are an error.

A prompt gives orders in double square brackets in its last user message, as many as it likes:
``[[tokens=50]] [[crash_at=10]]``. They hold for that row alone and are the fields of `Orders`. In
all of them ``_at=N`` is an index into the completion, counted from 0 over all attempts, and takes
effect instead of the N-th token:

==================  ============================================================================
``tokens=N``        the answer has N tokens, then ends by itself (default: the script's `length`)
``say=TEXT``        the answer is TEXT, then ends by itself; may hold anything but ``]]``
``crash_at=N``      the process kills itself with SIGKILL, in every attempt that gets there
``crash_once_at=N`` the same, but only in an attempt to which nothing was replayed
``exit_at=N``       the process ends with status 70, as after an uncaught exception
``fail_at=N``       the row fails (`scripted_failure`, retryable)
``reject_at=N``     the row fails (`scripted_failure`, not retryable)
``raise_at=N``      the step raises RuntimeError
``lost_at=N``       the step raises `EngineLost`
``hang_at=N``       the step never returns
``sleep_at=N``      the step takes ``sleep_s`` longer, once (default 1 s)
``prepare_s=S``     rendering the prompt takes S seconds longer
``refuse=TEXT``     the template refuses the conversation with this text
==================  ============================================================================
"""

import re
from typing import Annotated, Final

import msgspec
from msgspec import Meta

_ORDER: Final = re.compile(r"\[\[(\w+)=(.*?)\]\]", re.DOTALL)

Seconds = Annotated[float, Meta(ge=0.0, le=3600.0)]
Index = Annotated[int, Meta(ge=0)]


class Script(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the scripted engine behaves.

    ``step_s`` is the time of one decode step whatever the number of rows, ``prefill_s`` that of one
    prompt chunk, ``load_s`` that of loading, ``warm_up_s`` that of warming up and ``prepare_s``
    that of rendering a prompt. ``load_error`` makes loading fail with this text. ``length`` is the
    number of tokens of an answer. ``obey_prompts`` False ignores orders in prompts. ``fingerprint``
    is mixed into the model's, to play another model.
    """

    step_s: Seconds = 0.0
    prefill_s: Seconds = 0.0
    load_s: Seconds = 0.0
    warm_up_s: Seconds = 0.0
    prepare_s: Seconds = 0.0
    load_error: str = ""
    context_tokens: Annotated[int, Meta(ge=16)] = 8_192
    length: Annotated[int, Meta(ge=0)] = 32
    obey_prompts: bool = True
    fingerprint: str = ""


class Orders(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one prompt asks for; see the head of this file."""

    tokens: Index | None = None
    say: str | None = None
    crash_at: Index | None = None
    crash_once_at: Index | None = None
    exit_at: Index | None = None
    fail_at: Index | None = None
    reject_at: Index | None = None
    raise_at: Index | None = None
    lost_at: Index | None = None
    hang_at: Index | None = None
    sleep_at: Index | None = None
    sleep_s: Seconds = 1.0
    prepare_s: Seconds = 0.0
    refuse: str | None = None


def read_script(text: str) -> Script:
    """The script from its JSON; an empty text is the default one.

    Raises:
        ValueError: when it is no script.
    """
    return msgspec.json.decode(text, type=Script) if text.strip() else Script()


def read_orders(text: str) -> Orders:
    """The orders in a user's message.

    Raises:
        ValueError: when an order is unknown or its value is of the wrong kind.
    """
    return msgspec.convert(dict(_ORDER.findall(text)), Orders, strict=False)
