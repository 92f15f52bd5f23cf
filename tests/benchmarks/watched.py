"""`dynamic-mcp`, but SIGUSR2 makes it write what lives inside it to the file that WATCHED_FILE names, as JSON."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
from collections import Counter
from pathlib import Path

from dynamic_mcp.__main__ import main

COUNTED = {
    *("Call", "_Question", "Link", "Group", "Instance", "Process", "Session", "Strays"),
    *("HttpSession", "HttpConnection", "Post", "Stream"),
}


def write_counts(*_: object) -> None:
    """Count the tasks that are not done, and what keeps a request, a server or a client."""
    gc.unfreeze()  # what a program at rest has frozen is not among the objects
    gc.collect()
    counts: Counter[str] = Counter()
    for each in gc.get_objects():
        if isinstance(each, asyncio.Task):
            counts["tasks"] += not each.done()
        elif type(each).__name__ in COUNTED and type(each).__module__.startswith("dynamic_mcp."):
            counts[type(each).__name__] += 1
    file = Path(os.environ["WATCHED_FILE"])
    new = file.with_suffix(".new")
    new.write_text(json.dumps(counts))
    new.replace(file)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR2, write_counts)
    main()
