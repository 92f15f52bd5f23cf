"""Renders the templates of the page, the only HTML in it. Needs the extra `ui`.

Everything that is not in a template is text: it is escaped for HTML, and characters that nobody sees, or that turn
the direction of writing, are shown as escapes such as `\\u202e`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from urllib.parse import quote, urlencode

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup
from markupsafe import escape as escape_html

from dynamic_mcp.features.table import FEATURES
from dynamic_mcp.system.text import escape, one_line

_HERE = Path(__file__).parent
STATIC = _HERE / "static"
# No text of others is longer on a page; a page that shows more of one offers it as a download.
LONGEST_TEXT = 20_000
_UNITS = (("y", 365 * 86400.0), ("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0))


class Renderer:
    """The environment of all templates, those of features too. `clock` returns seconds since 1970."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        folders = [_HERE / "templates", *(_room(each.package) / "templates" for each in FEATURES if each.page)]
        # all are read now: after an upgrade, those on the disk are of another version
        files = [file for folder in folders for file in folder.glob("*.html")]
        self.static = _read_static()
        self._environment = Environment(
            loader=DictLoader({file.name: file.read_text(encoding="utf-8") for file in files}),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_show,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters |= {
            "ago": self._ago,
            "at": _at,
            "bytes": format_bytes,
            "ms": format_ms,
            "number": lambda value: f"{value:,}",
            "plural": lambda number, noun: f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s",
            "line": lambda text, longest=200: one_line(str(text), longest),
            # in a field of a form, what a person has typed comes back as it was
            "typed": lambda text: escape_html(str(text)),
            "segment": lambda text: quote(str(text), safe=""),
            "query": lambda values: urlencode(
                {name: each for name, each in values.items() if each not in ("", None)}
            ),
        }

    def render(self, template: str, values: Mapping[str, object]) -> bytes:
        """Return a whole page, which is a short one."""
        return "".join(self.generate(template, values)).encode("utf-8", "replace")

    def generate(self, template: str, values: Mapping[str, object]) -> Iterator[str]:
        """Yield the pieces of a page."""
        return self._environment.get_template(template).generate(self._with_parts(values))

    def generate_block(self, template: str, block: str, values: Mapping[str, object]) -> Iterator[str] | None:
        """Yield the pieces of one block of a page; None if the template has no such block."""
        found = self._environment.get_template(template)
        render = found.blocks.get(block)
        return None if render is None else render(found.new_context(self._with_parts(values)))

    def _with_parts(self, values: Mapping[str, object]) -> dict[str, object]:
        """Return the variables of a template with the macros of `parts.html`, which blocks alone need too."""
        return {**values, "parts": self._environment.get_template("parts.html").make_module(dict(values))}

    @cached_property
    def version(self) -> str:
        """A text that is different for other static files: in their URLs, it lets browsers cache them for good."""
        return hashlib.sha256(b"".join(content for content, _ in self.static.values())).hexdigest()[:12]

    def _ago(self, at: float | None) -> Markup | str:
        """Show how long ago a time is, and the time itself on hover."""
        if not at:
            return "never"
        return Markup('<time datetime="{}" title="{}" data-at="{:.0f}">{}</time>').format(
            _iso(at), _at(at), at, describe_distance(at - self._clock())
        )


def describe_distance(seconds: float) -> str:
    """Return a distance in time in words: `3 min ago`, `in 2 h`, `now`."""
    size = abs(seconds)
    for unit, length in _UNITS:
        if size >= length:
            number = int(size / length)
            return f"in {number} {unit}" if seconds > 0 else f"{number} {unit} ago"
    return "now"


def format_bytes(size: float) -> str:
    """Return a size in the largest unit that fits: `12 B`, `3.4 kB`, `5 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5 or unit == "GB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "B" or size >= 9.95 else f"{size:.1f} {unit}"


def format_ms(ms: float | None) -> str:
    """Return a duration in milliseconds in words: `0.4 ms`, `320 ms`, `1.2 s`, `3 min`."""
    if ms is None:
        return "\N{EN DASH}"
    if ms < 1000:
        return f"{ms:.1f} ms" if ms < 9.95 else f"{ms:.0f} ms"
    return f"{ms / 1000:.1f} s" if ms < 100_000 else f"{ms / 60_000:.0f} min"


def _read_static() -> Mapping[str, tuple[bytes, bytes]]:
    """Return the content and the type of each static file, by its name."""
    types = {
        ".css": b"text/css; charset=utf-8",
        ".js": b"text/javascript; charset=utf-8",
        ".svg": b"image/svg+xml",
    }
    return {each.name: (each.read_bytes(), types[each.suffix]) for each in sorted(STATIC.iterdir())}


def _room(package: str) -> Path:
    return _HERE.parent.joinpath(*package.split(".")[1:])


def _show(value: object) -> object:
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    if len(value) > LONGEST_TEXT:
        value = f"{value[:LONGEST_TEXT]}… ({len(value) - LONGEST_TEXT:,} more characters)"
    return escape(value, keep="\n\t")


def _at(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def draw_bars(points: Iterable[tuple[int, int]], *, width: int = 240, height: int = 48) -> Markup:
    """Draw a chart of bars: for each step of time the number of calls, and how many of them failed."""
    steps = list(points)
    most = max((calls for calls, _ in steps), default=0) or 1
    gap = 1 if len(steps) <= 60 else 0
    step = width / max(len(steps), 1)
    bars: list[Markup] = []
    for number, (calls, errors) in enumerate(steps):
        if not calls:
            continue
        tall, failed = max(calls / most * height, 1.5), errors / most * height
        x, w = number * step, max(step - gap, 0.8)
        bars.append(_RECT.format("bar", x, height - tall, w, tall))
        if errors:
            bars.append(_RECT.format("bar bar-bad", x, height - failed, w, max(failed, 1.5)))
    total, bad = sum(calls for calls, _ in steps), sum(errors for _, errors in steps)
    label = f"{total:,} calls, {bad:,} of them failed; at most {most:,} in one step"
    return _CHART.format(width, height, label, Markup("").join(bars))


_RECT = Markup('<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>')
_CHART = Markup(
    '<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}" preserveAspectRatio="none">{}</svg>'
)
