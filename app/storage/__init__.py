"""The store: SQLite behind one writer thread and a few readers. Its libraries stay in here."""
