"""The preparation threads: results through the inbox, and what is told of a slow one."""

import threading
from collections.abc import Sequence
from queue import SimpleQueue

import pytest

from shared.requests import ChatMessage
from tests.unit.worker.loop.bench import LetterCodec, run_job
from tests.waiting import wait_until
from worker.engine.engine import Detokenizer
from worker.inbox import Inbox, NotPrepared, Prepared, ToLoop
from worker.preparation import Preparation
from worker.rows import HeldJob, Stage


class GatedCodec:
    """Prompts that say ``wait`` wait for the gate."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.rendered: list[str] = []

    def render_chat(self, messages: Sequence[ChatMessage], created_at: int) -> list[int]:
        self.rendered.append(messages[-1].content)
        if messages[-1].content == "wait":
            assert self.gate.wait(10)
        return LetterCodec().render_chat(messages, created_at)

    def detokenizer(self) -> Detokenizer:
        return LetterCodec().detokenizer()


def results(inbox: Inbox, count: int) -> list[ToLoop]:
    found: list[ToLoop] = []
    while len(found) < count:
        found.extend(inbox.get(timeout=10))
    return found


@pytest.fixture
def codec() -> GatedCodec:
    return GatedCodec()


def preparation(codec: GatedCodec, inbox: Inbox, threads: int = 1) -> Preparation:
    made = Preparation(codec, inbox, threads, timeout_s=0.05)
    made.start()
    return made


def test_prompts_come_back_as_tokens(codec: GatedCodec) -> None:
    inbox: Inbox = SimpleQueue()
    preparation(codec, inbox).submit([HeldJob(run_job(1, prompt="hi"))])
    (prepared,) = results(inbox, 1)
    assert isinstance(prepared, Prepared)
    assert prepared.tokens == [ord("h"), ord("i")]


def test_a_refusing_template_and_a_broken_one_differ(codec: GatedCodec) -> None:
    inbox: Inbox = SimpleQueue()
    jobs = [HeldJob(run_job(1, prompt="refuse")), HeldJob(run_job(2, "b", prompt="break"))]
    preparation(codec, inbox).submit(jobs)
    found = results(inbox, 2)
    codes = [message.failure.code for message in found if isinstance(message, NotPrepared)]
    assert codes == ["template_error", "internal_error"]
    assert not any("secret" in str(message) for message in found)


def test_a_thread_goes_on_after_a_broken_prompt(codec: GatedCodec) -> None:
    inbox: Inbox = SimpleQueue()
    working = preparation(codec, inbox)
    working.submit([HeldJob(run_job(1, prompt="break"))])
    working.submit([HeldJob(run_job(2, "b"))])
    assert isinstance(results(inbox, 2)[1], Prepared)


def test_a_job_that_has_gone_is_not_prepared(codec: GatedCodec) -> None:
    inbox: Inbox = SimpleQueue()
    gone = HeldJob(run_job(1, prompt="gone"), stage=Stage.GONE)
    preparation(codec, inbox).submit([gone, HeldJob(run_job(2, "b"))])
    results(inbox, 1)
    assert codec.rendered == ["hi"]


def test_a_slow_prompt_is_overdue_then_its_thread_stuck(codec: GatedCodec) -> None:
    inbox: Inbox = SimpleQueue()
    now = [0.0]
    working = Preparation(codec, inbox, 1, timeout_s=10.0, clock=lambda: now[0])
    working.start()
    slow = HeldJob(run_job(1, prompt="wait"))
    working.submit([slow])
    wait_until(lambda: codec.rendered)
    assert working.overdue(9.0) == []
    assert working.patience_s(4.0) == pytest.approx(6.0)
    assert working.overdue(10.0) == [slow]
    assert working.patience_s(12.0) == pytest.approx(8.0)
    assert not working.stuck(19.0)
    assert working.stuck(20.0)
    codec.gate.set()
    results(inbox, 1)
    wait_until(lambda: not working.overdue(100.0))


def test_two_threads_let_a_quick_prompt_pass_a_slow_one(codec: GatedCodec) -> None:
    inbox: Inbox = SimpleQueue()
    working = preparation(codec, inbox, threads=2)
    working.submit([HeldJob(run_job(1, prompt="wait")), HeldJob(run_job(2, "b"))])
    (first,) = results(inbox, 1)
    assert isinstance(first, Prepared)
    assert first.job == "b"
    codec.gate.set()
    results(inbox, 1)
