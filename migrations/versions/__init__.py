"""One module per step, never changed once released."""
