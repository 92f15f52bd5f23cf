"""Which flags, by their names and descriptions, may run programs, write files or read others: for the reviewer."""

from __future__ import annotations

import re

from dynamic_mcp.features.scan.facts import FlagFact

# Parts of names, in the order in which they are looked for.
_NAMES: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"^(?:to-)?command$|-command$|^exec|-exec$|^eval(?:uate)?$|program$|^shell$|-shell$|^script|-script$|hook"
            r"|-action$|^(?:pre|post)(?:-|$)|^editor$|^pager$|^(?:upload|receive)-pack$|^rsh$|^ssh$|filter$|^plugin"
            r"|^interpreter$|^run$"
        ),
        "may run a program",
    ),
    (
        re.compile(
            r"^out(?:put|file)?(?:-|$)|-out(?:put|file)?$|^write|^save|^dump|-dump$|^export|^log-?file|-log$|^tee$"
            r"|^trace(?:-|$)|^backup|^append|^create|^in-?place$|^overwrite"
        ),
        "may write a file",
    ),
    (re.compile(r"^remove|^delete|^unlink|^purge|^force$|^clobber"), "may delete or replace files"),
    (re.compile(r"^config(?:-file|-dir)?$|^rc-?file$|^init-?file$|^include$|^load"), "may read settings of others"),
)
_SAYS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"\b(?:run|runs|execute|executes|invoke|invokes|call|spawn|launch|launches|start|starts)\b[^.;]{0,40}"
            r"\b(?:command|program|script|shell|binary|executable|COMMAND|PROG|CMD)\b"
            r"|\b(?:pipe|filter|through)\b[^.;]{0,30}\b(?:command|program|shell|PROG|COMMAND)\b",
            re.IGNORECASE,
        ),
        "may run a program",
    ),
    (
        re.compile(
            r"\b(?:write|writes|save|saves|store|stores|redirect|output|append|dump)\b[^.;]{0,40}"
            r"\b(?:file|files|path|directory)\b",
            re.IGNORECASE,
        ),
        "may write a file",
    ),
    (re.compile(r"\b(?:remove|delete|unlink|overwrite)s?\b[^.;]{0,40}\bfiles?\b", re.IGNORECASE), "may delete files"),
)


def find_danger(flag: FlagFact) -> str:
    """Return what a flag may do that a reviewer must allow; empty if nothing suggests it."""
    for name in flag.names:
        bare = name.lstrip("-").lower().replace("_", "-")
        for pattern, why in _NAMES:
            if len(bare) > 1 and pattern.search(bare):
                return why
    return next((why for pattern, why in _SAYS if pattern.search(flag.description)), "")
