"""Webhooks: reports, pushed to whoever registered an endpoint."""
