"""Every error has a status, OpenAI's shape, and a rule for coming again."""

import json

import msgspec
import pytest

from app.domain import errors
from app.domain.errors import JobServerError
from app.http.errors import STATUSES, error_answer, retry_headers, status_of


def every_error(root: type[JobServerError] = JobServerError) -> list[type[JobServerError]]:
    return [root, *(leaf for child in root.__subclasses__() for leaf in every_error(child))]


@pytest.mark.parametrize("error", every_error())
def test_every_error_class_has_a_status_of_its_own(error: type[JobServerError]) -> None:
    assert error in STATUSES, f"give {error.__name__} a status in app/http/errors.py"
    assert status_of(error()) == STATUSES[error]


@pytest.mark.parametrize("error", every_error())
def test_every_error_has_the_four_keys_of_the_schema(error: type[JobServerError]) -> None:
    body = json.loads(msgspec.json.encode(error_answer(error("Why.", param="p"))))
    assert body == {
        "error": {
            "message": "Why.",
            "type": body["error"]["type"],
            "param": "p",
            "code": error.code,
        }
    }


@pytest.mark.parametrize("error", every_error())
def test_the_type_follows_from_the_status(error: type[JobServerError]) -> None:
    expected = "server_error" if STATUSES[error] >= 500 else "invalid_request_error"
    if STATUSES[error] == 429:
        expected = "rate_limit_error"
    assert error_answer(error()).error.type == expected


@pytest.mark.parametrize("error", every_error())
def test_no_status_is_one_that_clients_take_for_a_conflict(error: type[JobServerError]) -> None:
    assert STATUSES[error] != 409


@pytest.mark.parametrize(
    ("error", "headers"),
    [
        (errors.QueueFull(retry_after_s=0.2), {"retry-after": "1"}),
        (errors.QueueFull(retry_after_s=7.1), {"retry-after": "8"}),
        (errors.ShuttingDown(), {"retry-after": "5"}),
        (
            errors.ShuttingDown(retry_after_s=60),
            {"retry-after": "60", "x-should-retry": "false"},
        ),
        (errors.ModelUnavailable(), {"x-should-retry": "false"}),
        (errors.ModelUnavailable(retry_after_s=3), {"retry-after": "3"}),
        (errors.WorkerCrashed(retry_after_s=3), {"x-should-retry": "false"}),
        (errors.InternalError(), {}),
        (errors.InvalidRequest(), {}),
    ],
)
def test_when_to_come_again(error: JobServerError, headers: dict[str, str]) -> None:
    assert retry_headers(error) == headers
