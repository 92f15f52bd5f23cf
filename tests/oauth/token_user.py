"""A process that uses the login of one server: for each line of its input it says which token it would send."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.oauth.parts import bearer, refusal, remote


async def main(url: str, folder: str) -> None:
    credentials = bearer(remote(url), Path(folder))
    print("ready", flush=True)
    for line in sys.stdin:
        word, _, sent = line.strip().partition(" ")
        if word == "refused":
            await credentials.handle_challenge(refusal(sent))
        print(await credentials.get_header(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
