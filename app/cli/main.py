"""`mlxq`: the command line. One file per group; each command imports what it needs when it runs."""

from pathlib import Path

import click

from app.cli.cancel import cancel
from app.cli.config import config
from app.cli.doctor import doctor
from app.cli.drain import drain, resume
from app.cli.follow import follow
from app.cli.jobs import jobs
from app.cli.models import models
from app.cli.reports import reports
from app.cli.schedules import schedules
from app.cli.serve import serve
from app.cli.submit import submit
from app.cli.webhooks import webhooks

EPILOG = (
    "Exit status: 0 done; 1 failed, refused or problems found, and a job that failed or was "
    "cancelled; 2 wrong usage or settings; 3 no server there; 4 the server cannot take it now; "
    "130 interrupted."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, epilog=EPILOG)
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Settings file (TOML). Else MLXQ_CONFIG, else the one in the user's configuration folder.",
)
@click.version_option(package_name="mlxq", prog_name="mlxq")
def cli(config: Path | None) -> None:
    """A durable job server for MLX language models."""
    del config  # read from the context by app.cli.context


cli.add_command(serve)
cli.add_command(submit)
cli.add_command(jobs)
cli.add_command(follow)
cli.add_command(cancel)
cli.add_command(schedules)
cli.add_command(reports)
cli.add_command(webhooks)
cli.add_command(drain)
cli.add_command(resume)
cli.add_command(models)
cli.add_command(doctor)
cli.add_command(config)


def main() -> None:
    """Run the command line: the console script."""
    cli(prog_name="mlxq")


if __name__ == "__main__":
    main()
