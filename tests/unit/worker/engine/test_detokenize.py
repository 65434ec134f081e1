"""Streamed text equals the text decoded in one go, for every cut into tokens."""

from collections.abc import Callable, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tests.models import byte_level_tokenizer, sentencepiece_tokenizer
from worker.engine.detokenize import ByteDetokenizer, WindowDetokenizer, token_bytes
from worker.engine.engine import Detokenizer

MULTI_BYTE = "ďábelské 👩‍👩‍👧‍👦 🏳️‍🌈 é 日本語"

BYTE_LEVEL = byte_level_tokenizer()
SENTENCEPIECE = sentencepiece_tokenizer()


def _decode(tokenizer: Tokenizer) -> Callable[[Sequence[int]], str]:
    return lambda ids: tokenizer.decode(list(ids), skip_special_tokens=True)


def _pieces() -> Mapping[int, bytes]:
    special = {i for i, t in BYTE_LEVEL.get_added_tokens_decoder().items() if t.special}
    vocab = BYTE_LEVEL.get_vocab(with_added_tokens=True)
    return {i: b"" if i in special else token_bytes(piece) for piece, i in vocab.items()}


PIECES = _pieces()

MAKERS: dict[str, tuple[Tokenizer, Callable[[], Detokenizer]]] = {
    "bytes": (BYTE_LEVEL, lambda: ByteDetokenizer(PIECES)),
    "window over byte-level": (BYTE_LEVEL, lambda: WindowDetokenizer(_decode(BYTE_LEVEL))),
    "window over sentencepiece": (SENTENCEPIECE, lambda: WindowDetokenizer(_decode(SENTENCEPIECE))),
}

every_way = pytest.mark.parametrize(("tokenizer", "make"), list(MAKERS.values()), ids=list(MAKERS))

texts = st.lists(
    st.one_of(
        st.sampled_from([*MULTI_BYTE.split(), MULTI_BYTE, " ", "  ", "\n", "the than", "\ufffd"]),
        st.text(max_size=8),
    ),
    max_size=8,
).map("".join)


def _stream(detokenizer: Detokenizer, ids: Sequence[int]) -> list[str]:
    return [*(detokenizer.push(token) for token in ids), detokenizer.flush()]


@every_way
@given(text=texts)
def test_any_text_streams_as_it_decodes(
    tokenizer: Tokenizer, make: Callable[[], Detokenizer], text: str
) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert "".join(_stream(make(), ids)) == _decode(tokenizer)(ids)


@given(ids=st.lists(st.integers(0, BYTE_LEVEL.get_vocab_size() - 1), max_size=40))
def test_any_tokens_of_a_byte_level_vocabulary_stream_as_they_decode(ids: list[int]) -> None:
    assert "".join(_stream(ByteDetokenizer(PIECES), ids)) == _decode(BYTE_LEVEL)(ids)


@every_way
@given(text=texts, cut=st.integers(0, 200))
def test_what_was_shown_never_changes_when_more_tokens_come(
    tokenizer: Tokenizer, make: Callable[[], Detokenizer], text: str, cut: int
) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    shown = "".join(_stream(make(), ids[:cut])[:-1])
    assert _decode(tokenizer)(ids).startswith(shown)


@every_way
def test_a_character_is_shown_only_when_it_is_whole(
    tokenizer: Tokenizer, make: Callable[[], Detokenizer]
) -> None:
    ids = tokenizer.encode("日", add_special_tokens=False).ids
    pieces = _stream(make(), ids)
    assert "\ufffd" not in "".join(pieces)
    assert [piece for piece in pieces if piece.strip()] == ["日"]


@every_way
def test_a_truncated_character_becomes_a_replacement_character_at_the_end(
    tokenizer: Tokenizer, make: Callable[[], Detokenizer]
) -> None:
    ids = tokenizer.encode("a日", add_special_tokens=False).ids[:-1]
    *pieces, last = _stream(make(), ids)
    assert "".join(pieces) == "a"
    assert set(last) == {"\ufffd"}


@every_way
def test_special_tokens_are_not_shown_and_keep_the_space_after_them(
    tokenizer: Tokenizer, make: Callable[[], Detokenizer]
) -> None:
    special = next(i for i, t in tokenizer.get_added_tokens_decoder().items() if t.special)
    a = tokenizer.encode("the", add_special_tokens=False).ids
    b = tokenizer.encode("the a", add_special_tokens=False).ids[len(a) :]
    assert "".join(_stream(make(), [*a, special, *b])) == "the a"


def test_added_tokens_that_are_not_special_are_shown() -> None:
    ids = BYTE_LEVEL.encode("<think>a", add_special_tokens=False).ids
    assert "".join(_stream(ByteDetokenizer(PIECES), ids)) == "<think>a"


def test_endless_broken_bytes_stay_cheap() -> None:
    decoded: list[int] = []

    def decode(ids: Sequence[int]) -> str:
        decoded.append(len(ids))
        return "\ufffd" * len(ids)

    _stream(WindowDetokenizer(decode), [1] * 1_000)
    assert max(decoded) < 200
