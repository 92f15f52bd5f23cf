"""Checks and parses single values of the config; each function returns the value to use or raises `FlawError`.

A message never repeats a possible secret.
"""

import math
import re
from collections.abc import Mapping
from typing import Literal

from dynamic_mcp.system.text import replace_unprintable

Inherit = Literal["safe", "all"] | tuple[str, ...]

LONGEST_S = 10 * 365 * 24 * 3600
NAME_LENGTH = 64
SMALLEST_LIMIT = 1000
NO_LIMIT = 1 << 62  # the value of `off` for a size
VARIABLE_NAME = r"^[^=\x00]+$"
HEADER_NAME = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"

_DURATION = r"([+-]?[0-9]+(?:\.[0-9]+)?)\s*(ms|s|min|m|h|d)?"
_DURATION_HINT = "write `500ms`, `30s`, `2min` (or `2m`), `1h`, `7d` or a number of seconds"
_SIZE = r"([0-9]+(?:\.[0-9]+)?)\s*([kKmM]?)(i?)[bB]?"
_SIZE_HINT = "write `100kB`, `1MB`, a number of bytes, or `off`"
_UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SCHEMES = ("http", "https", "http+unix")


class FlawError(ValueError):
    """The problem of a value, worded to follow its name; `hint` says how to fix it."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def parse_seconds(value: object) -> float:
    """Parse a duration into seconds: `500ms`, `30s`, `1.5s`, `2min` (or `2m`), `1h`, `7d`, or a number of seconds."""
    if isinstance(value, str):
        amount = _parse_amount(value)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        amount = value
    else:
        raise FlawError("must be a duration", hint=_DURATION_HINT)
    if amount < 0:
        raise FlawError("must not be negative")
    if not amount <= LONGEST_S:
        raise FlawError("must not be longer than ten years")
    return float(amount)


def parse_size(value: object) -> int:
    """Parse a size into bytes: `100kB`, `1.5 MB`, `64KiB`, or a number of bytes."""
    if isinstance(value, int) and not isinstance(value, bool):
        amount = value
    elif isinstance(value, str) and (match := re.fullmatch(_SIZE, value.strip())):
        amount = int(float(match[1]) * (1024 if match[3] else 1000) ** ("", "k", "m").index(match[2].lower()))
    else:
        raise FlawError("must be a size", hint=_SIZE_HINT)
    if amount < SMALLEST_LIMIT:
        raise FlawError(f"must be at least {SMALLEST_LIMIT} bytes", hint=_SIZE_HINT)
    return amount


def parse_duration(value: object) -> float | None:
    """Parse a duration into seconds; None, and a blank string, mean that it was left out."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    return parse_seconds(value)


def parse_idle_time(value: object) -> float | None:
    """Parse a duration into seconds; `never` is infinity."""
    is_never = isinstance(value, str) and value.strip().lower() == "never"
    return math.inf if is_never else parse_duration(value)


def parse_limit(value: object) -> int | None:
    """Parse a size into bytes; `off` is `NO_LIMIT`."""
    if value is None:
        return None
    is_off = isinstance(value, str) and value.strip() == "off"
    return NO_LIMIT if is_off else parse_size(value)


def parse_inherit(value: object) -> Inherit | None:
    """Parse which variables a program inherits: `safe`, `all`, or a list of further names."""
    match value:
        case None | "safe" | "all":
            return value
        case list() if all(isinstance(name, str) for name in value):
            return tuple(value)
    raise FlawError("must be `safe`, `all` or a list of variable names")


def expand_switch(value: object) -> object:
    """Return a section that may also be `true`, without fields of its own, or `false`, which leaves it out."""
    if isinstance(value, bool):
        return {} if value else None
    if isinstance(value, (str, int, float, list)):
        raise FlawError("must be true, false or an object")
    return value


def parse_list(value: object) -> object:
    """Return a list, also for a single string."""
    if value is not None and not isinstance(value, (str, list)):
        raise FlawError("must be a string or a list of strings")
    return [value] if isinstance(value, str) else value


def check_literal_url(text: str) -> str:
    """Check a URL, unless it contains variables: it can be checked only after their substitution."""
    return text if "${" in text else check_url(text)


def check_url(text: str) -> str:
    """Check that a text is an `http`, `https` or `http+unix` URL with a host."""
    if not _is_url(text):
        raise FlawError(f"is not a URL: `{printable(_redact(text))}`", hint=_url_hint(text))
    return text


def check_group_name(text: str) -> str:
    """Check that a name can be shown to a model: printable characters only, and not too long."""
    if not text.strip() or not text.isprintable() or len(text) > NAME_LENGTH:
        raise FlawError(f"the name of a server must be 1 to {NAME_LENGTH} printable characters")
    return text


def check_variables(env: Mapping[str, str]) -> Mapping[str, str]:
    """Check the names of environment variables."""
    return _check_names(env, VARIABLE_NAME, "the name of a variable must not be empty or contain `=`")


def check_headers(fields: Mapping[str, str]) -> Mapping[str, str]:
    """Check the names of HTTP headers (RFC 9110, section 5.1)."""
    return _check_names(fields, HEADER_NAME, "the name of a header must consist of letters, digits and hyphens")


def printable(text: str) -> str:
    """Return a text for a message: without secrets that can be recognised, and not too long."""
    from dynamic_mcp.config.secrets import mask_text  # for errors only: its expressions take a while to compile

    return replace_unprintable(mask_text(text)[:200])


def _parse_amount(text: str) -> float:
    match = re.fullmatch(_DURATION, text.strip().lower())
    if match is None:
        raise FlawError(f"is not a duration: `{printable(text)}`", hint=_DURATION_HINT)
    return float(match[1]) * _UNITS[match[2] or "s"]


def _is_url(text: str) -> bool:
    from urllib.parse import urlsplit

    if any(character <= " " or character == "\x7f" for character in text):
        return False
    try:
        parts = urlsplit(text)
        return parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:  # an invalid port or IPv6 address
        return False


def _redact(text: str) -> str:
    return re.sub(r"//[^/@]*@", "//…@", re.split(r"[?#]", text)[0])


def _url_hint(text: str) -> str:
    near = [guess for guess in _suggest_urls(_redact(text)) if _is_url(guess)]
    if not near:
        return "write `https://host/path` or `http://host/path`"
    return "did you mean " + " or ".join(f"`{printable(guess)}`" for guess in near) + "?"


def _suggest_urls(text: str) -> list[str]:
    from difflib import get_close_matches

    if parts := re.fullmatch(r"([A-Za-z]+)(?::/*|//+)(.+)", text):
        scheme, rest = parts.groups()
        near = [scheme] if scheme in _SCHEMES else get_close_matches(scheme, ("http", "https"))
        if near:
            return [f"{name}://{rest}" for name in near]
    if text.startswith("localhost"):
        return [f"http://{text}"]
    return [f"https://{text}"] if "." in text and "://" not in text else []


def _check_names(values: Mapping[str, str], pattern: str, message: str) -> Mapping[str, str]:
    for name in values:
        if not re.fullmatch(pattern, name):
            raise FlawError(message)  # the name itself may be a misplaced secret
    return values
