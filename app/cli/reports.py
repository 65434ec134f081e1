"""`mlxq reports`."""

from collections.abc import Iterator
from typing import Any, Final

import click
import msgspec

from app.cli.client import Client, client_of, json_option, url_option
from app.cli.context import interruptible
from app.cli.report_reading import (
    Acknowledging,
    Reader,
    ReportDict,
    create,
    execute,
)
from app.cli.values import Tag
from app.cli.watching import GIVE_UP_S

KINDS: Final = ("job", "generation", "drain")
CLASSES: Final = ("interactive", "background", "batch")


@click.command()
@click.option("--consumer", metavar="NAME", help="Read on as this consumer.")
@click.option(
    "--from",
    "start",
    type=click.Choice(["earliest", "latest"]),
    help="Create the consumer if it is not there, beginning so.",
)
@click.option("--kind", "kinds", multiple=True, type=click.Choice(KINDS), help="Repeatable.")
@click.option("--class", "classes", multiple=True, type=click.Choice(CLASSES), help="Repeatable.")
@click.option("--tag", "tags", multiple=True, type=Tag(), help="Only jobs with it. Repeatable.")
@click.option("--attached", is_flag=True, help="Also jobs that were tied to a connection.")
@click.option("--tenant", help="Only this tenant's jobs. [default: everything]")
@click.option("--after", metavar="EPOCH:SEQ", help="Without a consumer: from behind this place.")
@click.option("--follow", "follows", is_flag=True, help="Go on with what comes.")
@click.option("--ack", "acks", is_flag=True, help="Acknowledge what was printed.")
@click.option(
    "--exec",
    "command",
    metavar="CMD",
    help="Run this for each report, which comes as JSON on its standard input; acknowledge it when "
    "the exit status is 0, and end with 1 when it is not.",
)
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
def reports(
    context: click.Context,
    consumer: str | None,
    start: str | None,
    after: str | None,
    follows: bool,
    acks: bool,
    command: str | None,
    give_up_after: float,
    as_json: bool,
    url: str | None,
    **selected: Any,
) -> None:
    """Print how jobs, workers and drains ended, in the order in which that was recorded.

    A consumer reads on from what it has acknowledged, so each report is seen until it is done.
    Filters are fixed when it is created. With --json every report is one line.
    """
    _check(consumer, start, after, acks=acks or command is not None)
    client = client_of(context, url)
    if consumer is not None:
        query = _as_consumer(client, consumer, start, selected)
    else:
        query = _query(selected)
    done = None
    if consumer is not None and (acks or command is not None):
        done = Acknowledging(client, consumer, selected["tenant"], give_up_after)
    reader = Reader(client, query, after, give_up_after)
    with interruptible(lambda: "what was not acknowledged is shown again"):
        if follows:
            _each(reader.follow(), done, command, as_json=as_json)
        else:
            _pages(reader, done, command, as_json=as_json)


def _check(consumer: str | None, start: str | None, after: str | None, *, acks: bool) -> None:
    if consumer is None and (acks or start is not None):
        raise click.UsageError("--ack, --exec and --from need a --consumer")
    if consumer is not None and after is not None:
        raise click.UsageError("a --consumer reads on from what it has acknowledged, not --after")


def _as_consumer(
    client: Client, consumer: str, start: str | None, selected: dict[str, Any]
) -> dict[str, Any]:
    filters = any(selected[name] for name in ("kinds", "classes", "tags", "attached"))
    if start is None and filters:
        raise click.UsageError("filters are fixed when a consumer is created; add --from")
    tenant = selected["tenant"]
    if start is not None:
        selection = {
            "kinds": selected["kinds"],
            "classes": selected["classes"],
            "tags": dict(selected["tags"]),
            "include_attached": selected["attached"] or None,
            "tenant": tenant,
        }
        create(client, consumer, start, selection)
    return {"consumer": consumer, "tenant": tenant}


def _query(selected: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": selected["kinds"] or None,
        "class": selected["classes"] or None,
        "tag": [":".join(tag) for tag in selected["tags"]] or None,
        "include_attached": "true" if selected["attached"] else None,
        "tenant": selected["tenant"],
    }


def _pages(
    reader: Reader, done: Acknowledging | None, command: str | None, *, as_json: bool
) -> None:
    for page, place in reader.pages():
        _each(iter(page), None if command is None else done, command, as_json=as_json)
        if done is not None:
            done.through(place)
        elif reader.consumes:  # it would be shown the same again
            if reader.more:
                click.echo("there are more behind these: --ack goes on to them", err=True)
            return


def _each(
    found: Iterator[ReportDict], done: Acknowledging | None, command: str | None, *, as_json: bool
) -> None:
    for report in found:
        if command is not None:
            execute(command, report)
        elif as_json:
            click.echo(msgspec.json.encode(report))
        else:
            click.echo(_line(report))
        if done is not None:
            done.through(f"{report['epoch']}:{report['seq']}")


def _line(report: ReportDict) -> str:
    content: dict[str, Any] = report["report"] or {}
    usage = content.get("usage")
    cells = [
        str(report["seq"]),
        report["kind"],
        report["subject"],
        report["outcome"] + ("" if report["complete"] else " (incomplete)"),
        report["reason"] or "-",
        str(usage["completion_tokens"]) if usage else "-",
    ]
    return "\t".join(cells)
