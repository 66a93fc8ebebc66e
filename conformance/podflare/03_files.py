"""Files in and out."""

import os

from check import has, main, operation, raises, same

from podflare import Sandbox

GROUP = "Files"
s = Sandbox()


@operation(GROUP, "upload(bytes), download()")
def round_trip():
    data = bytes(range(256)) * 1024
    s.upload(data, "/tmp/data.bin")
    same(s.download("/tmp/data.bin") == data, True, "the same bytes")
    same(s.run_code("stat -c %s /tmp/data.bin", language="bash").stdout, str(len(data)))


@operation(GROUP, "upload(local path)")
def local_path():
    with open("local.csv", "w") as f:
        f.write("a,b\n1,2\n")
    s.upload("local.csv", "in/some/new/folder/remote.csv")
    same(s.run_code("print(open('in/some/new/folder/remote.csv').read(), end='')").stdout, "a,b\n1,2")
    return "as in the package: local first, then the path in the sandbox. Its introduction has them the other way round"


@operation(GROUP, "relative paths, empty files, names with quotes and spaces")
def names():
    s.upload(b"", "empty")
    same(s.download("empty"), b"")
    same(s.run_code("import os; print(os.path.realpath('empty'))").stdout, "/root/empty")
    for name in ("/tmp/a b'c\".txt", "/tmp/日本語.txt"):
        s.upload(name.encode(), name)
        same(s.download(name), name.encode())


@operation(GROUP, "5 MB in and out")
def large():
    data = os.urandom(5_000_000)
    s.upload(data, "/tmp/big.bin")
    same(s.download("/tmp/big.bin") == data, True, "the same bytes")


@operation(GROUP, "errors")
def errors():
    with raises(OSError) as seen:
        s.download("/no/such/file")
    has(str(seen[0]), "FileNotFoundError")
    with raises(OSError) as seen:
        s.upload(b"x", "/proc/nope/x")
    has(str(seen[0]), "upload failed")


@operation(GROUP, "diff()")
def diff():
    with Sandbox() as a:
        a.upload(b"1", "/root/same.txt")
        a.upload(b"1", "/root/changed.txt")
        a.upload(b"1", "/tmp/removed.txt")
        [b] = a.fork(1)
        b.upload(b"2", "/root/changed.txt")
        b.upload(b"1", "/tmp/added.txt")
        b.run_code("rm /tmp/removed.txt", language="bash")
        b.upload(b"1", "/var/elsewhere.txt")
        same(a.diff(b), {"added": ["/tmp/added.txt"], "removed": ["/tmp/removed.txt"], "modified": ["/root/changed.txt"]})
        same(a.diff(b, paths=["/var"]), {"added": ["/var/elsewhere.txt"], "removed": [], "modified": []})
        b.close()


main()
