"""Proving the invariants on a store: one function each, over one moment of it."""

from app.storage.verify.audit import Verdict, verify, verify_file
from app.storage.verify.violation import Violation

__all__ = ["Verdict", "Violation", "verify", "verify_file"]
