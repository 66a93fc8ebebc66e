#!/usr/bin/env python3
"""Runs the official clients of other sandboxes against a real server.

The clients and their versions are in matrix.toml. Each version gets an environment of its own
under .cache/conformance, which is used again as long as its pins are the same. The server is
bin/ramet with a data directory and a port of its own; it is ended in every case. It serves plain
HTTP, and then again with a domain and HTTPS for the programs that the matrix names so (domain.py).

A program prints one line of JSON for each operation that it tries:

    {"operation": "fork", "group": "State", "result": "works", "detail": ""}

result is "works", "differs" (detail says how), "not_yet" (not supported, said clearly) or
"failed". The results are kept in results.json, and in the tables of docs/compat/README.md.
The exit code is 1 when something failed, or with --check when the tables are not those of this run.
"""

import argparse
import contextlib
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.error
import urllib.request

import domain

ROOT = pathlib.Path(__file__).resolve().parent.parent
HERE = ROOT / "conformance"
CACHE = ROOT / ".cache" / "conformance"
RESULTS = HERE / "results.json"
TABLES = ROOT / "docs" / "compat" / "README.md"
RAMET = ROOT / "bin" / "ramet"

OUTCOMES = ("works", "differs", "not_yet", "failed")
WORDS = {"works": "works", "differs": "differs", "not_yet": "not yet", "failed": "**fails**"}
BEGIN, END = "<!-- tables: made by conformance/run.py -->", "<!-- end of the tables -->"

# Bounds: of an installation, of the start of the server (it may build a template), of what a program may print.
INSTALL_S, START_S, STOP_S, MAX_OUTPUT = 900, 1200, 120, 8 << 20


# What the server's log says of something that took five seconds or more.
SLOW = re.compile(r"took=(([5-9]|[1-9][0-9])\.[0-9]+s|[0-9]+m)")


class Broken(Exception):
    """Something that is not a client's result went wrong."""


def log(text):
    print(text, file=sys.stderr, flush=True)


def command(argv, timeout, env=None, cwd=None):
    """Runs a command and returns what it printed."""
    try:
        r = subprocess.run(argv, timeout=timeout, env=env, cwd=cwd, text=True, capture_output=True, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise Broken(f"{' '.join(map(str, argv))}: no end within {timeout} s") from None
    if r.returncode != 0:
        raise Broken(f"{' '.join(map(str, argv))}: exit {r.returncode}\n{r.stdout[-2000:]}{r.stderr[-4000:]}")
    return r.stdout


# --- environments ---------------------------------------------------------------------------


def environment(client, version):
    """Makes the environment of a version, or finds it, and returns its folder."""
    pins = json.dumps([client["language"], version["packages"], sys.version_info[:2]])
    folder = CACHE / "environments" / f"{client['name']}-{version['version']}-{hashlib.sha256(pins.encode()).hexdigest()[:12]}"
    if (folder / "complete").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    log(f"installing {client['name']} {version['version']}")
    if client["language"] == "python":
        command([sys.executable, "-m", "venv", folder / "venv"], INSTALL_S)
        command([folder / "venv/bin/pip", "install", "--quiet", *version["packages"]], INSTALL_S)
    else:
        (folder / "package.json").write_text('{"private": true, "type": "module"}\n')
        command(["npm", "install", "--no-audit", "--no-fund", "--silent", "--save-exact", *version["packages"]], INSTALL_S, cwd=folder)
    (folder / "complete").write_text(pins + "\n")
    return folder


def programs(client):
    """The programs of a client, in the order in which they run."""
    end = {"python": ".py", "node": ".mjs"}[client["language"]]
    folder = HERE / client["folder"]
    return sorted(p for p in folder.glob("*" + end) if not p.name.startswith(("check", "_")))


# --- the server -----------------------------------------------------------------------------


class Server:
    """A server of our own, on a free port of the loopback address: with HTTPS if it is given a domain."""

    def __init__(self, settings, of=None):
        self.settings, self.domain = settings, of
        self.home = CACHE / "home"
        self.pid = None

    def env(self):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("RAMET_", "PODFLARE_", "E2B_"))}
        kept |= {"RAMET_HOME": str(self.home), "RAMET_LISTEN": f"127.0.0.1:{self.port}", "RAMET_CONFIG": str(self.home / "none.yaml")}
        if driver := os.environ.get("RAMET_TEST_DRIVER"):
            kept["RAMET_DRIVER"] = driver
        if self.domain:
            kept |= {"RAMET_DOMAIN": f"{domain.NAME}:{self.port}", "RAMET_TLS_CERT": str(self.domain.cert), "RAMET_TLS_KEY": str(self.domain.key)}
        return kept | self.settings.get("env", {})

    def of_clients(self):
        """The variables by which clients find the server."""
        common = {"RAMET_URL": self.url, "RAMET_API_KEY": self.key, "RAMET_BINARY": str(RAMET), "RAMET_HOME": str(self.home), "E2B_API_KEY": self.e2b_key}
        if self.domain:
            ca = str(self.domain.ca)
            return common | {"E2B_DOMAIN": f"{domain.NAME}:{self.port}", "SSL_CERT_FILE": ca, "NODE_EXTRA_CA_CERTS": ca}
        return common | {
            # Podflare's Client reads the first, its Sandbox the second.
            "PODFLARE_HOSTD_URL": self.url, "PODFLARE_API_URL": self.url, "PODFLARE_API_KEY": self.key,
            "E2B_API_URL": self.url, "E2B_SANDBOX_URL": self.url, "E2B_DOMAIN": f"localhost:{self.port}",
        }

    def ramet(self, *args, timeout=120):
        return command([RAMET, *args], timeout, env=self.env())

    def start(self):
        with contextlib.closing(socket.socket()) as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.clean_home()
        log("starting the server" + (" with a domain and HTTPS" if self.domain else ""))
        try:
            self.ramet("up", "--detach", timeout=START_S)
        finally:
            self.find_pid()
        for template in self.settings.get("templates", []):
            log(f"template {template}")
            try:
                self.ramet("template", "build", template, timeout=START_S)
            except Broken as e:
                log(str(e))  # what stands on it will fail
        self.url = f"http{'s' if self.domain else ''}://127.0.0.1:{self.port}"
        self.trust = ssl.create_default_context(cafile=self.domain.ca) if self.domain else None
        self.key = self.ramet("keys", "create", "--name", "conformance").strip()
        try:
            self.e2b_key = self.ramet("keys", "create", "--format", "e2b", "--name", "conformance").strip()
        except Broken:
            self.e2b_key = self.key

    def clean_home(self):
        """Leaves nothing of an earlier run but its templates, and takes over those of RAMET_TEST_HOME."""
        self.find_pid()
        if self.pid:
            self.stop()
        self.home.mkdir(parents=True, exist_ok=True)
        for entry in self.home.iterdir():
            if entry.name == "templates":
                continue
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        (self.home / "none.yaml").write_text("")
        given = os.environ.get("RAMET_TEST_HOME")
        if given and (pathlib.Path(given) / "templates").is_dir():
            (self.home / "templates").mkdir(exist_ok=True)
            for template in (pathlib.Path(given) / "templates").iterdir():
                for built in template.iterdir():
                    to = self.home / "templates" / template.name / built.name
                    if not to.exists() and (built / "manifest.json").exists():
                        to.parent.mkdir(exist_ok=True)
                        command(["cp", "-a", "--sparse=always", "--reflink=auto", built, to], 600)

    def find_pid(self):
        """Learns which process the server is, if there is one."""
        self.pid = None
        try:
            info = json.loads((self.home / "server.json").read_text())
            name = os.readlink(f"/proc/{info['pid']}/exe").removesuffix(" (deleted)")
        except (OSError, ValueError, KeyError):
            return
        if pathlib.Path(name).name == "ramet":
            self.pid = info["pid"]

    def stop(self):
        """Ends the server with its sandboxes. If it does not end itself, it is killed."""
        if not self.pid:
            return
        pid, self.pid = self.pid, None
        if not hasattr(self, "port"):
            self.port = 0
        try:
            self.ramet("down", "--sandboxes", timeout=STOP_S)
        except Broken as e:
            log(f"ramet down: {e}")
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if alive(pid):
            raise Broken(f"the server, process {pid}, does not end")

    def log_size(self):
        """How long its log is."""
        try:
            return (self.home / "server.log").stat().st_size
        except OSError:
            return 0

    def troubles(self, since):
        """The lines of its log after since (a size) that tell of trouble: warnings, errors, and what took seconds."""
        with (self.home / "server.log").open("rb") as f:
            f.seek(since)
            lines = f.read(MAX_OUTPUT).decode(errors="replace").splitlines()
        return [line[:1000] for line in lines if SLOW.search(line) or "level=WARN" in line or "level=ERROR" in line and "status=50" not in line][-60:]

    def call(self, method, path):
        r = urllib.request.Request(self.url + path, method=method, headers={"Authorization": "Bearer " + self.key})
        with urllib.request.urlopen(r, timeout=120, context=self.trust) as answer:
            return answer.read()

    def leftovers(self):
        """Deletes the sandboxes that a program has left, and says how many there were."""
        listed = json.loads(self.call("GET", "/v1/sandboxes"))["sandboxes"]
        for sandbox in listed:
            with contextlib.suppress(urllib.error.HTTPError):
                self.call("DELETE", "/v1/sandboxes/" + sandbox["id"])
        return len(listed)


def alive(pid, within=10):
    """Says whether a process is still there after some seconds."""
    end = time.monotonic() + within
    while time.monotonic() < end:
        try:
            if pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return False
        except OSError:
            return False
        time.sleep(0.1)
    return True


# --- programs -------------------------------------------------------------------------------


def run_program(client, version, folder, program, server):
    """Runs a program and returns its results."""
    with tempfile.TemporaryDirectory(prefix="conformance-") as scratch:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("RAMET_", "PODFLARE_", "E2B_", "XDG_"))}
        env |= {
            "HOME": scratch, "XDG_CACHE_HOME": scratch + "/cache", "TMPDIR": scratch,
            "CONFORMANCE_VERSION": version["version"],
        } | server.of_clients()
        if client["language"] == "python":
            argv = [folder / "venv/bin/python", program]
        else:
            # Node looks for packages beside the program.
            copy = folder / "programs"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(program.parent, copy)
            argv = ["node", copy / program.name]
        if server.domain:
            argv = server.domain.program(argv)
        out = pathlib.Path(scratch) / "out"
        err = pathlib.Path(scratch) / "err"
        with out.open("wb") as o, err.open("wb") as e:
            process = subprocess.Popen(argv, cwd=scratch, env=env, stdin=subprocess.DEVNULL, stdout=o, stderr=e, start_new_session=True)
            try:
                code, trouble = process.wait(timeout=client.get("deadline_s", 300)), ""
            except subprocess.TimeoutExpired:
                code, trouble = -1, f"no end within {client.get('deadline_s', 300)} s"
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        results, odd = read_results(out)
        if not trouble and code != 0 and not any(r["result"] == "failed" for r in results):
            trouble = f"exit {code}"
        if not trouble and not results:
            trouble = "it printed no result"
        if trouble or odd or any(r["result"] == "failed" for r in results):
            log(err.read_bytes()[-3000:].decode(errors="replace").strip())
        if trouble or odd:
            results.append({"operation": f"the program {program.name}", "group": "Programs", "result": "failed", "detail": trouble or odd})
        return results


def read_results(path):
    """Reads what a program printed. What is no result is said."""
    results, odd = [], ""
    with path.open("rb") as f:
        for raw in f.read(MAX_OUTPUT).splitlines():
            if not raw.lstrip().startswith(b"{"):
                continue  # clients print things too
            try:
                r = json.loads(raw)
                if r["result"] not in OUTCOMES:
                    raise ValueError
                results.append({k: str(r.get(k, "")) for k in ("operation", "group", "result", "detail")})
            except (ValueError, KeyError, TypeError):
                odd = f"it printed a line that is no result: {raw[:200]!r}"
    return results, odd


def chosen_programs(client, version, https, named):
    """The programs with which a version is tried: those for a server with HTTPS, or the others."""
    secure = [*client.get("https", []), *version.get("https", {})]
    return [p for p in programs(client) if named in p.name and (p.name in secure) == https]


def run_version(client, version, folder, server, chosen):
    """Runs programs with a version."""
    results = []
    for program in chosen:
        if why := version.get("without", {}).get(program.name):
            log(f"  {program.name}: not tried: {why}")
            continue
        begin, logged = time.monotonic(), server.log_size()
        got = run_program(client, version, folder, program, server)
        left = server.leftovers()
        counts = ", ".join(f"{n} {WORDS[o].strip('*')}" for o in OUTCOMES if (n := sum(r["result"] == o for r in got)))
        log(f"  {program.name}: {counts} ({time.monotonic() - begin:.0f} s{f', {left} sandboxes left' if left else ''})")
        bad = [r for r in got if r["result"] == "failed"]
        for r in bad:
            log(f"    FAILED {r['group']}: {r['operation']}: {r['detail'][:1500]}")
        if bad:
            log("\n".join("    server: " + line for line in server.troubles(logged)))
        results += got
    return results


# --- what is kept ---------------------------------------------------------------------------


def table(client, of):
    """The table of a client: its operations, what becomes of them in each version, and how they differ."""
    versions = [v["version"] for v in client["version"] if v["version"] in of]
    rows = {}
    for version in versions:
        for r in of[version]:
            rows.setdefault((r["group"], r["operation"]), {})[version] = r
    lines = [f"### {client['title']}", "", "| | operation | " + " | ".join(versions) + " | |", "| --- " * (len(versions) + 3) + "|"]
    group = None
    for (g, operation), by in rows.items():
        cells = [WORDS[by[v]["result"]] if v in by else "" for v in versions]
        said = []
        for v in versions:
            if v in by and by[v]["detail"] and by[v]["detail"] not in said:
                said.append(by[v]["detail"])
        text = "; ".join(said).replace("|", "\\|").replace("\n", " ")
        lines.append(f"| {g if g != group else ''} | {operation} | {' | '.join(cells)} | {text} |")
        group = g
    for v in client["version"]:
        for why in v.get("https", {}).values():
            lines += ["", f"With {v['version']} by a domain with HTTPS: {why}."]
        for why in v.get("without", {}).values():
            lines += ["", f"Not tried with {v['version']}: {why}."]
    return "\n".join(lines)


def document(text, matrix, results):
    """The page with the tables of these results."""
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise Broken(f"{TABLES} has no place for the tables: the lines {BEGIN} and {END}")
    tables = [table(c, results[c["name"]]) for c in matrix["client"] if results.get(c["name"])]
    return before + BEGIN + "\n\n" + "\n\n".join(tables) + "\n\n" + END + after


def merge(list_of_results):
    """One result for each operation: the worst, where it was tried twice. Groups stay together."""
    best = {}
    for r in list_of_results:
        key = (r["group"], r["operation"])
        if key not in best or OUTCOMES.index(r["result"]) > OUTCOMES.index(best[key]["result"]):
            best[key] = r
    groups = list(dict.fromkeys(g for g, _ in best))
    return sorted(best.values(), key=lambda r: groups.index(r["group"]))


def run_plan(plan, settings, named):
    """Runs what is planned: first all of it that a plain server is enough for. Returns the results of each version."""
    got = [(client, version, []) for client, version, _ in plan]
    # The names and the certificate are made first, so that a host on which that fails says so at once.
    with domain.Domain() if any(chosen_programs(c, v, True, named) for c, v, _ in plan) else contextlib.nullcontext() as of:
        for https in (False, True):
            todo = [chosen_programs(c, v, https, named) for c, v, _ in plan]
            if not any(todo):
                continue
            server = Server(settings, of if https else None)
            try:
                server.start()
                for (client, version, folder), chosen, (_, _, results) in zip(plan, todo, got):
                    if chosen:
                        log(f"{client['name']} {version['version']}")
                        results += run_version(client, version, folder, server, chosen)
            finally:
                server.stop()
    return got


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="only clients whose name begins so; may be given several times")
    parser.add_argument("--version", action="append", default=[], help="only this version of them")
    parser.add_argument("--program", default="", metavar="NAME", help="only programs whose name has this in it; nothing is kept of such a run")
    parser.add_argument("--check", action="store_true", help="change nothing, and fail when the tables are not those of this run")
    args = parser.parse_args()
    for sig in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, lambda *_: sys.exit(1))
    matrix = tomllib.loads((HERE / "matrix.toml").read_text())
    chosen = [c for c in matrix["client"] if not args.only or c["name"].startswith(tuple(args.only))]
    if not chosen:
        parser.error("no client of the matrix has such a name")
    if not RAMET.exists():
        parser.error("bin/ramet is not there: run 'make build'")
    plan = [
        (c, v, environment(c, v)) for c in chosen for v in c["version"]
        if programs(c) and (not args.version or v["version"] in args.version)
    ]
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for client, version, got in run_plan(plan, matrix.get("server", {}), args.program):
        results.setdefault(client["name"], {})[version["version"]] = merge(got)
    return finish(matrix, plan, results, args.check, keep=not args.program)


def finish(matrix, plan, results, check, keep):
    """Keeps or compares the results, and returns the exit code."""
    failed = 0
    for client, version, _ in plan:
        got = results[client["name"]][version["version"]]
        counts = {o: sum(r["result"] == o for r in got) for o in OUTCOMES}
        failed += counts["failed"]
        print(f"{client['name']} {version['version']}: " + ", ".join(f"{n} {WORDS[o].strip('*')}" for o, n in counts.items() if n))
    if not keep:
        return 1 if failed else 0
    for client, version, _ in plan:
        for r in results[client["name"]][version["version"]]:
            if r["result"] == "failed":
                r["detail"] = r["detail"].strip().rpartition("\n")[2][:300]  # the rest is in the log
    results = {c["name"]: results[c["name"]] for c in matrix["client"] if results.get(c["name"])}
    old = TABLES.read_text()
    new = document(old, matrix, results)
    if not check:
        RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
        TABLES.write_text(new)
    elif new != old:
        print(f"the tables of {TABLES.relative_to(ROOT)} are not those of this run: run 'make conformance' and commit what it writes")
        return 1
    if failed:
        print(f"{failed} operations failed")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Broken, domain.Unusable) as e:
        log(str(e))
        sys.exit(1)
