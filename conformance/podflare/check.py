"""What the programs of this folder share: operations, their results, and assertions on them."""

import contextlib
import json
import os
import sys
import time
import traceback

import httpx

URL = os.environ["PODFLARE_HOSTD_URL"]

_operations = []


class Differs(Exception):
    """The operation works, in another way than in the service. The text says how."""


class NotYet(Exception):
    """The operation is not supported, and the answer says so."""


def operation(group, name):
    """Enters a function as the program's next operation. What it returns is a remark on one that works."""

    def enter(f):
        _operations.append((group, name, f))
        return f

    return enter


def same(got, want, what=""):
    if got != want:
        raise AssertionError(f"{what or 'got'}: {got!r:.600}, want {want!r:.600}")


def has(text, part):
    if part not in text:
        raise AssertionError(f"{part!r} is not in {text!r:.600}")


@contextlib.contextmanager
def raises(kind, status=None):
    """The block raises kind, with an HTTP status when one is given. Yields a list that gets the exception."""
    seen = []
    try:
        yield seen
    except kind as e:
        seen.append(e)
        if status is not None:
            same(e.response.status_code, status, "status")
            try:
                body = e.response.json()
            except httpx.ResponseNotRead:
                return  # of a stream that was refused
            if not isinstance(body.get("error"), str) or not body["error"]:
                raise AssertionError(f"no error message in {body}") from None
        return
    raise AssertionError(f"no {kind.__name__} was raised")


def until(what, cond, seconds=60):
    """Waits until cond holds, with a deadline."""
    end = time.monotonic() + seconds
    while not (got := cond()):
        if time.monotonic() > end:
            raise AssertionError(f"after {seconds} s still not: {what}")
        time.sleep(0.05)
    return got


def native(method, path, body=None):
    """A call of the native API, for what the client cannot ask. Returns the answer's JSON, or None."""
    r = httpx.request(method, URL + path, json=body, headers={"authorization": "Bearer " + os.environ["PODFLARE_API_KEY"]}, timeout=60)
    r.raise_for_status()
    return r.json() if r.content else None


def main():
    """Runs the operations, a line of JSON for each."""
    failed = False
    for group, name, f in _operations:
        result, detail = "works", ""
        try:
            detail = f() or ""
        except Differs as e:
            result, detail = "differs", str(e)
        except NotYet as e:
            result, detail = "not_yet", str(e)
        except Exception:
            result, detail, failed = "failed", traceback.format_exc(limit=-4), True
        print(json.dumps({"operation": name, "group": group, "result": result, "detail": detail}), flush=True)
    sys.exit(1 if failed else 0)
