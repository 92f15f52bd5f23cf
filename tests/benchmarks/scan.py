"""How much of a program's command line a scan finds, and how much of that is right.

usage: python -m tests.benchmarks.scan [--packs DIRECTORY] [--only NAME]...

First it scans programs whose packs are made by hand, as far as they are installed: of the flags that the pack has,
how many were found (recall), and how many of these have the same type. Flags that only the scan has say nothing: a
pack by hand leaves out what is dangerous or of no use.

Then it reads `--help` alone of installed Python programs made with argparse or click, and compares it with what their
own code says that they parse: recall and precision of flags and of types. It judges nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from dynamic_mcp.features.scan.facts import FlagFact
from dynamic_mcp.features.scan.merge import MergedCommand
from dynamic_mcp.features.scan.pack_builder import command_name
from dynamic_mcp.features.scan.python_program import find_entry
from dynamic_mcp.features.scan.runner import Runner
from dynamic_mcp.features.scan.scanner import SOURCES, Scan, Scanner, ScanTarget
from dynamic_mcp.packs import library
from dynamic_mcp.packs.model import Pack

# These ask a parser before it has all of its flags, so what their code says is not the whole truth.
_IN_PARTS = frozenset(("pytest", "py.test"))
_ALWAYS = {"--help", "--version", "-h", "-V"}
Paths = tuple[str, ...]


class Flag(Struct, frozen=True):
    """The names of a flag, and what it takes."""

    names: frozenset[str]
    type: str


class Comparison(Struct):
    """How two lists of flags compare; `same` are those that are in both with one type.

    `alike` are those of which both say the same about whether they take a value.
    """

    wanted: int = 0
    found: int = 0
    both: int = 0
    alike: int = 0
    same: int = 0

    def add(self, truth: Iterable[Flag], scanned: Iterable[Flag]) -> None:
        """Compare the flags of one command."""
        known, left = list(truth), list(scanned)
        self.wanted += len(known)
        self.found += len(left)
        for flag in known:
            match = next((each for each in left if each.names & flag.names), None)
            if match is not None:
                self.both += 1
                self.alike += (match.type == "boolean") == (flag.type == "boolean")
                self.same += match.type == flag.type


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packs", type=Path, default=Path(library.__file__).parent)
    parser.add_argument("--only", action="append", help="only this program; may be repeated")
    asked = parser.parse_args()
    packs = [library.read_file(file) for file in sorted(asked.packs.glob("*.json"))]
    print("| program | commands | found | flags | found | recall | takes a value | type |")
    print("|---|---|---|---|---|---|---|---|")
    for pack in packs:
        file = shutil.which(pack.program)
        if file is not None and (not asked.only or pack.name in asked.only):
            print(asyncio.run(_by_hand(pack, Path(file))), flush=True)
    print(
        "\n| program | form | commands | flags | recall | precision | takes a value | type |"
        "\n|---|---|---|---|---|---|---|---|"
    )
    for script in _python_programs():
        if not asked.only or script.name in asked.only:
            print(asyncio.run(_by_code(script)), end="", flush=True)


# --- packs that are made by hand ---------------------------------------------------------------------------------


async def _by_hand(pack: Pack, file: Path) -> str:
    globs = tuple(command_name(each.path) for each in pack.commands)
    depth = max(len(each.path) for each in pack.commands)
    scan = await _scan(ScanTarget(file=file, name=pack.program, depth=depth, globs=globs))
    found = {each.fact.path: each for each in scan.commands}
    comparison, commands = Comparison(), 0
    for path, flags in _by_path(pack).items():
        commands += path in found
        comparison.add(flags, _scanned(found.get(path)))
    paths = len(_by_path(pack))
    return (
        f"| `{pack.name}` | {paths} | {commands} | {comparison.wanted} | {comparison.both}"
        f" | {_share(comparison.both, comparison.wanted)} | {_share(comparison.alike, comparison.both)}"
        f" | {_share(comparison.same, comparison.both)} |"
    )


def _by_path(pack: Pack) -> Mapping[Paths, list[Flag]]:
    """Return the flags of each command of a program; several tools may be made of one."""
    flags: dict[Paths, dict[str, Flag]] = {}
    for each in pack.commands:
        known = flags.setdefault(tuple(each.path), {})
        for flag in each.flags:
            known.setdefault(flag.name, Flag(frozenset((flag.name, *flag.aliases)), flag.type))
    return {path: list(known.values()) for path, known in flags.items()}


# --- programs that say themselves what they parse ----------------------------------------------------------------


def _python_programs() -> Iterator[Path]:
    """Yield the programs that are installed beside this Python."""
    folder = Path(sysconfig.get_path("scripts"))
    for file in sorted(folder.iterdir()):
        if (
            file.name not in _IN_PARTS
            and file.is_file()
            and os.access(file, os.X_OK)
            and find_entry(file) is not None
        ):
            yield file


async def _by_code(file: Path) -> str:
    truth = await _scan(ScanTarget(file=file, name=file.name, depth=2, sources=("python",)))
    if not truth.commands:
        return ""
    form = truth.commands[0].fact.source.split()[0]
    found = {each.fact.path: each for each in (await _scan(_help_only(file))).commands}
    comparison, commands = Comparison(), 0
    for each in truth.commands:
        scanned = found.get(each.fact.path)
        commands += scanned is not None
        comparison.add(_scanned(each), _scanned(scanned))
    return (
        f"| `{file.name}` | {form} | {commands} of {len(truth.commands)} | {comparison.wanted}"
        f" | {_share(comparison.both, comparison.wanted)} | {_share(comparison.both, comparison.found)}"
        f" | {_share(comparison.alike, comparison.both)} | {_share(comparison.same, comparison.both)} |\n"
    )


def _help_only(file: Path) -> ScanTarget:
    return ScanTarget(file=file, name=file.name, depth=2, sources=("help",))


# --- both --------------------------------------------------------------------------------------------------------


async def _scan(target: ScanTarget) -> Scan:
    with tempfile.TemporaryDirectory() as folder:
        man = shutil.which("man") if target.sources == SOURCES else None
        return await Scanner(target, Runner(Path(folder), os.environ), man=man).scan()


def _scanned(command: MergedCommand | None) -> Sequence[Flag]:
    flags = [] if command is None else [each.flag for each in command.flags]
    return [Flag(frozenset(flag.names), _type(flag)) for flag in flags if not _ALWAYS.intersection(flag.names)]


def _type(flag: FlagFact) -> str:
    return (flag.value.type or "string") if flag.value is not None else "boolean"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"


if __name__ == "__main__":
    main()
