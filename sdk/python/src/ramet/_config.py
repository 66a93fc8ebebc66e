"""Which server, and which key: what is given, the environment, the server of this machine.

It is the command line's rule (docs/configuration.md) without its config files. The key of this machine's server
goes to that server alone, and only while it runs: at any other time a stranger may listen on its port.
"""

from __future__ import annotations

import ipaddress
import json
import os
import ssl
from dataclasses import dataclass
from typing import Dict, Optional
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import certifi

from ._codec import as_object
from .errors import ConfigurationError

DEFAULT_URL = "http://127.0.0.1:7070"
DEFAULT_HOME = "/var/lib/ramet"

# The TLS name by which programs of this machine ask a server for the certificate in its server.json.
LOCAL_NAME = "local.ramet.invalid"


@dataclass(frozen=True)
class Config:
    """A server and how to reach it."""

    url: str
    api_key: str = ""
    local_certificate: str = ""  # PEM; the server proves itself by it
    ca: str = ""  # a file with the authorities that may sign the server's certificate
    key_hint: str = ""  # why there is no key

    def ssl_context(self) -> ssl.SSLContext:
        if self.local_certificate:
            context = ssl.create_default_context(cadata=self.local_certificate)
        elif self.ca:
            try:
                context = ssl.create_default_context(cafile=self.ca)
            except (OSError, ssl.SSLError) as e:
                raise ConfigurationError(f"the certificates in {self.ca} cannot be read: {e}") from e
        else:
            context = ssl.create_default_context()  # what the system trusts …
            context.load_verify_locations(certifi.where())  # … and where there is no such thing, Mozilla's
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context

    def proxy(self) -> Optional[str]:
        """The proxy that the environment names for the server; a loopback address is never called through one."""
        parts = urlsplit(self.url)
        if self.local_certificate or is_loopback(parts.hostname or "") or proxy_bypass(parts.netloc):
            return None
        proxies = getproxies()
        return proxies.get(parts.scheme) or proxies.get("all")


def load(url: Optional[str], api_key: Optional[str], environ: Optional[Dict[str, str]] = None) -> Config:
    """Finds the server and the key."""
    env = os.environ if environ is None else environ
    home = env.get("RAMET_HOME") or DEFAULT_HOME
    url = url or env.get("RAMET_URL") or ""
    api_key = api_key or env.get("RAMET_API_KEY") or ""
    server = _running_server(home)
    if not url:
        url = server["url"] if server else DEFAULT_URL
    url = _checked(url)
    ca = env.get("RAMET_CA") or ""
    certificate = ""
    ours = server is not None and _same(server, url)
    if server is not None and ours:
        certificate = server["local_certificate"]
    hint = ""
    if not api_key:
        api_key, hint = _local_key(home, url, ours)
    return Config(url, api_key, certificate, "" if certificate else ca, hint)


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises when it is no number
    except ValueError as e:
        raise ConfigurationError(f"{url!r} is no URL: {e}", hint="set RAMET_URL, or url, to one such as http://127.0.0.1:7070") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigurationError(f"{url!r} is no URL of a server", hint="set RAMET_URL, or url, to one such as http://127.0.0.1:7070")
    return url.rstrip("/")


def is_loopback(host: str) -> bool:
    """Whether a host is this one; names other than localhost may lead anywhere."""
    if host == "localhost":
        return True
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(ip, "ipv4_mapped", None)
    return bool((mapped or ip).is_loopback)


def _running_server(home: str) -> Optional[Dict[str, str]]:
    """What server.json says, when the server that wrote it still runs."""
    try:
        with open(os.path.join(home, "server.json"), encoding="utf-8") as f:
            info = as_object(json.loads(f.read(64 << 10)))
        if info is None:
            return None
        pid, ticks, boot = int(info["pid"]), int(info["start_ticks"]), str(info["boot_id"])
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as f:
            if f.read().strip() != boot:
                return None
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            # The name of the program is in parentheses and may hold anything; behind it the start is the 20th field.
            if int(f.read().rsplit(")", 1)[1].split()[19]) != ticks:
                return None
        return {"url": _checked(str(info["url"])), "local_certificate": str(info.get("local_certificate", ""))}
    except (OSError, ValueError, KeyError, TypeError, IndexError, ConfigurationError):
        return None  # none that can be found: the settings decide


def _same(server: Dict[str, str], url: str) -> bool:
    """Whether the server of this machine is the one at url, and cannot be another there."""
    a, b = urlsplit(server["url"]), urlsplit(url)
    if a.scheme != b.scheme or a.port != b.port:
        return False
    if is_loopback(a.hostname or "") and is_loopback(b.hostname or ""):
        return True
    return bool(server["local_certificate"]) and a.hostname == b.hostname


def _local_key(home: str, url: str, ours: bool) -> "tuple[str, str]":
    path = os.path.join(home, "key")
    if not ours:
        if is_loopback(urlsplit(url).hostname or "") and os.path.exists(path):
            return "", f"the server of {home} does not run at {url}, so its key is not used: start it with 'ramet up', set RAMET_HOME to the data directory of the server there, or RAMET_API_KEY to a key"
        return "", "set RAMET_API_KEY, or api_key, to a key of that server"
    try:
        with open(path, encoding="ascii") as f:
            return f.read(4096).strip(), ""
    except (OSError, ValueError):
        return "", f"{path} may only be read by the user of the server: set RAMET_API_KEY to a key from 'ramet keys create'"
