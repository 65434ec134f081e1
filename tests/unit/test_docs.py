"""The documentation says what the program does."""

from pathlib import Path

import pytest

from app.cli.settings_reference import settings_markdown
from app.domain.errors import RETRYABLE, JobServerError
from app.http.errors import retry_headers, status_of
from app.settings_keys import Key, keys

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("key", keys(), ids=lambda key: str(key.full))
def test_every_setting_is_documented(key: Key) -> None:
    assert f"`{key.full}`" in (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")


def test_the_settings_page_is_what_the_program_prints() -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert page == settings_markdown(), "run `mlxq config reference > docs/settings.md`"


def error_table() -> dict[str, list[str]]:
    """The rows of the page of errors, by code."""
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    rows = [line.strip("|").split("|") for line in page.splitlines() if line.startswith("| `")]
    return {row[0].strip(" `"): [cell.strip() for cell in row[1:]] for row in rows}


def every_error(root: type[JobServerError] = JobServerError) -> list[type[JobServerError]]:
    return [root, *(leaf for child in root.__subclasses__() for leaf in every_error(child))]


def may_come_again(error: JobServerError) -> bool:
    """What official clients would do, by status and headers."""
    told = retry_headers(error).get("x-should-retry")
    return (status_of(error) == 429 or status_of(error) >= 500) and told != "false"


@pytest.mark.parametrize("error", every_error())
def test_every_error_is_documented_with_its_status_and_whether_to_come_again(
    error: type[JobServerError],
) -> None:
    status, again, *_ = error_table()[error.code]
    assert status == str(status_of(error()))
    assert again == ("yes" if may_come_again(error()) else "no")


def test_every_code_of_a_failed_job_is_documented_with_whether_another_attempt_may_help() -> None:
    documented = {code: row[2] for code, row in error_table().items() if row[2] != "-"}
    assert documented == {code: "yes" if help_ else "no" for code, help_ in RETRYABLE.items()}


def test_no_error_is_documented_that_does_not_exist() -> None:
    assert set(error_table()) == {error.code for error in every_error()} | set(RETRYABLE)
