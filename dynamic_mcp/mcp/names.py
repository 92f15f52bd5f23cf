"""Names of a group's things among those of all groups, as every client takes them."""

from __future__ import annotations

import re
from hashlib import sha256
from urllib.parse import quote, unquote

from dynamic_mcp.errors import closest as closest

_ALLOWED = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9_-]")
_DIGEST = 8
_SCHEME = "dynamic-mcp://"


def listed_name(group: str, name: str) -> str:
    """Return `<group>__<name>`, or where clients do not take that, a shortened form that is always the same."""
    full = f"{group}__{name}"
    return full if _ALLOWED.fullmatch(full) else hashed_name(group, name)


def hashed_name(group: str, name: str) -> str:
    """Return the shortened form: what is allowed of the name, and a digest that keeps it apart from others."""
    digest = sha256(f"{group}\0{name}".encode()).hexdigest()[:_DIGEST]
    readable = _NOT_ALLOWED.sub("_", f"{group}__{name}")[: 64 - _DIGEST - 1]
    return f"{readable}_{digest}"


def group_uri(group: str, uri: str) -> str:
    """Return a URI that names a resource by its group: `dynamic-mcp://<group>/<encoded uri>`."""
    return f"{_SCHEME}{quote(group, safe='')}/{quote(uri, safe='')}"


def group_template(group: str, template: str) -> str:
    """Return a URI template that names a template by its group: `dynamic-mcp://<group>/<template>`.

    The template itself stays as it is, so that its variables expand as they would without the group.
    """
    return f"{_SCHEME}{quote(group, safe='')}/{template}"


def split_group_uri(uri: str) -> tuple[str, str] | None:
    """Return the group and the upstream's own URI that a group URI names, or None where it is another URI.

    What follows the group is an encoded URI, or has a colon and is what a group's template stands for or makes.
    """
    if not uri.startswith(_SCHEME):
        return None
    group, slash, own = uri.removeprefix(_SCHEME).partition("/")
    if not (slash and group and own):
        return None
    is_plain = ":" in own or "{" in own  # an encoded URI has neither
    return unquote(group), own if is_plain else unquote(own)
