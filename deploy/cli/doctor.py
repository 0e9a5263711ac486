"""`weft doctor`: looks for what may keep a cluster from working."""

from __future__ import annotations

import sys

import click

from .group import Chosen, scheduler_options, weft


@weft.command(short_help="Look for what keeps a cluster from working.")
@scheduler_options
@click.option("--json", "as_json", is_flag=True, help="Print the checks as JSON, for programs.")
@click.option("--strict", is_flag=True, help="Exit with code 1 for warnings, too.")
@click.option("--security", is_flag=True, help="Print the effective security settings instead.")
def doctor(chosen: Chosen, as_json: bool, strict: bool, security: bool) -> None:
    """Look for what may keep a cluster from working, and say what to do about it.

    It looks at this machine (memory, limits of open files, space), at the way to the scheduler
    (connection file, name, port, TLS, token), and at the cluster (workers, versions, clocks, the
    scheduler's loop, and whether the workers of each machine reach the data ports of others). A
    token of role view is enough. It changes nothing, and works if no scheduler runs.

    \b
    Examples:
      weft doctor
      weft doctor tls://node1:8786 --json
      weft doctor --strict
      weft doctor --security

    Exit codes: 0 = all is well, or there are warnings; 1 = a check has failed, or with --strict
    there is a warning; 2 = wrong options.
    """
    import json

    if security:
        _print_security(chosen, as_json)
        return
    from ..doctor.checks import FAILED, OK, report, summary, worst
    from ..doctor.gathering import examine

    checks = examine(*chosen)
    click.echo(json.dumps(summary(checks), indent=2) if as_json else report(checks))
    found = worst(checks)
    if found == FAILED or (strict and found != OK):
        sys.exit(1)


def _print_security(chosen: Chosen, as_json: bool) -> None:
    import json

    from ...protocol.trust.finding import NoSchedulerFound
    from ..doctor.security import ALWAYS, default_settings, list_settings, settings_of

    settings = [*ALWAYS, *default_settings()]
    try:
        settings += settings_of(chosen.find())
    except NoSchedulerFound:
        if any(chosen):
            raise
        click.echo("no running scheduler was found; these are the defaults", err=True)
    if as_json:
        click.echo(json.dumps([setting._asdict() for setting in settings], indent=2))
    else:
        click.echo(list_settings(settings))
