"""`mlxq submit`."""

import sys
import uuid
from collections.abc import Callable, Sequence
from typing import IO, Any, Final, TypeAlias

import click
import msgspec

from app.cli.client import (
    AnswerLost,
    Client,
    Unreachable,
    client_of,
    json_option,
    url_option,
)
from app.cli.context import Failed, interruptible, print_json
from app.cli.follow import resume_hint
from app.cli.values import Tag, Time
from app.cli.watching import Patience, Watcher, progress, show

ASK_AGAIN_S: Final = 30.0
"""How long a submission is repeated, under its key, whose answer was lost."""

CHAT_FIELDS: Final = ("max_tokens", "temperature", "top_p", "top_k", "min_p", "stop")

Fields = dict[str, Any]
Option: TypeAlias = Callable[[Callable[..., None]], Callable[..., None]]


def job_options(function: Callable[..., None]) -> Callable[..., None]:
    """What a job may be asked for with, each named as in the API."""
    return _with(_OPTIONS, function)


def when_options(function: Callable[..., None]) -> Callable[..., None]:
    """What a single job may wait for."""
    return _with(_WHEN_OPTIONS, function)


def _with(options: Sequence[Option], function: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(options):
        function = option(function)
    return function


_OPTIONS: Final = (
    click.option("-m", "--model", help="Model id. [default: the server's first]"),
    click.option("--system", help="What the model is told before the text."),
    click.option("--max-tokens", type=click.IntRange(min=1), help="Longest answer."),
    click.option("--temperature", type=float),
    click.option("--top-p", type=float),
    click.option("--top-k", type=int),
    click.option("--min-p", type=float),
    click.option("--stop", multiple=True, help="A string that ends the answer. Repeatable."),
    click.option("--seed", type=int, help="The same seed gives the same answer."),
    click.option("--no-store", is_flag=True, help="Delete the job ten minutes after its end."),
    click.option("--class", "class_", type=click.Choice(["interactive", "background", "batch"]),
                 help="Which jobs go first. [default: background]"),
    click.option("--priority", type=int, help="Higher goes first in a class."),
    click.option("--tenant", help="Whose job it is."),
    click.option("--tag", "tags", multiple=True, type=Tag(), help="Repeatable."),
    click.option("--deadline", "deadline_s", type=float, metavar="SECONDS",
                 help="Fail when it has not ended by then. [default: 7 days]"),
    click.option("--attempt-timeout", "attempt_timeout_s", type=float, metavar="SECONDS",
                 help="Longest attempt."),
    click.option("--max-attempts", type=int, help="Attempts when they fail. [default: 1]"),
)  # fmt: skip
_WHEN_OPTIONS: Final = (
    click.option("--after", multiple=True, metavar="JOB",
                 help="Not before this job has ended. Repeatable."),
    click.option("--on-failure", type=click.Choice(["fail", "run"]),
                 help="When a job of --after failed or was cancelled. [default: fail]"),
    click.option("--scheduled-at", type=Time(),
                 help="Not before: 2030-01-31T12:00:00+01:00; without an offset, local time."),
)  # fmt: skip


@click.command()
@click.argument("text", required=False)
@click.option("-f", "--file", type=click.File("rb"), help="JSON: an array of messages, or a body.")
@job_options
@when_options
@click.option("--idempotency-key", help="Submitted once, however often it is sent with this key.")
@click.option("--follow", "follows", is_flag=True, help="Print the answer as it comes.")
@json_option
@url_option
@click.pass_context
def submit(
    context: click.Context,
    text: str | None,
    file: IO[bytes] | None,
    idempotency_key: str | None,
    follows: bool,
    as_json: bool,
    url: str | None,
    **fields: Any,
) -> None:
    """Submit a job: TEXT for the model, or - for standard input.

    Prints the job's id. The job is done whatever happens to this command or to the server. With
    --follow the answer is printed instead, and the exit status is 1 if the job failed.
    """
    if idempotency_key is not None and not idempotency_key.isascii():
        raise click.BadParameter("it must be ASCII", param_hint="--idempotency-key")
    client = client_of(context, url)
    submission = submission_of(client, text, file, fields)
    job = _submit(client, submission, idempotency_key or f"mlxq-{uuid.uuid4().hex}")
    if not follows:
        print_json(job) if as_json else click.echo(job["id"])
        return
    progress(f"submitted as {job['id']}")
    watcher = Watcher(client, job["id"], fields["tenant"], 0)
    with interruptible(lambda: resume_hint(watcher)):
        sys.exit(show(watcher, as_json=as_json))


def _submit(client: Client, submission: Fields, key: str) -> Fields:
    """The recorded job. An answer that is lost is asked for again: the key makes that safe."""
    patience = Patience(ASK_AGAIN_S)
    lost = False
    while True:
        try:
            headers = {"Idempotency-Key": key}
            return client.ask("POST", "/v1/jobs", submission, headers=headers)
        except Unreachable as error:
            lost = lost or isinstance(error, AnswerLost)
            if not lost:
                raise
            progress("the answer was lost; asking again")
            if not patience.wait():
                again = f"`--idempotency-key {key}` asks again without a second job"
                raise AnswerLost(f"{error.message}; {again}") from error


def submission_of(
    client: Client, text: str | None, file: IO[bytes] | None, fields: Fields
) -> Fields:
    """The job that these options ask for, as it is sent."""
    return _submission(client, _chat(text, file, fields), fields)


def _submission(client: Client, body: Fields, fields: Fields) -> Fields:
    named = {**fields, "class": fields["class_"], "tags": dict(fields["tags"])}
    given = ("class", "priority", "tenant", "tags", "deadline_s", "attempt_timeout_s",
             "max_attempts", "scheduled_at", "after", "on_failure", "seed")  # fmt: skip
    model = fields["model"] or body.pop("model", None) or _default_model(client)
    return {
        "kind": "chat",
        "model": model,
        "body": body,
        **{name: named[name] for name in given if named.get(name) not in (None, {}, ())},
    }


def _default_model(client: Client) -> str:
    models = client.ask("GET", "/v1/models")["data"]
    if not models:
        raise Failed("the server has no model; `mlxq models pull` brings one")
    return models[0]["id"]


def _chat(text: str | None, file: IO[bytes] | None, fields: Fields) -> Fields:
    if (text is None) == (file is None):
        raise click.UsageError("give either TEXT (- for standard input) or --file")
    if file is not None:
        body = _from_file(file)
    else:
        said = sys.stdin.read() if text == "-" else text
        body: Fields = {"messages": [{"role": "user", "content": said}]}
    if fields["system"] is not None:
        system = {"role": "system", "content": fields["system"]}
        body["messages"] = [system, *body.get("messages", [])]
    body.update({name: fields[name] for name in CHAT_FIELDS if fields[name] not in (None, ())})
    if fields["no_store"]:
        body["store"] = False
    return body


def _from_file(file: IO[bytes]) -> Fields:
    try:
        found: Any = msgspec.json.decode(file.read())
    except msgspec.DecodeError as error:
        raise click.BadParameter(f"not JSON: {error}", param_hint="--file") from error
    try:
        return msgspec.convert({"messages": found} if type(found) is list else found, Fields)
    except msgspec.ValidationError as error:
        text = "it must hold an array of messages, or an object with one"
        raise click.BadParameter(text, param_hint="--file") from error
