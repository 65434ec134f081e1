"""What the clients of a seed want: some of everything that the job table knows."""

from collections.abc import Callable
from random import Random
from typing import Final

from app.domain.job import Durability, JobClass
from tests.reliability.simulation.clients import Wish

WINDOW_S: Final = 25.0
"""When clients begin and faults happen."""

_CLASSES: Final = tuple(JobClass)


def _plain(chance: Random, n: int) -> Wish:
    return Wish(
        _content(chance, n),
        chance.randrange(1000),
        Durability.DURABLE,
        chance.uniform(0.0, WINDOW_S),
        job_class=chance.choice(_CLASSES),
        keyed=chance.random() < 0.5,
        follows=chance.random() < 0.8,
    )


def _stored(chance: Random, n: int) -> Wish:
    leaves = chance.random() < 0.3
    return Wish(
        _content(chance, n),
        chance.randrange(1000),
        Durability.STORED,
        chance.uniform(0.0, WINDOW_S),
        job_class=JobClass.INTERACTIVE,
        keyed=True,
        leaves_after_s=chance.uniform(0.0, 4.0) if leaves else None,
        codes=frozenset({"model_loading", "model_unavailable"}),
    )


def _cancelled(chance: Random, n: int) -> Wish:
    return Wish(
        _content(chance, n),
        chance.randrange(1000),
        Durability.DURABLE,
        chance.uniform(0.0, WINDOW_S),
        job_class=chance.choice(_CLASSES),
        keyed=chance.random() < 0.5,
        cancels_after_s=chance.choice((0.0, chance.uniform(0.0, 4.0))),
    )


def _attached(chance: Random, n: int) -> Wish:
    leaves = chance.random() < 0.5
    return Wish(
        _content(chance, n),
        chance.randrange(1000),
        Durability.ATTACHED,
        chance.uniform(0.0, WINDOW_S),
        job_class=JobClass.INTERACTIVE,
        max_attempts=chance.randint(1, 2),
        leaves_after_s=chance.uniform(0.0, 4.0) if leaves else None,
        codes=frozenset({"parent_lost", "worker_crashed", "model_loading", "model_unavailable"}),
    )


def _attached_later(chance: Random, n: int) -> Wish:
    return Wish(
        f"later {n} [[tokens=5]]",
        n,
        Durability.ATTACHED,
        chance.uniform(0.0, WINDOW_S),
        starts_in_s=chance.uniform(5.0, 20.0),
        codes=frozenset({"parent_lost", "worker_crashed", "model_loading", "model_unavailable"}),
    )


def _attached_failing(chance: Random, n: int) -> Wish:
    return Wish(
        f"fails {n} [[tokens=9]] [[fail_at={chance.randint(0, 3)}]]",
        n,
        Durability.ATTACHED,
        chance.uniform(0.0, WINDOW_S),
        max_attempts=6,
        codes=frozenset(
            {"parent_lost", "worker_crashed", "model_loading", "model_unavailable", _FAILED}
        ),
    )


def _failing(chance: Random, n: int) -> Wish:
    order = chance.choice(("fail_at", "fail_at", "reject_at"))
    return Wish(
        f"fails {n} [[tokens=12]] [[{order}={chance.randint(0, 9)}]]",
        n,
        Durability.DURABLE,
        chance.uniform(0.0, WINDOW_S),
        max_attempts=chance.randint(1, 6),
        deadline_s=chance.choice((None, None, chance.uniform(1.0, 8.0))),
        cancels_after_s=chance.choice((None, None, chance.uniform(0.5, 9.0))),
        codes=frozenset({_FAILED, *_LATE}),
    )


def _refused(chance: Random, n: int) -> Wish:
    return Wish(
        f"refused {n} [[refuse=no]]",
        n,
        Durability.DURABLE,
        chance.uniform(0.0, WINDOW_S),
        codes=frozenset({"template_error"}),
    )


def _scheduled(chance: Random, n: int) -> Wish:
    starts_in_s = chance.uniform(0.5, 10.0)
    return Wish(
        _content(chance, n),
        chance.randrange(1000),
        Durability.DURABLE,
        chance.uniform(0.0, WINDOW_S),
        starts_in_s=starts_in_s,
        cancels_after_s=chance.choice((None, None, chance.uniform(0.0, 8.0))),
        deadline_s=chance.choice((None, starts_in_s + chance.uniform(0.01, 1.0))),
        codes=frozenset(_LATE),
    )


def _hurried(chance: Random, n: int) -> Wish:
    return Wish(
        _content(chance, n),
        chance.randrange(1000),
        Durability.DURABLE,
        chance.uniform(0.0, WINDOW_S),
        deadline_s=chance.uniform(0.2, 5.0),
        codes=frozenset(_LATE),
    )


def _limited(chance: Random, n: int) -> Wish:
    return Wish(
        f"limited {n} [[tokens=40]]",
        n,
        Durability.DURABLE,
        chance.uniform(0.0, WINDOW_S),
        attempt_timeout_s=chance.uniform(0.3, 2.5),
        max_attempts=chance.randint(1, 3),
        codes=frozenset({"attempt_timeout"}),
    )


def _poison(chance: Random, n: int) -> Wish:
    order = chance.choice(("crash_at", "crash_at", "hang_at"))
    return Wish(
        f"poison {n} [[tokens=8]] [[{order}={chance.randint(0, 5)}]]",
        n,
        Durability.DURABLE,
        chance.uniform(0.0, WINDOW_S),
        job_class=JobClass.BATCH,
        cancels_after_s=chance.choice((None, chance.uniform(1.0, 60.0))),
        codes=frozenset({"worker_crashed"}),
    )


_FAILED: Final = "scripted_failure"
_LATE: Final = ("deadline_exceeded", "model_unavailable")
_KINDS: Final[tuple[Callable[[Random, int], Wish], ...]] = (
    *(_plain,) * 4,
    *(_stored,) * 2,
    *(_cancelled,) * 2,
    *(_attached,) * 2,
    _attached_later,
    _attached_failing,
    _failing,
    _refused,
    *(_scheduled,) * 2,
    _hurried,
    _limited,
)
CLIENTS: Final = (8, 12)
POISONED: Final = 0.06


def _content(chance: Random, n: int) -> str:
    return f"job {n} [[tokens={chance.randint(1, 50)}]]"


def wishes(chance: Random) -> list[Wish]:
    """Those of one seed."""
    made = [chance.choice(_KINDS)(chance, n) for n in range(chance.randint(*CLIENTS))]
    if chance.random() < POISONED:
        made.append(_poison(chance, len(made)))
    return made
