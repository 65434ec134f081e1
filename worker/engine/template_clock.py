"""A chat template's clock that shows when the job was created, so that all attempts render alike.

Templates ask `strftime_now(format)` for the date. transformers reads the system's clock for them
and lets no callable of ours through, so the template itself is given a macro of that name, which
looks the parts of the date up in a mapping.
"""

from datetime import UTC, datetime
from typing import Final

CLOCK: Final = "template_clock"
"""The template's variable that holds what `clock` returns."""

_FUNCTION: Final = "strftime_now"
_CODES: Final = (
    "-d", "-m", "-H", "-I", "-M", "-S", "-j", "a", "A", "b", "B", "c", "d", "D", "e", "F", "H", "I",
    "j", "m", "M", "p", "S", "T", "u", "U", "w", "W", "x", "X", "y", "Y", "z", "Z",
)  # fmt: skip
_MACRO: Final = (
    "{%- macro strftime_now(format) -%}{%- set date = namespace(text=format) -%}"
    "{%- for code, value in template_clock.items() -%}"
    "{%- set date.text = date.text.replace(code, value) -%}"
    "{%- endfor -%}{{ date.text }}{%- endmacro -%}"
)


def with_fixed_clock(template: str) -> str:
    """The template with its clock replaced; one that asks for no date stays as it is."""
    return _MACRO + template if _FUNCTION in template else template


def clock(created_at: int) -> dict[str, str]:
    """What each part of a date format stands for at this time (Unix seconds, shown in UTC)."""
    created = datetime.fromtimestamp(created_at, UTC)
    parts = {f"%{code}": created.strftime(f"%{code}") for code in _CODES}
    return parts | {"%%": "%"}
