"""`weft secret`: prints a Secret of Kubernetes with everything by which a cluster is known."""

from __future__ import annotations

import base64
import re
import sys
from pathlib import Path
from typing import Final

import click

from ...protocol.errors import ConfigError
from .group import weft
from .options import file_option

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


@weft.command(short_help="Print a Secret of Kubernetes for a new cluster.")
@click.argument("name")
@click.option("--namespace", help="Its namespace. Default: that of kubectl.")
@click.option(
    "--host-name",
    "host_names",
    multiple=True,
    metavar="NAME",
    help="A name in the certificate, for browsers, Prometheus and KEDA, such as "
    "RELEASE-weft-scheduler.NAMESPACE.svc. Repeatable.",
)
@click.option(
    "--client-secret",
    metavar="NAME",
    help="Print a second Secret of this name, with only what users need.",
)
@file_option("--token-file", "Take the token of role admin from this file instead of making one.")
def secret(
    name: str,
    namespace: str | None,
    host_names: tuple[str, ...],
    client_secret: str | None,
    token_file: Path | None,
) -> None:
    """Print a Secret of Kubernetes for a new cluster, for auth.existingSecret of the Helm chart.

    It has the tokens of the four roles, the cluster's id, a certificate and its key. Each call
    makes another cluster: keep what it prints, encrypted (Sealed Secrets, SOPS) or in a store of
    secrets, or pass it to 'kubectl apply -f -' once.

    \b
    Examples:
      weft secret --help
    """
    from ...protocol.settings.kinds import HostNames
    from ...protocol.trust.secret_files import read_token_file
    from ...protocol.trust.security import (
        Security,
        generate_certificate,
        new_cluster_id,
        new_token,
    )

    _check_name(name, "NAME")
    _check_name(namespace, "--namespace")
    _check_name(client_secret, "--client-secret")
    if client_secret == name:
        raise ConfigError(
            "it must be another name than that of the whole Secret", "--client-secret"
        )
    cluster_id = new_cluster_id()
    token = new_token() if token_file is None else read_token_file(token_file)
    security = Security(token.encode(), cluster_id)
    certificate, key = generate_certificate(cluster_id, HostNames().read(host_names, "--host-name"))
    keda_certificate, keda_key = generate_certificate(new_cluster_id())
    tokens = {
        f"{role}-token": security.token_for(role) for role in ("admin", "client", "worker", "view")
    }
    identity = {"cluster-id": cluster_id.hex(), "ca.crt": certificate}
    everything = {
        **tokens,
        **identity,
        "tls.crt": certificate,
        "tls.key": key,
        "keda.crt": keda_certificate,
        "keda.key": keda_key,
    }
    if sys.stdout.isatty():
        click.echo("these are the cluster's secrets: pass them to a file or a program", err=True)
    click.echo(_manifest(name, namespace, everything), nl=False)
    if client_secret is not None:
        users = {key: tokens[key] for key in ("client-token", "view-token")}
        click.echo("---\n" + _manifest(client_secret, namespace, {**users, **identity}), nl=False)


def _check_name(name: str | None, where: str) -> None:
    if name is not None and _NAME.fullmatch(name) is None:
        raise ConfigError(
            f"{name!r} cannot be a name in Kubernetes: use lower-case letters, digits, '-' and '.'",
            where,
        )


def _manifest(name: str, namespace: str | None, data: dict[str, str]) -> str:
    lines = ["apiVersion: v1", "kind: Secret", "type: Opaque", "metadata:", f"  name: {name}"]
    if namespace is not None:
        lines.append(f"  namespace: {namespace}")
    lines.append("data:")
    for key, text in data.items():
        lines.append(f"  {key}: {base64.b64encode(text.encode()).decode()}")
    return "\n".join(lines) + "\n"
