"""Measures print(1) on a Jupyter kernel that is kept alive.

A line on standard input asks for one call; the answer is a line of JSON with
took_ms, or with error. A call has ended when the kernel has sent its output, its
reply, and that it is idle again. The end of standard input ends the kernel.
"""

import json
import sys
import time

from jupyter_client.manager import start_new_kernel

TIMEOUT_S = 60


def say(**what):
    print(json.dumps(what), flush=True)


def call(client):
    out, idle = "", False
    begin = time.perf_counter()
    asked = client.execute("print(1)")
    while not idle:
        message = client.get_iopub_msg(timeout=TIMEOUT_S)
        if message["parent_header"].get("msg_id") != asked:
            continue
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            out += content["text"]
        idle = kind == "status" and content["execution_state"] == "idle"
    reply = None
    while reply is None or reply["parent_header"].get("msg_id") != asked:
        reply = client.get_shell_msg(timeout=TIMEOUT_S)
    took = time.perf_counter() - begin
    if reply["content"]["status"] != "ok" or out != "1\n":
        say(error=f"the kernel printed {out[:100]!r} and answered {reply['content']['status']}")
    else:
        say(took_ms=took * 1000)


def main():
    manager, client = start_new_kernel(startup_timeout=TIMEOUT_S)
    try:
        say(ready=True)
        for _ in sys.stdin:
            call(client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


if __name__ == "__main__":
    main()
