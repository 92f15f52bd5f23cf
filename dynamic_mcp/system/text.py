"""Text for messages, and foreign text made safe to show."""

from __future__ import annotations

from collections.abc import Callable

# The maximum length of a summary of a group, a tool or a reason.
MAX_LINE = 70
# Spreadsheets take a cell that begins with one of these for a formula; some also the wide ones.
_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def pluralize(number: int, noun: str) -> str:
    """Return a number and its noun: `1 group`, `2 groups`. Pass the singular; the plural adds an `s`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def format_age(seconds: float) -> str:
    """Return a time in its largest unit: `3 min`, `5 h`, `2 days`."""
    steps: list[tuple[float, Callable[[float], str]]] = [
        (60, lambda s: f"{s:.0f} s"),
        (3600, lambda s: f"{s / 60:.0f} min"),
        (48 * 3600, lambda s: f"{s / 3600:.0f} h"),
    ]
    return next((word(seconds) for bound, word in steps if seconds < bound), f"{seconds / 86400:.0f} days")


def os_reason(exc: Exception) -> str:
    """Return the system's reason for a failure, for use in a sentence: `no space left on device`."""
    reason = getattr(exc, "strerror", None) or str(exc)
    return reason[:1].lower() + reason[1:]


def one_line(text: str, longest: int | None = MAX_LINE) -> str:
    """Return text on one line, without control characters and repeated spaces, cut to `longest` characters."""
    if longest is not None:
        text = text[: longest * 10]  # a description may be megabytes
    line = " ".join(replace_unprintable(text, " ").split())
    return line if longest is None or len(line) <= longest else line[: longest - 1].rstrip() + "…"


def cut_values(value: object, longest: int) -> object:
    """Return JSON with the middle of long texts replaced by its length; all names and other values stay."""
    match value:
        case str() if len(value) > longest:
            tail = longest // 3
            head, left_out = longest - tail, len(value) - longest
            return f"{value[:head]} … ({pluralize(left_out, 'character')} left out) … {value[-tail:]}"
        case dict():
            return {name: cut_values(each, longest) for name, each in value.items()}
        case list():
            return [cut_values(each, longest) for each in value]
        case _:
            return value


def replace_unprintable(text: str, replacement: str = "\ufffd") -> str:
    """Return text with a replacement for each unprintable character; its length stays the same."""
    return text if text.isprintable() else "".join(c if c.isprintable() else replacement for c in text)


def escape(text: str, *, keep: str = "") -> str:
    r"""Return text with escapes such as `\x1b` for control characters of terminals; the characters in `keep` stay."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def defuse_formula(cell: str) -> str:
    """Return a table cell that a spreadsheet treats as text."""
    return f"'{cell}" if cell.lstrip(" ").startswith(_FORMULAS) else cell
