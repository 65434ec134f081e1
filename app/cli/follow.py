"""`mlxq follow`."""

import sys

import click

from app.cli.client import client_of, json_option, url_option
from app.cli.context import interruptible
from app.cli.watching import GIVE_UP_S, Watcher, show


@click.command()
@click.argument("job")
@click.option(
    "--from",
    "first",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Number of the first event to show.",
)
@click.option("--tenant", help="Whose job it is.")
@click.option(
    "--give-up-after",
    type=click.FloatRange(min=0),
    default=GIVE_UP_S,
    show_default=True,
    metavar="SECONDS",
    help="How long the server may be away.",
)
@json_option
@url_option
@click.pass_context
def follow(
    context: click.Context,
    job: str,
    first: int,
    tenant: str | None,
    give_up_after: float,
    as_json: bool,
    url: str | None,
) -> None:
    """Print a job's answer as it comes, to its end.

    A server that goes away is waited for, and nothing is printed twice. With --json every event is
    one line. Exit status 0: the job was completed; 1: it failed or was cancelled.
    """
    watcher = Watcher(client_of(context, url), job, tenant, first, give_up_after)
    with interruptible(lambda: resume_hint(watcher)):
        sys.exit(show(watcher, as_json=as_json))


def resume_hint(watcher: Watcher) -> str:
    """What goes on, and how to see the rest."""
    return f"the job goes on; `mlxq follow {watcher.job} --from {watcher.next}` shows the rest"
