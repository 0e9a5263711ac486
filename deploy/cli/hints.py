"""Hints of the `weft` command for commands and options that do not exist."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import click

from ...protocol.wording import nearest
from .addressing import AddressedCommand

#: A name of this similarity may be meant, even if another one begins with the given text.
_NEARLY_SAME: Final = 0.8
_NO_MACHINES: Final = "'weft ssh HOST...' runs a cluster on machines that are there already"
#: {command of other programs: weft's own way}.
_OTHER_COMMANDS: Final = {
    "shutdown": "'weft stop' ends a scheduler and its workers",
    "start": "'weft scheduler' starts a scheduler, and 'weft worker' the workers of a machine",
    "ps": "'weft info --all' lists the schedulers that can be found",
    "ls": "'weft info' shows a cluster, and 'weft info --all' lists those that can be found",
    "list": "'weft info' shows a cluster, and 'weft info --all' lists those that can be found",
    "check": "'weft doctor' looks for what keeps a cluster from working",
    "help": "see 'weft --help', and 'weft COMMAND --help'",
    # Of Ray.
    "memory": "'weft info' shows what workers hold, and 'weft top' how it changes",
    "summary": "'weft top' sums up tasks by function",
    "get": "'weft info KEY' shows a task",
    "job": "'weft submit --detach' records jobs, and 'weft queue' lists them",
    "stack": "'weft profile' shows which calls take the time of tasks",
    "up": _NO_MACHINES,
    "down": "'weft stop' ends a scheduler and its workers",
    "attach": _NO_MACHINES,
    "exec": "'weft submit -- COMMAND' runs a command on a worker",
    "rsync-up": "client.upload_file brings files and packages to all workers",
    "rsync-down": "'weft output KEY' prints what a job has printed",
    "get-head-ip": "'weft info' shows the addresses",
    "get-worker-ips": "'weft info' shows the addresses",
    "health-check": "'weft status' tells by its exit code whether a cluster is well",
    "drain-node": "'weft retire' lets workers finish what they run, and leave",
    "kill-actor": "'weft cancel' ends jobs; an actor ends with the last that holds it",
    "microbenchmark": "'weft selftest' runs small tasks on a cluster",
    "debug": "'weft bundle KEY' writes what is known of a task that has failed",
    "metrics": "'weft scheduler' serves /metrics beside its pages",
    "get-auth-token": "'weft token' writes a connection file, or prints it",
    "symmetric-run": "'weft ssh HOST...' runs a scheduler and workers on several machines",
}


def _meant(name: str, known: Iterable[str], cutoff: float) -> str:
    """Return the names that may be meant: one that begins with `name`, or is similar; or both."""
    known = list(known)
    longer = [other for other in known if other.startswith(name)]
    if len(longer) != 1:
        longer = []
    similar = nearest(name, known, _NEARLY_SAME if longer else cutoff)
    return " or ".join(f"'{other}'" for other in dict.fromkeys([similar, *longer]) if other)


#: {title: commands}: the order of `weft --help`; each command is in one of them.
COMMANDS: Final = {
    "Run a cluster": ("scheduler", "worker", "ssh"),
    "Run programs on it": ("submit", "queue", "wait", "output", "cancel", "retry", "forget"),
    "Look at it": (
        *("status", "top", "dashboard", "info", "explain", "timeline", "profile", "logs"),
        *("events", "bundle", "compare", "doctor", "selftest"),
    ),
    "Change it": ("scale", "retire", "block", "unblock", "pause", "resume", "stop", "journal"),
    "Access and settings": ("token", "config", "completion"),
    "Kubernetes": ("connect", "secret"),
}


_NO_AUTHORITY: Final = (
    "no authority is needed: the token proves the certificate of the scheduler, which connection "
    "files have"
)
_SUPERVISED: Final = "there is none here: a supervisor always starts workers again that die"
_ONE_PAGE: Final = (
    "there is none here: the scheduler's pages show its workers, and --metrics-address "
    "serves their metrics"
)
_RELATIVE: Final = (
    "there is none here: let the proxy remove the prefix from paths, and name the proxy with "
    "--dashboard-host-name"
)
_NO_CODE: Final = (
    "there is none here: the scheduler runs no code of users; 'weft worker' has --preload"
)
#: {command: {option of other schedulers: weft's own way}}; "" = of every command.
_ELSEWHERE: Final[dict[str, dict[str, str]]] = {
    "": {
        "--scheduler-file": "it is --connection-file here",
        "--tls-ca-file": _NO_AUTHORITY,
        "--dashboard-prefix": _RELATIVE,
    },
    "scheduler": {
        "--preload": _NO_CODE,
        "--jupyter": "there is none here: start Jupyter by itself, and weft.Client in its kernels",
        "--no-jupyter": "there is none here, and no Jupyter is started",
        "--show": "the addresses are always printed; --log-level warning leaves out the log",
        "--no-show": "the addresses are always printed; --log-level warning leaves out the log",
        "--use-xheaders": "nothing depends on the address of a browser; name a proxy with "
        "--dashboard-host-name",
        "--tls-ca-file": _NO_AUTHORITY,
    },
    "ssh": {
        "--scheduler-port": "it is --port here",
        "--nohost": "there is none here: 'weft worker' on each machine has --host, or set "
        "WEFT_WORKER_HOST there",
        "--log-directory": "there is none here: the lines of all machines come to this output, "
        "each with its machine before it",
        "--nanny-port": "a supervisor listens at no port",
        "--remote-dask-worker": "it is --python here: the Python on the machines that has weft",
    },
    "worker": {
        "--tls-cert": "a worker makes a certificate of its own, which the token proves",
        "--tls-key": "a worker makes a certificate of its own, which the token proves",
        "--nanny-port": "a supervisor listens at no port",
        "--nprocs": "it is --nworkers here",
        "--num-cpus": "it is --nthreads here",
        "--nanny": _SUPERVISED,
        "--no-nanny": _SUPERVISED,
        "--preload-nanny": "there is none here: --preload is for workers, and "
        "client.register_plugin takes a weft.SupervisorPlugin for each machine",
        "--dashboard-address": _ONE_PAGE,
        "--dashboard": _ONE_PAGE,
        "--no-dashboard": _ONE_PAGE,
        "--dashboard-prefix": _ONE_PAGE,
        "--protocol": "workers use that of the scheduler, as its address has it",
        "--worker-class": "there is one kind of worker; --preload and --resources make them differ",
        "--scheduler-sni": "names in certificates are not used: the token proves the certificate",
    },
}
_SIMILAR: Final = 0.7


class HintingCommand(AddressedCommand):
    """A command whose error for an unknown option proposes a similar one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name
            if name[1:].isdigit():
                number = next((word for word in given if word.startswith(name)), name)
                text = f"{number} is not valid: give a whole number, 0 or more"
                raise click.UsageError(text, ctx) from error
            options = [option for parameter in self.params for option in parameter.opts]
            meant = _meant(name, options, _SIMILAR)
            of_command = _ELSEWHERE.get(self.name or "", {})
            hint = (
                of_command.get(name)
                or _ELSEWHERE[""].get(name)
                or (f"did you mean {meant}?" if meant else _help_for(ctx, given))
            )
            raise click.UsageError(f"there is no option {name}; {hint}", ctx) from error
        except click.UsageError as error:
            takes_port = any("--port" in parameter.opts for parameter in self.params)
            if not takes_port or "unexpected extra argument" not in error.message:
                raise
            text = "; give a port with --port 8786, an address of this machine with --host"
            raise click.UsageError(error.message + text, ctx) from error


def _help_for(ctx: click.Context, given: list[str]) -> str:
    """Return what to do about an option that is like none of the command's."""
    if ctx.info_name == "submit" and "--" not in given:
        return f"if it is one of the program, put -- before that: {ctx.command_path} -- PROGRAM ..."
    return f"see '{ctx.command_path} --help'"


class CommandGroup(click.Group):
    """A group of `HintingCommand`s whose help lists them by purpose.

    Its error for an unknown command proposes a similar one.
    """

    command_class: type[click.Command] | None = HintingCommand

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by `COMMANDS`, all with the same width of the first column."""
        width = max(map(len, self.commands))
        for title, names in COMMANDS.items():
            room = formatter.width - 6 - width
            rows = [(n.ljust(width), self.commands[n].get_short_help_str(room)) for n in names]
            with formatter.section(title):
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            meant = _meant(args[0], self.list_commands(ctx), 0.5)
            hint = _OTHER_COMMANDS.get(args[0]) or (
                f"did you mean {meant}?" if meant else "see 'weft --help'"
            )
            raise click.UsageError(f"there is no command {args[0]!r}; {hint}", ctx) from error


class CommandWithCodes(HintingCommand):
    """A command whose help ends with its exit codes, from the table of all commands."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from .exits import exit_codes_of

        super().format_epilog(ctx, formatter)
        with formatter.section("Exit codes"):
            codes = exit_codes_of(self.name or "")
            formatter.write_dl([(f"{code} =", text) for code, text in codes.items()], col_spacing=1)
