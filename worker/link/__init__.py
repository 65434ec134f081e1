"""The worker's end of the wire: the session (what to say), the frames kept, the socket's thread."""
