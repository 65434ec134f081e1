"""Alembic's entry. It only ever works on a connection that the store has opened for it, inside the
store's own transaction."""

from alembic import context
from sqlalchemy import Connection

from app.storage.tables import metadata

connection: object = context.config.attributes.get("connection")
if not isinstance(connection, Connection):
    raise TypeError("migrations run through the store: see app/storage/schema.py")

context.configure(
    connection=connection,
    target_metadata=metadata,
    render_as_batch=True,
)
context.run_migrations()
