"""Tokens, cluster ids, certificates and TLS contexts.

This module makes them. It never opens a connection and never decides whether one is allowed; the
proof of the token is in `wire/handshake.py`, the file that contains the token in
`connection_file.py`.

TLS encrypts and protects the bytes; the handshake inside it proves the identity of the other end.
Therefore a client without a certificate to pin accepts any: it hashes the certificate that it was
shown (`channel_binding`) into its proof of the token, and the server hashes its own. TLS 1.3 makes
the server sign the exchange with the certificate's key, so a man in the middle cannot show the
server's certificate, and with any other the two proofs differ: the connection ends before the first
frame. With a certificate in the connection file the client pins exactly that one, and notices one
step earlier. Host names and certificate authorities are not used.

`cryptography` is needed only to make a certificate, and imported only there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import hashlib
import ipaddress
import os
import re
import secrets
import ssl
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigError, HandshakeError
from ..wire.handshake import CLUSTER_ID_BYTES
from ..wire.levels import MAX_USER_CHARS, Level, is_user, level_of, lowered, user_of, with_user

#: A client proves its token to a server that has not proved anything yet, so a token must not be
#: guessable from a proof. `new_token` makes 43 characters; the limit refuses words and dates.
MIN_TOKEN_BYTES = 16

_CERTIFICATE_LIFE = dt.timedelta(days=3653)
#: The clocks of a cluster's machines may differ; a new certificate must be valid on all of them.
_CLOCK_SKEW = dt.timedelta(days=1)

_CERTIFICATE_BLOCK = re.compile(
    r"-----BEGIN CERTIFICATE-----\s[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----"
)


@dataclass(frozen=True)
class Security:
    """The secrets and certificates of one end of a connection. Its repr shows no secret.

    Args:
        token: the cluster's secret, at least `MIN_TOKEN_BYTES` long; its text shows its level.
        cluster_id: 16 bytes; None = not known, the server sends it.
        certificate_pem: a server's own certificate, or the one that a client pins; None = no TLS
            for a server, no pin for a client.
        private_key_pem: a server's key; None for a client.
    """

    token: bytes
    cluster_id: bytes | None = None
    certificate_pem: str | None = None
    private_key_pem: str | None = None

    def __post_init__(self) -> None:
        if len(self.token) < MIN_TOKEN_BYTES:
            raise ConfigError(
                f"the token has {len(self.token)} bytes, at least {MIN_TOKEN_BYTES} are needed; "
                "leave it out and weft makes one of 256 random bits"
            )
        if self.cluster_id is not None and len(self.cluster_id) != CLUSTER_ID_BYTES:
            raise ConfigError(
                f"a cluster id has {CLUSTER_ID_BYTES} bytes, not {len(self.cluster_id)}"
            )
        if self.certificate_pem is not None:
            certificate_der(self.certificate_pem)

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Security:
        """Make one from the result of `to_plain`."""
        cluster_id = plain["cluster_id"]
        return cls(
            plain["token"].encode(),
            None if cluster_id is None else bytes.fromhex(cluster_id),
            plain["certificate_pem"],
            plain.get("private_key_pem"),
        )

    def to_plain(self, *, with_private_key: bool = False) -> dict[str, Any]:
        """Return it as plain data for the configuration of a process of the same cluster."""
        plain = {
            "token": self.token.decode(),
            "cluster_id": None if self.cluster_id is None else self.cluster_id.hex(),
            "certificate_pem": self.certificate_pem,
        }
        return {**plain, "private_key_pem": self.private_key_pem} if with_private_key else plain

    @property
    def level(self) -> Level:
        """The level of the token."""
        return level_of(self.token)

    def lowered(self, level: Level) -> Security:
        """Return the same with the token of `level`, if this one is of a higher level.

        A process gets no more than its work needs, above all one that runs the code of users.
        """
        if level >= self.level:
            return self
        return dataclasses.replace(self, token=lowered(self.token, level))

    @property
    def user(self) -> str:
        """The name of the user that the token carries; "" = none."""
        return user_of(self.token)

    def token_for(self, role: str, user: str = "") -> str:
        """Return the token of "admin", "client", "worker" or "view", as `weft token` prints it.

        That of a client may carry the name of a `user`.

        Raises:
            ConfigError: this token is of a lower role, or that of a user, from which that one
                cannot be derived; or such a token carries no such name.
        """
        try:
            level = Level[role.upper()]
        except KeyError:
            names = ", ".join(level.label for level in reversed(Level))
            raise ConfigError(f"{role!r} is not one of the roles {names}", "role") from None
        if level > self.level:
            raise ConfigError(
                f"a token of role {level.label} cannot be derived from one of role "
                f"{self.level.label}; use the scheduler's own connection file"
            )
        if not user:
            return lowered(self.token, level).decode()
        if level is not Level.CLIENT:
            raise ConfigError(f"only tokens of role client carry a user, not {level.label}", "user")
        if not is_user(user):
            raise ConfigError(
                f"{user!r} cannot be the name of a user: it has 1 to {MAX_USER_CHARS} ASCII "
                "letters, digits, or - _ @ . and does not begin with a dot",
                "user",
            )
        if self.user:
            raise ConfigError(
                f"a token of user {user} cannot be derived from that of user {self.user}; use the "
                "scheduler's own connection file"
            )
        return with_user(self.token, user).decode()

    def __repr__(self) -> str:
        cluster = self.cluster_id.hex() if self.cluster_id else "unknown"
        certificate = "no"
        if self.certificate_pem is not None:
            certificate = _fingerprint(certificate_der(self.certificate_pem))
        key = "no" if self.private_key_pem is None else "redacted"
        return (
            f"Security(cluster={cluster}, role={self.level.label}, "
            f"{f'user={self.user}, ' if self.user else ''}token=redacted, "
            f"certificate={certificate}, "
            f"private_key={key})"
        )


def new_token() -> str:
    """Make a token of 256 random bits: 43 characters that survive shells, URLs and files."""
    return secrets.token_urlsafe(32)


def new_cluster_id() -> bytes:
    """Make the 16 bytes that identify a cluster. They are no secret."""
    return secrets.token_bytes(CLUSTER_ID_BYTES)


# --- Certificates ---------------------------------------------------------------------------------


def generate_certificate(cluster_id: bytes, names: Iterable[str] = ()) -> tuple[str, str]:
    """Make a self-signed certificate for a cluster; return it and its private key, both as PEM.

    ECDSA on P-256 (about 3 ms; RSA takes ten times as long), valid for ten years. Weft checks no
    host names; `names` are for browsers and other programs that read the pages.

    Raises:
        ConfigError: `cryptography` is not installed.
    """
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
    except ImportError:
        raise ConfigError(
            "making a TLS certificate needs the package 'cryptography': install it, give a "
            "certificate and key of your own, or listen on loopback only"
        ) from None

    key = ec.generate_private_key(ec.SECP256R1())
    text = f"weft-{cluster_id.hex()}"
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
    now = dt.datetime.now(dt.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _CERTIFICATE_LIFE)
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(name) for name in (text, *names)]),
            critical=False,
        )
        # Not an authority: this key cannot sign other certificates.
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    key_pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode(), key_pem.decode()


def certificate_der(pem: str) -> bytes:
    """Return the first certificate of `pem`, which in a chain is the server's own, as DER.

    Raises:
        ConfigError: there is no certificate in it.
    """
    block = _CERTIFICATE_BLOCK.search(pem)
    if block is None:
        raise ConfigError("the certificate is not PEM: no 'BEGIN CERTIFICATE' block in it")
    try:
        return ssl.PEM_cert_to_DER_cert(block[0])
    except ValueError:
        raise ConfigError("the certificate is not PEM: its block is not base64") from None


def channel_binding(der: bytes | None) -> bytes:
    """Return the hash of the server's certificate that a handshake is bound to, b"" without TLS.

    A client passes the certificate it was shown, `ssl_object.getpeercert(binary_form=True)`, and a
    server its own, `certificate_der(security.certificate_pem)`.
    """
    return b"" if der is None else hashlib.sha256(der).digest()


def check_pin(security: Security, der: bytes | None) -> None:
    """Check that the certificate a server showed is the pinned one, if one is pinned.

    The context that `client_ssl_context` makes refuses other certificates already, except one that
    the pinned certificate's key has signed.

    Raises:
        HandshakeError: the server showed another certificate.
    """
    if security.certificate_pem is None:
        return
    pinned = certificate_der(security.certificate_pem)
    if der != pinned:
        shown = "none" if der is None else _fingerprint(der)
        raise HandshakeError(
            f"the server's certificate is {shown}, the connection file has {_fingerprint(pinned)}; "
            "if the scheduler was restarted, read its connection file again"
        )


def _fingerprint(der: bytes) -> str:
    return f"sha256:{hashlib.sha256(der).hexdigest()[:16]}"


# --- TLS contexts ---------------------------------------------------------------------------------


def server_ssl_context(security: Security) -> ssl.SSLContext:
    """Make the context of a listening end from its certificate and private key.

    Raises:
        ConfigError: either is missing or unusable, or they do not belong together.
    """
    if security.certificate_pem is None or security.private_key_pem is None:
        raise ConfigError("a TLS server needs a certificate and its private key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # No resumption: the certificate's key signs on every connection, which the channel binding
    # relies on; and nothing is sent to a client that closed right after its handshake.
    context.num_tickets = 0
    try:
        with _secret_file(security.certificate_pem + "\n" + security.private_key_pem) as path:
            context.load_cert_chain(path, password=_refuse_encrypted_key)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(
            f"the TLS certificate and private key cannot be used: {error}; both must be PEM, and "
            "the key that of the first certificate"
        ) from None
    return context


def client_ssl_context(security: Security) -> ssl.SSLContext:
    """Make the context of a connecting end; it checks no host name.

    With a pinned certificate only that one is accepted (call `check_pin` after connecting). Without
    one, any certificate is accepted, and the channel binding of the handshake protects the
    connection: see the module's docstring.

    Raises:
        ConfigError: the pinned certificate is unusable.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    if security.certificate_pem is None:
        context.verify_mode = ssl.CERT_NONE
        return context
    context.verify_mode = ssl.CERT_REQUIRED
    # A pinned certificate may be signed by an authority; the certificate itself is trusted.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=certificate_der(security.certificate_pem))
    except ssl.SSLError as error:
        raise ConfigError(f"the pinned TLS certificate cannot be used: {error}") from None
    return context


def _refuse_encrypted_key() -> str:
    # Without this, OpenSSL asks for the passphrase on the terminal, and a daemon would hang.
    raise ConfigError("the TLS private key is encrypted: give one without a passphrase")


@contextlib.contextmanager
def _secret_file(text: str) -> Iterator[str]:
    """Yield the path of a file that contains `text`, for `ssl`, which reads keys from files only.

    On Linux the file exists in memory only, so that a kill at this moment leaves no key on a disk.
    """
    with contextlib.ExitStack() as stack:
        if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
            fd = os.memfd_create("weft-key", os.MFD_CLOEXEC)
            path = f"/proc/self/fd/{fd}"
        else:
            import tempfile

            # `tempfile` makes the directory with mode 0700 and the file with mode 0600.
            fd, path = tempfile.mkstemp(dir=stack.enter_context(tempfile.TemporaryDirectory()))
        with open(fd, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            yield path


# --- Addresses that need TLS ----------------------------------------------------------------------


def is_loopback(host: str) -> bool:
    """Return whether `host` can be reached from this machine only. Names are not looked up.

    "localhost" counts; "" and "0.0.0.0", which mean every interface, do not.
    """
    host = host.strip().removeprefix("[").removesuffix("]")
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback


def needs_tls(host: str) -> bool:
    """Return whether a server that listens on `host` must use TLS: everywhere beyond loopback."""
    return not is_loopback(host)
