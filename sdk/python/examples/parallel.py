"""Many sandboxes at once, and output as it comes."""

from __future__ import annotations

import asyncio
from typing import Optional

from ramet import AsyncSandbox, Exit, RametError, Result, Stdout


async def count(n: int) -> Optional[str]:
    async with AsyncSandbox.create(metadata={"example": "parallel"}) as sb:
        execution = await sb.run_code(
            f"import time\nfor i in range({n}):\n    print(i, flush=True)\n    time.sleep(0.1)\n{n} * {n}",
            on_stdout=lambda text: print(f"{sb.id[:10]}: {text}", end=""),
            timeout=30,
        )
        return execution.check().text


async def watch() -> None:
    async with AsyncSandbox.create() as sb:
        async with sb.run_code_stream("print('hello')\n6 * 7") as events:
            async for event in events:
                if isinstance(event, Stdout):
                    print("it says", event.text, end="")
                elif isinstance(event, Result):
                    print("it is", event.text)
                elif isinstance(event, Exit):
                    print("it took", event.duration_ms, "ms")


async def main() -> None:
    try:
        print(await asyncio.gather(count(2), count(3), count(4)))
        await watch()
    except RametError as e:
        print("failed:", e)


if __name__ == "__main__":
    asyncio.run(main())
