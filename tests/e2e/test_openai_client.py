"""OpenAI's own client against a whole server, with the scripted engine and with real MLX."""

from typing import Any

import pytest

from tests.conftest import TINY_CONTEXT_TOKENS
from tests.e2e.conversing import ask, ask_for_stream, client_of
from tests.e2e.server import RunningServer

SEED: dict[str, Any] = {"seed": 7, "temperature": 0.8, "max_tokens": 24}
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 24}


@pytest.fixture(params=["scripted", "tiny"])
def server(request: pytest.FixtureRequest) -> RunningServer:
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize(
    ("content", "fields"),
    [
        ("Say something.", {**GREEDY, "seed": 1}),
        ("Say something.", SEED),
        ("Sag etwas über ďábelské 👩‍👩‍👧‍👦 日本語.", SEED),
        ("Say something.", {**SEED, "top_p": 0.7}),
        ("Say something.", {**SEED, "top_p": 0.9, "extra_body": {"top_k": 20, "min_p": 0.05}}),
        ("Say something.", {**SEED, "max_tokens": 1}),
        ("Say something.", {"seed": 3, "max_completion_tokens": 5}),
    ],
)
def test_a_stream_says_what_the_plain_answer_says(
    server: RunningServer, content: str, fields: dict[str, Any]
) -> None:
    plain, streamed = ask(server, content, **fields), ask_for_stream(server, content, **fields)
    assert streamed.all_but_id == plain.all_but_id
    assert plain.text
    assert plain.tokens[1] <= fields.get("max_tokens", 24)
    assert streamed.id != plain.id


def test_the_finish_reason_tells_an_end_from_a_cut(scripted: RunningServer) -> None:
    whole = ask(scripted, "[[say=one two three]]")
    cut = ask(scripted, "[[say=one two three]]", max_tokens=7)
    assert (whole.text, whole.finish) == ("one two three", "stop")
    assert (cut.text, cut.finish, cut.tokens[1]) == ("one two", "length", 7)


def test_a_stream_shows_its_usage_only_when_asked(server: RunningServer) -> None:
    with client_of(server) as client:
        chunks = list(
            client.chat.completions.create(
                model=server.model,
                messages=[{"role": "user", "content": "Hello"}],
                max_tokens=4,
                stream=True,
            )
        )
    assert all(chunk.usage is None for chunk in chunks)
    assert all(chunk.choices for chunk in chunks)


@pytest.mark.parametrize(
    ("stops", "shown"),
    [
        (["beta"], "alpha "),
        ("beta", "alpha "),
        (["nothing like it", "eta", "ta g"], "alpha b"),
        (["gammas", "a g"], "alpha bet"),
        ([], "alpha beta gamma"),
    ],
)
def test_generation_ends_at_a_stop_string_and_never_shows_it(
    scripted: RunningServer, stops: str | list[str], shown: str
) -> None:
    content = "[[say=alpha beta gamma]]"
    plain = ask(scripted, content, stop=stops)
    streamed = ask_for_stream(scripted, content, stop=stops)
    assert (plain.text, plain.finish) == (shown, "stop")
    assert streamed.all_but_id == plain.all_but_id


def test_a_real_model_stops_at_a_stop_string(tiny: RunningServer) -> None:
    text = ask(tiny, "Say something.", **GREEDY).text
    stop = text[len(text) // 2 :][:3]
    assert len(stop) == 3
    plain = ask(tiny, "Say something.", **GREEDY, stop=stop)
    streamed = ask_for_stream(tiny, "Say something.", **GREEDY, stop=[stop])
    assert (plain.text, plain.finish) == (text[: text.index(stop)], "stop")
    assert streamed.all_but_id == plain.all_but_id


def test_more_tokens_than_the_context_has_room_for_are_clamped(tiny: RunningServer) -> None:
    for fields in ({"max_tokens": 10**9}, {"max_completion_tokens": 10**12}, {}):
        said = ask(tiny, "Say something.", temperature=0, **fields)
        assert said.finish == "length"
        assert sum(said.tokens) == TINY_CONTEXT_TOKENS


def test_a_prompt_may_leave_room_for_a_single_token(tiny: RunningServer) -> None:
    shortest = ask(tiny, "", temperature=0, max_tokens=1).tokens[0]
    content = "." * (TINY_CONTEXT_TOKENS - 1 - shortest)
    said = ask(tiny, content, temperature=0)
    assert said.tokens == (TINY_CONTEXT_TOKENS - 1, 1)


def test_a_seed_decides_the_text_and_its_absence_leaves_it_to_chance(server: RunningServer) -> None:
    def text(**fields: Any) -> str:
        return ask(server, "Say something.", temperature=1, max_tokens=24, **fields).text

    assert text(seed=5) == text(seed=5)
    assert len({text(seed=seed) for seed in (5, 6, -1)}) == 3
    assert text() != text()


def test_greedy_answers_need_no_seed(tiny: RunningServer) -> None:
    assert ask(tiny, "Say something.", **GREEDY).text == ask(tiny, "Say something.", **GREEDY).text


def test_the_models_are_listed(server: RunningServer) -> None:
    with client_of(server) as client:
        assert [model.id for model in client.models.list()] == [server.model]
        assert client.models.retrieve(server.model).id == server.model
