"""What can be told about the server without waking anything: models, readiness, metrics."""

from collections.abc import Callable, Iterable, Iterator

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from typing_extensions import override

from app.catalogue.entries import ModelEntry
from app.services.models import Models

Sample = tuple[dict[str, str], float]


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """One model as the model list shows it. ``created`` is Unix seconds."""

    id: str
    created: int
    owned_by: str
    context_length: int | None


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a generation of the default model would start, and if not, why."""

    ready: bool
    reason: str | None = None
    retry_after_s: float | None = None


class Gauge(msgspec.Struct, frozen=True, kw_only=True):
    """One metric, read when it is asked for: nothing is counted twice on the hot path."""

    name: str
    help: str
    read: Callable[[], Iterable[Sample]]
    counter: bool = False


class Overview:
    """Answers the questions of people, probes and scrapers."""

    def __init__(
        self,
        models: Models,
        default_model: str,
        closed: Callable[[], str | None],
        unavailable: Callable[[str], tuple[str, float] | None],
        gauges: Iterable[Gauge],
        version: str,
    ) -> None:
        self._models = models
        self._default = default_model
        self._closed = closed
        self._unavailable = unavailable
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Collected(tuple(gauges), version))

    def models(self) -> list[ModelCard]:
        """The models that can be asked for, the default one first."""
        cards = [_card(entry) for entry in self._models.list()]
        return sorted(cards, key=lambda card: (card.id != self._default, card.id))

    def readiness(self) -> Readiness:
        """Whether the default model is ready or can be started."""
        closed = self._closed()
        if closed is not None:
            return Readiness(ready=False, reason=f"the server is {closed}", retry_after_s=5.0)
        if self._models.find(self._default) is None:
            return Readiness(
                ready=False,
                reason=f"the default model '{self._default}' is not here; "
                f"run `mlxq models pull {self._default}`",
            )
        reason = self._unavailable(self._default)
        if reason is not None:
            return Readiness(ready=False, reason=reason[0], retry_after_s=reason[1])
        return Readiness(ready=True)

    def metrics(self) -> bytes:
        """Every metric in Prometheus' text format."""
        return generate_latest(self._registry)


class _Collected(Collector):
    def __init__(self, gauges: tuple[Gauge, ...], version: str) -> None:
        self._gauges = gauges
        self._version = version

    @override
    def collect(self) -> Iterator[Metric]:
        """Read every gauge now."""
        yield InfoMetricFamily("mlxq", "The server.", value={"version": self._version})
        for gauge in self._gauges:
            yield _family(gauge)


def _family(gauge: Gauge) -> Metric:
    samples = list(gauge.read())
    labels = list(samples[0][0]) if samples else []
    kind = CounterMetricFamily if gauge.counter else GaugeMetricFamily
    family = kind(f"mlxq_{gauge.name}", gauge.help, labels=labels)
    for values, value in samples:
        family.add_metric([values[label] for label in labels], value)
    return family


def _card(entry: ModelEntry) -> ModelCard:
    return ModelCard(
        id=entry.id,
        created=int(entry.created.timestamp()),
        owned_by={"hub": entry.id.partition("/")[0]}.get(entry.source, "mlxq"),
        context_length=entry.context_tokens,
    )
