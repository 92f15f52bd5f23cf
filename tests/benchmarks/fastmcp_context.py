"""Serve the servers of a config through FastMCP's proxy with its BM25 search, in an environment of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from fastmcp.server import create_proxy
from fastmcp.server.transforms.search import BM25SearchTransform

if __name__ == "__main__":
    proxy = create_proxy(json.loads(Path(sys.argv[1]).read_text()), name="proxy")
    proxy.add_transform(BM25SearchTransform())
    proxy.run(show_banner=False)
