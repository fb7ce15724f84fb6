"""TLS: clients that insist on wss reach the server, and a certificate that cannot be used is told in one line."""

from __future__ import annotations

import signal
import ssl
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from tests.server.client import open_client
from transom.cli import main
from transom.server.run import check_certificate
from transom.server.settings import ServerSettings

PASSWORD = "of the key"


@dataclass(frozen=True)
class Certificates:
    """Files of a certificate for this machine, and what a client must trust."""

    chain: Path
    key: Path
    locked_key: Path
    other_key: Path
    client: ssl.SSLContext


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    issued, other = authority.issue_cert("127.0.0.1"), authority.issue_cert("127.0.0.1")
    names = ("chain.pem", "key.pem", "locked.pem", "other.pem")
    chain, key, locked, other_key = (folder / name for name in names)
    for blob in issued.cert_chain_pems:
        blob.write_to_path(str(chain), append=True)
    issued.private_key_pem.write_to_path(str(key))
    other.private_key_pem.write_to_path(str(other_key))
    private = load_pem_private_key(issued.private_key_pem.bytes(), None)
    encryption = BestAvailableEncryption(PASSWORD.encode())
    locked.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    client = ssl.create_default_context()
    authority.configure_trust(client)
    return Certificates(chain, key, locked, other_key, client)


async def test_a_server_with_a_certificate_speaks_https_and_wss(certificates: Certificates) -> None:
    options = ["--engine", "fake", "--port", "0", "--log-level", "error"]
    tls = ["--ssl-certfile", str(certificates.chain), "--ssl-keyfile", str(certificates.key)]
    command = [sys.executable, "-m", "transom.cli", "serve", *options, *tls]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split(" at ")[1].split("/v1/realtime")[0]
        assert url.startswith("https://127.0.0.1:")
        async with httpx.AsyncClient(verify=certificates.client) as http:
            assert (await http.get(f"{url}/health")).status_code == 200
        realtime_url = url.replace("https", "wss") + "/v1/realtime"
        async with open_client(realtime_url, ssl=certificates.client) as client:
            assert client.seen[0]["type"] == "session.created"
        process.send_signal(signal.SIGTERM)
        rest = process.communicate(timeout=30)
    assert (process.returncode, rest) == (0, ("", ""))


def test_an_encrypted_key_is_opened_by_its_password(certificates: Certificates) -> None:
    check_certificate(
        ServerSettings(
            ssl_certfile=certificates.chain, ssl_keyfile=certificates.locked_key, ssl_keyfile_password=PASSWORD
        )
    )


@pytest.mark.parametrize(
    ("certificate", "key", "told"),
    [
        ("nothing.pem", "key", "there is no file nothing.pem; give --ssl-certfile"),
        ("chain", "nothing.pem", "there is no file nothing.pem; give --ssl-keyfile"),
        ("chain", None, "add --ssl-keyfile if it holds no private key"),
        ("key", "key", "must be PEM files that belong together"),
        ("chain", "other_key", "must be PEM files that belong together"),
        ("chain", "locked_key", "--ssl-keyfile-password opens an encrypted key"),
        (None, "key", "--ssl-keyfile needs the certificate"),
    ],
)
def test_what_cannot_be_used_is_told_in_one_line(
    certificate: str | None,
    key: str | None,
    told: str,
    certificates: Certificates,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["serve", "--engine", "fake", "--port", "0"]
    for option, name in (("--ssl-certfile", certificate), ("--ssl-keyfile", key)):
        if name is not None:
            arguments += [option, str(getattr(certificates, name, name))]
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert (error.count("\n"), error.startswith("transom: ")) == (1, True), error
    assert told in error
