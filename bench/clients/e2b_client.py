"""E2B's code interpreter for Python, on the same template as the others."""

import turns

from e2b_code_interpreter import Sandbox


def run(s):
    turns.check("".join(s.run_code("print(1)").logs.stdout))


def trip():
    s = Sandbox.create(template="default")
    run(s)
    s.kill()


warm = Sandbox.create(template="default")
turns.take(lambda: run(warm), trip)
warm.kill()
