"""`dynamic-mcp`, and `python -m dynamic_mcp`: a window of a running daemon, or else the command line."""

from __future__ import annotations

import sys

from dynamic_mcp.cli.descriptors import fill_standard


def main() -> None:
    """Run the command line. A window whose daemon runs needs next to nothing of this program."""
    fill_standard()
    sys.exit(_run())


def _run() -> int:
    left = None
    if sys.platform != "win32":
        from dynamic_mcp.face import window

        left = shim = window.find(sys.argv[1:])
        if shim is not None and (code := shim.run()) is not None:
            return code
    from dynamic_mcp.cli.main import run

    return run(sys.argv[1:], left)


if __name__ == "__main__":
    main()
