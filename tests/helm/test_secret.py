"""`weft secret` prints what the chart would make, and a scheduler runs with it."""

from __future__ import annotations

import ssl
import urllib.request
from pathlib import Path

import pytest
import yaml

from tests.deploy.cli.test_identity_files import TRUST, mount, options
from tests.deploy.daemons import file_of, run, scheduler
from tests.helm.rendering import LOADER, Rendered, render
from weft.protocol.trust.connection_file import ConnectionFile
from weft.protocol.trust.security import Security

pytestmark = pytest.mark.slow


def printed(folder: Path, *arguments: str) -> Rendered:
    done = run("secret", *arguments, folder=folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return Rendered(list(yaml.load_all(done.stdout, LOADER)))


def test_the_secrets_have_the_keys_of_those_that_the_chart_makes(tmp_path):
    mine = printed(tmp_path, "mine", "--namespace=lab", "--client-secret=users")
    made = render({"autoscaling.mode": "keda"})
    assert mine.secret("mine").keys() == made.secret("sim-weft-auth").keys()
    assert made.secret("sim-weft-client").keys() - mine.secret("users").keys() == {"client.json"}
    for name in ("mine", "users"):
        assert mine.one("Secret", name)["metadata"] == {"name": name, "namespace": "lab"}
    assert mine.secret("users")["client-token"] == mine.secret("mine")["client-token"]


def test_a_scheduler_runs_with_the_printed_secret_and_its_pages_are_verified(tmp_path):
    service = "sim-weft-scheduler.lab.svc"
    secret = printed(tmp_path, "mine", f"--host-name={service}").secret("mine")
    folder = mount(tmp_path / "secret", secret)
    pages = ("--dashboard-address", "0.0.0.0:0", "--dashboard-host-name", service)
    with scheduler(*options(folder), "--protocol=tls", *pages, folder=tmp_path, **TRUST) as started:
        file = ConnectionFile.read(file_of(started))
        assert file.cluster_id == secret["cluster-id"]
        assert file.dashboard is not None
        port = file.dashboard.rstrip("/").rpartition(":")[2]
        # As Prometheus and KEDA read: with the authority, the service's name, and the token.
        context = ssl.create_default_context(cadata=secret["ca.crt"])
        handler = Named(context, service)
        request = urllib.request.Request(
            f"https://127.0.0.1:{port}/metrics",
            headers={"Authorization": f"Bearer {secret['view-token']}", "Host": service},
        )
        with urllib.request.build_opener(handler).open(request, timeout=30) as answer:
            assert b"weft_scheduler_" in answer.read()


class Named(urllib.request.HTTPSHandler):
    """HTTPS to any address whose certificate has this name."""

    def __init__(self, context: ssl.SSLContext, name: str) -> None:
        wrapped = context.wrap_socket

        def wrap(sock, *, server_hostname=None, **more):
            return wrapped(sock, server_hostname=name, **more)

        context.wrap_socket = wrap  # type: ignore[method-assign]
        super().__init__(context=context)


def test_a_given_token_is_kept_and_a_wrong_name_is_refused(tmp_path):
    token = tmp_path / "token"
    token.write_text("a-token-of-an-older-cluster-of-mine")
    token.chmod(0o600)
    secret = printed(tmp_path, "mine", f"--token-file={token}").secret("mine")
    security = Security(token.read_text().encode())
    assert secret["worker-token"] == security.token_for("worker")
    for arguments, words in (
        (("My_Secret",), "'My_Secret' cannot be a name in Kubernetes"),
        (("mine", "--client-secret=mine"), "another name than that of the whole Secret"),
        (("mine", "--host-name=https://a"), "'https://a' is not the name of a host"),
        ((), "NAME"),
    ):
        done = run("secret", *arguments, folder=tmp_path)
        assert done.returncode == 2
        assert words in done.stderr
