"""Reads the identity of a cluster from files that a user or Kubernetes provides.

A scheduler that is given its token, cluster id, certificate and key is the same cluster wherever it
starts, without a state directory from the last time: in a new pod, for instance. What is given in
files is not copied into the state directory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...protocol.errors import ConfigError
from ...protocol.trust.secret_files import read_secret_file
from ...protocol.trust.security import Security, server_ssl_context

_CLUSTER_ID: Final = re.compile(r"[0-9a-f]{32}")
_MAX_BYTES: Final = 1 << 20
_KEY_HINT: Final = "give the path of the private key that belongs to --certificate-file"


@dataclass(frozen=True)
class IdentityFiles:
    """The files that were given; None = not given.

    Attributes:
        cluster_id: 32 hexadecimal digits.
        certificate: PEM, the server's own first.
        key: PEM, without a passphrase.
    """

    cluster_id: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def check(self) -> None:
        """Check that certificate and key are given together.

        Raises:
            ConfigError: one of them is missing.
        """
        if (self.certificate is None) != (self.key is None):
            given, missing = "--certificate-file", "--key-file"
            if self.certificate is None:
                given, missing = missing, given
            raise ConfigError(f"{given} is given without {missing}; give both, or neither", given)

    def read_cluster_id(self) -> bytes | None:
        """Return the cluster id, None if no file is given.

        Raises:
            ConfigError: the file cannot be read, or does not hold one.
        """
        if self.cluster_id is None:
            return None
        text = _read(self.cluster_id, "cluster id", "--cluster-id-file").strip()
        if _CLUSTER_ID.fullmatch(text) is None:
            raise ConfigError(
                f"{self.cluster_id} does not hold a cluster id, 32 hexadecimal digits; "
                "'openssl rand -hex 16' makes one",
                "--cluster-id-file",
            )
        return bytes.fromhex(text)

    def read_certificate(self) -> tuple[str, str] | None:
        """Return the certificate and its key, None if no files are given.

        Raises:
            ConfigError: they cannot be read, or do not belong together.
        """
        if self.certificate is None or self.key is None:
            return None
        certificate = _read(self.certificate, "certificate", "--certificate-file")
        data = read_secret_file(self.key, "private key", _MAX_BYTES, _KEY_HINT)
        key = data.decode("ascii", errors="replace")
        try:
            # A token is needed to make one, and does not matter here.
            server_ssl_context(Security(bytes(16), None, certificate, key))
        except ConfigError as error:
            raise ConfigError(
                f"{self.certificate} and {self.key}: {error}", "--certificate-file"
            ) from None
        return certificate, key


def _read(path: Path, what: str, option: str) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES)
    except OSError as error:
        raise ConfigError(
            f"cannot read the {what} in {path}: {error.strerror}; give the path of a file that "
            "this user can read",
            option,
        ) from None
    return data.decode("ascii", errors="replace")
