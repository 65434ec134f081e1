"""The OpenAI-compatible door: chat completions and models."""
