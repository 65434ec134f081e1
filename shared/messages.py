"""The wire protocol: two tagged unions, one per direction.

Structs are array-like msgpack, so fields are only ever appended. Every command carries the epoch of
the parent that sent it and every job event carries (job, attempt): whoever receives a message can
tell a stale one from a current one without asking (invariant I5).

Frames are numbered per generation from 1 without gaps. The worker keeps a frame until the parent's
``Ack`` covers it; the parent acknowledges what it has committed. All answers to commands travel in
frames, so that nothing but frames needs to be delivered reliably.
"""

from typing import Literal

import msgspec

from shared.failures import Failure
from shared.ids import CommandId, GenerationId, JobId, StoreId
from shared.requests import JobRequest

# --- parts: what a follower is shown ---------------------------------------------------------

ItemKind = Literal["message", "reasoning", "tool_call"]
FinishReason = Literal["stop", "length", "cancelled", "error"]


class OpenItem(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False, tag="o"):
    """An output item begins. ``ordinal`` counts the items of a choice from 0."""

    ordinal: int
    kind: ItemKind
    name: str | None = None


class Text(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="t"):
    """Answer text: valid UTF-8, behind every stop string's hold-back, never taken back."""

    text: str


class Reasoning(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="r"):
    """Reasoning text of the open reasoning item."""

    text: str


class ToolArguments(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="a"):
    """A piece of the open tool call's arguments (JSON text when joined)."""

    text: str


class CloseItem(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="c"):
    """The item with this ordinal is complete."""

    ordinal: int


class Finish(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False, tag="f"):
    """This choice has ended; no part of it follows. ``stop`` is the stop string that matched."""

    reason: FinishReason
    stop: str | None = None


Part = OpenItem | Text | Reasoning | ToolArguments | CloseItem | Finish


# --- worker → parent -------------------------------------------------------------------------


class Held(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A (job, attempt) that the worker has accepted or still prepares."""

    job: JobId
    attempt: int


class Hello(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, tag="hello"):
    """First message of a connection, sent before the model is loaded and after each reconnect.

    ``first_unacked`` is the number of the oldest frame the worker still keeps (``last_made + 1``
    when none). ``pid_started`` is the start time of the process in clock ticks since boot, which
    together with ``pid`` names a process for good. ``epoch`` and ``store`` are those of the parent
    it last obeyed (0 and "" before the first ``Welcome``).
    """

    protocol: int
    generation: GenerationId
    pid: int
    pid_started: int
    first_unacked: int
    last_made: int
    held: tuple[Held, ...] = ()
    epoch: int = 0
    store: StoreId = StoreId("")


class Loading(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="loading"):
    """What the worker does before ``Ready``, for people who wait. Unnumbered, may be lost."""

    generation: GenerationId
    stage: Literal["arithmetic", "weights", "warm_up"]
    done: int
    total: int


class Credit(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Room for new jobs, absolute, as of the command ``last_command``.

    The parent subtracts the jobs it sent after that command. ``rows_free`` includes the prefetch.
    """

    rows_free: int
    kv_bytes_free: int
    last_command: int


class Ready(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, tag="ready"):
    """The model is loaded and its kernels are warm. Sent again after each ``Welcome``.

    ``fingerprint`` is a digest over weights, tokenizer, template, adapter, dtype and KV scheme: two
    generations with the same one compute the same tokens.
    """

    generation: GenerationId
    rows: int
    context_tokens: int
    fingerprint: str
    credit: Credit
    load_s: float = 0.0
    arithmetic: str = ""


class Heartbeat(
    msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, tag="hb", gc=False
):
    """Sent from the link thread once per interval, whatever the engine thread does.

    ``steps`` counts finished engine steps and prefill chunks; ``chunk_s_max`` is the slowest so
    far; ``last_made`` and ``last_command`` let the parent notice a lost frame or command.
    """

    generation: GenerationId
    last_made: int
    last_command: int
    rows: int
    pending: int
    steps: int
    chunk_s_max: float = 0.0
    state: Literal["loading", "warming", "serving", "paused", "stopping"] = "serving"
    rss_bytes: int = 0


class Accepted(
    msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False, tag="ok"
):
    """The job is valid for this model and has a row. ``digest`` is of the prompt's token ids.

    ``max_tokens`` is what the request's was clamped to.
    """

    command: CommandId
    job: JobId
    attempt: int
    prompt_tokens: int
    cached_tokens: int
    digest: str
    max_tokens: int


class Refused(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, tag="no"):
    """The job was not started: ``never`` ends it with the failure, ``later`` gives it back,
    ``stale`` says that this worker has seen a higher attempt or obeys a newer parent."""

    command: CommandId
    job: JobId
    attempt: int
    kind: Literal["never", "later", "stale"]
    failure: Failure


class Progress(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="pg"):
    """Prompt tokens computed so far, one per prefill chunk."""

    job: JobId
    attempt: int
    done: int
    total: int


class Delta(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, tag="d"):
    """New tokens of one choice, the parts they became, in order.

    ``index`` is the position of the first token in the choice's completion. Tokens whose text is
    held back come without parts; parts may come later without tokens of their own. ``logprobs``
    is empty unless the request asked for them, else one per token.
    """

    job: JobId
    attempt: int
    choice: int
    index: int
    tokens: tuple[int, ...]
    parts: tuple[Part, ...] = ()
    logprobs: tuple[float, ...] = ()


class Finished(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="end"):
    """Every choice has its ``Finish``. Counts are of this attempt only."""

    job: JobId
    attempt: int
    completion_tokens: int
    reasoning_tokens: int


class Stopped(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="stop"):
    """The row is gone because the parent asked: no token of this attempt follows."""

    job: JobId
    attempt: int
    reason: Literal["cancelled", "preempted", "exit"]
    completion_tokens: int
    reasoning_tokens: int


class Failed(msgspec.Struct, frozen=True, array_like=True, tag="fail"):
    """The attempt failed by its own fault or the engine's; the row is gone."""

    job: JobId
    attempt: int
    failure: Failure
    completion_tokens: int
    reasoning_tokens: int


class Answer(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, tag="ans"):
    """The outcome of a command that is not ``RunJob``; ``not_held`` for a job that is not here."""

    command: CommandId
    code: str
    body: bytes = b""


Event = Accepted | Refused | Progress | Delta | Finished | Stopped | Failed | Answer


class Frame(msgspec.Struct, frozen=True, array_like=True, tag="frame"):
    """All that one engine step produced, for all rows. Numbered from 1 per generation."""

    generation: GenerationId
    seq: int
    credit: Credit
    events: tuple[Event, ...]


ToParent = Hello | Loading | Ready | Heartbeat | Frame


# --- parent → worker -------------------------------------------------------------------------


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag="welcome"):
    """Adopts the worker: frames up to ``last_seq`` are committed, later ones are sent again."""

    epoch: int
    store: StoreId
    generation: GenerationId
    last_seq: int


class Identify(msgspec.Struct, frozen=True, array_like=True, tag="identify"):
    """The parent does not know this connection: say ``Hello``."""

    epoch: int


class ParentHeartbeat(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="phb"):
    """Committed and received frame numbers, and the highest command sent to this worker."""

    epoch: int
    last_seq: int
    received: int
    last_command: int


class Ack(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="ack"):
    """Frames up to ``seq`` are committed; the worker forgets them and the answers in them."""

    epoch: int
    seq: int


class Replay(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="replay"):
    """Send the frames from this number again, a window at a time."""

    epoch: int
    from_seq: int


class ChoiceResume(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """Where one choice of a resumed job stands: replaying the tokens silently rebuilds the rest."""

    choice: int
    tokens: tuple[int, ...]
    finished: bool = False
    items: int = 0
    emitted_chars: int = 0
    emitted_digest: str = ""
    logprobs_unshown: tuple[float, ...] = ()


class RunJob(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, tag="run"):
    """Run one attempt. Built from the job row (attached: from memory) at every send.

    ``created_at`` is the job's creation in Unix seconds: the template's clock. ``prompt_digest``
    is that of the first ``Accepted``, None before it. ``request`` is None when the body travels in
    ``BodyPart`` messages; ``body_digest`` is then its SHA-256. Jobs of a lower ``class_rank`` get a
    row first.
    """

    epoch: int
    store: StoreId
    command: CommandId
    job: JobId
    attempt: int
    created_at: int
    request: JobRequest | None
    resume: tuple[ChoiceResume, ...] = ()
    prompt_digest: str | None = None
    fingerprint: str | None = None
    body_digest: str | None = None
    body_parts: int = 0
    class_rank: int = 0


class BodyPart(msgspec.Struct, frozen=True, array_like=True, tag="part"):
    """Piece ``n`` (from 0) of ``of`` of a command's body."""

    epoch: int
    command: CommandId
    n: int
    of: int
    data: bytes


class Cancel(msgspec.Struct, frozen=True, array_like=True, tag="cancel"):
    """Stop the attempt. Answered by its terminal event, or ``Answer{not_held}``.

    ``command`` 0 marks a cancel that is no outbox row: for an attempt the parent does not know.
    """

    epoch: int
    command: CommandId
    job: JobId
    attempt: int


class Preempt(msgspec.Struct, frozen=True, array_like=True, tag="preempt"):
    """Give the row back; the job goes on later. Answered as ``Cancel``."""

    epoch: int
    command: CommandId
    job: JobId
    attempt: int


class Seal(msgspec.Struct, frozen=True, array_like=True, tag="seal"):
    """Finish counting: the answer's body carries the generation's own totals."""

    epoch: int
    command: CommandId


class Exit(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, tag="exit"):
    """Stop all rows, flush, leave. Obeyed from any epoch not lower than the worker's own.

    ``generation`` names who is meant, so that a misrouted Exit hits no one else.
    """

    epoch: int
    generation: GenerationId
    reason: str = ""


ToWorker = (
    Welcome
    | Identify
    | ParentHeartbeat
    | Ack
    | Replay
    | RunJob
    | BodyPart
    | Cancel
    | Preempt
    | Seal
    | Exit
)
