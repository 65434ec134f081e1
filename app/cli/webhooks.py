"""`mlxq webhooks`."""

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

import click

from app.cli.client import Client, client_of, json_option, url_option
from app.cli.context import print_json
from app.cli.values import Tag

PATH: Final = "/v1/webhook_endpoints"
CLASSES: Final = ("interactive", "background", "batch")
TYPES: Final = (
    "job.completed",
    "job.failed",
    "job.cancelled",
    "response.completed",
    "response.failed",
    "response.cancelled",
    "response.incomplete",
)
"""What an endpoint is sent unless it is said."""

STATES: Final = ("waiting", "delivered", "parked")

tenant_option = click.option("--tenant", help="Whose endpoint it is. [default: the operator's]")


@click.group()
def webhooks() -> None:
    """Send how jobs ended to other servers, signed."""


@webhooks.command("list")
@tenant_option
@json_option
@url_option
@click.pass_context
def list_(context: click.Context, tenant: str | None, as_json: bool, url: str | None) -> None:
    """Print the endpoints and how they stand, a line each."""
    found = list(_pages(client_of(context, url), PATH, {"tenant": tenant}))
    if as_json:
        print_json({"object": "list", "data": found})
        return
    for one in found:
        click.echo(_line(one))


@webhooks.command()
@click.argument("target", metavar="URL")
@click.option("--name", default="webhook", show_default=True, help="What people call it.")
@click.option("--event", "events", multiple=True, metavar="TYPE", help="Repeatable.")
@click.option(
    "--from",
    "start",
    type=click.Choice(["earliest", "latest"]),
    default="latest",
    show_default=True,
    help="Send what is kept already, too, or only what comes.",
)
@click.option("--class", "classes", multiple=True, type=click.Choice(CLASSES), help="Repeatable.")
@click.option("--tag", "tags", multiple=True, type=Tag(), help="Only jobs with it. Repeatable.")
@click.option("--attached", is_flag=True, help="Also jobs that were tied to a connection.")
@tenant_option
@json_option
@url_option
@click.pass_context
def add(
    context: click.Context,
    target: str,
    name: str,
    events: tuple[str, ...],
    start: str,
    classes: tuple[str, ...],
    tags: tuple[tuple[str, str], ...],
    attached: bool,
    tenant: str | None,
    as_json: bool,
    url: str | None,
) -> None:
    """Send to URL from now on. Prints its id and its secret, which is told this once.

    Without --event it is sent every ending of a job. Filters are fixed when it is made.
    """
    body = {
        "name": name,
        "url": target,
        "event_types": list(events or TYPES),
        "from": start,
        "classes": list(classes) or None,
        "tags": dict(tags) or None,
        "include_attached": attached or None,
        "tenant": tenant,
    }
    given = {key: value for key, value in body.items() if value is not None}
    _secret(client_of(context, url).ask("POST", PATH, given), as_json=as_json)


@webhooks.command()
@click.argument("endpoint")
@tenant_option
@url_option
@click.pass_context
def rm(context: click.Context, endpoint: str, tenant: str | None, url: str | None) -> None:
    """Send nothing more to ENDPOINT; what was not delivered is forgotten."""
    client_of(context, url).ask("DELETE", _path(endpoint), query={"tenant": tenant})
    click.echo(f"{endpoint} is gone")


@webhooks.command()
@click.argument("endpoint")
@click.option("--keep-old", is_flag=True, help="The old secret signs as well for 24 hours.")
@tenant_option
@json_option
@url_option
@click.pass_context
def rotate(
    context: click.Context,
    endpoint: str,
    keep_old: bool,
    tenant: str | None,
    as_json: bool,
    url: str | None,
) -> None:
    """Give ENDPOINT a new secret and print it."""
    body = {"keep_old_secret_active_for_24_hours": keep_old}
    made = _post(client_of(context, url), _path(endpoint, "rotate_secret"), body, tenant)
    _secret(made, as_json=as_json)


@webhooks.command()
@click.argument("endpoint")
@click.option("--event", metavar="TYPE", help="[default: the endpoint's first]")
@tenant_option
@json_option
@url_option
@click.pass_context
def test(
    context: click.Context,
    endpoint: str,
    event: str | None,
    tenant: str | None,
    as_json: bool,
    url: str | None,
) -> None:
    """Send ENDPOINT a sample and print what it answers. Exit status 1: not with success."""
    body = {} if event is None else {"event_type": event}
    answer = _post(client_of(context, url), _path(endpoint, "test"), body, tenant)
    if as_json:
        print_json(answer)
    else:
        click.echo(f"{answer['status_code']}\t{answer['event_type']}\t{answer['took_ms']} ms")
    context.exit(0 if 200 <= answer["status_code"] < 300 else 1)


@webhooks.command()
@click.argument("endpoint")
@click.option("--event", help="This event once more.")
@click.option("--from", "start", metavar="EVENT", help="All from this event on.")
@click.option("--parked", is_flag=True, help="What was given up.")
@tenant_option
@url_option
@click.pass_context
def replay(
    context: click.Context,
    endpoint: str,
    event: str | None,
    start: str | None,
    parked: bool,
    tenant: str | None,
    url: str | None,
) -> None:
    """Send again to ENDPOINT, under the same ids and with the same bytes."""
    given = {"event": event, "from": start, "parked": parked or None}
    body = {key: value for key, value in given.items() if value is not None}
    if len(body) != 1:
        raise click.UsageError("write one of --event, --from and --parked")
    answer = _post(client_of(context, url), _path(endpoint, "replay"), body, tenant)
    count = answer["replayed"]
    click.echo("sending again" if count is None else f"sending again: {count}")


@webhooks.command()
@click.argument("endpoint")
@tenant_option
@url_option
@click.pass_context
def enable(context: click.Context, endpoint: str, tenant: str | None, url: str | None) -> None:
    """Send to ENDPOINT again, from where it stood."""
    click.echo(_line(_post(client_of(context, url), _path(endpoint), {"enabled": True}, tenant)))


@webhooks.command()
@click.argument("endpoint")
@tenant_option
@url_option
@click.pass_context
def disable(context: click.Context, endpoint: str, tenant: str | None, url: str | None) -> None:
    """Send nothing to ENDPOINT until it is enabled."""
    click.echo(_line(_post(client_of(context, url), _path(endpoint), {"enabled": False}, tenant)))


@webhooks.command()
@click.argument("endpoint")
@click.option("--state", type=click.Choice(STATES), help="Only these.")
@click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True)
@tenant_option
@json_option
@url_option
@click.pass_context
def deliveries(
    context: click.Context,
    endpoint: str,
    state: str | None,
    limit: int,
    tenant: str | None,
    as_json: bool,
    url: str | None,
) -> None:
    """Print what ENDPOINT was sent, the latest first, with how the last try ended."""
    query = {"state": state, "limit": limit, "tenant": tenant}
    page = client_of(context, url).ask("GET", _path(endpoint, "deliveries"), query=query)
    if as_json:
        print_json(page)
        return
    for one in page["data"]:
        last: dict[str, Any] = one["attempts"][-1] if one["attempts"] else {}
        came = last.get("status") or last.get("error") or "-"
        cells = (one["id"], one["event_type"], one["state"], one["tries"], came)
        click.echo("\t".join(map(str, cells)))


def _pages(client: Client, path: str, query: dict[str, Any]) -> Iterator[dict[str, Any]]:
    more, after = True, None
    while more:
        page = client.ask("GET", path, query={**query, "limit": 100, "after": after})
        yield from page["data"]
        more, after = page["has_more"], page["last_id"]


def _post(client: Client, path: str, body: dict[str, Any], tenant: str | None) -> dict[str, Any]:
    return client.ask("POST", path, body, query={"tenant": tenant})


def _path(endpoint: str, verb: str = "") -> str:
    path = f"{PATH}/{quote(endpoint, safe='')}"
    return f"{path}/{verb}" if verb else path


def _secret(made: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(made)
    else:
        click.echo(f"{made['id']}\t{made['signing_secret']}")


def _line(one: dict[str, Any]) -> str:
    behind = one["end"]["seq"] - one["position"]["seq"]
    cells = (
        one["id"],
        "enabled" if one["enabled"] else f"disabled: {one['disabled_reason']}",
        one["url"],
        f"{behind} ahead",
        f"{one['waiting']} waiting",
        f"{one['parked']} parked",
    )
    return "\t".join(cells)
