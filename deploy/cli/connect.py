"""`weft connect`: a cluster on Kubernetes at a port of this machine."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...protocol.errors import ConfigError
from .group import weft
from .options import file_option

if TYPE_CHECKING:
    from ...protocol.trust.connection_file import ConnectionFile
    from ..kubernetes.release import Release


@weft.command(short_help="Connect this machine to a cluster on Kubernetes.")
@click.argument("cluster", metavar="k8s/RELEASE")
@click.option("--namespace", "-n", metavar="NAME", help="As that of kubectl.")
@click.option("--context", metavar="NAME", help="As that of kubectl.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default="a free one",
    help="Port of this machine that leads to the scheduler.",
)
@file_option(
    "--connection-file",
    "File to write. Default: k8s-RELEASE.json in your run directory, where clients look.",
)
def connect(
    cluster: str,
    namespace: str | None,
    context: str | None,
    port: int,
    connection_file: Path | None,
) -> None:
    """Forward the scheduler of a release of weft's Helm chart to this machine, until Ctrl-C.

    It writes a connection file with the token of role client, so weft.Client() on this machine
    needs no arguments. It calls kubectl, with your configuration and rights: to read the Service
    and the Secret that it names (RELEASE-weft-client), and to forward ports. When the scheduler's
    pod is replaced it connects again, at the same port, and clients go on.

    \b
    Examples:
      weft connect k8s/sim
      weft connect k8s/sim --namespace lab --port 8786
    """
    from ...protocol.trust.finding import default_path
    from ..kubernetes.kubectl import Kubectl
    from ..kubernetes.kubectl_forwarding import PortForwarding
    from ..kubernetes.release import SCHEDULERS, release_of

    kind, _, name = cluster.partition("/")
    if kind != "k8s" or not name:
        raise ConfigError(
            f"{cluster!r} is not k8s/RELEASE; 'helm list --all-namespaces' lists the releases"
        )
    kubectl = Kubectl(context, namespace)
    services = kubectl.get("services", f"--selector={SCHEDULERS}")["items"]
    place = f"namespace {namespace!r}" if namespace else "the namespace of kubectl"
    hint = "'helm list --all-namespaces' lists all; choose with --namespace and --context"
    release = release_of(services, name, place, hint)
    path = connection_file or default_path(f"k8s-{name}")
    # Before the forwarding: a Secret that may not be read needs none.
    data = kubectl.get("secret", release.secret).get("data") or {}
    file = release.connection(data, release.address, release.pages)
    # A service manager's SIGTERM ends it as Ctrl-C does.
    signal.signal(signal.SIGTERM, _interrupt)
    forwarding = PortForwarding(kubectl, release.service, release.ports, (port, 0), _show)
    try:
        scheduler, pages = forwarding.local
        file = dataclasses.replace(
            file,
            addresses=(f"tls://127.0.0.1:{scheduler}",),
            dashboard=f"https://127.0.0.1:{pages}/",
            # It is of use only while this process runs.
            pid=os.getpid(),
            host=socket.gethostname(),
            created=time.time(),
        )
        if file.cluster_id:
            file.write(path)
        _print(release, file, path if file.cluster_id else None)
        while True:
            signal.pause()
    except KeyboardInterrupt:
        return
    finally:
        file.remove(path)
        forwarding.close()


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def _show(line: str) -> None:
    click.echo(f"weft connect: {line}", err=True)


def _print(release: Release, file: ConnectionFile, path: Path | None) -> None:
    address = file.addresses[0]
    click.echo(f"k8s/{release.name} in namespace {release.namespace} at {address}, until Ctrl-C")
    if path is not None:
        click.echo(f"  connection file  {path}")
        click.echo("  connect          weft.Client()")
    else:
        click.echo(
            f"  connection file  none: Secret {release.secret} has no cluster-id; copy it there "
            "from the Secret of the scheduler"
        )
        click.echo(f"  connect          WEFT_TOKEN_FILE=FILE, then weft.Client({address!r})")
    click.echo(f"  status page      {file.dashboard}")
