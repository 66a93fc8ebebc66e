"""A first session. Needs a server: on its own machine nothing has to be set."""

from __future__ import annotations

from ramet import Sandbox


def main() -> None:
    with Sandbox.create() as sb:  # deleted at the end of the block
        sb.run_code("import math; r = 3")
        print(sb.run_code("math.pi * r**2").text)
        print(sb.commands.run("uname -sr").stdout, end="")
        sb.files.write("hello.txt", "hi")
        for child in sb.fork(3):  # each has the variables, files and processes of sb
            with child:
                print(child.run_code("r + 1").text, child.files.read("hello.txt"))


if __name__ == "__main__":
    main()
