"""Each option of dask's command is one of weft's, or is refused with what to use instead."""

from __future__ import annotations

import click
import pytest

from weft.deploy.cli.command import weft as command

SCHEDULER = [
    "--host",
    "--port",
    "--interface",
    "--protocol",
    "--tls-ca-file",
    "--tls-cert",
    "--tls-key",
    "--dashboard-address",
    "--dashboard",
    "--no-dashboard",
    "--jupyter",
    "--no-jupyter",
    "--show",
    "--no-show",
    "--dashboard-prefix",
    "--use-xheaders",
    "--pid-file",
    "--scheduler-file",
    "--preload",
    "--idle-timeout",
]
WORKER = [
    "--tls-ca-file",
    "--tls-cert",
    "--tls-key",
    "--worker-port",
    "--nanny-port",
    "--dashboard-address",
    "--dashboard",
    "--no-dashboard",
    "--listen-address",
    "--contact-address",
    "--host",
    "--interface",
    "--protocol",
    "--nthreads",
    "--nworkers",
    "--name",
    "--memory-limit",
    "--nanny",
    "--no-nanny",
    "--pid-file",
    "--local-directory",
    "--resources",
    "--scheduler-file",
    "--death-timeout",
    "--dashboard-prefix",
    "--lifetime",
    "--lifetime-stagger",
    "--lifetime-restart",
    "--no-lifetime-restart",
    "--worker-class",
    "--preload",
    "--preload-nanny",
    "--scheduler-sni",
]
SSH = [
    "--scheduler",
    "--scheduler-port",
    "--nthreads",
    "--nworkers",
    "--hostfile",
    "--ssh-username",
    "--ssh-port",
    "--ssh-private-key",
    "--nohost",
    "--log-directory",
    "--local-directory",
    "--remote-python",
    "--memory-limit",
    "--worker-port",
    "--nanny-port",
    "--remote-dask-worker",
]
REFUSED = {
    "ssh": [
        "--scheduler-port",
        "--nohost",
        "--log-directory",
        "--nanny-port",
        "--remote-dask-worker",
    ],
    "scheduler": [
        "--tls-ca-file",
        "--jupyter",
        "--no-jupyter",
        "--show",
        "--no-show",
        "--dashboard-prefix",
        "--use-xheaders",
        "--preload",
    ],
    "worker": [
        "--tls-ca-file",
        "--tls-cert",
        "--tls-key",
        "--nanny-port",
        "--dashboard-address",
        "--dashboard",
        "--no-dashboard",
        "--protocol",
        "--nanny",
        "--no-nanny",
        "--dashboard-prefix",
        "--worker-class",
        "--preload-nanny",
        "--scheduler-sni",
    ],
}


def options_of(name: str) -> set[str]:
    found = command.get_command(click.Context(command), name)
    assert found is not None
    return {text for p in found.params for text in (*p.opts, *p.secondary_opts)}


@pytest.mark.parametrize(
    ("name", "options"), [("scheduler", SCHEDULER), ("worker", WORKER), ("ssh", SSH)]
)
def test_each_option_of_dask_is_an_option_or_is_refused(name, options):
    own = options_of(name)
    assert [option for option in options if option not in own] == REFUSED[name]


@pytest.mark.parametrize(
    ("name", "option"), [(name, option) for name in REFUSED for option in REFUSED[name]]
)
def test_a_refused_option_is_one_line_that_names_another_way(name, option):
    found = command.get_command(click.Context(command), name)
    assert found is not None
    with pytest.raises(click.UsageError) as caught:
        found.make_context(name, [option, "1"], parent=click.Context(command))
    told = caught.value.format_message()
    assert told.startswith(f"there is no option {option}; ")
    assert "--help" not in told
    assert "did you mean" not in told
    assert "\n" not in told


@pytest.mark.parametrize(
    ("name", "options"), [("scheduler", SCHEDULER), ("worker", WORKER), ("ssh", SSH)]
)
def test_the_list_of_options_is_that_of_the_installed_dask(name, options):
    pytest.importorskip("distributed", reason="dask.distributed is missing: make bench sets it up")
    from importlib import import_module

    main = import_module(f"distributed.cli.dask_{name}").main
    found = {
        text
        for parameter in main.params
        if isinstance(parameter, click.Option)
        for text in (*parameter.opts, *parameter.secondary_opts)
        if text.startswith("--")
    }
    assert found - {"--version", "--preload"} == set(options) - {"--preload"}
