"""`mlxq config show`."""

from pathlib import Path

import click

from app.cli.context import print_json, settings_of
from app.settings_keys import Loaded, keys


@click.group()
def config() -> None:
    """The settings in force."""


@config.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.option("--data-dir", type=click.Path(path_type=Path), help="As given to `mlxq serve`.")
@click.option("--set", "sets", multiple=True, metavar="SECTION.KEY=VALUE", help="Any setting.")
@click.pass_context
def show(
    context: click.Context, as_json: bool, data_dir: Path | None, sets: tuple[str, ...]
) -> None:
    """Print every setting, its value and where that came from."""
    loaded = settings_of(context, {"storage.data_dir": data_dir}, sets)
    if as_json:
        print_json(_document(loaded))
    else:
        _print(loaded)


def _value(loaded: Loaded, section: str, name: str) -> object:
    return getattr(getattr(loaded.settings, section), name)


def _document(loaded: Loaded) -> dict[str, object]:
    settings = {
        key.full: {
            "value": _value(loaded, key.section, key.name),
            "origin": loaded.origins[key.full],
            "variable": key.variable,
            "description": key.description,
        }
        for key in keys()
    }
    return {"file": loaded.config_path, "settings": settings}


def _print(loaded: Loaded) -> None:
    click.echo(f"file: {loaded.config_path or 'none'}")
    section = ""
    for key in keys():
        if key.section != section:
            section = key.section
            click.echo(f"\n[{section}]")
        value = _value(loaded, key.section, key.name)
        text = str(value) if isinstance(value, Path | int | float) else repr(value)
        click.echo(
            f"{key.name + ' = ' + text:<44}  # {loaded.origins[key.full]}; {key.description}"
        )


@config.command()
def reference() -> None:
    """Print the documentation of every setting, in Markdown."""
    from app.cli.settings_reference import settings_markdown

    click.echo(settings_markdown(), nl=False)
