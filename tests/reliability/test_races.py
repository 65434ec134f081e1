"""Two things that arrive at once, in both orders, with a crash between them: what was committed
first stands, and nothing is lost or done twice."""

from collections.abc import Callable
from datetime import timedelta
from typing import Final

import pytest

from app.domain.feed import Selection
from app.domain.job import JobClass, JobState, Usage
from app.domain.receipts import Rank
from app.storage.accounting import load_pending_receipts
from app.storage.consumers import ack_consumer, insert_consumer
from app.storage.feed_reading import load_feed_page
from app.storage.generations import generation_gone, generation_ready, insert_generation
from app.storage.jobs import end_waiting_job, insert_job
from app.storage.operations import NewReceipt
from app.storage.receipts import ack_receipt, write_receipts
from app.storage.report_retention import delete_reports, load_old_reports
from shared.ids import report_id
from shared.messages import Finished, Stopped
from tests.integration.storage.making import GENERATION, NOW, job_id, make_ending, make_job
from tests.reliability.counts import NewCampaign
from tests.reliability.simulation.clients import Client
from tests.reliability.simulation.playing import machine_of
from tests.reliability.simulation.scene import TOKENS, Scene
from tests.reliability.store.bench import Bench

SMALL: Final = 20
LARGE: Final = 1_000


def _crash_or_not(scene: Scene) -> None:
    """Between the two: the parent dies, or only time passes."""
    if scene.machine.parent is None or scene.chance.random() < 0.7:
        scene.restart()
    else:
        scene.world.run(lambda: False, scene.chance.random() * 0.01)


def _moment(scene: Scene) -> int:
    return scene.chance.randint(1, TOKENS - 2)


# --- complete and cancel -------------------------------------------------------------------------


def complete_then_cancel(scene: Scene) -> None:
    client = scene.asks()
    scene.until_tokens(client, TOKENS - 1)
    scene.machine.wire.hold()
    scene.until_held(Finished)
    scene.machine.wire.release()
    scene.machine.disk.dies = scene.chance.choice((None, "after commit"))
    scene.commits("frame")
    _crash_or_not(scene)
    scene.cancel(client)
    scene.settle()
    _assert_state(client, JobState.COMPLETED)


def cancel_then_complete(scene: Scene) -> None:
    client = scene.asks()
    scene.until_tokens(client, _moment(scene))
    scene.machine.wire.hold()
    scene.until_held(Finished)
    scene.cancel(client)
    scene.commits("request_stop")
    if scene.chance.random() < 0.7:
        scene.restart()
    scene.settle()
    _assert_state(client, JobState.COMPLETED)


# --- complete and loss ---------------------------------------------------------------------------


def complete_then_loss(scene: Scene) -> None:
    client = scene.asks()
    scene.until_tokens(client, _moment(scene))
    scene.machine.wire.hold()
    scene.until_held(Finished)
    worker = scene.worker
    scene.machine.wire.release()
    scene.commits("frame")
    _crash_or_not(scene)
    worker.kill()
    scene.settle()
    _assert_state(client, JobState.COMPLETED)


def loss_then_complete(scene: Scene) -> None:
    """The ending comes after the loss is committed: it is void, and the job goes on."""
    client = scene.asks()
    scene.until_tokens(client, _moment(scene))
    scene.machine.wire.hold()
    scene.until_held(Finished)
    held = list(scene.machine.wire.held or [])
    scene.worker.kill()
    scene.commits("lose_generation")
    _crash_or_not(scene)
    scene.machine.wire.release(lose=True)
    for dealer, part in held:
        router = scene.machine.wire.router_now
        if router is not None:
            router.take(dealer.identity, part)
    scene.settle()
    _assert_state(client, JobState.COMPLETED)


# --- cancel and pre-empt -------------------------------------------------------------------------


def cancel_then_preempt(scene: Scene) -> None:
    client = scene.asks(JobClass.BATCH, tokens=60)
    scene.until_tokens(client, 33)
    scene.machine.wire.hold()
    scene.cancel(client)
    scene.commits("request_stop")
    _crash_or_not(scene)
    scene.asks(JobClass.INTERACTIVE)
    scene.world.run(lambda: False, 0.2)
    scene.settle()
    _assert_state(client, JobState.CANCELLED)


def preempt_then_cancel(scene: Scene) -> None:
    client = scene.asks(JobClass.BATCH, tokens=60)
    scene.until_tokens(client, 33)
    live = scene.live(client)
    assert live is not None
    scene.machine.wire.hold()
    scene.product.draining._preemption.request(live, counted=True)
    scene.commits("preempt_job")
    scene.until_held(Stopped)
    scene.cancel(client)
    scene.commits("request_stop")
    _crash_or_not(scene)
    scene.settle()
    _assert_state(client, JobState.CANCELLED)


def _assert_state(client: Client, state: JobState) -> None:
    assert client.ending is not None
    assert client.ending.state is state, client.ending


Race = Callable[[Scene], None]
RACES: Final[tuple[Race, ...]] = (
    complete_then_cancel,
    cancel_then_complete,
    complete_then_loss,
    loss_then_complete,
    cancel_then_preempt,
    preempt_then_cancel,
)


@pytest.mark.parametrize("race", RACES, ids=lambda race: race.__name__)
def test_what_was_committed_first_stands(campaign: NewCampaign, race: Race) -> None:
    def one(seed: int) -> None:
        with machine_of(seed, rows=1, prefetch=0) as machine:
            race(Scene(machine))

    campaign(small=SMALL, large=LARGE, unit="races").run(one)


# --- prune and deliver, acknowledge and revise ---------------------------------------------------


REPORTS: Final = 6


def _with_reports(bench: Bench) -> None:
    for number in range(1, REPORTS + 1):
        ending = make_ending(
            number, attempt=0, state=JobState.CANCELLED, finish_reason=None, usage=Usage()
        )
        assert bench.committed(
            insert_job(make_job(number)), end_waiting_job(make_job(number), ending, _AVAILABLE)
        ) == [True, True]


_AVAILABLE: Final = JobState.AVAILABLE


@pytest.mark.parametrize("prunes_first", [True, False])
def test_no_report_is_pruned_before_it_was_delivered(
    campaign: NewCampaign, prunes_first: bool
) -> None:
    """Retention and a consumer at the same reports: the consumer gets each, once and in order."""

    def one(seed: int) -> None:
        bench = Bench("race")
        _with_reports(bench)
        bench.commit(insert_consumer("c", Selection(), "earliest", NOW))
        done: list[str] = []
        acked = 0
        turn = 0
        while acked < REPORTS:
            _prune(bench) if (turn + prunes_first) % 2 else None
            page = bench.read(load_feed_page(bench.readers, acked, 1 + (seed + turn) % 3))
            bench.dies = (None, "before", "after")[(seed + turn) % 3]
            held = bench.committed(ack_consumer("c", page[-1].seq, NOW, acked))
            if held is None:
                bench.dies = None
                bench.restart()
            (now_acked,) = bench.rows("SELECT acked FROM consumer WHERE name = 'c'")[0]
            if now_acked > acked:
                done += [report.subject for report in page]
            acked = now_acked
            turn += 1
        assert done == [job_id(n) for n in range(1, REPORTS + 1)]
        _prune(bench)
        assert bench.rows("SELECT count(*) FROM report") == [(0,)]
        bench.close()

    campaign(small=SMALL, large=LARGE, unit="races").run(one)


def _prune(bench: Bench) -> None:
    late = NOW + timedelta(days=40)
    through = bench.read(load_old_reports(bench.readers, late))
    bench.commit(delete_reports(REPORTS))  # what a retention that forgot the consumers would do
    if through is not None:
        bench.commit(delete_reports(through))


@pytest.mark.parametrize("revises_first", [True, False])
def test_an_acknowledgement_never_covers_a_later_revision(
    campaign: NewCampaign, revises_first: bool
) -> None:
    def one(seed: int) -> None:
        bench = Bench("race")
        bench.commit(
            insert_generation(GENERATION, "tiny", 1, bench.path, NOW),
            generation_ready(GENERATION, NOW, "p"),
        )
        crash = NewReceipt(generation=GENERATION, asked=Rank.CRASH, now=NOW)
        bench.commit(generation_gone(GENERATION, NOW, 1, None, "as ordered", crash))
        receipt = report_id("generation", GENERATION)
        ack = ack_receipt(receipt, 1, NOW)
        revise = write_receipts([NewReceipt(generation=GENERATION, asked=Rank.SNAPSHOT, now=NOW)])
        first, second = (revise, ack) if revises_first else (ack, revise)
        for operation in (first, second):
            where = (None, "before", "after")[seed % 3]
            seed //= 3
            bench.dies = where
            if bench.committed(operation) is None:
                bench.dies = None
                bench.restart()
                bench.commit(operation)  # whoever asked for it asks again
        (pending,) = bench.read(load_pending_receipts(bench.readers, 10))
        assert (pending.revision, pending.acked_revision, pending.pending) == (2, 1, True)
        assert bench.committed(ack_receipt(receipt, 2, NOW)) == [True]
        assert bench.read(load_pending_receipts(bench.readers, 10)) == []
        bench.close()

    campaign(small=SMALL, large=LARGE, unit="races").run(one)
