"""Scans a program, one command after another, by all available sources."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
from msgspec import Struct

from dynamic_mcp.features.scan import complete
from dynamic_mcp.features.scan.facts import CommandFact
from dynamic_mcp.features.scan.help.text import read_text
from dynamic_mcp.features.scan.help.usage import read_usage
from dynamic_mcp.features.scan.merge import MergedCommand, merge
from dynamic_mcp.features.scan.pack_builder import command_name
from dynamic_mcp.features.scan.python_program import find_entry, probe_words, read_probe
from dynamic_mcp.features.scan.runner import Runner

SOURCES = ("spec", "python", "complete", "help", "man")
MAX_COMMANDS = 1000
_SKIPPED = frozenset(("help", "completion", "completions", "__complete"))
# After this many commands that print their parent's help, all others are assumed to do so.
_SHARED_ENOUGH = 2
_LISTS_GLOBAL = re.compile(r'Use "[\w-]+ options" for a list of global')
Path_ = tuple[str, ...]


class ScanTarget(Struct, frozen=True):
    """The scanned program: its file, its name, and the limits of the scan."""

    file: Path
    name: str
    depth: int = 3
    globs: tuple[str, ...] = ("*",)
    sources: tuple[str, ...] = SOURCES
    spec: tuple[CommandFact, ...] = ()


class Scan(Struct, frozen=True):
    """The commands that were found, starting with the program itself, and remarks for the reviewer."""

    commands: tuple[MergedCommand, ...]
    remarks: tuple[str, ...]


class Scanner:
    """Scans one program."""

    def __init__(self, target: ScanTarget, runner: Runner, *, man: str | None = None) -> None:
        self._target = target
        self._runner = runner
        self._man = man
        self._facts: dict[Path_, list[CommandFact]] = {}
        self._remarks: list[str] = []
        self._is_cobra = False
        self._is_git = target.name == "git"
        self._root_help = ""
        self._has_short_help = False
        # commands that print their parent's help: so do all commands below them
        self._shares_help: set[Path_] = set()
        self._shared_below: Counter[Path_] = Counter()
        self._helps: dict[Path_, str] = {}
        self._global: CommandFact | None = None

    async def scan(self) -> Scan:
        """Scan the program and its selected commands."""
        self._add(self._target.spec)
        if "python" in self._target.sources and not self._facts:
            await self._introspect()
        self._is_cobra = "complete" in self._target.sources and complete.is_cobra(self._target.file.resolve())
        commands: list[MergedCommand] = []
        queue: deque[tuple[Path_, str]] = deque([((), "")])
        while queue and len(commands) < MAX_COMMANDS:
            path, usage = queue.popleft()
            merged = await self._scan_command(path, usage)
            if merged is None:
                continue
            commands.append(merged)
            if len(path) < self._target.depth and path not in self._shares_help:
                queue.extend(self._below(merged.fact))
        if queue or self._runner.is_exhausted:
            self._remarks.append("not all commands were scanned: a limit was reached")
        return Scan(tuple(commands), tuple(self._remarks))

    def _below(self, fact: CommandFact) -> Iterable[tuple[Path_, str]]:
        for each in fact.subcommands:
            path = (*fact.path, each.name)
            if each.name not in _SKIPPED and self._is_wanted(path):
                yield path, each.usage

    def _is_wanted(self, path: Path_) -> bool:
        """Return whether a command, or one below it, may be selected."""
        name = command_name(path)
        return any(
            fnmatchcase(name, glob) or fnmatchcase(name, " ".join(glob.split()[: len(path)]))
            for glob in self._target.globs
        )

    async def _scan_command(self, path: Path_, usage: str) -> MergedCommand | None:
        facts = list(self._facts.get(path, ()))
        is_complete = any(fact.is_whole and all(f.value and f.value.type for f in fact.flags) for fact in facts)
        if not is_complete:
            if "help" in self._target.sources and (help_ := await self._read_help(path, usage)) is not None:
                facts.append(help_)
            if "man" in self._target.sources and (page := await self._read_man(path)) is not None:
                facts.append(page)
            if "complete" in self._target.sources and (listed := await self._complete(path, facts)) is not None:
                # git's helper omits optional values, so manuals are better
                facts.insert(len(facts) if self._is_git else sum(fact.is_whole for fact in facts), listed)
            if facts and (shared := await self._read_global()) is not None:
                facts.append(msgspec.structs.replace(shared, path=path))
        return merge(facts) if facts else None

    # --- sources -----------------------------------------------------------------------------------------------

    def _add(self, facts: Iterable[CommandFact]) -> None:
        for fact in facts:
            self._facts.setdefault(fact.path, []).append(fact)

    async def _introspect(self) -> None:
        entry = find_entry(self._target.file)
        if entry is None:
            return
        text = await self._runner.read(entry.interpreter, probe_words(entry, self._target.name))
        try:
            self._add(read_probe(text))
        except msgspec.DecodeError:
            self._remarks.append("its Python code could not be introspected; `--help` was read instead")

    async def _read_help(self, path: Path_, usage: str) -> CommandFact | None:
        if path and self._shared_below[path[:-1]] >= _SHARED_ENOUGH:
            shared = self._helps[path[:-1]]
            return _with_usage(read_text(shared, path[:-1], source="--help"), path, usage)
        for words in self._help_words(path):
            text = await self._runner.read(str(self._target.file), words)
            fact = read_text(text, path, source=" ".join(words))
            if not (fact.flags or fact.subcommands or fact.words):
                continue
            if path and text == self._helps.get(path[:-1]):
                self._shares_help.add(path)
                self._shared_below[path[:-1]] += 1
                return _with_usage(fact, path, usage)
            self._helps[path] = text
            if not path:
                self._root_help = text
                self._has_short_help = any("-h" in f.names and "--help" in f.names for f in fact.flags)
            return fact
        return None

    def _help_words(self, path: Path_) -> Iterable[tuple[str, ...]]:
        """Yield the arguments that print help. `-h` only if the program documents it: it may mean something else."""
        if self._is_git:
            yield (*path, "-h") if path else ("help", "-a")
        yield (*path, "--help")
        if path and self._has_short_help:
            yield (*path, "-h")

    async def _read_global(self) -> CommandFact | None:
        """Return the global flags, if the program lists them by a command `options`."""
        if self._global is None and self._is_cobra and _LISTS_GLOBAL.search("\n".join(self._helps.values())):
            text = await self._runner.read(str(self._target.file), ("options",))
            self._global = CommandFact(source="options", flags=read_text(text).flags)
        return self._global

    async def _complete(self, path: Path_, facts: Sequence[CommandFact]) -> CommandFact | None:
        command = str(self._target.file)
        if self._is_git and path:
            return complete.read_git(path, await self._runner.read(command, (*path, "--git-completion-helper-all")))
        if not self._is_cobra:
            return None
        flags = await self._runner.read(command, complete.words_for_flags(path))
        has_commands = any(fact.subcommands for fact in facts)
        commands = await self._runner.read(command, complete.words_for_commands(path)) if has_commands else ""
        return complete.read_cobra(path, flags, commands)

    async def _read_man(self, path: Path_) -> CommandFact | None:
        if self._man is None or (path and self._shared_below[path[:-1]] >= _SHARED_ENOUGH):
            return None
        page = "-".join((self._target.name, *path))
        text = await self._runner.read(self._man, ("-P", "cat", "--", page))
        fact = read_text(text, path, source=f"man {page}")
        return _without_commands(fact) if fact.flags else None


def _with_usage(fact: CommandFact, path: Path_, usage: str) -> CommandFact:
    """Return a command that lacks help, with the usage from the list of commands."""
    words, _ = read_usage([f"{path[-1]} {usage}"] if usage else [], (), is_group=False)
    return msgspec.structs.replace(
        fact,
        path=path,
        words=fact.words or None if words is None else tuple(words),
        subcommands=(),
        description="",
        source=f"{fact.source} (which is about all commands)",
    )


def _without_commands(fact: CommandFact) -> CommandFact:
    return msgspec.structs.replace(fact, subcommands=())


def select(scan: Scan, globs: Sequence[str]) -> list[MergedCommand]:
    """Return the selected commands that do something themselves, for a pack."""
    described: Mapping[Path_, str] = {
        (*each.fact.path, below.name): below.description for each in scan.commands for below in each.fact.subcommands
    }
    chosen = []
    for each in scan.commands:
        fact = each.fact
        if fact.subcommands or not any(fnmatchcase(command_name(fact.path), glob) for glob in globs):
            continue
        listed = described.get(fact.path, "")
        chosen.append(
            MergedCommand(msgspec.structs.replace(fact, description=fact.description or listed), each.flags)
        )
    return chosen
