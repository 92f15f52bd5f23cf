"""The entry of the config for the server of a bundle, and the questions that its `user_config` asks.

All texts of a bundle are literal: a `${NAME}` in them never reads a variable of this machine. Only the user's answers
can refer to one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from dynamic_mcp.features.registry.bundle import (
    BadBundle,
    Bundle,
    BundleStart,
    PlatformStart,
    Setting,
    Values,
    read_values,
)
from dynamic_mcp.features.registry.document import ValueInput, is_reference
from dynamic_mcp.features.registry.questions import ServerQuestion, ValuePlace
from dynamic_mcp.system.text import one_line

_PLACEHOLDER = re.compile(r"\$\{(user_config\.[^{}]+|__dirname|HOME|DESKTOP|DOCUMENTS|DOWNLOADS|pathSeparator|/)\}")
_FORMATS = {"number": "number", "boolean": "boolean", "directory": "filepath", "file": "filepath"}
_OF_USER = "user_config."


class Site(Struct, frozen=True):
    """Where a bundle is unpacked, and the machine. `has_program` returns whether a program is on the `PATH`."""

    folder: Path
    home: Path
    platform: str
    has_program: Callable[[str], bool]


def ask_about(bundle: Bundle) -> list[ServerQuestion]:
    """Return the questions about a bundle."""
    return [_question(bundle, key, each) for key, each in bundle.manifest.user_config.items()]


def check_answers(bundle: Bundle, answers: Values) -> None:
    """Check the bounds of numbers. Raises BadBundle."""
    for key, setting in bundle.manifest.user_config.items():
        for text in answers.get(key, ()) if setting.type == "number" else ():
            if is_reference(text):
                continue
            number = float(text)
            if (setting.min is not None and number < setting.min) or (
                setting.max is not None and number > setting.max
            ):
                bounds = f"{'…' if setting.min is None else f'{setting.min:g}'} to " + (
                    "…" if setting.max is None else f"{setting.max:g}"
                )
                raise BadBundle(f"`{key}` must be from {bounds}")


def build_entry(bundle: Bundle, answers: Values, site: Site) -> dict[str, object]:
    """Return the entry of the config. Raises BadBundle."""
    manifest = bundle.manifest
    platforms = manifest.compatibility.platforms
    if platforms and site.platform not in platforms:
        raise BadBundle(f"it does not run here, but on {', '.join(one_line(each, 30) for each in platforms[:10])}")
    start = (manifest.server.mcp_config or _usual_start(bundle)).on(site.platform)
    filler = _Filler(bundle, answers, site)
    entry: dict[str, object] = {}
    if manifest.description:
        entry["description"] = one_line(manifest.description, 500)
    entry["command"] = _command(bundle, filler.fill(start.command), site)
    entry["args"] = [text for word in start.args for text in filler.fill_word(word)]
    env = {name: text for name, value in start.env.items() if (text := filler.fill_optional(value)) is not None}
    if env:
        entry["env"] = env
    entry["cwd"] = _literal(str(site.folder))
    return entry


def programs_of(bundle: Bundle) -> frozenset[str]:
    """Return the files of a bundle that must be executable."""
    server = bundle.manifest.server
    names = {server.entry_point.removeprefix("./")} if server.type == "binary" else set()
    start = server.mcp_config
    starts: list[BundleStart | PlatformStart] = [] if start is None else [start, *start.platform_overrides.values()]
    names |= {(each.command or "").removeprefix("${__dirname}/").removeprefix("./") for each in starts}
    return frozenset(names | {f"{name}.exe" for name in names})


def _question(bundle: Bundle, key: str, setting: Setting) -> ServerQuestion:
    defaults = read_values(setting.default)
    about = one_line(": ".join(filter(None, (setting.title, setting.description))), 300)
    start = bundle.manifest.server.mcp_config
    words = () if start is None else start.args
    return ServerQuestion(
        key=key,
        input=ValueInput(
            description=about,
            is_required=setting.required,
            is_secret=setting.sensitive,
            format=_FORMATS.get(setting.type, "string"),
            # one with a place of this machine in it is filled in later
            default=defaults[0] if len(defaults) == 1 and "${" not in defaults[0] else None,
        ),
        place=ValuePlace.ARGUMENT,
        is_required=setting.required and not (setting.default is not None and defaults),
        is_secret=setting.sensitive,
        is_repeated=setting.multiple,
        is_bare=any(word.startswith(f"${{{_OF_USER}{key}}}") for word in words),
    )


def _usual_start(bundle: Bundle) -> BundleStart:
    """Return how a server without a `mcp_config` is started."""
    server = bundle.manifest.server
    if not bundle.has(server.entry_point):
        raise BadBundle(f"it starts `{one_line(server.entry_point, 200)}`, which is not in it")
    file = f"${{__dirname}}/{server.entry_point}"
    match server.type:
        case "node":
            return BundleStart("node", (file,))
        case "python":
            return BundleStart("python", (file,))
        case "uv":
            return BundleStart("uv", ("run", "--directory", "${__dirname}", server.entry_point))
        case "binary":
            return BundleStart(file)


def _command(bundle: Bundle, command: str, site: Site) -> str:
    """Return the program: a file of the bundle, or one on the `PATH`. Raises BadBundle."""
    folder = _literal(str(site.folder))
    inside = command.replace("\\", "/").removeprefix(f"{folder.replace(chr(92), '/')}/").removeprefix("./")
    if "/" not in command.replace("\\", "/") and not bundle.has(command):
        return _find_python(command, site) if command in ("python", "python3") else command
    if not bundle.has(inside) and site.platform == "win32" and bundle.has(f"{inside}.exe"):
        inside = f"{inside}.exe"
    if not bundle.has(inside):
        raise BadBundle(f"it starts `{one_line(command, 200)}`, which is not in it")
    return f"{folder}/{inside}"


def _find_python(command: str, site: Site) -> str:
    """Return the name of Python: as it is called, or the other. On Windows, `python3` may only open the Store."""
    names = ["python", "python3"] if site.platform == "win32" else [command, "python", "python3"]
    return next((each for each in names if site.has_program(each)), command)


class _Filler:
    """Fills in the places of this machine, and the user's answers."""

    def __init__(self, bundle: Bundle, answers: Values, site: Site) -> None:
        home, self._settings, self._answers = site.home, bundle.manifest.user_config, answers
        separator = "\\" if site.platform == "win32" else "/"
        self._places: Mapping[str, str] = {
            "__dirname": str(site.folder),
            "HOME": str(home),
            "DESKTOP": str(home / "Desktop"),
            "DOCUMENTS": str(home / "Documents"),
            "DOWNLOADS": str(home / "Downloads"),
            "pathSeparator": separator,
            "/": separator,
        }

    def fill(self, text: str) -> str:
        """Return a text for the config; what has no value is empty. Raises BadBundle."""
        return self.fill_optional(text) or ""

    def fill_optional(self, text: str) -> str | None:
        """Return a text for the config; None if it needs an optional value that is not given. Raises BadBundle."""
        filled, end = "", 0
        for found in _PLACEHOLDER.finditer(text):
            values = self._values_of(found[1])
            if not values:
                return None
            before = _literal(text[end : found.start()])
            if before.endswith("$") and values[0].startswith("${"):
                raise BadBundle("a `$` stands right before a variable in it, which a config cannot say")
            filled += before + ",".join(values)
            end = found.end()
        return filled + _literal(text[end:])

    def fill_word(self, word: str) -> list[str]:
        """Return the arguments that a word becomes: each of several values is one."""
        whole = _PLACEHOLDER.fullmatch(word)
        if whole is not None and whole[1].startswith(_OF_USER):
            return [*self._values_of(whole[1])]
        text = self.fill_optional(word)
        return [] if text is None else [text]

    def _values_of(self, name: str) -> tuple[str, ...]:
        if not name.startswith(_OF_USER):
            return (_literal(self._places[name]),)
        key = name.removeprefix(_OF_USER)
        if key not in self._settings:
            raise BadBundle(f"it refers to `{one_line(name, 100)}`, which it does not ask for")
        if answers := self._answers.get(key):
            return tuple(text if is_reference(text) else _literal(text) for text in answers)
        defaults = read_values(self._settings[key].default)
        return tuple(_literal(_PLACEHOLDER.sub(self._place_in_default, text)) for text in defaults)

    def _place_in_default(self, found: re.Match[str]) -> str:
        return self._places.get(found[1], found[0])


def _literal(text: str) -> str:
    """Return a text in which a config fills in nothing."""
    return text.replace("${", "$${")
