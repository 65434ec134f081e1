"""Groups of commands that stand for a list when nothing is named."""

import click
from typing_extensions import override


class ListUnlessNamed(click.Group):
    """A group whose `list` need not be named."""

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Puts `list` in front of what names no command."""
        named = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named else ["list", *args])
