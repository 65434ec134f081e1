"""How fast mlxq serves, beside `mlx_lm.server` and beside its own loop without a server."""
