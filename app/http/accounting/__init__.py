"""Stopping workers with their receipts, and booking these: for callers on this machine."""
