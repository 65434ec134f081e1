"""The HTTP doors: decode, call one service, render what it answers. Litestar stays in here."""
