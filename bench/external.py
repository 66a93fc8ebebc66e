#!/usr/bin/env python3
"""Measure a Ramet server with nothing but Python's http.client.

For whoever does not want to believe a program that measures itself: this file
shares no code with the server or its command line. It measures

  hot_exec    print(1) in one sandbox that is warm
  roundtrip   create a sandbox, print(1), delete it

and prints the same percentiles as 'ramet bench' (nearest-rank; the first, cold
sample apart). Every answer is checked: a run that did not print "1" is a failure.

  RAMET_API_KEY=rmt_... bench/external.py
  bench/external.py --url http://127.0.0.1:7070 --key-file /var/lib/ramet/key --n 200
"""

import argparse
import http.client
import json
import os
import sys
import time
import urllib.parse

HOT_WARM = 20  # calls after the cold one that are not kept, as in 'ramet bench'
TIMEOUT_S = 120


class Server:
    """One HTTP connection to a server, opened again when it is lost."""

    def __init__(self, url, key):
        parts = urllib.parse.urlsplit(url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self.connection = kind(parts.hostname, parts.port, timeout=TIMEOUT_S)
        self.prefix = parts.path.rstrip("/")
        self.headers = {"Content-Type": "application/json"}
        if key:
            self.headers["Authorization"] = "Bearer " + key

    def call(self, method, path, body=None):
        """Makes a call, reads its whole answer, and returns it."""
        payload = None if body is None else json.dumps(body)
        try:
            self.connection.request(method, self.prefix + path, payload, self.headers)
            answer = self.connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException):
            self.connection.close()  # the next call connects anew
            raise
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {content[:200]!r}")
        return content

    def create(self):
        return json.loads(self.call("POST", "/v1/sandboxes", {}))["id"]

    def delete(self, sandbox):
        self.call("DELETE", "/v1/sandboxes/" + sandbox)

    def run_code(self, sandbox, code, prints):
        stream = self.call("POST", f"/v1/sandboxes/{sandbox}/exec", {"code": code})
        events = [json.loads(line) for line in stream.splitlines() if line.strip()]
        out = "".join(e["data"].rstrip("\n") for e in events if e["type"] == "stdout")
        last = events[-1] if events else {}
        if last.get("type") != "exit" or last.get("data") != 0 or out != prints:
            raise RuntimeError(f"the run printed {out!r} and ended with {last}")


def hot_exec(server, n, result):
    sandbox = server.create()
    try:
        for i in range(1 + HOT_WARM + n):
            begin = time.perf_counter()
            server.run_code(sandbox, "print(1)", "1")
            took = (time.perf_counter() - begin) * 1000
            if i == 0:
                result["first_ms"] = took
            elif i > HOT_WARM:
                result["samples_ms"].append(took)
    finally:
        server.delete(sandbox)


def roundtrip(server, n, result):
    for i in range(1 + n):
        sandbox = None
        begin = time.perf_counter()
        try:
            sandbox = server.create()
            server.run_code(sandbox, "print(1)", "1")
        finally:
            if sandbox:
                server.delete(sandbox)
        took = (time.perf_counter() - begin) * 1000
        if i == 0:
            result["first_ms"] = took
        else:
            result["samples_ms"].append(took)


def percentile(ordered, p):
    """The smallest value that at least p percent do not exceed."""
    return ordered[max((p * len(ordered) + 99) // 100, 1) - 1]


def summary(result):
    ordered = sorted(result["samples_ms"])
    out = {"name": result["name"], "n": len(ordered), "failures": result["failures"]}
    if "error" in result:
        out["error"] = result["error"]
    if ordered:
        out.update(min_ms=ordered[0], mean_ms=sum(ordered) / len(ordered))
        out.update({f"p{p}_ms": percentile(ordered, p) for p in (50, 90, 95, 99)})
        out["max_ms"] = ordered[-1]
    if "first_ms" in result:
        out["first_ms"] = result["first_ms"]
    return {k: round(v, 3) if isinstance(v, float) else v for k, v in out.items()}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--url", default=os.environ.get("RAMET_URL") or "http://127.0.0.1:7070")
    p.add_argument("--key-file", help="file with the API key; else RAMET_API_KEY")
    p.add_argument("--n", type=int, default=50, help="samples of each (default 50)")
    p.add_argument("--json", action="store_true", help="print JSON")
    args = p.parse_args()
    if args.n < 1:
        p.error("--n must be a positive number")
    key = os.environ.get("RAMET_API_KEY", "")
    if args.key_file:
        with open(args.key_file, encoding="ascii") as f:
            key = f.read().strip()

    results, interrupted = [], False
    server = Server(args.url, key)
    for measure in (hot_exec, roundtrip):
        result = {"name": measure.__name__, "failures": 0, "samples_ms": []}
        try:
            measure(server, args.n, result)
        except KeyboardInterrupt:
            interrupted = True
        except (OSError, http.client.HTTPException, RuntimeError, ValueError, KeyError) as e:
            # A server that fails is not measured further: the tail would lie.
            result["failures"] += 1
            result["error"] = f"{type(e).__name__}: {e}"
        results.append(summary(result))
        if interrupted:
            break

    if args.json:
        print(json.dumps({"url": args.url, "load1": os.getloadavg()[0], "results": results}, indent=2))
    else:
        columns = ("n", "failures", "first_ms", "min_ms", "mean_ms", "p50_ms", "p90_ms", "p95_ms", "p99_ms", "max_ms")
        print(f"{'milliseconds':<14}" + "".join(f"{c.removesuffix('_ms'):>10}" for c in columns))
        for r in results:
            cells = (r.get(c, "") for c in columns)
            print(f"{r['name']:<14}" + "".join(f"{c:>10.2f}" if isinstance(c, float) else f"{c:>10}" for c in cells))
            if "error" in r:
                print(f"  {r['name']} ended early: {r['error']}", file=sys.stderr)
    if interrupted:
        sys.exit(130)
    sys.exit(1 if any(r["failures"] for r in results) else 0)


if __name__ == "__main__":
    main()
