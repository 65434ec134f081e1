"""`mlxq drain` and `mlxq resume`."""

import sys
import time
from typing import Any, Final

import click

from app.cli.client import Client, client_of, json_option, url_option
from app.cli.context import FAILED, interruptible, print_json
from app.cli.watching import progress

PATH: Final = "/admin/v1/drain"
LOOK_S: Final = 0.2


@click.command()
@click.option(
    "--mode",
    type=click.Choice(["finish", "checkpoint", "cancel"]),
    default="finish",
    show_default=True,
    help="Let running jobs end, go on later, or cancel them.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="After this long what is left is cancelled or put off. [default: 30]",
)
@click.option("--wait", is_flag=True, help="Wait until nothing is in flight.")
@json_option
@url_option
@click.pass_context
def drain(
    context: click.Context,
    mode: str,
    timeout: float | None,
    wait: bool,
    as_json: bool,
    url: str | None,
) -> None:
    """Bring the server's work to rest without stopping it.

    Foreground requests are refused and nothing is started until `mlxq resume`; durable jobs are
    taken and wait. With --wait the exit status is 1 when the drain did not complete.
    """
    client = client_of(context, url)
    body = {"mode": mode, **({} if timeout is None else {"timeout_s": timeout})}
    told = client.ask("POST", PATH, body)
    if wait:
        with interruptible(lambda: "the drain goes on; `mlxq resume` ends it"):
            told = _ended(client, told)
    if as_json:
        print_json(told)
    else:
        click.echo(_line(told))
    sys.exit(FAILED if wait and told["state"] != "completed" else 0)


@click.command()
@json_option
@url_option
@click.pass_context
def resume(context: click.Context, as_json: bool, url: str | None) -> None:
    """Take and start work again after a drain."""
    status = client_of(context, url).ask("POST", "/admin/v1/resume")
    if as_json:
        print_json(status)
    else:
        click.echo("resumed" if status["ready"] else f"resumed; not ready: {status['reason']}")


def _ended(client: Client, told: dict[str, Any]) -> dict[str, Any]:
    shown = ""
    while told["ended_at"] is None:
        if (line := _line(told)) != shown:
            progress(line)
            shown = line
        time.sleep(LOOK_S)
        told = client.ask("GET", PATH)
    return told


def _line(told: dict[str, Any]) -> str:
    state = told["state"] + (f" ({told['reason']})" if told["reason"] else "")
    counts = ", ".join(
        f"{told[name]} {name.replace('_', ' ')}" for name in ("finished", "given_back", "cancelled")
    )
    return f"{told['id']} {told['mode']} {state}: {told['in_flight']} in flight, {counts}"
