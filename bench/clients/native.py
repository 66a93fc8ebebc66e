"""The native API, with Python's http.client and one connection."""

import http.client
import json
import os
import urllib.parse

import turns

parts = urllib.parse.urlsplit(os.environ["RAMET_URL"])
connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=120)
headers = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["RAMET_API_KEY"]}


def call(method, path, body=None):
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    content = answer.read()
    if answer.status >= 300:
        raise SystemExit(f"{method} {path}: {answer.status} {content[:200]!r}")
    return content


def run(id):
    events = [json.loads(line) for line in call("POST", f"/v1/sandboxes/{id}/exec", {"code": "print(1)"}).splitlines() if line]
    turns.check(events[0]["data"])


def create():
    return json.loads(call("POST", "/v1/sandboxes", {}))["id"]


def trip():
    id = create()
    run(id)
    call("DELETE", f"/v1/sandboxes/{id}")


warm = create()
turns.take(lambda: run(warm), trip)
call("DELETE", f"/v1/sandboxes/{warm}")
