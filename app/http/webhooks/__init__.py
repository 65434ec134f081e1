"""Webhook endpoints: as OpenAI's clients manage them, and what this server knows beyond that."""
