"""`dynamic-mcp`, and `python -m dynamic_mcp`: a window of a running daemon, or else the command line."""

from __future__ import annotations

import sys
from typing import NoReturn

from dynamic_mcp.cli.descriptors import fill_standard


def main() -> NoReturn:
    """Run the command line; what a running daemon can do for a window is done with as little as possible."""
    fill_standard()
    if sys.platform != "win32":
        from dynamic_mcp.face import window

        shim = window.find(sys.argv[1:])
        if shim is not None:
            _carry(shim)
    from dynamic_mcp.cli.main import run

    sys.exit(run(sys.argv[1:]))


def _carry(shim: Shim) -> NoReturn:
    from dynamic_mcp.face.shim import NoDaemonError

    try:
        code = shim.run()
    except NoDaemonError:
        from dynamic_mcp.cli.main import go_on_alone

        code = go_on_alone(shim)
    sys.exit(code)


if __name__ == "__main__":
    main()
