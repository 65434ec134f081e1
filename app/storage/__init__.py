"""The store: SQLite behind one writer thread and a few readers. SQLAlchemy is used only here."""
