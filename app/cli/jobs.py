"""`mlxq jobs`: list, show, retry."""

import sys
from typing import Any, Final

import click

from app.cli.client import client_of, job_path, json_option, url_option
from app.cli.context import print_json
from app.cli.groups import ListUnlessNamed
from app.cli.values import Tag
from app.cli.watching import why

STATES: Final = (
    "scheduled",
    "available",
    "running",
    "retryable",
    "completed",
    "failed",
    "cancelled",
)
PAGE_MAX: Final = 100

tenant_option = click.option("--tenant", help="Whose jobs. [default: default]")


@click.group(cls=ListUnlessNamed)
def jobs() -> None:
    """The jobs of a server; without a command, a list."""


@jobs.command("list")
@click.option("--state", "states", multiple=True, type=click.Choice(STATES), help="Repeatable.")
@click.option("--tag", type=Tag(), help="Only jobs with this tag.")
@click.option("--model", help="Only jobs for this model.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True)
@click.option("--after", metavar="JOB", help="Only jobs older than this one.")
@tenant_option
@json_option
@url_option
@click.pass_context
def list_jobs(
    context: click.Context,
    states: tuple[str, ...],
    tag: tuple[str, str] | None,
    model: str | None,
    limit: int,
    after: str | None,
    tenant: str | None,
    as_json: bool,
    url: str | None,
) -> None:
    """List jobs, newest first."""
    client = client_of(context, url)
    query = {
        "state": states or None,
        "tag": None if tag is None else ":".join(tag),
        "model": model,
        "tenant": tenant,
    }
    found: list[dict[str, Any]] = []
    more = True
    while more and len(found) < limit:
        page = {**query, "after": after, "limit": min(limit - len(found), PAGE_MAX)}
        answer = client.ask("GET", "/v1/jobs", query=page)
        found += answer["data"]
        after, more = answer["last_id"], answer["has_more"]
    if as_json:
        print_json({"jobs": found, "has_more": more})
    else:
        _print_table(found)


@jobs.command()
@click.argument("job")
@tenant_option
@json_option
@url_option
@click.pass_context
def show(
    context: click.Context, job: str, tenant: str | None, as_json: bool, url: str | None
) -> None:
    """Print what is known of a job, and what it has said."""
    answer = client_of(context, url).ask("GET", job_path(job), query={"tenant": tenant})
    if as_json:
        print_json(answer)
        return
    for name, value in _facts(answer).items():
        click.echo(f"{name}: {value}")
    for choice in answer["output"]:
        for item in choice["items"]:
            click.echo(f"\n{item['text']}" if item["kind"] == "message" else _item(item))


@jobs.command()
@click.argument("job")
@tenant_option
@json_option
@url_option
@click.pass_context
def retry(
    context: click.Context, job: str, tenant: str | None, as_json: bool, url: str | None
) -> None:
    """Submit a job that has ended once more; prints the new job's id."""
    answer = client_of(context, url).ask("POST", job_path(job, "/retry"), query={"tenant": tenant})
    if as_json:
        print_json(answer)
    else:
        click.echo(answer["id"])


def _facts(job: dict[str, Any]) -> dict[str, str]:
    """What is worth a line; the state with its reason."""
    usage, queue = job["usage"], job["queue"]
    told: dict[str, Any] = {
        **{name: job[name] for name in ("id", "kind", "model", "tenant")},
        "state": why(job),
        "position": None if queue is None else queue["position"],
        "class": f"{job['class']}, priority {job['priority']}",
        "attempts": f"{job['attempt']} ({job['failures']} failed of {job['max_attempts']})",
        **{f"{name}_at": job[f"{name}_at"] for name in ("created", "scheduled", "started")},
        "finalized_at": job["finalized_at"],
        "deadline_at": job["deadline_at"],
        "tokens": f"{usage['prompt_tokens']} in the prompt ({usage['cached_tokens']} cached), "
        f"{usage['completion_tokens']} out",
        "finish_reason": job["finish_reason"],
        "retry_of": job["retry_of"],
        "after": _after(job),
        "schedule": job["schedule"],
        "seed": job["seed"],
        "tags": ", ".join(f"{key}={value}" for key, value in job["tags"].items()) or None,
    }
    return {name: str(value) for name, value in told.items() if value is not None}


def _after(job: dict[str, Any]) -> str | None:
    found = [f"{before['job']} ({before['outcome'] or 'open'})" for before in job["after"]]
    return ", ".join(found) or None


def _item(item: dict[str, Any]) -> str:
    name = f" {item['name']}" if item["name"] else ""
    return f"\n[{item['kind']}{name}]\n{item['text']}"


def _print_table(found: list[dict[str, Any]]) -> None:
    """A table on a terminal, tab-separated lines in a pipe."""
    rows = [_row(job) for job in found]
    if not sys.stdout.isatty():
        for row in rows:
            click.echo("\t".join(row))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("id", "state", "class", "model", "created", "tokens", box=None)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def _row(job: dict[str, Any]) -> tuple[str, ...]:
    tokens = str(job["usage"]["completion_tokens"])
    return job["id"], job["state"], job["class"], job["model"], job["created_at"], tokens
