"""What one value in the config may be; each function returns the value to use or raises `FlawError`.

A message never repeats what could be a secret.
"""

import math
import re
from collections.abc import Mapping
from typing import Literal

from dynamic_mcp.config.secrets import mask_text
from dynamic_mcp.system.text import replace_unprintable

Inherit = Literal["safe", "all"] | tuple[str, ...]

LONGEST_S = 10 * 365 * 24 * 3600
NAME_LENGTH = 64
SMALLEST_LIMIT = 1000
NO_LIMIT = 1 << 62  # what `off` becomes where a size is asked for
VARIABLE_NAME = r"^[^=\x00]+$"
HEADER_NAME = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"

_DURATION = r"([+-]?[0-9]+(?:\.[0-9]+)?)\s*(ms|s|min|m|h)?"
_DURATION_HINT = "write `500ms`, `30s`, `2m`, `1h` or a number of seconds"
_SIZE = r"([0-9]+(?:\.[0-9]+)?)\s*([kKmM]?)(i?)[bB]?"
_SIZE_HINT = "write `100kB`, `1MB`, a number of bytes, or `off`"
_UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}
_SCHEMES = ("http", "https", "http+unix")


class FlawError(ValueError):
    """What is wrong with a value, in words that follow its name; `hint` says how to put it right."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def seconds(value: object) -> float:
    """The seconds in a duration: `500ms`, `30s`, `1.5s`, `2m`, `2min`, `1h`, or a number of seconds."""
    if isinstance(value, str):
        amount = _amount(value)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        amount = value
    else:
        raise FlawError("must be a duration", hint=_DURATION_HINT)
    if amount < 0:
        raise FlawError("must not be negative")
    if not amount <= LONGEST_S:
        raise FlawError("must not be longer than ten years")
    return float(amount)


def size(value: object) -> int:
    """The bytes in a size: `100kB`, `1.5 MB`, `64KiB`, or a number of bytes."""
    if isinstance(value, int) and not isinstance(value, bool):
        amount = value
    elif isinstance(value, str) and (match := re.fullmatch(_SIZE, value.strip())):
        amount = int(float(match[1]) * (1024 if match[3] else 1000) ** ("", "k", "m").index(match[2].lower()))
    else:
        raise FlawError("must be a size", hint=_SIZE_HINT)
    if amount < SMALLEST_LIMIT:
        raise FlawError(f"must be at least {SMALLEST_LIMIT} bytes", hint=_SIZE_HINT)
    return amount


def duration(value: object) -> float | None:
    """The seconds in a duration, as `seconds` takes it; an empty text is None, as if it were left out."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    return seconds(value)


def idle_time(value: object) -> float | None:
    """The seconds in a duration, or infinity for `never`."""
    is_never = isinstance(value, str) and value.strip().lower() == "never"
    return math.inf if is_never else duration(value)


def limit(value: object) -> int | None:
    """The bytes in a size, or `NO_LIMIT` for `off`."""
    if value is None:
        return None
    is_off = isinstance(value, str) and value.strip() == "off"
    return NO_LIMIT if is_off else size(value)


def inherit(value: object) -> Inherit | None:
    """Which variables a program inherits: `safe`, `all`, or the names that it gets beside the safe ones."""
    match value:
        case None | "safe" | "all":
            return value
        case list() if all(isinstance(name, str) for name in value):
            return tuple(value)
    raise FlawError("must be `safe`, `all` or a list of names of variables")


def one_or_many(value: object) -> object:
    """A list, also where the file has one text alone."""
    if value is not None and not isinstance(value, (str, list)):
        raise FlawError("must be a string or a list of strings")
    return [value] if isinstance(value, str) else value


def literal_url(text: str) -> str:
    """A URL, or a text with variables in it that can only be judged once they are filled in."""
    return text if "${" in text else url(text)


def url(text: str) -> str:
    """An `http`, `https` or `http+unix` URL with a host."""
    if not _is_url(text):
        raise FlawError(f"is not a URL: `{_shown(_without_secrets(text))}`", hint=_url_hint(text))
    return text


def group_name(text: str) -> str:
    """A name that can be shown to a model: no control or invisible characters, and not too long."""
    if not text.strip() or not text.isprintable() or len(text) > NAME_LENGTH:
        raise FlawError(f"the name of a server must be 1 to {NAME_LENGTH} printable characters")
    return text


def variables(env: Mapping[str, str]) -> Mapping[str, str]:
    """Environment variables that an operating system takes."""
    return _named(env, VARIABLE_NAME, "the name of a variable must not be empty or have `=` in it")


def headers(fields: Mapping[str, str]) -> Mapping[str, str]:
    """HTTP headers with the names that RFC 9110, section 5.1 allows."""
    return _named(fields, HEADER_NAME, "the name of a header must be letters, digits and hyphens")


def _amount(text: str) -> float:
    match = re.fullmatch(_DURATION, text.strip().lower())
    if match is None:
        raise FlawError(f"is not a duration: `{_shown(text)}`", hint=_DURATION_HINT)
    return float(match[1]) * _UNITS[match[2] or "s"]


def _is_url(text: str) -> bool:
    from urllib.parse import urlsplit

    if any(character <= " " or character == "\x7f" for character in text):
        return False
    try:
        parts = urlsplit(text)
        return parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port or an IPv6 address that cannot be
        return False


def _without_secrets(text: str) -> str:
    return re.sub(r"//[^/@]*@", "//…@", re.split(r"[?#]", text)[0])


def _url_hint(text: str) -> str:
    near = [guess for guess in _near_urls(_without_secrets(text)) if _is_url(guess)]
    if not near:
        return "write `https://host/path` or `http://host/path`"
    return "did you mean " + " or ".join(f"`{_shown(guess)}`" for guess in near) + "?"


def _near_urls(text: str) -> list[str]:
    from difflib import get_close_matches

    if parts := re.fullmatch(r"([A-Za-z]+)(?::/*|//+)(.+)", text):
        scheme, rest = parts.groups()
        near = [scheme] if scheme in _SCHEMES else get_close_matches(scheme, ("http", "https"))
        if near:
            return [f"{name}://{rest}" for name in near]
    if text.startswith("localhost"):
        return [f"http://{text}"]
    return [f"https://{text}"] if "." in text and "://" not in text else []


def _shown(text: str) -> str:
    return replace_unprintable(mask_text(text)[:200])


def _named(values: Mapping[str, str], pattern: str, message: str) -> Mapping[str, str]:
    for name in values:
        if not re.fullmatch(pattern, name):
            raise FlawError(message)  # the name itself may be a secret in the wrong place
    return values
