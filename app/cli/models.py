"""`mlxq models`: what is on disk, getting more, taking ours away."""

import sys
from pathlib import Path

import click

from app.catalogue.entries import Catalogue, ModelEntry
from app.catalogue.pull import PullFailed, RemoveRefused
from app.catalogue.pull import pull as pull_model
from app.catalogue.pull import remove as remove_model
from app.cli.context import INTERRUPTED, Failed, print_json, settings_of
from app.cli.progress import reporter
from app.settings import DEFAULT_MODEL, Settings

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document.")


@click.group()
@click.option("--data-dir", type=click.Path(path_type=Path), help="As given to `mlxq serve`.")
@click.pass_context
def models(context: click.Context, data_dir: Path | None) -> None:
    """The models on this machine."""
    context.obj = settings_of(context, {"storage.data_dir": data_dir}).settings


@models.command("list")
@json_option
@click.pass_obj
def list_models(settings: Settings, as_json: bool) -> None:
    """List every model that can be served."""
    found = Catalogue.of(settings).list()
    if as_json:
        print_json({"models": found})
    elif found:
        _print_table(found)
    else:
        click.echo(
            f"no models; `mlxq models pull {DEFAULT_MODEL}` brings the default one", err=True
        )


@models.command()
@click.argument("model", default=DEFAULT_MODEL)
@click.option("--copy", is_flag=True, help="Copy a directory instead of linking it.")
@json_option
@click.pass_obj
def pull(settings: Settings, model: str, copy: bool, as_json: bool) -> None:
    """Bring a model here.

    MODEL is the default model's id, a Hugging Face repository as org/name, or a directory that
    holds an mlx-lm model. A download that was interrupted goes on where it stopped.
    """
    try:
        with reporter() as told:
            catalogue = Catalogue.of(settings)
            entry = pull_model(model, catalogue, settings.storage.cache_dir, told, copy=copy)
    except PullFailed as error:
        raise Failed(str(error)) from error
    except KeyboardInterrupt:
        click.echo("interrupted; the same command goes on", err=True)
        sys.exit(INTERRUPTED)
    if as_json:
        print_json(entry)
    else:
        click.echo(f"{entry.id} is in {entry.path}")


@models.command()
@click.argument("model")
@json_option
@click.pass_obj
def show(settings: Settings, model: str, as_json: bool) -> None:
    """Print what is known of a model."""
    catalogue = Catalogue.of(settings)
    entry = catalogue.find(model)
    if entry is None:
        known = ", ".join(item.id for item in catalogue.list()) or "none"
        raise Failed(f"there is no model {model!r} here; there are: {known}")
    if as_json:
        print_json(entry)
        return
    for name in entry.__struct_fields__:
        click.echo(f"{name}: {getattr(entry, name)}")


@models.command("rm")
@click.argument("model")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@click.pass_obj
def remove(settings: Settings, model: str, yes: bool, as_json: bool) -> None:
    """Delete a model that `mlxq models pull` made; of a linked directory only the link.

    Models in the Hugging Face cache are never touched. A server that is running goes on with a
    model that it has loaded, until its worker ends.
    """
    catalogue = Catalogue.of(settings)
    entry = catalogue.find(model)
    if entry is not None:
        _tell_of_server(settings)
    if entry is not None and not yes:
        question = f"Delete {entry.id} ({entry.path}, {entry.bytes / 1e6:.0f} MB)?"
        if not click.confirm(question, err=True):
            raise Failed("nothing was deleted")
    try:
        removed = remove_model(model, catalogue)
    except RemoveRefused as error:
        raise Failed(str(error)) from error
    if as_json:
        print_json({"removed": removed.id})
    else:
        click.echo(f"removed {removed.id}")


def _tell_of_server(settings: Settings) -> None:
    from app.storage.database import LOCK_NAME
    from app.storage.lock import holder_of

    holder = holder_of(settings.storage.data_dir / LOCK_NAME)
    if holder is not None:
        click.echo(
            f"A server is running here ({holder}); without this model it refuses requests for it.",
            err=True,
        )


def _print_table(found: list[ModelEntry]) -> None:
    """A table on a terminal, tab-separated lines in a pipe."""
    rows = [_row(entry) for entry in found]
    if not sys.stdout.isatty():
        for row in rows:
            click.echo("\t".join(row))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("id", "MB", "context", "type", "weights", "source", box=None)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def _row(entry: ModelEntry) -> tuple[str, ...]:
    return (
        entry.id,
        f"{entry.bytes / 1e6:.0f}",
        str(entry.context_tokens or "-"),
        entry.model_type,
        entry.quantization or "dense",
        entry.source,
    )
