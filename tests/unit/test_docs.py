"""The documentation says what the program does."""

from pathlib import Path

import pytest

from app.cli.settings_reference import settings_markdown
from app.settings_keys import Key, keys

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("key", keys(), ids=lambda key: str(key.full))
def test_every_setting_is_documented(key: Key) -> None:
    assert f"`{key.full}`" in (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")


def test_the_settings_page_is_what_the_program_prints() -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert page == settings_markdown(), "run `mlxq config reference > docs/settings.md`"
