"""The HTTP application: controllers, error answers, and the layers around them."""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from litestar import Litestar
from litestar.di import Provide
from litestar.openapi import OpenAPIConfig
from litestar.plugins import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin
from typing_extensions import override

from app.http.accounting.controller import AccountingController
from app.http.accounting.door import AccountingDoor
from app.http.admin.drain import AdminController, AdminDoor
from app.http.admin.models import AdminModelsController, WorkersDoor
from app.http.errors import EXCEPTION_HANDLERS
from app.http.guards import HostCheck
from app.http.health import HealthController, HealthDoor
from app.http.native.controller import JobsController
from app.http.native.following import EventsDoor
from app.http.native.jobs import JobsDoor
from app.http.openai.chat import ChatController, ChatDoor
from app.http.openai.models import ModelsController, ModelsDoor
from app.http.ports import Ports
from app.http.reports.controller import ConsumersController, ReportsController
from app.http.reports.door import ReportsDoor
from app.http.reports.streaming import ReportStreamDoor
from app.http.request_id import RequestId
from app.http.schedules.controller import SchedulesController
from app.http.schedules.door import SchedulesDoor
from app.http.sse import StreamLimits
from app.http.webhooks.controller import (
    WebhookEndpointsController,
    WebhookEventTypesController,
)
from app.http.webhooks.door import WebhooksDoor
from app.services.entropy import Entropy
from app.settings import ServerSettings
from shared.ids import IdMint

WRITE_TIMEOUT_S: Final = 30.0
"""How long a client may leave its socket full before it counts as gone."""


class Application(Litestar):
    """Litestar without its support for models of pydantic and attrs, of which there are none here:
    where these are installed, that alone makes every start half a second longer and the process 12
    MB larger. Should a later Litestar name this otherwise, it is merely slower again."""

    @staticmethod
    @override
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        return [*plugins, MsgspecDIPlugin()]


Lifespan = Callable[[Litestar], AbstractAsyncContextManager[Any]]


def create_app(
    ports: Ports[Any],
    settings: ServerSettings,
    lifespan: Sequence[Lifespan] = (),
    *,
    version: str = "0",
    write_timeout_s: float = WRITE_TIMEOUT_S,
) -> Litestar:
    """The application over these services. Nothing runs before its lifespan does."""
    limits = StreamLimits(
        keepalive_interval_s=settings.keepalive_interval_s, write_timeout_s=write_timeout_s
    )
    app = Application(
        route_handlers=[
            ChatController,
            ModelsController,
            JobsController,
            SchedulesController,
            ReportsController,
            ConsumersController,
            WebhookEndpointsController,
            WebhookEventTypesController,
            AccountingController,
            AdminController,
            AdminModelsController,
            HealthController,
        ],
        dependencies={
            "chat": _always(ChatDoor(ports, limits, settings.body_bytes_max)),
            "jobs": _always(JobsDoor(ports, settings.body_bytes_max)),
            "events": _always(EventsDoor(ports.following, limits)),
            "schedules": _always(SchedulesDoor(ports.schedules)),
            "reports": _always(ReportsDoor(ports.reports)),
            "webhooks": _always(WebhooksDoor(ports.webhooks)),
            "accounting": _always(AccountingDoor(ports.accounting)),
            "report_stream": _always(ReportStreamDoor(ports.reports, limits)),
            "admin": _always(AdminDoor(ports.draining, ports.administration, ports.overview)),
            "workers": _always(WorkersDoor(ports.administration)),
            "models": _always(ModelsDoor(ports.overview)),
            "health": _always(HealthDoor(ports.overview)),
        },
        exception_handlers=EXCEPTION_HANDLERS,
        lifespan=list(lifespan),
        openapi_config=_document(version),
        logging_config=None,
    )
    _surround(app, settings)
    return app


def _document(version: str) -> OpenAPIConfig:
    return OpenAPIConfig(title="mlxq", version=version, path="/schema", use_handler_docstrings=True)


def _surround(app: Litestar, settings: ServerSettings) -> None:
    # Around the application's own error handling: Litestar's middleware skips unknown paths.
    checked = HostCheck(app.asgi_handler, settings.host, settings.allowed_hosts)
    mint = IdMint(lambda: time.time_ns() // 1_000_000, Entropy())
    app.asgi_handler = RequestId(checked, mint)


def _always(door: object) -> Provide:
    # One per handler: Litestar resolves several in a task group, and a single one directly.
    return Provide(lambda: door, sync_to_thread=False)
