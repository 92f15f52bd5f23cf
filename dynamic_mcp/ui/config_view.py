"""The section with the config: its text without secrets, whether it is in use, and what a change of it would do.

The file stays the truth: what is tried here is read in memory, and never written.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import os
from collections.abc import Hashable, Iterator, Mapping
from html import escape
from pathlib import Path

from msgspec import Struct

from dynamic_mcp.config import jsonc
from dynamic_mcp.config.changes import ConfigChanges, find_changes
from dynamic_mcp.config.location import FILE_NAME, identify
from dynamic_mcp.config.masked_text import mask_config, unmask_tree
from dynamic_mcp.config.read import ConfigState, ParsedConfig, parse, parse_document, parse_tree
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.config.secrets import MASKED
from dynamic_mcp.doctor.access import check_access_rules
from dynamic_mcp.doctor.files import check_file
from dynamic_mcp.doctor.findings import Finding, Level
from dynamic_mcp.errors import ConfigError
from dynamic_mcp.face.http.exchange import Response
from dynamic_mcp.groups.catalog import Catalog
from dynamic_mcp.observe.proxies import ProxyRegistry
from dynamic_mcp.system import paths
from dynamic_mcp.system.file_reader import decode, read_bytes
from dynamic_mcp.system.file_store import stamp_of
from dynamic_mcp.system.shell import format_command
from dynamic_mcp.system.text import os_reason
from dynamic_mcp.ui.memo import Memo
from dynamic_mcp.ui.section import PageSection, PageView, Reply, UiContext, Visit

# What is shown whole: HTML of more would make the page too large.
_LONGEST_SHOWN = 28_000
_LONGEST_DIFF = 10_000
_MOST_FINDINGS, _MOST_NAMES, _MOST_COMMANDS = 25, 40, 20
_SIMPLE = frozenset(("command", "args", "openapi", "url", "type", "env", "headers", "cwd", "description"))
_LEVELS = {Level.ERROR: "bad", Level.WARNING: "wait", Level.NOTE: ""}


class ConfigInUse(Struct, frozen=True):
    """Which version is in use: since when, and why what is in the file is not, since when. Times may be unknown."""

    since: float = 0.0
    error: str = ""
    error_since: float = 0.0


class ConfigPreview(Struct, frozen=True):
    """What another text would do. With an `error`, nothing else is known.

    Groups that are `shown` otherwise keep running. `commands` are those that make the change; if they do not make all
    of it, `diff` is to be applied by hand.
    """

    error: str = ""
    hint: str = ""
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    restarted: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    kept: int = 0
    settings: tuple[str, ...] = ()
    access: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    diff: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def is_change(self) -> bool:
        groups = self.added or self.removed or self.restarted or self.shown
        return bool(groups or self.settings or self.access or self.diff)


class ConfigSection(PageSection):
    """The config. It is for operators."""

    name = "config"
    title = "Config"
    icon = "config"
    rank = 80

    def __init__(self, context: UiContext) -> None:
        super().__init__(context)
        self._findings: Memo[list[Finding]] = Memo()
        self._masked = Memo[tuple[str, str]]()
        self._in_use = Memo[ConfigInUse]()

    def is_for(self, visit: Visit) -> bool:
        return visit.is_operator

    def stamp(self, visit: Visit) -> Hashable:
        return id(self.context.config), stamp_of(self.context.config.file)

    async def show(self, visit: Visit, *rest: str) -> Reply | None:
        match rest:
            case ():
                return await self._show()
            case ("text",):
                text, _ = await self.context.turns.run_apart(_read_masked, self.context.config.file)
                kind = (b"content-type", b"text/plain; charset=utf-8")
                name = (b"content-disposition", b'attachment; filename="config-without-secrets.txt"')
                return Response(200, (kind, name), text.encode("utf-8", "replace"))
        return None

    async def act(self, visit: Visit, *rest: str) -> Reply | None:
        """Say what a text would do as the config: `try`. Nothing is written."""
        if rest != ("try",):
            return None
        text = visit.form.get("text", "").replace("\r\n", "\n")
        preview = await self.context.turns.run_apart(_preview, self.context.config, text)
        return await self._show(text, preview)

    async def _show(self, tried: str | None = None, preview: ConfigPreview | None = None) -> PageView:
        config, state_folder = self.context.config, self.context.state_folder
        (text, error), in_use, findings = await asyncio.gather(
            self.context.turns.run_apart(self._read_masked, config.file),
            self.context.turns.run_apart(self._find_in_use, state_folder, config.file),
            self.context.turns.run_apart(self._find_findings, config, self._catalogs()),
        )
        shown = text if tried is None else tried
        is_large = len(escape(shown)) > _LONGEST_SHOWN
        values = {
            "file": str(config.file),
            "in_use": in_use,
            "read_error": error,
            "findings": findings[:_MOST_FINDINGS],
            "more": len(findings) - _MOST_FINDINGS,
            "levels": _LEVELS,
            "text": "" if is_large else shown,
            "is_large": is_large,
            "masked": MASKED,
            "preview": preview,
            "most": _MOST_NAMES,
        }
        return PageView("config.html", "Config", values)

    def _find_in_use(self, state_folder: Path, file: Path) -> ConfigInUse:
        published = stamp_of(state_folder / "running" / f"{os.getpid()}.json")
        return self._in_use.find((), (file, published), lambda: _find_in_use(state_folder, file))

    def _read_masked(self, file: Path) -> tuple[str, str]:
        return self._masked.find((), (file, stamp_of(file)), lambda: _read_masked(file))

    def _find_findings(self, config: Config, catalogs: Mapping[str, Catalog]) -> list[Finding]:
        def find() -> list[Finding]:
            return _find_findings(config, catalogs)

        return self._findings.find((config, *catalogs.values()), stamp_of(config.file), find)

    def _catalogs(self) -> Mapping[str, Catalog]:
        groups = self.context.proxy.groups
        return {group.name: group.catalog for group in groups if group.catalog is not None}


def _read_text(file: Path) -> str:
    """Return the text of the file. Raises OSError and ValueError."""
    return decode(read_bytes(file))


def _read_masked(file: Path) -> tuple[str, str]:
    """Return the text of the file without secrets, and why it cannot be read."""
    try:
        return mask_config(_read_text(file)), ""
    except OSError as exc:
        return "", f"`{file}` cannot be read: {os_reason(exc)}"
    except ValueError:
        return "", f"`{file}` is not text"


def _find_in_use(state_folder: Path, file: Path) -> ConfigInUse:
    """Return what this process publishes of its config."""
    for each in ProxyRegistry(state_folder / "running").list_proxies():
        if each.pid == os.getpid() and each.status.config == identify(file):
            status = each.status
            return ConfigInUse(status.config_since, status.config_error, status.config_error_since)
    return ConfigInUse()


def _find_findings(config: Config, catalogs: Mapping[str, Catalog]) -> list[Finding]:
    """Return what `check` finds that needs no connection, the errors first."""
    _, findings = check_file(config.file, os.environ)
    if config.access is not None or config.http is not None:
        roles = [] if config.access is None else list(config.access.roles)
        findings = [*findings, *check_access_rules(config, catalogs, roles)]
    order = [Level.ERROR, Level.WARNING, Level.NOTE]
    return sorted((each for each in findings if each.level in order), key=lambda each: order.index(each.level))


# --- what a change would do ------------------------------------------------------------------------------


def _preview(config: Config, text: str) -> ConfigPreview:
    """Read a text as the config in all but its place, and compare it with what is served."""
    file = config.file
    try:
        before = _read_text(file)
        original = jsonc.loads(before)
    except (OSError, ValueError, RecursionError):
        before, original = "", {}
    try:
        typed = parse_document(file, text)
        tree, problems = unmask_tree(typed, original)
        if problems:
            from dynamic_mcp.config.problems import to_error  # with pydantic, for errors alone

            raise to_error(file, problems)
        root, renamed = parse_tree(tree, file)
        parsed = ParsedConfig(file, root, tuple(renamed))
        after = parsed.resolve(os.environ)
    except ConfigError as exc:
        return ConfigPreview(error=exc.problem, hint=exc.hint)
    changes = _find_changes(config, parsed, after)
    old, new = ({group.name: group for group in each.groups} for each in (config, after))
    both = [name for name in new if name in old]
    restarted = tuple(name for name in both if new[name] != old[name])
    shown = tuple(
        name for name in both if name not in restarted and config.presentations[name] != after.presentations[name]
    )
    commands, is_all = _find_commands(file, original, typed)
    return ConfigPreview(
        added=tuple(name for name in new if name not in old),
        removed=tuple(name for name in old if name not in new),
        restarted=restarted,
        shown=shown,
        kept=len(both) - len(restarted) - len(shown),
        settings=changes.settings,
        access=changes.access,
        commands=tuple(commands[:_MOST_COMMANDS]) if is_all else (),
        diff=() if is_all and len(commands) <= _MOST_COMMANDS else tuple(_diff(mask_config(before), text)),
        warnings=tuple(dict.fromkeys((*after.file_warnings, *map(str, after.warnings)))),
    )


def _find_changes(config: Config, parsed: ParsedConfig, after: Config) -> ConfigChanges:
    """Return the changes by name, as far as the file has what is served."""
    try:
        served = parse(config.file)
    except ConfigError:
        return ConfigChanges()
    return find_changes(ConfigState(served, config), ConfigState(parsed, after))


def _find_commands(file: Path, original: object, typed: object) -> tuple[list[str], bool]:
    """Return commands that make the change, and whether they make all of it."""
    old, new = (tree if isinstance(tree, dict) else {} for tree in (original, typed))
    servers, wanted = (each.get("mcpServers") or {} for each in (old, new))
    if not isinstance(servers, dict) or not isinstance(wanted, dict):
        return [], False
    masked = jsonc.loads(mask_config(json.dumps(old, ensure_ascii=False)))
    assert isinstance(masked, dict)
    known = masked.get("mcpServers") or {}
    others = [{key: value for key, value in each.items() if key != "mcpServers"} for each in (masked, new)]
    is_all, commands = others[0] == others[1], list[str]()
    option = () if file.absolute() == paths.config_dir() / FILE_NAME else ("-c", str(file.absolute()))
    for name in servers:
        if name not in wanted:
            commands.append(format_command("remove", name, *option))
    for name, entry in wanted.items():
        if known.get(name) == entry:
            continue
        words = _words_for(name, known.get(name), entry)
        if words is None:
            is_all = False
        else:
            commands.append(format_command(*words[:2], *option, *words[2:]))
    return commands, is_all


def _words_for(name: str, before: object, entry: object) -> list[str] | None:
    """Return the words of the command that makes this entry; None if there is none."""
    if not isinstance(entry, dict):
        return None
    if isinstance(before, dict):
        rest = [{key: each for key, each in one.items() if key != "enabled"} for one in (before, entry)]
        if rest[0] == rest[1] and isinstance(entry.get("enabled", True), bool):
            return ["enable" if entry.get("enabled", True) else "disable", name]
    if not entry.keys() <= _SIMPLE or MASKED in repr(entry):
        return None
    words = ["add", name, *(["--replace"] if before is not None else [])]
    for key in ("openapi", "url", "type", "cwd", "description"):
        if key in entry:
            words += [f"--{key}", str(entry[key])]
    pairs = (("env", "--env", "="), ("headers", "--header", ": "))
    for key, option, sign in pairs:
        for each, value in dict(entry.get(key) or {}).items():
            words += [option, f"{each}{sign}{value}"]
    if "command" in entry:
        words += ["--", str(entry["command"]), *map(str, entry.get("args") or [])]
    return words


def _diff(before: str, after: str) -> Iterator[tuple[str, str]]:
    """Yield the signs and the lines of a difference between two texts, as much as there is room for."""
    left = _LONGEST_DIFF
    lines = [*difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="")]
    for line in lines[2:]:  # after the names of the files
        left -= len(escape(line)) + 60
        if left < 0:
            yield "@", "… and more"
            return
        yield line[:1], line.strip("@ ") if line.startswith("@") else line[1:]
