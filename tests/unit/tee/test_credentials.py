"""Who may speak to a Tee: mutual TLS end to end, and tokens that are rotated without a restart."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from cmbs.bootstrap import Settings, build_server, build_tee_store
from cmbs.errors import InvalidRequest, StoreUnavailable
from cmbs.messages import OntologyBundle
from cmbs.stores.tee import TeeStore
from cmbs.tee.server import ServerOptions
from cmbs.tee.stores.memory import MemoryGraphStore
from cmbs.tee.tokens import TokenFile
from tests.support.http_server import run_cmbs, serving
from tests.support.subtests import for_each
from tests.support.tee import listening
from tests.support.tee_process import tee_serving
from tests.support.transports import ONTOLOGY

pytestmark = pytest.mark.slow

BLANK = OntologyBundle("space", "1", "tee://main", "")


class Authority(NamedTuple):
    """An authority that signs certificates for this test alone."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def make(cls) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("authority")
        built = _builder(name, name, key).add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        return cls(built.sign(key, hashes.SHA256()), key)

    def issue(self, directory: Path, who: str) -> tuple[str, str]:
        """The files of a certificate for `localhost` and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
        built = _builder(_name(who), self.certificate.subject, key).add_extension(names, critical=False)
        signed = built.sign(self.key, hashes.SHA256())
        cert_file, key_file = directory / f"{who}.pem", directory / f"{who}_key.pem"
        cert_file.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return str(cert_file), str(key_file)

    def write(self, path: Path) -> str:
        path.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))
        return str(path)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(hours=1))
    )


class Credentials(NamedTuple):
    """What a mutual TLS set-up is made of, as files."""

    ca: str
    server: tuple[str, str]
    client: tuple[str, str]
    stranger: tuple[str, str]


@pytest.fixture
def made(tmp_path: Path) -> Credentials:
    authority = Authority.make()
    return Credentials(
        authority.write(tmp_path / "ca.pem"),
        authority.issue(tmp_path, "server"),
        authority.issue(tmp_path, "client"),
        Authority.make().issue(tmp_path, "stranger"),
    )


@pytest.fixture
def guarded(tmp_path: Path, made: Credentials) -> Iterator[Any]:
    """A Tee that lets in only clients with a certificate."""
    cert, key = made.server
    with tee_serving(tmp_path, "memory:", "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", made.ca) as tee:
        yield tee


# --- mutual TLS -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.req("TEE-ACCESS-01")
def test_the_belief_server_presents_its_certificate_to_tee(tmp_path: Path, made: Credentials, guarded: Any) -> None:
    endpoint, (cert, key) = f"localhost:{guarded.port}", made.client
    variables = {"CMBS_TEE": endpoint, "CMBS_TEE_CA": made.ca, "CMBS_TEE_CERT": cert, "CMBS_TEE_KEY": key}
    graph = tmp_path / "graph.json"
    graph.write_text('{"nodes": [{"id": "a", "type": "SERVICE", "provenance": ["x"]}]}')
    loaded = run_cmbs("tee", "load", "graph.json", directory=tmp_path, variables=variables)
    assert loaded.returncode == 0, loaded.stderr
    named = ("--tee", endpoint, "--tee-ca", made.ca, "--tee-cert", cert, "--tee-key", key)
    with (
        serving(tmp_path, "--store", "memory:", *named) as server,
        server.client() as client,
    ):
        told = client.post("/v1/sessions", json={"ontology": {**ONTOLOGY, "causal_graph_version": ""}})
        assert (told.status_code, told.json()["snapshot"]["survivors"]) == (201, ["a"])
    options = ("--tee", endpoint, "--ca", made.ca, "--cert", cert, "--key", key)
    shown = run_cmbs("tee", "show", *options, directory=tmp_path)
    assert (shown.returncode, "1 node" in shown.stdout) == (0, True)


@pytest.mark.req("TEE-ACCESS-01")
def test_a_stranger_and_a_client_without_a_certificate_are_not_let_in(made: Credentials, guarded: Any) -> None:
    for cert, key in (made.stranger, ("", "")):
        settings = Settings(
            store="memory:",
            tee=f"localhost:{guarded.port}",
            tee_ca=made.ca,
            tee_cert=cert,
            tee_key=key,
            store_timeout_seconds=1,
        )
        with closing(build_server(settings)) as server, pytest.raises(StoreUnavailable):
            server.declare_session(BLANK)


@pytest.mark.req("TEE-ACCESS-01")
def test_half_a_certificate_is_named_before_anything_is_served(tmp_path: Path, made: Credentials) -> None:
    cert, key = made.client
    for settings in (
        Settings(tee="localhost:1", tee_ca=made.ca, tee_cert=cert),
        Settings(tee="localhost:1", tee_ca=made.ca, tee_key=key),
        Settings(tee="localhost:1", tee_cert=cert, tee_key=key),
    ):
        with pytest.raises(InvalidRequest, match="needs `CMBS_TEE_CA`, `CMBS_TEE_CERT` and `CMBS_TEE_KEY`"):
            build_tee_store(settings)
    missing = str(tmp_path / "missing.pem")
    with pytest.raises(InvalidRequest, match=r"cannot read `.*missing\.pem`"):
        build_tee_store(Settings(tee="localhost:1", tee_cert=missing))


# --- tokens in files --------------------------------------------------------------------------------------------------


def put(path: Path, text: str) -> None:
    """Replace a file as a whole, with a time of change that no earlier content had."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    new = path.with_suffix(".new")
    new.write_text(text)
    os.utime(new, ns=(before + 1_000_000_000, before + 1_000_000_000))
    new.replace(path)


@pytest.mark.req("TEE-ACCESS-02")
def test_a_token_is_rotated_without_a_restart_and_without_a_refused_call(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "client", tmp_path / "server"
    put(ours, "old\n")
    put(theirs, "old\n")
    with listening(MemoryGraphStore(), ServerOptions(token=TokenFile(theirs))) as port:
        settings = Settings(tee=f"127.0.0.1:{port}", tee_token_file=str(ours), store_timeout_seconds=5)
        tee = build_tee_store(settings)
        assert tee is not None
        with closing(tee), closing(TeeStore(f"127.0.0.1:{port}", token="old", timeout_seconds=5)) as fixed:
            assert tee.identity() == fixed.identity()
            put(theirs, "old\nnew\n")
            assert tee.identity() == fixed.identity()
            put(ours, "new\n")
            assert tee.identity() == fixed.identity()
            put(theirs, "new\n")
            assert tee.identity() is not None
            with pytest.raises(StoreUnavailable, match="does not let us in"):
                fixed.identity()


@pytest.mark.req("TEE-ACCESS-02")
def test_a_file_of_tokens_that_cannot_be_used_any_more_is_reported_and_the_last_tokens_hold(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tokens"
    put(path, "one\n\n two \n")
    tokens = TokenFile(path)
    assert tokens.tokens() == ("one", "two")
    for text, why in (("", "it has 0"), ("a\nb\nc", "it has 3"), ("with space", "visible ASCII")):
        put(path, text)
        with caplog.at_level(logging.WARNING, "cmbs.tee"):
            assert tokens.tokens() == ("one", "two")
        assert why in caplog.text
        caplog.clear()
        assert tokens.tokens() == ("one", "two")
        assert caplog.text == ""
    path.unlink()
    assert tokens.tokens() == ("one", "two")
    put(path, "three")
    assert tokens.tokens() == ("three",)


@pytest.mark.req("TEE-ACCESS-02")
def test_a_file_of_tokens_that_cannot_be_used_at_first_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="cannot read the tokens"):
        TokenFile(tmp_path / "missing")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidRequest, match="it is not text"):
        TokenFile(tmp_path / "bytes")


@pytest.mark.slow
@pytest.mark.req("TEE-ACCESS-02")
def test_the_command_line_serves_and_asks_with_a_file_of_tokens(tmp_path: Path) -> None:
    put(tmp_path / "tokens", "first\nsecond\n")
    with tee_serving(tmp_path, "memory:", "--token-file", "tokens") as tee:
        assert tee.run("show").returncode == 2
        assert tee.run("show", CMBS_TEE_TOKEN_FILE="tokens").returncode == 0
        assert tee.run("show", CMBS_TEE_TOKEN="second").returncode == 0
        put(tmp_path / "tokens", "second\n")
        assert tee.run("show", CMBS_TEE_TOKEN="first").returncode == 2


@pytest.mark.req("TEE-ACCESS-01")
@for_each("content", [b"", b"garbage", b"\xff\xfe", b"-----BEGIN CERTIFICATE-----\nAAAA\n"])
def test_authorities_that_hold_no_certificate_are_named_before_anything_is_asked(content: bytes) -> None:
    with pytest.raises(InvalidRequest, match="no certificate in PEM") as refused:
        TeeStore("127.0.0.1:1", authorities=content)
    assert "--tee-ca" in refused.value.details["next"]
