"""Podflare's client."""

import turns

from podflare import Sandbox


def trip():
    s = Sandbox()
    turns.check(s.run_code("print(1)").stdout)
    s.close()


warm = Sandbox()
turns.take(lambda: turns.check(warm.run_code("print(1)").stdout), trip)
warm.close()
