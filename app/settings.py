"""Every setting, with its unit, its bounds and what it is for.

One frozen struct per section of the TOML file. `app/settings_load.py` fills them from flags, the
environment and the file; nothing else in the project reads the environment for a setting. Names
end in their unit; every duration is in seconds.
"""

import os
from pathlib import Path
from typing import Annotated, Literal

import platformdirs
from msgspec import Meta, Struct, field

APP_NAME = "mlxq"
DEFAULT_MODEL = "smollm2-135m-instruct"

_YEAR_S = 31_536_000
_DAY_S = 86_400
_GIB = 1 << 30


def hub_cache_dir(environ: dict[str, str] | None = None) -> Path:
    """Where this user's Hugging Face clients keep repositories, by their own variables."""
    env = dict(os.environ) if environ is None else environ
    if direct := env.get("HF_HUB_CACHE") or env.get("HUGGINGFACE_HUB_CACHE"):
        return Path(direct).expanduser()
    if home := env.get("HF_HOME"):
        return Path(home).expanduser() / "hub"
    cache = env.get("XDG_CACHE_HOME")
    root = Path(cache) if cache else Path.home() / ".cache"
    return root.expanduser() / "huggingface" / "hub"


def _data_dir() -> Path:
    return platformdirs.user_data_path(APP_NAME, appauthor=False)


def _cache_dir() -> Path:
    return platformdirs.user_cache_path(APP_NAME, appauthor=False)


class ServerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The HTTP door and how it closes."""

    host: Annotated[str, Meta(description="Loopback address to listen on")] = "127.0.0.1"
    port: Annotated[
        int, Meta(description="Port to listen on; 0 takes any free one", ge=0, le=65535)
    ] = 8000
    allowed_hosts: Annotated[
        list[str], Meta(description="Host names accepted beside localhost, 127.0.0.1 and [::1]")
    ] = field(default_factory=list[str])
    body_bytes_max: Annotated[
        int, Meta(description="Largest request body in bytes; above it 413", ge=1024, le=_GIB)
    ] = 33_554_432
    header_wait_s: Annotated[
        float,
        Meta(description="How long a stream's status waits for the worker's answer", ge=0, le=3600),
    ] = 10.0
    start_timeout_s: Annotated[
        float,
        Meta(
            description="How long a foreground request waits for a worker to start", ge=0, le=_DAY_S
        ),
    ] = 60.0
    shutdown_grace_s: Annotated[
        float, Meta(description="How long a stop lets attached work finish", ge=0, le=_DAY_S)
    ] = 30.0
    cancel_wait_s: Annotated[
        float, Meta(description="How long a cancel request waits for the job's end", ge=0, le=60)
    ] = 2.0
    resume_wait_s: Annotated[
        float,
        Meta(
            description="How long a foreground request waits when its worker died", ge=0, le=_DAY_S
        ),
    ] = 60.0
    keepalive_interval_s: Annotated[
        float,
        Meta(description="Silence on a stream after which a keep-alive is sent", ge=0.1, le=600),
    ] = 10.0


class StorageSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where files lie."""

    data_dir: Annotated[
        Path, Meta(description="Database, models, logs; one parent at a time holds it")
    ] = field(default_factory=_data_dir)
    cache_dir: Annotated[
        Path, Meta(description="What can be made again: the BLAS copy, downloads, compiled kernels")
    ] = field(default_factory=_cache_dir)
    ballast_bytes: Annotated[
        int,
        Meta(
            description="Room kept on the disk of `data_dir` for what is at work when it is full",
            ge=0,
            le=16 * _GIB,
        ),
    ] = 67_108_864


class ModelsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which model is served and where others are found."""

    default: Annotated[
        str,
        Meta(
            description="Model id that is announced, and that `/readyz` tells of",
            min_length=1,
            max_length=512,
        ),
    ] = DEFAULT_MODEL
    hub_cache: Annotated[
        Path,
        Meta(
            description="Hugging Face hub cache, read only (HF_HUB_CACHE and HF_HOME are honoured)"
        ),
    ] = field(default_factory=hub_cache_dir)


class WorkerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The process that runs a model, and when it is given up."""

    engine: Annotated[
        Literal["mlx", "scripted"],
        Meta(description="`scripted` answers without a model, for tests"),
    ] = "mlx"
    scripted: Annotated[
        str,
        Meta(description="JSON text for the scripted engine (scripted.md); empty for its default"),
    ] = ""
    rows: Annotated[int, Meta(description="Sequences generated at once", ge=1, le=256)] = 16
    prefetch: Annotated[
        int, Meta(description="Jobs handed over beyond the rows, so that none idles", ge=0, le=256)
    ] = 4
    prefill_chunk_tokens: Annotated[
        int, Meta(description="Prompt tokens computed between two steps", ge=1, le=65_536)
    ] = 128
    context_tokens: Annotated[
        int,
        Meta(description="Context length in tokens; 0 takes the model's own", ge=0, le=16_777_216),
    ] = 0
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"],
        Meta(description="Type computed in; auto: float32 on the CPU, the model's own on a GPU"),
    ] = "auto"
    dequantize: Annotated[
        Literal["auto", "always", "never"],
        Meta(description="Unpack quantized weights at load; auto: on the CPU only"),
    ] = "auto"
    device: Annotated[
        Literal["auto", "cpu", "gpu"], Meta(description="Device; auto: the GPU where there is one")
    ] = "auto"
    blas: Annotated[
        Literal["auto", "openblas", "none"],
        Meta(description="Matrix library of the CPU build; none: the slow one in the wheel"),
    ] = "auto"
    blas_threads: Annotated[
        int,
        Meta(
            description="Threads of the matrix library; 0: physical cores less one", ge=0, le=1024
        ),
    ] = 0
    ready_timeout_s: Annotated[
        float, Meta(description="From the spawn to `Ready`, loading included", gt=0, le=_DAY_S)
    ] = 900.0
    orphan_grace_s: Annotated[
        float, Meta(description="How long a worker goes on without a parent", ge=0, le=_DAY_S)
    ] = 60.0
    heartbeat_interval_s: Annotated[
        float, Meta(description="Time between two heartbeats", ge=0.05, le=60)
    ] = 1.0
    heartbeat_timeout_s: Annotated[
        float, Meta(description="Silence after which a worker counts as lost", ge=0.1, le=3600)
    ] = 10.0
    engine_stall_s: Annotated[
        float,
        Meta(
            description="No finished step for this long with work at hand: wedged", gt=0, le=_DAY_S
        ),
    ] = 30.0
    prepare_timeout_s: Annotated[
        float,
        Meta(description="Limit for rendering, tokenizing and grammar building", gt=0, le=3600),
    ] = 30.0
    prepare_threads: Annotated[
        int, Meta(description="Threads that prepare prompts beside the engine", ge=1, le=64)
    ] = 1
    stop_grace_s: Annotated[
        float, Meta(description="From the polite stop to the kill", ge=0, le=3600)
    ] = 10.0
    frame_buffer_bytes_max: Annotated[
        int,
        Meta(
            description="Unacknowledged output kept by a worker; full: it pauses",
            ge=65_536,
            le=16 * _GIB,
        ),
    ] = 67_108_864
    log_bytes_max: Annotated[
        int, Meta(description="Size of one worker log file in bytes", ge=65_536, le=16 * _GIB)
    ] = 8_388_608
    restart_limit: Annotated[
        int,
        Meta(
            description="Deaths of a model's workers within the window with which it is given up "
            "for a while; 0 as 1",
            ge=0,
            le=1000,
        ),
    ] = 3
    restart_window_s: Annotated[
        float, Meta(description="Window in which restarts are counted", gt=0, le=_DAY_S)
    ] = 60.0
    poison_alone_after: Annotated[
        int,
        Meta(
            description="Deaths held against a job, which then runs alone until it gets further",
            ge=1,
            le=1000,
        ),
    ] = 1
    poison_failed_after: Annotated[
        int, Meta(description="Deaths of a job that runs alone; then it fails", ge=1, le=1000)
    ] = 1


class QueueSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much may wait, and for how long."""

    interactive_max: Annotated[
        int, Meta(description="Waiting interactive jobs; above it 429", ge=1, le=1_000_000)
    ] = 256
    background_max: Annotated[
        int, Meta(description="Waiting background jobs; above it 429", ge=1, le=100_000_000)
    ] = 100_000
    batch_max: Annotated[
        int, Meta(description="Waiting batch lines; above it 429", ge=1, le=100_000_000)
    ] = 1_000_000
    waiting_bytes_max: Annotated[
        int,
        Meta(
            description="Bytes of waiting attached requests kept in memory",
            ge=1 << 20,
            le=1024 * _GIB,
        ),
    ] = 536_870_912
    writer_max: Annotated[
        int,
        Meta(
            description="Operations waiting for the database writer; above it 503",
            ge=16,
            le=10_000_000,
        ),
    ] = 10_000
    tenant_max: Annotated[
        int,
        Meta(
            description="Waiting jobs of one tenant, all models; above it 429; 0: any number",
            ge=0,
            le=100_000_000,
        ),
    ] = 0
    tenant_rows_max: Annotated[
        int,
        Meta(
            description="Jobs of one tenant at one model's worker; 0: any number", ge=0, le=100_000
        ),
    ] = 0
    ageing_s: Annotated[
        float,
        Meta(description="Waiting time that counts as one step of priority", ge=0.1, le=_YEAR_S),
    ] = 60.0
    starve_s: Annotated[
        float,
        Meta(
            description="Waiting time after which a lower class keeps a row, or 5 % of the tokens",
            ge=0,
            le=_YEAR_S,
        ),
    ] = 60.0
    deadline_s: Annotated[
        float, Meta(description="Deadline of a job that names none", gt=0, le=_YEAR_S)
    ] = 604_800.0


class RetentionSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long what has ended is kept."""

    jobs_s: Annotated[
        float, Meta(description="Ended jobs with their output", ge=0, le=10 * _YEAR_S)
    ] = 2_592_000.0
    reports_s: Annotated[
        float, Meta(description="Reports of how jobs ended", ge=0, le=10 * _YEAR_S)
    ] = 2_592_000.0
    reports_bytes_max: Annotated[
        int,
        Meta(
            description="Bytes of reports kept; over it the slowest consumer is parked",
            ge=65_536,
            le=1024 * _GIB,
        ),
    ] = _GIB
    consumer_expiry_s: Annotated[
        float,
        Meta(
            description="A consumer of reports that is away for longer is parked",
            ge=1,
            le=10 * _YEAR_S,
        ),
    ] = 604_800.0
    logs_s: Annotated[
        float, Meta(description="Logs of workers that are gone", ge=0, le=10 * _YEAR_S)
    ] = 604_800.0


class WebhookSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How reports are sent to webhook endpoints."""

    allowed_networks: Annotated[
        list[str],
        Meta(
            description="Networks that endpoints may lie in beside public addresses:"
            " `loopback`, `private`, or as 10.1.0.0/16"
        ),
    ] = field(default_factory=list[str])
    timeout_s: Annotated[
        float, Meta(description="How long an endpoint may take to answer", ge=0.1, le=300)
    ] = 15.0
    give_up_s: Annotated[
        float,
        Meta(description="How long a delivery is tried; then it is parked", ge=1, le=_YEAR_S),
    ] = 259_200.0


class LogSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is logged and how it looks."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="Least level that is logged")
    ] = "info"
    format: Annotated[
        Literal["auto", "console", "json"],
        Meta(description="auto: console on a terminal, JSON lines elsewhere"),
    ] = "auto"


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All sections. `Settings()` is the defaults."""

    server: ServerSettings = field(default_factory=ServerSettings)
    storage: StorageSettings = field(default_factory=StorageSettings)
    models: ModelsSettings = field(default_factory=ModelsSettings)
    worker: WorkerSettings = field(default_factory=WorkerSettings)
    queue: QueueSettings = field(default_factory=QueueSettings)
    retention: RetentionSettings = field(default_factory=RetentionSettings)
    webhooks: WebhookSettings = field(default_factory=WebhookSettings)
    log: LogSettings = field(default_factory=LogSettings)

    @property
    def models_dir(self) -> Path:
        """Where our own models lie, one directory per id."""
        return self.storage.data_dir / "models"
