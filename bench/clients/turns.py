"""How a client is measured: a sample for each line that comes in."""

import sys
import time


def take(hot, trip):
    """Answers each line `hot` or `trip` with the milliseconds of that function, until there is no more input."""
    for line in sys.stdin:
        f = {"hot": hot, "trip": trip}[line.strip()]
        begin = time.perf_counter()
        f()
        print(1000 * (time.perf_counter() - begin), flush=True)


def check(text):
    if text.strip() != "1":
        raise SystemExit(f"print(1) printed {text!r}")
