"""Tokens, certificates, and TLS contexts: real TLS in memory, with the handshake inside it."""

from __future__ import annotations

import copy
import ipaddress
import json
import os
import ssl
from dataclasses import replace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from weft.protocol.errors import ConfigError, HandshakeError, WrongToken
from weft.protocol.trust import security as security_module
from weft.protocol.trust.security import (
    Security,
    certificate_der,
    channel_binding,
    check_pin,
    client_ssl_context,
    generate_certificate,
    is_loopback,
    needs_tls,
    new_cluster_id,
    new_token,
    server_ssl_context,
)
from weft.protocol.wire.handshake import ClientHandshake, ServerHandshake
from weft.protocol.wire.roles import Role

CLUSTER = bytes(range(16))
TOKEN = b"a-token-of-more-than-16-bytes"
CERTIFICATE, KEY = generate_certificate(CLUSTER)
OTHER_CERTIFICATE, OTHER_KEY = generate_certificate(CLUSTER)

SERVER = Security(TOKEN, CLUSTER, CERTIFICATE, KEY)
PINNED = Security(TOKEN, CLUSTER, CERTIFICATE)
UNPINNED = Security(TOKEN)


class Pipe:
    """Two ends of one TLS connection, in memory; bytes move when `shuttle` is called."""

    def __init__(self, server: Security, client_context: ssl.SSLContext) -> None:
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server = server_ssl_context(server).wrap_bio(to_server, to_client, server_side=True)
        self.client = client_context.wrap_bio(to_client, to_server)

    def connect(self) -> None:
        waiting = [self.client, self.server]
        for _ in range(10):
            for end in list(waiting):
                try:
                    end.do_handshake()
                    waiting.remove(end)
                except ssl.SSLWantReadError:
                    pass
            if not waiting:
                return
        raise AssertionError("the TLS handshake did not end")


def run_handshake(pipe: Pipe, client: ClientHandshake, server: ServerHandshake) -> None:
    """Drive the weft handshake through the TLS connection, as a shell does."""
    server.start()
    pipe.client.write(client.start())
    while not (client.done and server.done):
        reply = server.feed(pipe.server.read(server.bytes_wanted))
        pipe.server.write(reply)
        reply = client.feed(pipe.client.read(client.bytes_wanted))
        if reply:
            pipe.client.write(reply)


def handshakes(
    pipe: Pipe, server_certificate: str = CERTIFICATE
) -> tuple[ClientHandshake, ServerHandshake]:
    shown = pipe.client.getpeercert(binary_form=True)
    return (
        ClientHandshake(
            TOKEN, None, Role.CLIENT, Role.SCHEDULER, channel_binding(shown), os.urandom(32)
        ),
        ServerHandshake(
            TOKEN,
            CLUSTER,
            Role.SCHEDULER,
            (Role.CLIENT,),
            channel_binding(certificate_der(server_certificate)),
            os.urandom(32),
        ),
    )


# --- Secrets --------------------------------------------------------------------------------------


def test_tokens_and_cluster_ids_are_long_and_never_the_same() -> None:
    tokens = {new_token() for _ in range(50)}
    assert len(tokens) == 50
    assert {len(token) for token in tokens} == {43}
    assert all(token.isascii() and token.isprintable() and " " not in token for token in tokens)

    ids = {new_cluster_id() for _ in range(50)}
    assert len(ids) == 50
    assert {len(cluster_id) for cluster_id in ids} == {16}


def test_a_security_shows_no_secret() -> None:
    key_body = KEY.splitlines()[1]
    for shown in (repr(SERVER), str(SERVER), f"{SERVER}", repr([SERVER]), repr({"x": SERVER})):
        assert TOKEN.decode() not in shown
        assert key_body not in shown
        assert "PRIVATE" not in shown
    assert CLUSTER.hex() in repr(SERVER)
    assert "sha256:" in repr(SERVER)
    assert "unknown" in repr(UNPINNED)


def test_a_security_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        copy.copy(SERVER).token = b"x" * 32  # type: ignore[misc]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"token": b""}, "has 0 bytes"),
        ({"token": b"hunter2"}, "at least 16"),
        ({"token": TOKEN, "cluster_id": b"short"}, "16 bytes"),
        ({"token": TOKEN, "certificate_pem": "nonsense"}, "not PEM"),
        (
            {
                "token": TOKEN,
                "certificate_pem": "-----BEGIN CERTIFICATE-----\nA\n-----END CERTIFICATE-----",
            },
            "not base64",
        ),
    ],
)
def test_a_security_that_would_not_work_is_refused(arguments: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        Security(**arguments)  # type: ignore[arg-type]
    assert "hunter2" not in str(caught.value)


# --- Certificates ---------------------------------------------------------------------------------


def test_a_certificate_is_p256_for_ten_years_under_the_clusters_name() -> None:
    certificate = x509.load_pem_x509_certificate(CERTIFICATE.encode())

    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [f"weft-{CLUSTER.hex()}"]
    public_key = certificate.public_key()
    assert isinstance(public_key, ec.EllipticCurvePublicKey)
    assert isinstance(public_key.curve, ec.SECP256R1)
    assert isinstance(certificate.signature_hash_algorithm, hashes.SHA256)
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    assert 3650 <= life.days <= 3660
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert not constraints.ca


def test_the_first_certificate_of_a_chain_is_the_servers_own() -> None:
    chain = "a comment\n" + CERTIFICATE + OTHER_CERTIFICATE
    assert certificate_der(chain) == certificate_der(CERTIFICATE)
    assert certificate_der(CERTIFICATE) != certificate_der(OTHER_CERTIFICATE)


def test_the_channel_binding_is_the_hash_of_the_certificate() -> None:
    certificate = x509.load_pem_x509_certificate(CERTIFICATE.encode())
    assert channel_binding(certificate_der(CERTIFICATE)) == certificate.fingerprint(hashes.SHA256())
    assert channel_binding(None) == b""


def test_the_error_of_a_missing_cryptography_names_the_ways_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cryptography", None)
    with pytest.raises(ConfigError, match="loopback only"):
        generate_certificate(CLUSTER)


# --- TLS ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", [PINNED, UNPINNED])
def test_both_ends_prove_themselves_inside_tls(client: Security) -> None:
    pipe = Pipe(SERVER, client_ssl_context(client))
    pipe.connect()
    assert pipe.client.version() == pipe.server.version() == "TLSv1.3"
    check_pin(client, pipe.client.getpeercert(binary_form=True))
    c, s = handshakes(pipe)

    run_handshake(pipe, c, s)

    assert (c.peer_role, s.peer_role) == (Role.SCHEDULER, Role.CLIENT)
    assert c.cluster_id == CLUSTER
    pipe.client.write(b"frame")
    assert pipe.server.read(100) == b"frame"


def test_a_server_with_another_certificate_is_refused_by_a_client_that_pins() -> None:
    impostor = Security(TOKEN, CLUSTER, OTHER_CERTIFICATE, OTHER_KEY)
    pipe = Pipe(impostor, client_ssl_context(PINNED))

    with pytest.raises(ssl.SSLCertVerificationError):
        pipe.connect()
    with pytest.raises(HandshakeError, match=r"sha256:.*sha256:") as caught:
        check_pin(PINNED, certificate_der(OTHER_CERTIFICATE))
    assert "connection file" in str(caught.value)


def test_a_man_in_the_middle_is_noticed_by_a_client_that_pins_nothing() -> None:
    # Two TLS connections; every byte inside them is passed on as it is. Only the binding differs.
    middle = Security(OTHER_CERTIFICATE.encode(), CLUSTER, OTHER_CERTIFICATE, OTHER_KEY)
    pipe = Pipe(middle, client_ssl_context(UNPINNED))
    pipe.connect()
    c, s = handshakes(pipe, server_certificate=CERTIFICATE)

    with pytest.raises(WrongToken):
        run_handshake(pipe, c, s)

    assert not s.done
    assert not c.done
    assert isinstance(s.error, WrongToken)


def test_a_certificate_that_the_pinned_one_signed_is_not_the_pinned_one() -> None:
    # TLS alone may accept it, as it is chained to what the context trusts.
    issuer = x509.load_pem_x509_certificate(CERTIFICATE.encode())
    issuer_key = serialization.load_pem_private_key(KEY.encode(), password=None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    signed = (
        x509.CertificateBuilder()
        .subject_name(issuer.subject)
        .issuer_name(issuer.subject)
        .public_key(ec.generate_private_key(ec.SECP256R1()).public_key())
        .serial_number(2)
        .not_valid_before(issuer.not_valid_before_utc)
        .not_valid_after(issuer.not_valid_after_utc)
        .sign(issuer_key, hashes.SHA256())
    )
    with pytest.raises(HandshakeError):
        check_pin(PINNED, signed.public_bytes(serialization.Encoding.DER))
    with pytest.raises(HandshakeError, match="is none"):
        check_pin(PINNED, None)
    check_pin(PINNED, certificate_der(CERTIFICATE))
    check_pin(UNPINNED, None)


def test_a_pinned_certificate_may_be_one_that_an_authority_signed() -> None:
    # As from cert-manager: the pin is the server's own certificate, whose issuer is unknown here.
    authority_key = ec.generate_private_key(ec.SECP256R1())
    key = ec.generate_private_key(ec.SECP256R1())
    template = x509.load_pem_x509_certificate(CERTIFICATE.encode())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "scheduler.example")])
    authority = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "an authority")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(authority)
        .public_key(key.public_key())
        .serial_number(3)
        .not_valid_before(template.not_valid_before_utc)
        .not_valid_after(template.not_valid_after_utc)
        .sign(authority_key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM).decode()
    key_pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()

    pipe = Pipe(
        Security(TOKEN, CLUSTER, pem, key_pem), client_ssl_context(Security(TOKEN, None, pem))
    )
    pipe.connect()

    check_pin(Security(TOKEN, None, pem), pipe.client.getpeercert(binary_form=True))


def test_older_tls_is_refused() -> None:
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname = False
    old.verify_mode = ssl.CERT_NONE
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    pipe = Pipe(SERVER, old)

    with pytest.raises(ssl.SSLError):
        pipe.connect()


@pytest.mark.parametrize("in_memory", [True, False])
def test_the_private_key_leaves_no_file_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: os.PathLike[str], in_memory: bool
) -> None:
    if not in_memory:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen = []
    with security_module._secret_file("secret") as path:
        mode = os.stat(path).st_mode & 0o777
        seen = os.listdir(tmp_path)
        with open(path) as file:
            assert file.read() == "secret"

    assert os.listdir(tmp_path) == []
    if not in_memory:
        assert mode == 0o600
        assert len(seen) == 1

    pipe = Pipe(SERVER, client_ssl_context(PINNED))
    pipe.connect()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("certificate", "key", "said"),
    [
        (None, KEY, "needs a certificate"),
        (CERTIFICATE, None, "needs a certificate"),
        (CERTIFICATE, OTHER_KEY, "cannot be used"),
        (CERTIFICATE, "nonsense", "cannot be used"),
        (CERTIFICATE, "nonsense é", "cannot be used"),
    ],
)
def test_an_unusable_certificate_or_key_is_a_config_error(
    certificate: str | None, key: str | None, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        server_ssl_context(Security(TOKEN, CLUSTER, certificate, key))


def test_an_encrypted_key_is_refused_and_not_asked_for_on_the_terminal() -> None:
    key = serialization.load_pem_private_key(KEY.encode(), password=None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"passphrase"),
    ).decode()
    with pytest.raises(ConfigError, match="without a passphrase"):
        server_ssl_context(Security(TOKEN, CLUSTER, CERTIFICATE, encrypted))


def test_a_pinned_certificate_that_is_none_is_a_config_error() -> None:
    pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    with pytest.raises(ConfigError, match="pinned"):
        client_ssl_context(Security(TOKEN, None, pem))


@pytest.mark.parametrize("security", [Security(TOKEN), PINNED, SERVER], ids=["token", "pin", "key"])
def test_security_becomes_plain_data_without_the_private_key_unless_asked_for(security) -> None:
    plain = json.loads(json.dumps(security.to_plain(with_private_key=True)))
    assert Security.from_plain(plain) == security
    assert Security.from_plain(security.to_plain()) == replace(security, private_key_pem=None)


# --- Addresses ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost", "LocalHost", "::ffff:127.0.0.1"],
)
def test_loopback_needs_no_tls(host: str) -> None:
    assert is_loopback(host)
    assert not needs_tls(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "0.0.0.0",
        "::",
        "10.0.0.1",
        "192.168.1.4",
        "fe80::1%eth0",
        "::ffff:10.0.0.1",
        "example.org",
        "localhost.example.org",
        "127.0.0.1.example.org",
        "127.0.0.1:8786",
        "128.0.0.1",
    ],
)
def test_everything_else_needs_tls(host: str) -> None:
    assert not is_loopback(host)
    assert needs_tls(host)


@given(address=st.ip_addresses(v=4))
def test_of_all_ipv4_only_127_is_loopback(address: ipaddress.IPv4Address) -> None:
    assert is_loopback(str(address)) == str(address).startswith("127.")
