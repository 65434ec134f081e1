"""The socket to the workers, and the protocol's parent side. ZeroMQ is known only here."""
