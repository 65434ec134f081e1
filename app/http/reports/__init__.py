"""The feed of reports and its consumers: reading, following, acknowledging."""
