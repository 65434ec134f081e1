"""Receipt first, only then a signal: so there is one place that may send one."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SENDING = {"signal", "kill", "killpg", "terminate", "send_signal", "pidfd_send_signal"}
MAY = {
    "app/services/workers.py",  # acts on what is committed
    "app/supervision/process.py",  # the means
    "app/supervision/adopted.py",
    "app/cli/report_reading.py",  # passes on what it is sent itself to a command that it runs
}


def sends(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Attribute) and called.attr in SENDING:
            yield str(file.relative_to(ROOT))


def test_nothing_but_the_workers_service_signals_a_process() -> None:
    assert {place for file in (ROOT / "app").rglob("*.py") for place in sends(file)} == MAY


def test_of_the_workers_service_two_functions_signal_both_behind_a_receipt() -> None:
    """``lost``: the loss is committed with its receipt. ``_tell_to_exit``: after the seal."""
    tree = ast.parse((ROOT / "app/services/workers.py").read_text(encoding="utf-8"))
    found = {
        function.name
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in SENDING
    }
    assert found == {"lost", "_tell_to_exit"}


def test_a_worker_is_told_to_leave_in_one_place_and_strangers_in_another() -> None:
    found = {
        str(file.relative_to(ROOT))
        for file in (ROOT / "app").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Exit"
        and node.args
    }
    assert found == {"app/services/workers.py", "app/services/reception.py"}
