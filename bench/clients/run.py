#!/usr/bin/env python3
"""Measures what the official clients add to the native API, on this host.

  hot    run_code("print(1)") in one sandbox that is warm
  trip   create a sandbox, run print(1), close it

Each client runs in a process and an environment of its own (those of conformance/run.py), and
measures itself. They take turns, one sample each, so that what else the host does meets them
alike; before each trip the warm pool is full. Every answer is checked. It prints a table, and
with --json FILE keeps all samples.

  RAMET_URL=http://127.0.0.1:7070 RAMET_API_KEY=... bench/clients/run.py
  bench/clients/run.py --server        # starts a server of its own, as 'make conformance' does

It runs on a machine that does nothing else: look at the load that it prints.
"""

import argparse
import json
import math
import os
import pathlib
import platform
import subprocess
import sys
import time
import tomllib
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "conformance"))
import run as conformance  # noqa: E402

# The clients: a name, the program, and the client of the conformance matrix whose newest version it runs with.
CLIENTS = [
    ("native", "native.py", None),
    ("podflare", "podflare_client.py", "podflare-python"),
    ("e2b python", "e2b_client.py", "e2b-python"),
    ("e2b js", "e2b_client.mjs", "e2b-js"),
]
# Calls after the first one that are not kept. A pool that is not full after this time is not waited for.
WARM, POOL_S, ANSWER_S = 20, 20, 120


class Worker:
    """A process that measures one client when it is told to."""

    def __init__(self, name, argv, env, cwd=None):
        self.name, self.hot, self.trip = name, [], []
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env, cwd=cwd)

    def ask(self, what):
        """Has it take a sample, and returns its milliseconds."""
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise conformance.Broken(f"{self.name}: it ended, exit {self.process.wait(ANSWER_S)}")
        return float(line)

    def end(self):
        self.process.stdin.close()
        try:
            self.process.wait(ANSWER_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def percentile(values, p):
    """The nearest-rank percentile."""
    return sorted(values)[max(0, math.ceil(p / 100 * len(values)) - 1)]


def pool_full(url, key):
    """Waits until the warm pool is full, for a while."""
    end = time.monotonic() + POOL_S
    while time.monotonic() < end:
        r = urllib.request.Request(url + "/v1/capacity", headers={"Authorization": "Bearer " + key})
        with urllib.request.urlopen(r, timeout=ANSWER_S) as answer:
            pool = json.load(answer)["pool"]
        if pool["ready"] >= pool["size"]:
            return
        time.sleep(0.02)


def start_workers(matrix, url, key, e2b_key, only):
    workers = []
    for name, program, of in CLIENTS:
        if only and name not in only:
            continue
        env = dict(os.environ, RAMET_URL=url, RAMET_API_KEY=key, PODFLARE_HOSTD_URL=url, PODFLARE_API_URL=url, PODFLARE_API_KEY=key,
                   E2B_API_URL=url, E2B_SANDBOX_URL=url, E2B_API_KEY=e2b_key, XDG_CACHE_HOME=str(conformance.CACHE / "xdg"))
        client = next((c for c in matrix["client"] if c["name"] == of), None)
        if of and not client:
            print(f"{name}: left out, it is not in the matrix", file=sys.stderr)
            continue
        argv = [sys.executable, HERE / program]
        if client:
            folder = conformance.environment(client, client["version"][0])
            argv[0] = folder / "venv/bin/python"
            if client["language"] == "node":
                copy = folder / program  # packages are found beside it
                copy.write_bytes((HERE / program).read_bytes())
                argv = ["node", copy]
        workers.append(Worker(name, argv, env))
    return workers


def measure(workers, url, key, hot, trip):
    for w in workers:
        for _ in range(WARM):
            w.ask("hot")
    for _ in range(hot):
        for w in workers:
            w.hot.append(w.ask("hot"))
    for i in range(trip + 1):
        for w in workers:
            pool_full(url, key)
            took = w.ask("trip")
            if i > 0:  # the first one connects, imports and compiles
                w.trip.append(took)


def report(workers):
    base = workers[0]
    print(f"{'':12}{'hot p50':>10}{'p95':>9}{'to native':>11}{'trip p50':>11}{'p95':>9}{'to native':>11}   (ms)")
    for w in workers:
        cells = []
        for values, first in ((w.hot, base.hot), (w.trip, base.trip)):
            p50 = percentile(values, 50)
            cells += [f"{p50:.2f}", f"{percentile(values, 95):.2f}", f"{p50 - percentile(first, 50):+.2f}"]
        print(f"{w.name:12}{cells[0]:>10}{cells[1]:>9}{cells[2]:>11}{cells[3]:>11}{cells[4]:>9}{cells[5]:>11}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", action="store_true", help="start a server for this, and end it")
    parser.add_argument("--hot", type=int, default=200, metavar="N", help="samples of hot (200)")
    parser.add_argument("--trip", type=int, default=50, metavar="N", help="samples of trip (50)")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="only this client; may be given several times")
    parser.add_argument("--json", metavar="FILE", help="keep all samples there")
    args = parser.parse_args()
    matrix = tomllib.loads((conformance.HERE / "matrix.toml").read_text())
    url, key = os.environ.get("RAMET_URL", "").rstrip("/"), os.environ.get("RAMET_API_KEY", "")
    e2b_key = os.environ.get("E2B_API_KEY", key)
    server, workers = None, []
    if not args.server and not (url and key):
        parser.error("set RAMET_URL and RAMET_API_KEY, or give --server")
    try:
        if args.server:
            server = conformance.Server(matrix.get("server", {}))
            server.start()
            url, key, e2b_key = server.url, server.key, server.e2b_key
        workers = start_workers(matrix, url, key, e2b_key, args.only)
        load = os.getloadavg()[0]
        print(f"load before: {load:.2f}", file=sys.stderr)
        measure(workers, url, key, args.hot, args.trip)
    finally:
        for w in workers:
            w.end()
        if server:
            server.stop()
    report(workers)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "host": {"cpus": os.cpu_count(), "kernel": platform.release(), "load_before": load},
            "clients": {w.name: {"hot_ms": w.hot, "trip_ms": w.trip} for w in workers},
        }, indent=1) + "\n")


if __name__ == "__main__":
    try:
        main()
    except conformance.Broken as e:
        sys.exit(str(e))
