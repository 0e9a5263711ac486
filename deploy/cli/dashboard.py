"""`weft dashboard`: a link into the pages of a scheduler."""

from __future__ import annotations

from typing import Final

import click

from ...protocol.errors import ConfigError
from .group import Chosen, scheduler_options, weft

#: What a link may permit, the least first.
ROLES: Final = ("view", "client", "admin")


@weft.command(short_help="Print a link into the pages, which signs a browser in.")
@scheduler_options
@click.option(
    "--role",
    type=click.Choice(ROLES),
    default="client",
    show_default=True,
    help="What the visitor may do; see above.",
)
@click.option("--open", "is_open", is_flag=True, help="Open it in the browser as well.")
def dashboard(chosen: Chosen, role: str, is_open: bool) -> None:
    """Print a link into the pages of a scheduler. It signs a browser in, once, within ten minutes.

    \b
    view     the visitor may look
    client   ... and see arguments, tracebacks, stacks and logs
    admin    ... and has buttons: cancel, retry, restart, retire, scale

    The rights beyond looking last for 12 hours, until the visitor signs out, or until the
    scheduler ends. Whoever has the link first has them, so give a link on with the least role that
    is needed. A role takes a token of that role.

    \b
    Examples:
      weft dashboard
      weft dashboard --role admin --open
    """
    import webbrowser

    from ...protocol.trust.page_access import link_into
    from ...protocol.wire.levels import Level

    level = Level[role.upper()]
    found = chosen.demand(level, f"weft dashboard --role {role}")
    info, _ = chosen.ask(lambda viewer: viewer.ask_all("cluster"))
    url = info.get("dashboard") or found.dashboard
    link = link_into(url, found.to_security(), level)
    if not link:
        raise ConfigError(
            "this scheduler serves no pages: start it with --dashboard-address, or a local cluster "
            'with dashboard_address=":0"'
        )
    click.echo(link)
    if is_open:
        webbrowser.open(link)
