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
