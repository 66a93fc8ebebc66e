"""A server with a domain and HTTPS, through E2B's official Python client, sync and async.

Prints one JSON object per operation, and exits with 1 when one did not do what it should.
The server is named by E2B_API_KEY and E2B_DOMAIN alone, as a deployed one is.
"""

import os

import httpx
from _check import eventually, has, main, operation, raises, same, val
from e2b import NotFoundException
from e2b_code_interpreter import AsyncSandbox, Sandbox

DOMAIN = os.environ["E2B_DOMAIN"]


def get(url, **headers):
    """The status and the body of an answer, with the certificate checked."""
    r = httpx.get(url, headers=headers, timeout=30)
    return r.status_code, r.text


@operation("domain: create, connect, get_info")
async def control(s):
    same(s.get_host(3000), f"3000-{s.sandbox_id}.{DOMAIN}", "the host")
    again = await val(type(s).connect(s.sandbox_id))
    same((await val(again.get_info())).sandbox_id, s.sandbox_id)
    same(await val(again.is_running()), True)


@operation("domain: commands.run")
async def commands(s):
    same((await val(s.commands.run("echo $((40 + 2))"))).stdout, "42\n")


@operation("domain: files, download_url, upload_url")
async def files(s):
    await val(s.files.write("a file.txt", "h\u00e9"))
    same(await val(s.files.read("a file.txt")), "h\u00e9")
    url = await val(s.download_url("a file.txt"))
    has(url, f"https://49983-{s.sandbox_id}.{DOMAIN}/files?")
    same(get(url), (200, "h\u00e9"), "the download")
    up = httpx.post(await val(s.upload_url("b.txt")), files={"file": ("name", b"by url")}, timeout=30)
    same(up.status_code, 200, up.text)
    same(await val(s.files.read("b.txt")), "by url")


@operation("domain: run_code")
async def code(s):
    await val(s.run_code("x = 41"))
    e = await val(s.run_code("print('out')\nx + 1"))
    same((e.text, "".join(e.logs.stdout), e.error), ("42", "out\n", None))
    context = await val(s.create_code_context(cwd="/tmp"))
    same((await val(s.run_code("import os\nos.getcwd()", context=context))).text, "/tmp")


@operation("domain: get_host")
async def preview(s):
    await val(s.commands.run("mkdir -p /tmp/site && echo hello >/tmp/site/index.html"))
    url = f"https://{s.get_host(8123)}/"
    same(get(url)[0], 502, "the status before something listens")
    await val(s.commands.run("python3 -m http.server 8123 --bind 127.0.0.1 --directory /tmp/site", background=True))
    await eventually("it answers", lambda: get(url)[0] == 200)
    same(get(url), (200, "hello\n"))


@operation("domain: private ports")
async def private(s):
    other = await val(type(s).create(timeout=60, network={"allow_public_traffic": False}))
    try:
        url = f"https://{other.get_host(8123)}/"
        same(get(url)[0], 403, "the status without the token")
        same(get(url, **{"e2b-traffic-access-token": other.traffic_access_token})[0], 502, "with it, and nothing listens")
        same((await val(other.run_code("1 + 1"))).text, "2", "the code interpreter")
    finally:
        await val(other.kill())
    async with raises(NotFoundException):
        await val(other.get_info())


main(Sandbox, AsyncSandbox, timeout=300)
