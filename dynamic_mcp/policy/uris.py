"""Globs of URIs. A URI can be spelled in many ways, and another spelling must not evade a rule.

Servers differ in what they decode and resolve, and in their parser: that of RFC 3986 or that of browsers
(https://url.spec.whatwg.org/), which Node's `URL` and pydantic's `AnyUrl` follow. So a rule that allows must match
each reading of a URI, and any other rule one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import quote, unquote

from msgspec import Struct
from msgspec.structs import replace

from dynamic_mcp.policy.arguments import ConditionError
from dynamic_mcp.policy.globs import Globs, fold

MAX_URI = 65_536
# A URI with escapes or dots takes longer to read, and this is the limit for all its readings together.
_MAX_DOUBTFUL = 8192
_MAX_CHARACTERS = 1 << 18
# The name of a host has 253 characters (RFC 1035, section 2.3.4), and folding a longer one takes long.
_MAX_AUTHORITY = 2048
# The rules judge a request one after the other.
_MAX_REMEMBERED = 64
_DECODINGS = 2
_LONGEST_LABEL = 63  # RFC 1035, section 2.3.4
# Parsers drop some of these and strip others from the ends
_UNREADABLE = re.compile(r"[\x00-\x20\x7f]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# A scheme and an authority (RFC 3986, section 3); in a glob, `?` is a wildcard and starts no query
_ORIGIN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:)(//[^/?#]*)?")
_GLOB_ORIGIN = re.compile(r"([A-Za-z*?][A-Za-z0-9+.*?-]*:)(//[^/#]*)?")
# Browsers read a backslash as a slash; a web address has a host after any number of slashes, a file after two
_DEFAULT_PORTS = {"http:": "80", "https:": "443", "ws:": "80", "wss:": "443", "ftp:": "21"}
_WEB_HOST = re.compile(r"[/\\]*([^/\\?#]*)")
_GLOB_WEB_HOST = re.compile(r"[/\\]*([^/\\#]*)")
_FILE_HOST = re.compile(r"[/\\]{2}(?![A-Za-z][:|](?:[/\\?#]|$))([^/\\?#]*)")
_HOST_AND_PORT = re.compile(r"(\[[^\]]*\]|[^:]*)(?::([0-9]*|\*))?")
_IPV6_AND_PORT = re.compile(r"\[[^\[\]]*\](?::[0-9]*)?")
_IPV4_PART = re.compile(r"(0[xX])?([0-9A-Fa-f]*)")
_DRIVE = re.compile(r"[A-Za-z][:|]")
_DRIVE_PATH = re.compile(r"^(/+[A-Za-z])\|(?=/|$)")
# Parts with more than one reading: escapes, backslashes, empty segments and dot segments
_DOUBTFUL = re.compile(r"%|\\|(?<!:)//|[/:]\.\.?(?:[/?#]|$)")
_SLASHES = re.compile(r"/{2,}")
_PATH_SLASHES = re.compile(r"(?<!:)/{2,}")
_DOT = re.compile(r"%2e", re.IGNORECASE)
_DOTS = re.compile(r"(?:^|/)(?:\.|%2e){1,2}(?:/|$)", re.IGNORECASE)
_QUERY = re.compile(r"[?#]")
_ESCAPED_WILDCARD = re.compile(r"%(?=2[aA]|3[fF])")
_KEPT_IN_GLOBS = "*?:/#[]@!$&'()+,;=%~"


class UriGlobs:
    """Globs of URIs, any of which may match."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = tuple(patterns)
        self._matches_all = "*" in self._patterns

    def match_all(self, uri: str) -> bool:
        """Return whether all readings of the URI match, as a rule that allows requires."""
        if self._matches_all:
            return True
        if not self._as_written.matches(uri):
            return False
        try:
            return all(self._allows(variant) for variant in variants(uri))
        except ConditionError:
            return False

    def _allows(self, reading: str) -> bool:
        return self._readings.matches(reading) or any(each.matches(reading) for each in self._hosts)

    def match_any(self, uri: str) -> bool:
        """Return whether one reading of the URI matches, which is enough for a rule that asks or denies."""
        if self._matches_all:
            return True
        try:
            return any(self._same.matches(variant) for variant in variants(uri))
        except ConditionError:
            return True

    def may_match(self, template: str) -> bool:
        """Return whether an expansion of a URI template may match."""
        return any(map(self._same.may_match, _template_variants(template)))

    def covers(self, template: str) -> bool:
        """Return whether every expansion of a URI template matches in one reading. A False is not certain."""
        return any(map(self._same.covers, _template_variants(template)))

    @cached_property
    def _as_written(self) -> Globs:
        return Globs(each for pattern in self._patterns for each in _spell(pattern))

    @cached_property
    def _same(self) -> Globs:
        """The globs of other spellings of the same URIs."""
        return Globs(each for pattern in self._patterns for each in _pattern_variants(pattern))

    @cached_property
    def _readings(self) -> Globs:
        """The globs of all readings of the URIs, also without a user, the host of a file, or a fragment."""
        return Globs(each for each in self._wide if not _has_wild_host(each))

    @cached_property
    def _hosts(self) -> tuple[_HostGlob, ...]:
        """Those globs that have a wildcard in the host."""
        return tuple(_HostGlob(each) for each in self._wide if _has_wild_host(each))

    @cached_property
    def _wide(self) -> tuple[str, ...]:
        variants = (each for pattern in self._patterns for each in _pattern_variants(pattern, is_narrow=False))
        return tuple(dict.fromkeys(variants))


class _HostGlob:
    """A glob of URIs whose wildcards in the host do not extend into the path: `https://*.example.com/*`."""

    def __init__(self, pattern: str) -> None:
        self._whole = Globs((pattern,))
        host = _host_of(pattern)
        self._host = Globs((host, host.partition("?")[0]))  # `?` may be a wildcard, or begin a query

    def matches(self, uri: str) -> bool:
        """Return whether both the URI and its host match."""
        return self._whole.matches(uri) and self._host.matches(_host_of(uri, ends="?"))


def _host_of(text: str, ends: str = "") -> str:
    """Return the part between `//` and the path of a URI or glob; empty if there is none."""
    start = text.find("//")
    if start < 0:
        return ""
    rest = text[start + 2 :]
    return rest[: min((place for end in f"/\\#{ends}" if (place := rest.find(end)) >= 0), default=len(rest))]


def _has_wild_host(pattern: str) -> bool:
    host = _host_of(pattern)
    return "*" in host or "?" in host


@lru_cache(_MAX_REMEMBERED)
def variants(uri: str) -> tuple[str, ...]:
    """Return the readings of a URI: as written first, then with its escapes and dots resolved, and its host folded.

    Raises ConditionError if it has characters that parsers drop, is too long, or has too many readings.
    """
    if len(uri) > MAX_URI:
        raise ConditionError(f"the URI is longer than {MAX_URI} characters")
    if _UNREADABLE.search(uri):
        raise ConditionError("the URI has a control character or a blank, which parsers drop")
    found = dict.fromkeys((uri, _normalize_origin(uri)))
    characters = 0
    for reading in _read(uri):
        characters += len(reading)
        if characters > _MAX_CHARACTERS:
            raise ConditionError("the URI can be read in too many ways")
        found[reading] = None
    return tuple(found)


def readings_of_all(uris: Iterable[str]) -> frozenset[str]:
    """Return the readings of several URIs. A URI that cannot be judged has only its written form."""
    found: set[str] = set()
    for uri in uris:
        try:
            found.update(variants(uri))
        except ConditionError:
            found.add(uri)
    return frozenset(found)


class _Parts(Struct, frozen=True):
    """The parts of a URI: `authority` starts with `//` if there is one, and `path` ends before the query."""

    scheme: str
    authority: str
    path: str
    query: str = ""


def _read(uri: str) -> Iterator[str]:
    """Yield the readings of a URI, decoded as a whole or in parts, up to twice."""
    text = uri
    for decodings in range(_DECODINGS, -1, -1):
        splits = (_split(text), _split_as_browser(text))
        for parts in dict.fromkeys((*splits, *map(_without_unsent, splits))):
            authorities = _spell_authority(parts)
            for reading in _resolve(parts, decodings) if _is_doubtful(parts) else (parts,):
                spellings = authorities if reading.authority == parts.authority else (reading.authority,)
                for authority in spellings:
                    yield f"{parts.scheme}{authority}{reading.path}{reading.query}"
                if reading.authority == "//" and reading.path.startswith("//") and parts.scheme != "file:":
                    bare = _split(f"{parts.scheme}{reading.path}{reading.query}")  # without the empty authority
                    for authority in _spell_authority(bare):
                        yield f"{bare.scheme}{authority}{bare.path}{bare.query}"
        if "%" not in text:
            return
        text = _decode(text).strip(" ")


def _spell_authority(parts: _Parts) -> Iterable[str]:
    """Return the spellings of an authority. Raises ConditionError if parsers disagree on its extent."""
    if len(parts.authority) > _MAX_AUTHORITY:
        raise ConditionError(f"the host of the URI is longer than {_MAX_AUTHORITY} characters")
    _check_brackets(parts.authority)
    folded = _fold_authority(parts.scheme, parts.authority)
    return dict.fromkeys((parts.authority, folded, _shorten_authority(parts.scheme, folded)))


def _is_doubtful(parts: _Parts) -> bool:
    """Return whether a path has more than one reading. Raises ConditionError if it is too long to read."""
    rest = parts.path + parts.query
    if _DOUBTFUL.search(rest) is None and not (parts.scheme == "file:" and "//" in rest):
        return False
    if len(rest) > _MAX_DOUBTFUL:
        raise ConditionError(f"the URI has escapes, dots or empty segments in more than {_MAX_DOUBTFUL} characters")
    return True


def _resolve(parts: _Parts, decodings: int) -> dict[_Parts, None]:
    """Return the ways to resolve a path: dots first or escapes first, as a URL or as a file path."""
    found: dict[_Parts, None] = {}
    level = {parts: None}
    for _ in range(decodings + 1):
        level |= {replace(each, path=_remove_dots(each.path, is_file=each.scheme == "file:")): None for each in level}
        level |= {reading: None for each in level for reading in _read_as_file(each)}
        found |= level
        escaped = [each for each in level if "%" in each.path or "%" in each.query]
        decoded = [replace(each, path=_decode(each.path), query=_decode(each.query)) for each in escaped]
        level = {reading: None for each in decoded for reading in (each, replace(each, path=each.path.rstrip(" ")))}
    return found


def _read_as_file(parts: _Parts) -> Iterator[_Parts]:
    """Yield the readings of a file server: no query, a host may be a directory, a backslash may be a slash."""
    rest = parts.path + parts.query
    for path in dict.fromkeys((rest, rest.replace("\\", "/"))):
        if not _DOTS.search(path) and parts.scheme != "file:":
            sign = ":" if (parts.authority or parts.scheme).endswith(":") else "-"  # an inner URI is kept unchanged
            yield replace(parts, path=_PATH_SLASHES.sub("/", sign + path)[1:], query="")
            continue
        path = _SLASHES.sub("/", path)
        yield replace(parts, path=_remove_dots(path), query="")
        yield replace(parts, path=_remove_dots(path, is_file=parts.scheme == "file:"), query="")
        in_directory = _remove_dots(parts.authority[2:] + path)
        yield replace(parts, authority=parts.authority[:2], path=in_directory, query="")


def _remove_dots(path: str, *, is_file: bool = False) -> str:
    """Remove dot segments (RFC 3986, section 5.2.4). The parser of browsers keeps the drive of a file."""
    if not _DOTS.search(path):
        return path
    segments = path.split("/")
    kept: list[str] = []
    name = ""
    for segment in segments:
        name = _DOT.sub(".", segment) if "%" in segment and len(segment) <= len("%2e%2e") else segment
        if name == "..":
            is_drive = is_file and len(kept) == 2 and _DRIVE.fullmatch(kept[1]) is not None
            if kept != [""] and not is_drive:
                del kept[-1:]
        elif name != ".":
            kept.append(segment)
    if name in (".", ".."):
        kept.append("")
    return _name_drive("/".join(kept)) if is_file else "/".join(kept)


def _name_drive(path: str) -> str:
    """Return the path of a file with `:` after its drive, which can also be written `|`."""
    return _DRIVE_PATH.sub(r"\1:", path)


def _decode(text: str) -> str:
    """Return a text with its escapes decoded. Raises ConditionError for an escaped control character."""
    decoded = unquote(text, errors="replace")
    if _CONTROL.search(decoded):
        raise ConditionError("the URI has an escaped control character, which parsers drop")
    return decoded


# --- the parts of a URI ----------------------------------------------------------------------------------


def _split(uri: str) -> _Parts:
    """Split by RFC 3986."""
    normal = _normalize_origin(uri)
    origin = _ORIGIN.match(normal)
    if origin is None:
        return _parts("", "", normal)
    return _parts(origin[1], origin[2] or "", normal[origin.end() :])


def _split_as_browser(uri: str) -> _Parts:
    """Split as the parser of browsers does: a web address without slashes has a host, and `\\` is `/`."""
    parts = _split(uri)
    rest = uri[len(parts.scheme) :]
    if parts.scheme in _DEFAULT_PORTS:
        host = _WEB_HOST.match(rest)
    elif parts.scheme == "file:":
        host = _FILE_HOST.match(rest)
    else:
        return parts
    name, rest = (host[1], rest[host.end() :]) if host is not None else ("", rest)
    split = _parts(parts.scheme, f"//{'' if name.lower() == 'localhost' else name}", rest)
    path = split.path.replace("\\", "/")
    path = path if path.startswith("/") else f"/{path}"
    return replace(split, path=_name_drive(path) if parts.scheme == "file:" else path)


def _parts(scheme: str, authority: str, rest: str) -> _Parts:
    at = _QUERY.search(rest)
    path, query = (rest, "") if at is None else (rest[: at.start()], rest[at.start() :])
    return _Parts(scheme, authority, path, query)


def _without_unsent(parts: _Parts) -> _Parts:
    """Remove the parts that a web server does not receive and a file server ignores."""
    return replace(parts, query="" if parts.scheme == "file:" else parts.query.partition("#")[0])


def _normalize_origin(uri: str, form: re.Pattern[str] = _ORIGIN) -> str:
    """Write scheme and host in lower case, and a local file in its longest form (RFC 8089, appendix B)."""
    origin = form.match(uri)
    if origin is None:
        return uri
    lowered, rest = origin[0].lower(), uri[origin.end() :]
    if lowered == "file://localhost" or (lowered == "file:" and rest.startswith("/")):
        lowered = "file://"
    return lowered + rest


# --- hosts -----------------------------------------------------------------------------------------------


def _fold_authority(scheme: str, authority: str) -> str:
    """Return an authority with its host as parsers write it, without the default port of its scheme."""
    if not authority:
        return authority
    user, at, host = authority[2:].rpartition("@")
    split = _HOST_AND_PORT.fullmatch(host)
    name, port = (host, "") if split is None else (split[1], (split[2] or "").lstrip("0"))
    if port in (_DEFAULT_PORTS.get(scheme), "*"):
        port = ""
    name = _fold_host(name, may_be_number=scheme in _DEFAULT_PORTS or scheme == "file:")
    if scheme == "file:" and name == "localhost":
        name = ""
    return f"//{user}{at}{name}{':' if port else ''}{port}"


def _check_brackets(authority: str) -> None:
    """Raise ConditionError for brackets that are not around the host, which some parsers search for anywhere."""
    host = authority.rpartition("@")[2].removeprefix("//")
    if ("[" in host or "]" in host) and _IPV6_AND_PORT.fullmatch(host) is None:
        raise ConditionError("the host of the URI has brackets that parsers read in more than one way")


def _shorten_authority(scheme: str, authority: str) -> str:
    """Return an authority without the parts that servers may ignore: a user, and the host of a file."""
    return "//" if scheme == "file:" and authority else f"{authority[:2]}{authority[2:].rpartition('@')[2]}"


def _fold_host(host: str, *, may_be_number: bool) -> str:
    """Return the canonical form of a host (UTS 46), with Unicode for Punycode."""
    decoded = unquote(_ESCAPED_WILDCARD.sub("%25", host), errors="replace")
    if decoded.startswith("["):
        return _fold_ipv6(decoded.lower())
    labels = fold(decoded).replace("\u3002", ".").rstrip(".").split(".")
    name = ".".join(map(_decode_label, labels))
    return _fold_ipv4(name) if may_be_number else name


def _decode_label(label: str) -> str:
    if not label.startswith("xn--") or len(label) > _LONGEST_LABEL:
        return label
    try:
        return fold(label[len("xn--") :].encode("ascii").decode("punycode"))
    except (ValueError, OverflowError):
        return label


def _fold_ipv6(host: str) -> str:
    try:
        return f"[{IPv6Address(host[1:-1]).compressed}]"
    except ValueError:
        return host


def _fold_ipv4(host: str) -> str:
    """Return an IPv4 address as four numbers. Parsers accept fewer, and octal and hexadecimal ones."""
    parts = host.split(".")
    try:
        *first, last = map(_read_ipv4_part, parts)
        if len(parts) > 4 or any(each > 255 for each in first) or last >= 256 ** (5 - len(parts)):
            return host
        return str(IPv4Address(last + sum(each << 8 * (3 - place) for place, each in enumerate(first))))
    except ValueError:
        return host


def _read_ipv4_part(part: str) -> int:
    found = _IPV4_PART.fullmatch(part)
    if found is None or not part:
        raise ValueError(part)
    if found[1]:
        return int(found[2] or "0", 16)
    return int(part, 8 if part.startswith("0") else 10)


# --- globs and templates ---------------------------------------------------------------------------------


def _pattern_variants(pattern: str, *, is_narrow: bool = True) -> Iterator[str]:
    """Yield the spellings of a glob that match the readings of its URIs."""
    yield from _spell(pattern)
    for scheme, authority, rest in _split_pattern(pattern):
        folded = _fold_authority(scheme, authority)
        yield from _spell(f"{scheme}{folded}{rest}")
        if not is_narrow:
            short = f"{scheme}{_shorten_authority(scheme, folded)}{rest}"
            yield from _spell(short)
            yield from _spell(short.partition("#")[0])


def _split_pattern(pattern: str) -> Iterator[tuple[str, str, str]]:
    """Yield the ways to split a glob that includes its scheme, as for a URI."""
    normal = _normalize_origin(pattern, _GLOB_ORIGIN)
    origin = _GLOB_ORIGIN.match(normal)
    if origin is None or "*" in origin[1] or "?" in origin[1]:
        return
    scheme, rest = origin[1], normal[len(origin[1]) :]
    yield scheme, origin[2] or "", normal[origin.end() :]
    if scheme == "file:" and not rest.startswith(("/", "\\", "*", "?")):
        yield scheme, "//", f"/{rest}"
    if scheme not in _DEFAULT_PORTS:
        return
    found = _GLOB_WEB_HOST.match(rest)
    assert found is not None  # it matches anything
    host, rest = found[1], rest[found.end() :].replace("\\", "/")
    if rest or host.endswith("*"):
        yield scheme, f"//{host}", rest
    else:  # the path of a web address is at least `/`
        yield scheme, f"//{host}", "/"
    name, mark, query = host.partition("?")
    if mark:
        yield scheme, f"//{name}", f"/?{query}{rest}"


def _spell(pattern: str) -> tuple[str, ...]:
    """Return a glob with scheme and host in lower case, with and without escapes."""
    normal = _normalize_origin(pattern, _GLOB_ORIGIN)
    found = [pattern, normal, quote(normal, safe=_KEPT_IN_GLOBS)]
    for _ in range(_DECODINGS):
        normal = unquote(_ESCAPED_WILDCARD.sub("%25", normal), errors="replace")
        found.append(normal)
    return tuple(dict.fromkeys(found))


def _template_variants(template: str) -> tuple[str, ...]:
    """Return the readings of a URI template whose host is no expression."""
    found = [template, _normalize_origin(template)]
    parts = _split_as_browser(template)
    if "{" not in parts.scheme + parts.authority:
        folded = _fold_authority(parts.scheme, parts.authority)
        found.append(f"{parts.scheme}{folded}{parts.path}{parts.query}")
    return tuple(dict.fromkeys(found))
