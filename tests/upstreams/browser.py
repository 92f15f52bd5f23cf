"""What a browser does with a person who agrees at once: `browser.py URL` follows the link to where it leads."""

from __future__ import annotations

import sys
import urllib.request

if __name__ == "__main__":
    with urllib.request.urlopen(sys.argv[1], timeout=20) as page:  # noqa: S310
        page.read()
