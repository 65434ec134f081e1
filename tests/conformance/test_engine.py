"""What the loop may rely on, whichever engine it has."""

from collections.abc import Sequence
from typing import Any

import pytest

from shared.requests import ChatMessage
from shared.sampling import SamplingParams
from tests.conformance.conftest import CHUNK_TOKENS, ROWS, OpenEngine
from tests.conformance.driving import Driver, make_spec
from worker.engine.engine import Engine, RowId, RowSpec

GREEDY = SamplingParams(seed=7, temperature=0.0)
SAMPLINGS = (
    GREEDY,
    SamplingParams(seed=1, temperature=1.0),
    SamplingParams(seed=2, temperature=0.8, top_p=0.9),
    SamplingParams(seed=3, temperature=1.5, top_k=5),
    SamplingParams(seed=4, temperature=1.2, min_p=0.1),
    SamplingParams(seed=2**64 - 1, temperature=0.7, top_p=0.5, top_k=40, min_p=0.01),
)
PROMPTS = tuple(tuple((5 * n + 3 * i) % 251 for i in range(3 + 13 * n)) for n in range(6))

every_sampling = pytest.mark.parametrize("sampling", SAMPLINGS, ids=lambda s: repr(tuple_of(s)))


def tuple_of(sampling: SamplingParams) -> tuple[float, ...]:
    return (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p)


def spec_of(n: int) -> RowSpec:
    return make_spec(n, PROMPTS[n], sampling=SAMPLINGS[n])


def all_alone(open_engine: OpenEngine, **settings: Any) -> list[list[int]]:
    driver = Driver(open_engine(**settings)[0])
    return [driver.alone(spec_of(n)) for n in range(len(PROMPTS))]


def tokens_of(driver: Driver) -> list[list[int]]:
    driver.finish()
    return [driver.heard[RowId(n)].tokens for n in range(len(PROMPTS))]


# --- loading ---------------------------------------------------------------------------------


def test_loading_says_how_far_it_is_and_what_the_model_is(open_engine: OpenEngine) -> None:
    heard: list[tuple[int, int]] = []

    def hear(done: int, total: int) -> None:
        heard.append((done, total))

    _, info = open_engine(hear)
    assert open_engine()[1] == info
    assert info.eos_tokens
    assert max(info.eos_tokens) < info.vocab_size
    assert info.context_tokens > 0
    assert info.kv_bytes_per_token > 0
    assert heard[0][0] == 0
    assert heard[-1][0] == heard[-1][1] > 0
    assert heard == sorted(heard)


def test_the_context_is_capped_by_the_setting(open_engine: OpenEngine) -> None:
    assert open_engine(context_tokens=100)[1].context_tokens == 100


def test_warming_up_leaves_no_rows_and_changes_no_tokens(open_engine: OpenEngine) -> None:
    engine, _ = open_engine()
    cold = Driver(engine).alone(make_spec(1, sampling=SAMPLINGS[1]))
    engine.warm_up()
    assert engine.rows == 0
    assert Driver(engine).alone(make_spec(2, sampling=SAMPLINGS[1])) == cold


# --- one row ---------------------------------------------------------------------------------


@every_sampling
def test_a_row_ends_by_length(driver: Driver, sampling: SamplingParams) -> None:
    driver.insert(make_spec(1, sampling=sampling, max_tokens=5))
    assert driver.engine.rows == 1
    heard = driver.finish()[RowId(1)]
    assert len(heard.tokens) == 5
    assert heard.finish == "length"
    assert driver.engine.rows == 0


@pytest.mark.parametrize("length", [1, 2, CHUNK_TOKENS, CHUNK_TOKENS + 1, CHUNK_TOKENS + 2, 100])
def test_prompts_of_any_length_are_computed_in_chunks(driver: Driver, length: int) -> None:
    driver.insert(make_spec(1, [n % 250 for n in range(length)], max_tokens=2))
    heard = driver.finish()[RowId(1)]
    done = [progress[0] for progress in heard.progress]
    assert {progress[1] for progress in heard.progress} == {length}
    assert done[-1] == length
    assert done == sorted(set(done))
    assert all(b - a <= CHUNK_TOKENS + 1 for a, b in zip([0, *done], done, strict=False))
    assert len(heard.tokens) == 2


def test_a_row_of_one_token_is_a_row(driver: Driver) -> None:
    driver.insert(make_spec(1, max_tokens=1))
    assert len(driver.finish()[RowId(1)].tokens) == 1


def test_an_end_of_sequence_token_is_reported_and_ends_the_row(open_engine: OpenEngine) -> None:
    engine, info = open_engine()
    driver = Driver(engine)
    for seed in range(ROWS):
        sampling = SamplingParams(seed=seed, temperature=2.0)
        driver.insert(make_spec(seed, sampling=sampling, max_tokens=700))
    rows = driver.finish().values()
    stopped = [row for row in rows if row.finish == "stop"]
    assert stopped
    for row in rows:
        assert not info.eos_tokens.intersection(row.tokens[:-1])
        assert (row.tokens[-1] in info.eos_tokens) == (row.finish == "stop")


@every_sampling
def test_the_same_seed_gives_the_same_tokens(driver: Driver, sampling: SamplingParams) -> None:
    first = driver.alone(make_spec(1, sampling=sampling))
    assert driver.alone(make_spec(2, sampling=sampling)) == first


def test_another_seed_or_choice_gives_other_tokens(driver: Driver) -> None:
    variants = [(1, 0), (2, 0), (1, 1), (2**64 - 1, 0)]
    tokens = {
        tuple(driver.alone(make_spec(n, sampling=SamplingParams(seed=seed), choice=choice)))
        for n, (seed, choice) in enumerate(variants)
    }
    assert len(tokens) == len(variants)


# --- many rows -------------------------------------------------------------------------------


def test_rows_in_one_batch_draw_what_each_draws_alone(open_engine: OpenEngine) -> None:
    driver = Driver(open_engine(rows=len(PROMPTS))[0])
    for n in range(len(PROMPTS)):
        driver.insert(spec_of(n))
    assert tokens_of(driver) == all_alone(open_engine)


def test_rows_that_arrive_one_by_one_draw_what_each_draws_alone(open_engine: OpenEngine) -> None:
    driver = Driver(open_engine(rows=len(PROMPTS))[0])
    for n in range(len(PROMPTS)):
        driver.insert(spec_of(n))
        driver.until_tokens(n, 2)
    assert tokens_of(driver) == all_alone(open_engine)


def test_more_rows_than_the_batch_holds_wait_their_turn(open_engine: OpenEngine) -> None:
    driver = Driver(open_engine(rows=2)[0])
    for n in range(len(PROMPTS)):
        driver.insert(spec_of(n))
    assert driver.engine.rows == len(PROMPTS)
    while driver.engine.rows:
        assert len(driver.step().tokens) <= 2
    assert tokens_of(driver) == all_alone(open_engine)


@pytest.mark.parametrize("chunk_tokens", [1, 7, 512])
def test_the_cut_of_a_prompt_into_chunks_changes_no_token(
    open_engine: OpenEngine, chunk_tokens: int
) -> None:
    cut = all_alone(open_engine, prefill_chunk_tokens=chunk_tokens)
    assert cut == all_alone(open_engine)


def test_rows_of_different_length_end_each_in_its_time(driver: Driver) -> None:
    for n in range(ROWS):
        driver.insert(make_spec(n, sampling=SAMPLINGS[n], max_tokens=1 + 3 * n))
    heard = driver.finish()
    assert [len(heard[RowId(n)].tokens) for n in range(ROWS)] == [1 + 3 * n for n in range(ROWS)]


# --- continuing ------------------------------------------------------------------------------


@every_sampling
@pytest.mark.parametrize("cut", [1, 5, 11])
def test_a_replayed_row_goes_on_as_an_undisturbed_one(
    driver: Driver, sampling: SamplingParams, cut: int
) -> None:
    whole = driver.alone(make_spec(1, sampling=sampling))
    rest = make_spec(2, sampling=sampling, replayed=whole[:cut], max_tokens=12 - cut)
    assert driver.alone(rest) == whole[cut:]


def test_replayed_tokens_are_not_reported_and_do_not_count(driver: Driver) -> None:
    driver.insert(make_spec(1, PROMPTS[1], replayed=(1, 2, 3), max_tokens=4))
    heard = driver.finish()[RowId(1)]
    assert len(heard.tokens) == 4
    assert heard.progress[-1] == (len(PROMPTS[1]) + 3, len(PROMPTS[1]) + 3)


# --- removing --------------------------------------------------------------------------------


def others_after_removal(driver: Driver, removed: int, others: Sequence[int]) -> list[list[int]]:
    driver.engine.remove(RowId(removed))
    assert driver.engine.rows == len(others)
    before = len(driver.heard[RowId(removed)].tokens), len(driver.heard[RowId(removed)].progress)
    driver.finish()
    after = len(driver.heard[RowId(removed)].tokens), len(driver.heard[RowId(removed)].progress)
    assert before == after, "a removed row was reported"
    return [driver.heard[RowId(n)].tokens for n in others]


def test_a_queued_row_can_be_removed(driver: Driver, open_engine: OpenEngine) -> None:
    for n in (1, 2, 3):
        driver.insert(spec_of(n))
    alone = all_alone(open_engine)
    assert others_after_removal(driver, 2, [1, 3]) == [alone[1], alone[3]]


def test_a_row_in_prefill_can_be_removed(driver: Driver, open_engine: OpenEngine) -> None:
    driver.insert(spec_of(1))
    driver.until_tokens(1, 2)
    driver.insert(spec_of(5))
    driver.step()
    assert driver.heard[RowId(5)].progress
    assert not driver.heard[RowId(5)].tokens
    driver.insert(spec_of(2))
    alone = all_alone(open_engine)
    assert others_after_removal(driver, 5, [1, 2]) == [alone[1], alone[2]]


@pytest.mark.parametrize("removed", [0, 1, 2])
def test_a_decoding_row_can_be_removed(
    driver: Driver, open_engine: OpenEngine, removed: int
) -> None:
    others = [n for n in range(3) if n != removed]
    for n in range(3):
        driver.insert(spec_of(n))
    for n in range(3):
        driver.until_tokens(n, 2)
    alone = all_alone(open_engine)
    assert others_after_removal(driver, removed, others) == [alone[n] for n in others]


def test_the_last_row_can_be_removed_and_another_takes_its_place(driver: Driver) -> None:
    first = driver.alone(make_spec(1, sampling=SAMPLINGS[1]))
    driver.insert(make_spec(2, sampling=SAMPLINGS[2]))
    driver.until_tokens(2, 3)
    driver.engine.remove(RowId(2))
    assert driver.engine.rows == 0
    assert not driver.step().tokens
    assert driver.alone(make_spec(3, sampling=SAMPLINGS[1])) == first


def test_removing_an_unknown_row_changes_nothing(driver: Driver) -> None:
    driver.insert(make_spec(1))
    driver.engine.remove(RowId(99))
    assert driver.engine.rows == 1
    assert len(driver.finish()[RowId(1)].tokens) == 12
    driver.engine.remove(RowId(1))


# --- refusing --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"prompt": ()},
        {"prompt": (1, 10**6)},
        {"prompt": (1, -1)},
        {"replayed": (10**6,)},
        {"max_tokens": 0},
        {"max_tokens": 10**6},
        {"prompt": (1,) * 10**5},
    ],
    ids=str,
)
def test_an_invalid_row_is_refused_and_leaves_the_engine_as_it_was(
    driver: Driver, changes: dict[str, Any]
) -> None:
    expected = driver.alone(make_spec(1, sampling=SAMPLINGS[1]))
    driver.insert(make_spec(2, sampling=SAMPLINGS[1]))
    driver.until_tokens(2, 3)
    with pytest.raises(ValueError, match=r"\w"):
        driver.engine.insert(make_spec(3, **changes))
    assert driver.engine.rows == 1
    assert driver.finish()[RowId(2)].tokens == expected


def test_a_row_number_in_use_is_refused(driver: Driver) -> None:
    driver.insert(make_spec(1))
    with pytest.raises(ValueError, match="in the batch already"):
        driver.engine.insert(make_spec(1))


def test_a_row_may_fill_the_context_to_the_last_token(open_engine: OpenEngine) -> None:
    engine, info = open_engine(context_tokens=64)
    driver = Driver(engine)
    driver.insert(make_spec(1, (1,) * 40, max_tokens=info.context_tokens - 40))
    assert driver.finish()[RowId(1)].finish is not None
    with pytest.raises(ValueError, match="context"):
        engine.insert(make_spec(2, (1,) * 40, max_tokens=info.context_tokens - 39))


# --- text ------------------------------------------------------------------------------------


def test_a_conversation_renders_to_tokens_of_the_vocabulary(open_engine: OpenEngine) -> None:
    engine, info = open_engine()
    codec = engine.text()
    short = codec.render_chat([ChatMessage("user", "hi é")], 0)
    long = codec.render_chat([ChatMessage("system", "be brief"), ChatMessage("user", "hi é")], 0)
    assert max(short) < info.vocab_size
    assert len(long) > len(short)
    assert codec.render_chat([ChatMessage("user", "hi é")], 0) == short


def test_what_is_rendered_can_be_read_back(engine: Engine) -> None:
    codec = engine.text()
    detokenizer = codec.detokenizer()
    tokens = codec.render_chat([ChatMessage("user", "ďábel 日本語")], 0)
    text = "".join(detokenizer.push(token) for token in tokens) + detokenizer.flush()
    assert "ďábel 日本語" in text
