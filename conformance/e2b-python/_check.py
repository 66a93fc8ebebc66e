"""What the programs of this folder share: operations that run with the sync and the async client."""

import asyncio
import contextlib
import inspect
import json
import os
import re
import sys
import time
import traceback


class Skip(Exception):
    """The installed version has no such call."""


class NotYet(Exception):
    """The server says clearly that it cannot."""


class Differs(Exception):
    """It works, in another way than on E2B's own servers. The text says how."""


_operations = []


def operation(name):
    """Enters a coroutine function that gets a sandbox. Its calls go through `val`, so that one text is for both clients."""

    def add(f):
        _operations.append((name, f))
        return f

    return add


async def val(x):
    """The value of what the sync client returns, and the async one returns to be awaited."""
    return await x if inspect.isawaitable(x) else x


def same(got, want, what=""):
    if got != want:
        raise AssertionError(f"{what or 'got'}: {got!r:.600}, want {want!r:.600}")


def has(text, part):
    if part not in text:
        raise AssertionError(f"{part!r} is not in {text!r:.600}")


def knows(f, *names):
    """Skips the operation when the installed client's function has no such parameters."""
    have = inspect.signature(f).parameters
    for name in names:
        if name not in have:
            raise Skip


@contextlib.asynccontextmanager
async def raises(*kinds):
    """The block raises one of kinds. Yields a list that gets the exception."""
    seen = []
    try:
        yield seen
    except kinds as e:
        seen.append(e)
    else:
        raise AssertionError(f"no {kinds[0].__name__} was raised")


async def eventually(what, cond, within=20):
    """Waits until cond() holds."""
    end = time.monotonic() + within
    while True:
        got = await val(cond())
        if got:
            return got
        if time.monotonic() > end:
            raise AssertionError(f"after {within} s still not: {what}")
        await asyncio.sleep(0.05)


def report(name, result, detail=""):
    group = re.split("[.: ]", name)[0]
    print(json.dumps({"operation": name, "group": group, "result": result, "detail": detail}), flush=True)


async def _one(name, f, sandbox):
    try:
        await asyncio.wait_for(f(sandbox), 120)
        report(name, "works")
    except Skip:
        pass
    except NotYet as e:
        report(name, "not_yet", str(e))
    except Differs as e:
        report(name, "differs", str(e))
    except Exception as e:  # whatever it is, it is the operation's result
        traceback.print_exc(file=sys.stderr)
        report(name, "failed", f"{type(e).__name__}: {e}"[:400])
        return 1
    return 0


async def _flavor(kind, suffix, create):
    failed = 0
    only = sys.argv[1:]
    sandbox = await val(kind.create(**create))
    try:
        for name, f in _operations:
            if not only or name in only:
                failed += await _one(name + suffix, f, sandbox)
    finally:
        await val(sandbox.kill())
    return failed


def main(sync, asynchronous, **create):
    """Runs all operations with both clients. Exits with 1 when one has failed."""
    failed = 0
    for kind, suffix in ((sync, ""), (asynchronous, " (async)")):
        try:
            failed += asyncio.run(_flavor(kind, suffix, create))
        except Exception as e:
            traceback.print_exc(file=sys.stderr)
            report("sandbox.create" + suffix, "failed", f"{type(e).__name__}: {e}"[:400])
            failed += 1
    sys.stdout.flush()
    sys.stderr.flush()
    # Not by sys.exit: the client's native transport can abort the process at its end when a call was given up.
    os._exit(1 if failed else 0)


def is_async(sandbox):
    return "Async" in type(sandbox).__name__ or inspect.iscoroutinefunction(sandbox.kill)
