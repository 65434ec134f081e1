"""The operator's door: draining, resuming, and how the server stands."""
