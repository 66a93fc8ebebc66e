from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Dict

import pytest

from ramet import ConfigurationError, Ramet, _config


def local(home: Path, **change: Any) -> Dict[str, str]:
    """The environment of a machine on which this process is the server, as far as server.json tells."""
    with open(f"/proc/{os.getpid()}/stat") as f:
        ticks = int(f.read().rsplit(")", 1)[1].split()[19])
    info: Dict[str, Any] = {
        "pid": os.getpid(), "start_ticks": ticks, "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "url": "http://127.0.0.1:7171", "version": "x",
    }  # fmt: skip
    info.update(change)
    (home / "server.json").write_text(json.dumps(info))
    (home / "key").write_text("local-key\n")
    return {"RAMET_HOME": str(home)}


def test_the_server_of_this_machine(tmp_path: Path) -> None:
    c = _config.load(None, None, local(tmp_path))
    assert (c.url, c.api_key) == ("http://127.0.0.1:7171", "local-key")
    # The same server by another name of this machine.
    c = _config.load("http://localhost:7171/", None, local(tmp_path))
    assert (c.url, c.api_key) == ("http://localhost:7171", "local-key")


@pytest.mark.parametrize(
    "change", [{"pid": 4_000_000}, {"start_ticks": 1}, {"boot_id": "another"}, {"url": "nonsense"}, {"pid": "x"}]
)
def test_the_key_of_a_server_that_does_not_run_goes_to_nobody(tmp_path: Path, change: Dict[str, Any]) -> None:
    c = _config.load(None, None, local(tmp_path, **change))
    assert (c.url, c.api_key) == ("http://127.0.0.1:7070", "") and "ramet up" in c.key_hint


@pytest.mark.parametrize("url", ["http://127.0.0.1:7272", "https://127.0.0.1:7171", "http://example.com:7171", "http://127.0.0.1.example.com:7171"])
def test_the_local_key_goes_nowhere_else(tmp_path: Path, url: str) -> None:
    assert _config.load(url, None, local(tmp_path)).api_key == ""
    env = {**local(tmp_path), "RAMET_URL": url}
    assert _config.load(None, None, env).api_key == ""
    assert _config.load(None, None, {**env, "RAMET_API_KEY": "mine"}).api_key == "mine"


def test_a_local_server_with_tls_proves_itself(tmp_path: Path) -> None:
    env = local(tmp_path, url="https://ramet.example.com:7171", local_certificate="PEM")
    c = _config.load(None, None, {**env, "RAMET_CA": "/x"})
    assert (c.url, c.api_key, c.local_certificate, c.ca) == ("https://ramet.example.com:7171", "local-key", "PEM", "")


def test_what_is_given_wins(tmp_path: Path) -> None:
    env = {**local(tmp_path), "RAMET_URL": "https://a:1", "RAMET_API_KEY": "env"}
    assert _config.load(None, None, env).url == "https://a:1"
    c = _config.load("https://b/base/", "given", env)
    assert (c.url, c.api_key) == ("https://b/base", "given")


@pytest.mark.parametrize("url", ["nonsense", "ftp://x", "http://", "http://x:y", "http://x?a=b"])
def test_a_url_that_is_none(url: str) -> None:
    with pytest.raises(ConfigurationError, match="RAMET_URL"):
        Ramet(url, "k")


def test_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    monkeypatch.setenv("https_proxy", "http://proxy:3129")
    monkeypatch.setenv("no_proxy", "inside.example")
    for url, proxy in (
        ("http://127.0.0.1:7070", None), ("http://localhost:7070", None), ("http://[::1]:7070", None),
        ("http://example.com:7070", "http://proxy:3128"), ("https://example.com", "http://proxy:3129"), ("https://inside.example", None),
    ):  # fmt: skip
        assert _config.Config(url).proxy() == proxy, url


def test_authorities_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="nope"):
        _config.Config("https://x", ca=str(tmp_path / "nope")).ssl_context()
    (tmp_path / "bad").write_text("bad")
    with pytest.raises(ConfigurationError):
        _config.Config("https://x", ca=str(tmp_path / "bad")).ssl_context()
