"""The three standard descriptors, which the parent process may have closed.

A file opened later would get such a number, and output for stderr would end up in it.
"""

from __future__ import annotations

import os
import sys

_STANDARD = (("stdin", os.O_RDONLY, "r"), ("stdout", os.O_WRONLY, "w"), ("stderr", os.O_WRONLY, "w"))


def fill_standard() -> None:
    """Open closed ones on the null device: reading returns nothing, and output is discarded."""
    for number, (name, flags, mode) in enumerate(_STANDARD):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, flags)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)  # noqa: FBT003 - takes no keyword
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
