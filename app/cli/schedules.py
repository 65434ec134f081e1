"""`mlxq schedules`: list, add, show, pause, resume, rm."""

import sys
from typing import IO, Any, Final
from urllib.parse import quote

import click

from app.cli.client import client_of, json_option, url_option
from app.cli.context import print_json
from app.cli.groups import ListUnlessNamed
from app.cli.submit import job_options, submission_of

PATH: Final = "/v1/schedules"

tenant_option = click.option("--tenant", help="Whose schedules. [default: default]")


@click.group(cls=ListUnlessNamed)
def schedules() -> None:
    """Jobs that the clock submits; without a command, a list."""


@schedules.command("list")
@tenant_option
@json_option
@url_option
@click.pass_context
def list_schedules(
    context: click.Context, tenant: str | None, as_json: bool, url: str | None
) -> None:
    """List schedules, by name."""
    answer = client_of(context, url).ask("GET", PATH, query={"tenant": tenant})
    if as_json:
        print_json(answer)
    else:
        _print_table([_row(found) for found in answer["data"]])


@schedules.command()
@click.argument("name")
@click.argument("text", required=False)
@click.option("-f", "--file", type=click.File("rb"), help="JSON: an array of messages, or a body.")
@click.option("--cron", help="Minute, hour, day, month, weekday: '30 6 * * MON-FRI'.")
@click.option("--every", "every_s", type=float, metavar="SECONDS", help="From due to due.")
@click.option("--timezone", help="What --cron is read in: Europe/Berlin. [default: UTC]")
@click.option(
    "--catch-up",
    type=click.Choice(["one", "none"]),
    help="Of dues that were missed fire the latest, or none. [default: one]",
)
@click.option("--paused", is_flag=True, help="Fire nothing until it is resumed.")
@job_options
@json_option
@url_option
@click.pass_context
def add(
    context: click.Context,
    name: str,
    text: str | None,
    file: IO[bytes] | None,
    cron: str | None,
    every_s: float | None,
    timezone: str | None,
    catch_up: str | None,
    paused: bool,
    as_json: bool,
    url: str | None,
    **fields: Any,
) -> None:
    """Submit TEXT (- for standard input) again and again, by --cron or --every.

    Prints the schedule's id. Each due submits one job, whatever dies when.
    """
    if (cron is None) == (every_s is None):
        raise click.UsageError("give either --cron or --every")
    client = client_of(context, url)
    timing = {"cron": cron, "every_s": every_s, "timezone": timezone, "catch_up": catch_up}
    asked = {
        "name": name,
        **{key: value for key, value in timing.items() if value is not None},
        "paused": paused,
        "job": submission_of(client, text, file, fields),
    }
    answer = client.ask("POST", PATH, asked)
    print_json(answer) if as_json else click.echo(answer["id"])


@schedules.command("show")
@click.argument("schedule")
@tenant_option
@json_option
@url_option
@click.pass_context
def show_schedule(
    context: click.Context, schedule: str, tenant: str | None, as_json: bool, url: str | None
) -> None:
    """Print what is known of a schedule, by its id or name."""
    answer = client_of(context, url).ask("GET", _path(schedule), query={"tenant": tenant})
    if as_json:
        print_json(answer)
        return
    trouble = answer["trouble"]
    told = {
        **{key: answer[key] for key in ("id", "name", "tenant", "state")},
        "when": _when(answer),
        **{key: answer[key] for key in ("catch_up", "next_due", "last_due", "last_job", "fired")},
        "trouble": None if trouble is None else f"{trouble['message']} ({trouble['code']})",
        "model": answer["job"]["model"],
    }
    for key, value in told.items():
        if value is not None:
            click.echo(f"{key}: {value}")


@schedules.command()
@click.argument("schedule")
@tenant_option
@json_option
@url_option
@click.pass_context
def pause(
    context: click.Context, schedule: str, tenant: str | None, as_json: bool, url: str | None
) -> None:
    """Let a schedule fire nothing until it is resumed."""
    _set_paused(context, schedule, tenant, url, paused=True, as_json=as_json)


@schedules.command("resume")
@click.argument("schedule")
@tenant_option
@json_option
@url_option
@click.pass_context
def resume_schedule(
    context: click.Context, schedule: str, tenant: str | None, as_json: bool, url: str | None
) -> None:
    """Let a paused schedule fire again, from its next due on."""
    _set_paused(context, schedule, tenant, url, paused=False, as_json=as_json)


@schedules.command("rm")
@click.argument("schedule")
@tenant_option
@json_option
@url_option
@click.pass_context
def remove(
    context: click.Context, schedule: str, tenant: str | None, as_json: bool, url: str | None
) -> None:
    """Delete a schedule; the jobs that it submitted stay."""
    answer = client_of(context, url).ask("DELETE", _path(schedule), query={"tenant": tenant})
    print_json(answer) if as_json else click.echo(f"{answer['name']} is deleted")


def _set_paused(
    context: click.Context,
    schedule: str,
    tenant: str | None,
    url: str | None,
    *,
    paused: bool,
    as_json: bool,
) -> None:
    client = client_of(context, url)
    query = {"tenant": tenant}
    answer = client.ask("PATCH", _path(schedule), {"paused": paused}, query=query)
    if as_json:
        print_json(answer)
    elif paused:
        click.echo(f"{answer['name']} is paused")
    else:
        click.echo(f"{answer['name']} is due next at {answer['next_due']}")


def _path(schedule: str) -> str:
    return f"{PATH}/{quote(schedule, safe='')}"


def _when(found: dict[str, Any]) -> str:
    if found["cron"] is None:
        return f"every {found['every_s']:g} s"
    return f"{found['cron']} ({found['timezone']})"


def _row(found: dict[str, Any]) -> tuple[str, ...]:
    due = found["next_due"] or "-"
    return found["name"], found["state"], _when(found), due, str(found["fired"])


def _print_table(rows: list[tuple[str, ...]]) -> None:
    """A table on a terminal, tab-separated lines in a pipe."""
    if not sys.stdout.isatty():
        for row in rows:
            click.echo("\t".join(row))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "state", "when", "next due", "fired", box=None)
    for row in rows:
        table.add_row(*row)
    Console().print(table)
