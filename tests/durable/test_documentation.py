"""Each sentence of docs/durability.md names tests, and they exist."""

import ast
import re
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).parents[2]
PAGE: Final = REPOSITORY / "docs" / "durability.md"

_TEST: Final = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
_SENTENCE: Final = re.compile(r"^- .*?(?=^- |^#|^\n|\Z)", re.MULTILINE | re.DOTALL)


def names_in(path: Path) -> set[str]:
    """Names of the tests in a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_each_sentence_names_a_test() -> None:
    sentences: list[str] = _SENTENCE.findall(PAGE.read_text(encoding="utf-8"))
    assert len(sentences) > 40
    assert [sentence for sentence in sentences if not _TEST.search(sentence)] == []


def test_each_row_of_the_tables_around_a_receipt_names_a_test() -> None:
    _, _, tables = PAGE.read_text(encoding="utf-8").partition("## Around a worker's receipt")
    rows = [line for line in tables.splitlines() if line.startswith("| ")]
    heads = [row for row in rows if row.endswith("| shown by |")]
    assert (len(heads), len(rows) - len(heads)) == (2, 27)
    assert [row for row in rows if row not in heads and not _TEST.search(row)] == []


def test_each_named_test_exists() -> None:
    named: list[tuple[str, str]] = _TEST.findall(PAGE.read_text(encoding="utf-8"))
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not (REPOSITORY / path).is_file() or name not in names_in(REPOSITORY / path)
    ]
    assert missing == []
