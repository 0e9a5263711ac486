"""Run Prometheus, and Grafana if it is installed, beside a cluster, until Ctrl-C.

    python -m weft.deploy.monitoring.start [ADDRESS]

Prometheus reads the scheduler's page with the cluster's view token, finds the workers that have a
page of their own, and loads the alert rules. Grafana gets Prometheus as its data source and the
dashboard. Both listen on loopback only. What they store is removed at the end, unless `--data`
names a folder. This is for a look at a cluster; in production put the files beside this module into
the configuration of the servers that are there (docs/monitoring.md).
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any, Final
from urllib.parse import urlsplit

from ...protocol.errors import ConfigError, WeftError
from ...protocol.trust import finding
from ...protocol.trust.connection_file import ConnectionFile
from ...protocol.trust.secret_files import write_secret_file
from ...protocol.wire.levels import Level, lowered

HERE: Final = Path(__file__).parent
#: Servers that are not ready after this have failed.
_START_S: Final = 60.0
#: Time for a server to end before it is killed.
_END_S: Final = 10.0


def prometheus_config(
    found: ConnectionFile, folder: Path, interval: str, rules: Path
) -> dict[str, Any]:
    """Return the configuration of Prometheus, as plain data; JSON is YAML.

    Args:
        found: of the cluster, whose scheduler has pages.
        folder: has the token in `token` and the certificate, if there is one, in `ca.pem`.
        interval: between two scrapes, such as `5s`.
        rules: the file of alert rules.
    """
    assert found.dashboard is not None
    page = urlsplit(found.dashboard)
    access: dict[str, Any] = {
        "authorization": {"type": "Bearer", "credentials_file": str(folder / "token")},
    }
    if page.scheme == "https":
        # The certificate has the name of the cluster, wherever its scheduler runs.
        access["tls_config"] = {
            "ca_file": str(folder / "ca.pem"),
            "server_name": f"weft-{found.cluster_id}",
        }
    labels = {"cluster": found.cluster_id[:8]}
    return {
        "global": {"scrape_interval": interval, "evaluation_interval": interval},
        "rule_files": [str(rules)],
        "scrape_configs": [
            {
                "job_name": "weft-scheduler",
                "static_configs": [{"targets": [page.netloc], "labels": labels}],
                "scheme": page.scheme,
                **access,
            },
            {
                "job_name": "weft-workers",
                # Each target says whether it is http or https.
                "http_sd_configs": [{"url": f"{found.dashboard}sd", **access}],
                "relabel_configs": [{"target_label": "cluster", "replacement": labels["cluster"]}],
                "authorization": access["authorization"],
                # Beyond loopback each machine of workers has made a certificate of its own.
                "tls_config": {"insecure_skip_verify": True},
            },
        ],
    }


def grafana_environment(folder: Path, port: int, password: str, prometheus: str) -> dict[str, str]:
    """Return Grafana's settings, which it takes from its environment."""
    return {
        "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
        "GF_ANALYTICS_REPORTING_ENABLED": "false",
        "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH": str(HERE / "grafana" / "weft.json"),
        "GF_PATHS_DATA": str(folder / "grafana"),
        "GF_PATHS_LOGS": str(folder / "grafana" / "log"),
        "GF_PATHS_PLUGINS": str(folder / "grafana" / "plugins"),
        "GF_PATHS_PROVISIONING": str(HERE / "grafana" / "provisioning"),
        "GF_SECURITY_ADMIN_PASSWORD": password,
        "GF_SERVER_HTTP_ADDR": "127.0.0.1",
        "GF_SERVER_HTTP_PORT": str(port),
        "WEFT_DASHBOARDS": str(HERE / "grafana"),
        "WEFT_PROMETHEUS_URL": prometheus,
    }


class _Server:
    """A server that was started here."""

    def __init__(self, name: str, command: Sequence[str], folder: Path, **env: str) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={**os.environ, **env},
                # Ctrl-C in the terminal ends this program, which ends the servers in order.
                start_new_session=True,
            )

    def demand_alive(self) -> None:
        """Raise ConfigError with the last line of its log if it has ended."""
        code = self._process.poll()
        if code is not None:
            lines = self._log.read_text(errors="replace").strip().splitlines() or ["no output"]
            raise ConfigError(f"{self.name} ended with code {code}: {lines[-1][:300]}")

    def wait_ready(self, url: str) -> None:
        """Wait until it answers; raise ConfigError if it ends first or takes a minute."""
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            self.demand_alive()
            try:
                with urllib.request.urlopen(url, timeout=2):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        raise ConfigError(f"{self.name} does not answer at {url} after {_START_S:g} s")

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _free_port(wanted: int) -> int:
    """Return the port if it is free, or any that is."""
    for port in (wanted, 0):
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(sock.getsockname()[1])
    raise ConfigError("no port is free at 127.0.0.1")


def _arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m weft.deploy.monitoring.start",
        description="Run Prometheus, and Grafana if it is installed, beside a cluster.",
    )
    parser.add_argument("address", nargs="?", help="of the scheduler; default: the one that runs")
    parser.add_argument("--connection-file", help="the scheduler's file")
    parser.add_argument("--prometheus-port", type=int, default=9090, metavar="PORT")
    parser.add_argument("--grafana-port", type=int, default=3000, metavar="PORT")
    parser.add_argument("--interval", default="5s", help="between two scrapes (default: 5s)")
    parser.add_argument("--data", type=Path, help="keep the data of both in this folder")
    return parser.parse_args(given)


def main(given: Sequence[str]) -> int:
    """Run until a signal comes or a server ends; return the exit code."""
    arguments = _arguments(given)
    try:
        with ExitStack() as stack:
            run(arguments, stack)
    except KeyboardInterrupt:
        return 0
    except WeftError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def run(arguments: argparse.Namespace, stack: ExitStack) -> None:
    """Start the servers and wait.

    Raises:
        KeyboardInterrupt: at Ctrl-C and SIGTERM.
        WeftError: no scheduler with pages was found, or a server cannot run.
    """
    found = finding.find(arguments.connection_file, arguments.address, os.environ)
    if not found.dashboard or not found.cluster_id:
        raise ConfigError(
            f"the connection file of {found.addresses[0]} has no address of its pages: start the "
            "scheduler with --dashboard-address, and name its own --connection-file here"
        )
    program = shutil.which("prometheus")
    if program is None:
        raise ConfigError(
            "the program prometheus is not in PATH: install it (Debian, Ubuntu: apt install "
            "prometheus), or give the file deploy/monitoring/prometheus.yaml to a server elsewhere"
        )
    signal.signal(signal.SIGTERM, _interrupt)
    if arguments.data is None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="weft-monitoring-")))
    else:
        folder = arguments.data.absolute()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    token = lowered(found.token.encode(), Level.VIEW).decode()
    write_secret_file(folder / "token", f"{token}\n", "token file")
    if found.certificate_pem:
        (folder / "ca.pem").write_text(found.certificate_pem)
    config = prometheus_config(found, folder, arguments.interval, HERE / "rules.yaml")
    (folder / "prometheus.yaml").write_text(json.dumps(config, indent=2))
    servers = []
    at = f"127.0.0.1:{_free_port(arguments.prometheus_port)}"
    prometheus = _Server(
        "prometheus",
        [
            program,
            f"--config.file={folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={folder / 'prometheus'}",
            f"--web.listen-address={at}",
        ],
        folder,
    )
    stack.callback(prometheus.stop)
    servers.append(prometheus)
    prometheus.wait_ready(f"http://{at}/-/ready")
    print(f"Prometheus  http://{at}/targets", flush=True)
    program = shutil.which("grafana") or shutil.which("grafana-server")
    if program is None:
        print(
            f"Grafana     not in PATH; import {HERE / 'grafana' / 'weft.json'} where it runs",
            flush=True,
        )
    else:
        port = arguments.grafana_port
        servers.append(_start_grafana(program, folder, port, f"http://{at}", stack))
    print("Ctrl-C ends this", flush=True)
    while True:
        for server in servers:
            server.demand_alive()
        time.sleep(0.5)


def _start_grafana(
    program: str, folder: Path, wanted_port: int, prometheus: str, stack: ExitStack
) -> _Server:
    port = _free_port(wanted_port)
    password = secrets.token_urlsafe(12)
    home = next((p for p in ("/usr/share/grafana", "/opt/grafana") if Path(p).is_dir()), None)
    command = [program, *(["server"] if Path(program).name == "grafana" else [])]
    grafana = _Server(
        "grafana",
        [*command, *([f"--homepath={home}"] if home else [])],
        folder,
        **grafana_environment(folder, port, password, prometheus),
    )
    stack.callback(grafana.stop)
    grafana.wait_ready(f"http://127.0.0.1:{port}/api/health")
    print(f"Grafana     http://127.0.0.1:{port}/  (user admin, password {password})", flush=True)
    return grafana


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
