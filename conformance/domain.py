"""A domain with HTTPS, as a deployed server has one, that is there for the programs of one run.

Its certificate is signed by an authority of its own, which clients are told to trust by the
usual variables. Its names are told by a name server on a loopback address, which a program has
as its only one in a mount namespace of its own. So nothing is put into a client, and those that
bring a resolver of their own (the Python client has one in Rust) find the names as well.
"""

import contextlib
import pathlib
import shutil
import socketserver
import struct
import subprocess
import tempfile
import threading

NAME = "sandboxes.test"
COMMAND_S = 60

# What openssl is told, so that nothing of this host's configuration matters.
CONFIG = f"""
[req]
distinguished_name = subject
[subject]
[authority]
basicConstraints = critical, CA:true
keyUsage = critical, keyCertSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:false
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = DNS:{NAME}, DNS:*.{NAME}, IP:127.0.0.1
"""

# Makes the two files after it those of the program that follows, and becomes that program.
ENTER = 'mount --bind "$1" /etc/resolv.conf && mount --bind "$2" /etc/nsswitch.conf && shift 2 && exec "$@"'


class Unusable(Exception):
    """The domain cannot be made on this host."""


class Domain:
    """A context: while it is entered, programs that are started by `program` know the names, and `cert`, `key` and `ca` are files."""

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self._folder = pathlib.Path(tempfile.mkdtemp(prefix="conformance-domain-"))
            stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
            self._certificates()
            self._name_server(stack)
            _run(self.program(["getent", "ahostsv4", "any." + NAME]), "names cannot be told to a program here (that takes root and mount namespaces)")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self._stack.close()

    def program(self, argv):
        """The command line that runs argv where the names of the domain are known, and no others."""
        return ["unshare", "--mount", "sh", "-c", ENTER, "sh", self._folder / "resolv.conf", self._folder / "nsswitch.conf", *argv]

    def _certificates(self):
        self.ca, self.cert, self.key = (self._folder / name for name in ("ca.pem", "cert.pem", "key.pem"))
        config, ca_key = self._folder / "openssl.cnf", self._folder / "ca-key.pem"
        config.write_text(CONFIG)
        make = ["openssl", "req", "-x509", "-config", config, "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-days", "2"]
        for more in (
            ["-subj", "/CN=authority of a test", "-extensions", "authority", "-keyout", ca_key, "-out", self.ca],
            ["-subj", "/CN=" + NAME, "-extensions", "server", "-CA", self.ca, "-CAkey", ca_key, "-keyout", self.key, "-out", self.cert],
        ):
            _run(make + more, "openssl made no certificate")

    def _name_server(self, stack):
        for last in range(1, 20):
            try:
                server = socketserver.UDPServer((f"127.53.53.{last}", 53), _Query)
                break
            except OSError as e:
                trouble = e
        else:
            raise Unusable(f"no name server can listen on port 53 of 127.53.53.1 to .19, as when another one has all addresses: {trouble}")
        stack.callback(server.server_close)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(server.shutdown)
        (self._folder / "resolv.conf").write_text(f"nameserver {server.server_address[0]}\n")
        (self._folder / "nsswitch.conf").write_text("hosts: files dns\n")


def _run(argv, trouble):
    try:
        r = subprocess.run(argv, text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=COMMAND_S)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise Unusable(f"{trouble}: {e}") from None
    if r.returncode != 0:
        raise Unusable(f"{trouble}: exit {r.returncode} {r.stderr[-2000:]}")


class _Query(socketserver.BaseRequestHandler):
    def handle(self):
        packet, sock = self.request
        if answer := answer_query(packet):
            sock.sendto(answer, self.client_address)


def answer_query(packet):
    """The answer to a query (RFC 1035): the domain and all below it have 127.0.0.1, and nothing else is there. None if it is no query."""
    if len(packet) < 12:
        return None
    number, flags, questions = struct.unpack_from(">HHH", packet)
    labels, at = [], 12
    while at < len(packet) and packet[at]:
        if packet[at] > 63:
            return None
        labels.append(packet[at + 1:at + 1 + packet[at]])
        at += 1 + packet[at]
    if flags & 0x8000 or questions != 1 or at + 5 > len(packet):
        return None
    name = b".".join(labels).lower().decode("latin-1")
    ours = name == NAME or name.endswith("." + NAME)
    kind, _ = struct.unpack_from(">HH", packet, at + 1)
    # A pointer to the name of the question; A, IN, 60 seconds, 4 bytes.
    address = struct.pack(">HHHIH4B", 0xC00C, 1, 1, 60, 4, 127, 0, 0, 1) if ours and kind == 1 else b""
    # An answer, with authority; it echoes whether recursion was asked for. 3 is: there is no such name.
    head = struct.pack(">HHHHHH", number, 0x8480 | flags & 0x0100 | (0 if ours else 3), 1, 1 if address else 0, 0, 0)
    return head + packet[12:at + 5] + address
