"""The calls of Ray Core, as rows that are run with it and with weft."""

from __future__ import annotations

from ..calls.row import Call, Library
from . import actors, commands, looking, objects, placing, starting, tasks, utilities
from .names import WITH_PAGES, opened, preamble_of

#: {heading: rows}
SECTIONS: dict[str, list[Call]] = {
    "Start, connect, end": starting.START,
    "Tasks": tasks.TASKS,
    "Options of tasks": tasks.OPTIONS,
    "Cancel": tasks.CANCEL,
    "Objects and references": objects.OBJECTS,
    "Errors": objects.ERRORS,
    "Actors": actors.ACTORS,
    "Runtime environments": placing.ENVIRONMENTS,
    "Placement groups": placing.GROUPS,
    "Look": looking.LOOK,
    "Runtime context": looking.INSIDE,
    "State API": looking.STATE,
    "Utilities": utilities.UTILITIES,
    "Jobs": commands.JOBS,
    "Commands": commands.COMMANDS,
}

#: Of the extra `ray[default]`.
_OF_DASHBOARD = ["grpc", "aiohttp_cors", "colorful", "opencensus", "smart_open", "virtualenv"]
NEEDS = dict.fromkeys(WITH_PAGES, _OF_DASHBOARD)

RAY = Library("ray", "from_ray_calls.md", SECTIONS, preamble_of, opened, NEEDS)
