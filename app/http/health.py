"""What machines ask: is it alive, would it serve, how is it doing. Asking starts no worker."""

import math
from typing import Final

import msgspec
from litestar import Controller, MediaType, Response, route
from litestar.di import NamedDependency

from app.http.ports import Overview

METRICS_TYPE: Final = "text/plain; version=0.0.4"  # the charset is added to every text type


class Alive(msgspec.Struct, frozen=True):
    """The process answers."""

    status: str = "ok"


class Ready(msgspec.Struct, frozen=True):
    """Whether a generation would start now, and if not, why."""

    ready: bool
    reason: str | None = None


class HealthDoor:
    """Answers from what is known already."""

    def __init__(self, overview: Overview) -> None:
        self._overview = overview

    def readiness(self) -> Response[Ready]:
        """200, or 503 with the reason and when to ask again."""
        state = self._overview.readiness()
        headers: dict[str, str] = {}
        if not state.ready and state.retry_after_s is not None:
            headers["retry-after"] = str(max(1, math.ceil(state.retry_after_s)))
        return Response(
            Ready(state.ready, state.reason),
            status_code=200 if state.ready else 503,
            headers=headers,
            media_type=MediaType.JSON,
        )

    def metrics(self) -> bytes:
        """All metrics as Prometheus reads them."""
        return self._overview.metrics()


class HealthController(Controller):
    """Health and metrics."""

    tags = ("Health",)

    @route(["/", "/v1", "/health", "/livez"], http_method=["GET", "HEAD"])
    async def alive(self) -> Alive:
        """The process answers; nothing else is looked at."""
        return Alive()

    @route("/readyz", http_method=["GET", "HEAD"])
    async def ready(self, health: NamedDependency[HealthDoor]) -> Response[Ready]:
        """200 when a generation would start, else 503 with the reason."""
        return health.readiness()

    @route("/metrics", http_method=["GET", "HEAD"])
    async def metrics(self, health: NamedDependency[HealthDoor]) -> Response[bytes]:
        """Metrics in Prometheus' text format."""
        return Response(health.metrics(), media_type=METRICS_TYPE)
