"""`weft events`: its options, and what it prints."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Final

import click

from .group import Chosen, scheduler_options, weft
from .jobs import connected
from .options import latest_option

if TYPE_CHECKING:
    from ...client.client import Client

#: How often a topic is looked at, seconds; a look at one without news transfers no event.
_LOOK_S: Final = 0.5
#: What an event of the scheduler is about: the first of these fields that it has.
_SUBJECTS: Final = ("key", "client", "worker", "host")


@weft.command(short_help="Show what has happened: workers that came and went, failures.")
@click.argument("topic", default="scheduler")
@latest_option("Number of events, the latest ones.")
@click.option("-f", "--follow", "follows", is_flag=True, help="Go on, until Ctrl-C.")
@click.option(
    "--event",
    "kinds",
    multiple=True,
    metavar="KIND",
    help="Only those of this kind, such as worker-lost; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON record for each event.")
@scheduler_options
def events(
    topic: str,
    n: int,
    follows: bool,
    kinds: tuple[str, ...],
    as_json: bool,
    chosen: Chosen,
) -> None:
    """Show what has happened on a cluster, one line for each event.

    The scheduler notes when workers join, leave or are lost, when clients connect and leave, and
    which tasks have failed: the last 1 000 of these events. A TOPIC names others, which programs
    have logged with client.log_event. It takes a connection file of the role client.

    \b
    Examples:
      weft events -f
      weft events --event worker-lost --event task-failed
      weft events loss --json
    """

    def print_rows(rows: list[tuple[float, Any]]) -> None:
        for when, event in rows:
            click.echo(as_record(when, event) if as_json else show(when, event))
        sys.stdout.flush()

    with connected(chosen, "weft events") as client:
        rows, number, _ = read_events(client, topic, kinds, 0)
        print_rows(rows[-n:] if n else [])
        try:
            while follows:
                time.sleep(_LOOK_S)
                rows, number, is_cut = read_events(client, topic, kinds, number)
                if is_cut:
                    click.echo("weft events: some came faster than they could be read", err=True)
                print_rows(rows)
        except KeyboardInterrupt:
            return


def read_events(
    client: Client[Any], topic: str, kinds: tuple[str, ...], after: int
) -> tuple[list[tuple[float, Any]], int, bool]:
    """Return the events after a number, the last number, and whether some are gone."""
    from ...client.coordination.topics import events_after
    from ...client.shell.both_ways import result_of

    found, last, is_cut = result_of(client._running(), lambda: events_after(client, topic, after))
    return [row for row in found if not kinds or kind_of(row[1]) in kinds], last, is_cut


def kind_of(event: Any) -> str:
    """Return the kind of an event; "" = it has none, as those of users may."""
    return str(event.get("event", "")) if isinstance(event, dict) else ""


def show(when: float, event: Any) -> str:
    """Format an event for display."""
    clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when))
    if not kind_of(event):
        return f"{clock} {event!r}"
    subject = next((name for name in _SUBJECTS if name in event), None)
    facts = [] if subject is None else [str(event[subject])]
    facts += [f"{one}={_word(event[one])}" for one in event if one not in ("event", subject)]
    return " ".join([clock, kind_of(event), *facts])


def _word(value: Any) -> str:
    """Return a value as one word; a text of several is quoted, and stays in its line."""
    text = str(value)
    return text if text.split() == [text] else repr(text)


def as_record(when: float, event: Any) -> str:
    """Return an event as one JSON object; what JSON does not have is written as text."""
    import json

    return json.dumps({"time": when, "event": event}, default=repr)
