"""The metrics of what waits for other jobs, and of what waits for the clock."""

from app.services.dependents import Dependents
from app.services.gauges import counter, gauge
from app.services.overview import Gauge
from app.services.timetable import Timetable


def waiting_gauges(dependents: Dependents, timetable: Timetable) -> list[Gauge]:
    """All of them."""
    return [
        gauge("jobs_held_back", "Jobs that wait for other jobs.", lambda: len(dependents)),
        gauge("schedules_active", "Schedules that fire.", lambda: len(timetable)),
        counter("schedules_fired", "Jobs that schedules submitted.", lambda: timetable.fired),
    ]
