"""A server with TLS: by an authority, and by the certificate in its server.json."""

from __future__ import annotations

import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Iterator

import pytest

import ramet
from ramet import Ramet, _config
from ramet._config import LOCAL_NAME, Config
from ramet._sync.transport import Transport
from ramet._generated import operations as op


def certificate(folder: Path, name: str) -> Path:
    """A certificate for a name, with its key in the same file."""
    out = folder / f"{name}.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", f"/CN={name}",
         "-addext", f"subjectAltName=DNS:{name}", "-keyout", out.with_suffix(".key"), "-out", out.with_suffix(".crt")],
        check=True, capture_output=True,
    )  # fmt: skip
    out.write_text(out.with_suffix(".crt").read_text() + out.with_suffix(".key").read_text())
    return out


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(HTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a client that does not trust it


def serve(pem: Path) -> Server:
    server = Server(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


@pytest.fixture
def local(tmp_path: Path) -> "Iterator[tuple[str, str]]":
    """A server that shows the certificate of its server.json."""
    pem = certificate(tmp_path, LOCAL_NAME)
    server = serve(pem)
    yield f"https://127.0.0.1:{server.server_port}", pem.with_suffix(".crt").read_text()
    server.shutdown()
    server.server_close()


def health(config: Config) -> str:
    t = Transport(config, connect_timeout=5, request_timeout=20, stream_timeout=20, wake=True)
    try:
        return t.call(op.get_health())
    finally:
        t.close()


def test_the_certificate_of_server_json(local: "tuple[str, str]", tmp_path: Path) -> None:
    url, own = local
    assert health(Config(url, local_certificate=own)) == "ok"
    (tmp_path / "b").mkdir()
    other = certificate(tmp_path / "b", LOCAL_NAME).with_suffix(".crt").read_text()
    with pytest.raises(ramet.ConnectionError, match="RAMET_CA") as caught:
        health(Config(url, local_certificate=other))
    assert caught.value.may_have_run is False


def test_an_authority_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pem = certificate(tmp_path, "localhost")
    server = serve(pem)
    try:
        monkeypatch.setenv("RAMET_HOME", str(tmp_path))
        url = f"https://localhost:{server.server_port}"
        with Ramet(url, "k") as client, pytest.raises(ramet.ConnectionError, match="RAMET_CA"):
            client.info()
        monkeypatch.setenv("RAMET_CA", str(pem.with_suffix(".crt")))
        assert health(_config.load(url, "k")) == "ok"
        # The name has to fit.
        with pytest.raises(ramet.ConnectionError):
            health(_config.load(url.replace("localhost", "127.0.0.1"), "k"))
    finally:
        server.shutdown()
        server.server_close()
