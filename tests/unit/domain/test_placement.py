from app.domain.job import JobClass
from app.domain.placement import WaitingQueue, place_of
from shared.ids import JobId


def push(queue: WaitingQueue, job: str, job_class: JobClass, priority: int = 0) -> None:
    queue.push(place_of(JobId(job), job_class, priority))


def test_jobs_leave_by_class_then_priority_then_age() -> None:
    queue = WaitingQueue()
    push(queue, "job_1", JobClass.BATCH)
    push(queue, "job_2", JobClass.BACKGROUND)
    push(queue, "job_4", JobClass.INTERACTIVE)
    push(queue, "job_3", JobClass.INTERACTIVE)
    push(queue, "job_5", JobClass.INTERACTIVE, priority=1)
    assert queue.pop(10) == ["job_5", "job_3", "job_4", "job_2", "job_1"]
    assert len(queue) == 0


def test_a_job_is_handed_out_once_however_often_it_is_pushed() -> None:
    queue = WaitingQueue()
    push(queue, "job_1", JobClass.BATCH)
    push(queue, "job_1", JobClass.BATCH)
    assert queue.pop(2) == ["job_1"]


def test_positions_count_the_jobs_before() -> None:
    queue = WaitingQueue()
    for n in range(3):
        push(queue, f"job_{n}", JobClass.INTERACTIVE)
    assert [queue.position(JobId(f"job_{n}")) for n in range(4)] == [0, 1, 2, None]


def test_a_removed_job_is_not_handed_out() -> None:
    queue = WaitingQueue()
    push(queue, "job_1", JobClass.INTERACTIVE)
    push(queue, "job_2", JobClass.INTERACTIVE)
    assert queue.remove(JobId("job_1"))
    assert not queue.remove(JobId("job_1"))
    assert queue.pop(2) == ["job_2"]
