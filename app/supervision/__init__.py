"""Processes are started, watched and ended only here."""
