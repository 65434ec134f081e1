"""Names that vulture takes for unused though they are not, or not yet.

A name stands under the reason it is kept; a name kept for open work says which work will call it.
"""
# ruff: noqa
# pyright: basic

# Fields that leave the process as JSON.
created  # ModelEntry, for `GET /v1/models` and `mlxq models --json`
mlx_lm  # worker.doctor.DoctorReport

# Read by the library that owns the class.
exit_code  # click.ClickException
obj  # click.Context
pre_tokenizer  # tokenizers.Tokenizer
decoder  # tokenizers.Tokenizer

# Read or called by the library that owns the class.
request_body  # litestar's Operation
force_exit  # uvicorn.Server
timeout_graceful_shutdown  # uvicorn.Config
should_exit  # uvicorn.Server
isolation_level  # sqlite3.Connection
row_factory  # sqlite3.Connection
extract_cache  # mlx_lm's BatchGenerator
_generation_batch  # mlx_lm's BatchGenerator

# Errors that jobs fail with: made from their codes by `error_for`.
ModelChanged
TooManyLosses
StorageDamaged

# Read by tests: what is stored, replaced reports and generations that are gone included.
load_reports
load_generation

# Open work that will call it.
load_attempts  # attempts in the native door
