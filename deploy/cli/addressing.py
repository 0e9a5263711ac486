"""How a command is given the scheduler's address: as its first word, or by --scheduler.

Each command that finds a scheduler has a `SchedulerArgument`. Its first word is the address if it
looks like one, or if the command has no arguments of its own. All other words are those arguments,
so that each command declares them as if there were no address.
"""

from __future__ import annotations

import re
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from .completing import complete_addresses

#: tcp://host:port and the like, or host:port.
_ADDRESS: Final = re.compile(r"(tcp|tls|unix)://|[\w.-]+:\d+$|\[[0-9a-f:]+\]:\d+$")
#: Whether the words of a command begin with one that is no address, in `click.Context.meta`.
_HAS_OTHERS: Final = f"{__name__}.has_others"


def is_address(text: str) -> bool:
    """Return whether a word is an address, and not the key of a task or the like."""
    return _ADDRESS.match(text) is not None


class SchedulerArgument(click.Argument):
    """The address of a scheduler, before the other arguments of its command."""

    def __init__(self, declarations: list[str], **more: Any) -> None:
        super().__init__(declarations, required=False, **more)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Propose addresses, and what the first of the other arguments may be."""
        found = complete_addresses(ctx, self, incomplete)
        for other in _others(ctx.command)[:1]:
            found += other.shell_complete(ctx, incomplete)
        return found


def _others(command: click.Command) -> list[click.Parameter]:
    arguments = (one for one in command.params if isinstance(one, click.Argument))
    return [one for one in arguments if not isinstance(one, SchedulerArgument)]


class AddressedCommand(click.Command):
    """A command that takes an address as its first word, if it has a `SchedulerArgument`."""

    @property
    def is_addressed(self) -> bool:
        """Whether it finds a scheduler."""
        return any(isinstance(one, SchedulerArgument) for one in self.params)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, the address first; not when other words are read."""
        params = super().get_params(ctx)
        address = [one for one in params if isinstance(one, SchedulerArgument)]
        others = [one for one in params if not isinstance(one, SchedulerArgument)]
        return others if ctx.meta.get(_HAS_OTHERS) else [*address, *others]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the address out of the words, and read the others."""
        address = None
        if self.is_addressed and (n := self._n_before_words(ctx, args)) < len(args):
            # After -- there are the other arguments only.
            if not _others(self) or (is_address(args[n]) and "--" not in args[:n]):
                address, args = args[n], [*args[:n], *args[n + 1 :]]
            ctx.meta[_HAS_OTHERS] = True
        left = super().parse_args(ctx, args)
        if self.is_addressed:
            ctx.params["address"] = address
        return left

    def _n_before_words(self, ctx: click.Context, args: list[str]) -> int:
        """Return how many items of the command line are before the first that is no option."""
        options = [one for one in self.params if isinstance(one, click.Option)]
        probe = click.Command(self.name, params=[*options], add_help_option=False)
        where = click.Context(probe, parent=ctx.parent, allow_interspersed_args=False)
        try:
            _, words, _ = probe.make_parser(where).parse_args([*args])
        except click.UsageError:  # for instance --help, or an option that does not exist
            return len(args)
        return len(args) - len(words)
