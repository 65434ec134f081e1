"""`mlxq cancel`."""

import sys
from typing import Any

import click

from app.cli.client import Refused, client_of, job_path, json_option, url_option
from app.cli.context import print_json


@click.command()
@click.argument("jobs", nargs=-1, required=True)
@click.option("--tenant", help="Whose jobs they are.")
@json_option
@url_option
@click.pass_context
def cancel(
    context: click.Context,
    jobs: tuple[str, ...],
    tenant: str | None,
    as_json: bool,
    url: str | None,
) -> None:
    """Ask jobs to stop; those that have ended stay as they are.

    Prints each job with its state. Exit status 1 (4: now, not later): some could not be asked.
    """
    client = client_of(context, url)
    status = 0
    answers: list[Any] = []
    for job in jobs:
        try:
            answers.append(client.ask("POST", job_path(job, "/cancel"), query={"tenant": tenant}))
        except Refused as refusal:
            status = status or refusal.exit_code
            click.echo(f"{job}: {refusal.message}", err=True)
            continue
        if not as_json:
            click.echo(f"{answers[-1]['id']} {answers[-1]['state']}")
    if as_json:
        print_json({"jobs": answers})
    sys.exit(status)
