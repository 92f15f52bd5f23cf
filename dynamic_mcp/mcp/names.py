"""Names and URIs that are unique across groups and valid for every client."""

from __future__ import annotations

import re
from hashlib import sha256
from urllib.parse import quote, unquote

_ALLOWED = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9_-]")
_DIGEST = 8
_SHORT_FORM = re.compile(r"[A-Za-z0-9_-]{0,55}_[0-9a-f]{8}")
_SCHEME = "dynamic-mcp://"
# The scheme of the pages of MCP Apps (SEP-1865): hosts render nothing with another one.
_UI = "ui://"
_UI_AUTHORITY = re.compile(r"ui://([^/?#+]+)\+(.+)", re.DOTALL)
_SKILL = "skill://"


def qualified_name(group: str, name: str) -> str:
    """Return `<group>__<name>`, or a stable shortened form if clients would reject that."""
    full = f"{group}__{name}"
    return full if _ALLOWED.fullmatch(full) else hashed_name(group, name)


def hashed_name(group: str, name: str) -> str:
    """Return the shortened form: the allowed characters of the name, and a digest that makes it unique."""
    digest = sha256(f"{group}\0{name}".encode()).hexdigest()[:_DIGEST]
    readable = _NOT_ALLOWED.sub("_", f"{group}__{name}")[: 64 - _DIGEST - 1]
    return f"{readable}_{digest}"


def is_short_form(listed: str) -> bool:
    """Return whether a name has the shape of a shortened form, whatever the digest is of."""
    return _SHORT_FORM.fullmatch(listed) is not None


def short_forms_begin(group: str) -> str:
    """Return what all shortened forms of a group's names begin with."""
    return _NOT_ALLOWED.sub("_", f"{group}__")[: 64 - _DIGEST - 1]


def group_uri(group: str, uri: str) -> str:
    """Return the URI of a group's resource: `dynamic-mcp://<group>/<encoded uri>`."""
    return f"{_SCHEME}{quote(group, safe='')}/{quote(uri, safe='')}"


def group_template(group: str, template: str) -> str:
    """Return the URI template of a group's template: `dynamic-mcp://<group>/<template>`.

    The template itself is not encoded, so that its variables expand as they would without the group.
    """
    return f"{_SCHEME}{quote(group, safe='')}/{template}"


def is_ours(uri: str) -> bool:
    """Return whether a URI or template belongs to the proxy itself and not to a server."""
    return uri[: len(_SCHEME)].lower() == _SCHEME


def split_group_uri(uri: str) -> tuple[str, str] | None:
    """Return the group and the upstream's URI of a group URI; None for any other URI.

    The part after the group is an encoded URI, or a template (expanded or not), which is not encoded.
    """
    if not uri.startswith(_SCHEME):
        return None
    group, slash, path = uri.removeprefix(_SCHEME).partition("/")
    if not (slash and group and path):
        return None
    is_plain = ":" in path or "{" in path  # an encoded URI has neither
    return unquote(group), path if is_plain else unquote(path)


def is_ui(uri: str) -> bool:
    """Return whether a URI or template is one of a user interface."""
    return uri.startswith(_UI)


def group_ui_uri(group: str, uri: str) -> str:
    """Return the URI of a group's user interface, or its template: `ui://<group>+<rest of the uri>`."""
    return f"{_UI}{quote(group, safe='')}+{uri.removeprefix(_UI)}"


def split_ui_uri(uri: str) -> tuple[str, str] | None:
    """Return the group and the upstream's URI that a `ui://` URI reads as; None if it reads as no group's."""
    found = _UI_AUTHORITY.fullmatch(uri)
    return None if found is None else (unquote(found[1]), f"{_UI}{found[2]}")


def group_skill_uri(group: str, uri: str) -> str:
    """Return the URI of a file of a group's skill: `skill://<group>/<path>`, so that the last segments stay.

    What stands before the path in another scheme is one encoded segment.
    """
    scheme, _, path = uri.partition("://")
    if scheme == "skill":
        return f"{_SKILL}{quote(group, safe='')}/{path}"
    authority, slash, rest = path.partition("/")
    if not slash:
        return group_uri(group, uri)
    return f"{_SKILL}{quote(group, safe='')}/{quote(f'{scheme}://{authority}', safe='')}/{rest}"


def split_skill_uri(uri: str) -> tuple[str, str] | None:
    """Return the group and the upstream's URI that a URI of a skill can mean; None for any other URI."""
    if not uri.startswith(_SKILL):
        return None
    group, _, path = uri.removeprefix(_SKILL).partition("/")
    first, slash, rest = path.partition("/")
    if not (group and first):
        return None
    origin = unquote(first)
    return unquote(group), f"{origin}/{rest}" if slash and "://" in origin else f"{_SKILL}{path}"
