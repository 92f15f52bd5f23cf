"""`cli scan`: shows what is run, scans a program, and writes a pack for review."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from dynamic_mcp.cli.agreement import agree
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.runner import run
from dynamic_mcp.config.environment import minimal_variables
from dynamic_mcp.errors import DynamicMcpError, InvalidArguments, NotFound
from dynamic_mcp.features.scan.complete import is_cobra
from dynamic_mcp.features.scan.pack_builder import ROOT, Built, build_pack
from dynamic_mcp.features.scan.python_program import find_entry
from dynamic_mcp.features.scan.runner import MAX_RUNS, MAX_TOTAL_S, Runner
from dynamic_mcp.features.scan.scanner import SOURCES, Scan, Scanner, Target, select
from dynamic_mcp.features.scan.spec_files import BadSpec, read_spec_file
from dynamic_mcp.packs.model import Effect, Pack
from dynamic_mcp.policy import verbs
from dynamic_mcp.system.shell import quote
from dynamic_mcp.system.text import pluralize

_MAX_REMARKS = 20
_DESTRUCTIVE = verbs.words(
    "clean delete destroy discard drop erase format kill prune purge reset remove rm rmdir shutdown truncate"
    " uninstall unset wipe poweroff reboot halt"
)


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command."""

    depth: int
    globs: tuple[str, ...]
    origin: str | None
    spec: str | None
    output: str | None
    yes: bool


def scan(this: Invocation, program: str, options: Options) -> int:
    """Scan a program and print or write its pack; return the exit code."""
    target = _make_target(program, options)
    output = None if options.output is None else Path(options.output)
    if output is not None and output.exists():
        raise InvalidArguments(f"`{output}` exists", hint="a reviewed pack is not overwritten; choose another file")
    if not _agree(this, target, yes=options.yes):
        return 1
    found, runner = run(_scan(this, target))
    built = build_pack(
        target.name,
        select(found, target.globs),
        description=found.commands[0].fact.description if found.commands else "",
        source="a scan, for review",
    )
    if built is None:
        raise DynamicMcpError(
            f"`{program}` says nothing of its commands that can be read",
            hint="`--spec FILE` reads a usage or carapace spec",
        )
    _deliver(this, built, found, runner, output)
    return 0


# --- before ------------------------------------------------------------------------------------------------------


def _make_target(program: str, options: Options) -> Target:
    """Return what to scan. Raises NotFound and InvalidArguments."""
    if options.origin == "spec" and options.spec is None:
        raise InvalidArguments("--from spec needs a spec", hint="`--spec FILE` gives one")
    file = _find(program)
    try:
        spec = () if options.spec is None else tuple(read_spec_file(Path(options.spec)))
    except BadSpec as exc:
        raise InvalidArguments(str(exc), hint=exc.hint) from exc
    return Target(
        file=file,
        name=Path(program).name,
        depth=options.depth,
        globs=options.globs or ("*",),
        sources=SOURCES if options.origin is None else (options.origin,),
        spec=spec,
    )


def _find(program: str) -> Path:
    if program.startswith("-"):
        raise InvalidArguments(f"`{program}` is not a program")
    found = shutil.which(program, path=minimal_variables(os.environ, (), platform="").get("PATH", os.defpath))
    if found is None:
        raise NotFound("program", program, hint="it must be on the PATH, or a path")
    return Path(found).absolute()


def _agree(this: Invocation, target: Target, *, yes: bool) -> bool:
    """Show what will be run, and ask. Raises InvalidArguments if nobody can answer."""
    plans = _plans(target)
    if not plans:
        return True
    this.out.say(f"this runs, in an empty directory and at most {MAX_RUNS} times or {MAX_TOTAL_S:g} s:")
    for plan in plans:
        this.out.say(f"  {plan}")
    return agree(this, "Run these?", done="run", yes=yes)


def _plans(target: Target) -> Sequence[str]:
    """Return the kinds of command lines that a scan may run."""
    file, plans = quote(str(target.file)), []
    has_types = all(flag.value and flag.value.type for fact in target.spec for flag in fact.flags)
    if target.spec and has_types:
        return ()
    entry = find_entry(target.file) if "python" in target.sources else None
    if entry is not None:
        plans.append(f"{quote(entry.interpreter)}, which imports `{entry.module}` and describes what it parses")
    if "help" in target.sources:
        plans.append(f"{file} [COMMAND…] --help, or -h where it says that this is help")
    if "complete" in target.sources and is_cobra(target.file.resolve()):
        plans.append(f"{file} __complete [COMMAND…] --, for flags, and without -- for commands")
    if "complete" in target.sources and target.name == "git":
        plans.append(f"{file} COMMAND --git-completion-helper-all")
    if "man" in target.sources:
        plans.append(f"man {target.name}[-COMMAND]")
    return plans


# --- the scan ----------------------------------------------------------------------------------------------------


async def _scan(this: Invocation, target: Target) -> tuple[Scan, Runner]:
    with tempfile.TemporaryDirectory(prefix="dynamic-mcp-scan-") as folder:
        runner = Runner(Path(folder), os.environ)
        man = shutil.which("man", path=os.defpath)
        with this.out.progress(f"scanning `{target.name}`"):
            return await Scanner(target, runner, man=man).scan(), runner


# --- after -------------------------------------------------------------------------------------------------------


def _deliver(this: Invocation, built: Built, found: Scan, runner: Runner, output: Path | None) -> None:
    remarks = [*found.remarks, *built.remarks]
    if output is not None:
        output.write_bytes(encode(built.pack))
    if this.out.is_json_requested:
        this.out.print_json(_report(built.pack, remarks, runner))
        return
    if output is None:
        this.out.print_json(encode(built.pack))
    _tell(this, built.pack, remarks, output)


def encode(pack: Pack) -> bytes:
    """Return the text of a pack."""
    return msgspec.json.format(msgspec.json.encode(pack), indent=2) + b"\n"


def _report(pack: Pack, remarks: Sequence[str], runner: Runner) -> object:
    return {
        "pack": msgspec.to_builtins(pack),
        "review": {
            "dangers": _dangers(pack),
            "effects": {each.name: _propose_effect(each.name) for each in pack.commands if each.effect == "unknown"},
            "remarks": list(remarks),
        },
        "ran": [{"words": [word[:200] for word in each.words], "end": each.end} for each in runner.ran],
    }


def _tell(this: Invocation, pack: Pack, remarks: Sequence[str], output: Path | None) -> None:
    """Say what a reviewer has to look at."""
    flags = sum(len(each.flags) for each in pack.commands)
    this.out.say(f"{pluralize(len(pack.commands), 'command')} with {pluralize(flags, 'flag')}; all is for review:")
    unknown = [each.name for each in pack.commands if each.effect == "unknown"]
    for effect in ("read", "destructive"):
        names = [name for name in unknown if _propose_effect(name) == effect]
        if names:
            this.out.say(f"  perhaps `{effect}`, by name only: {', '.join(names)}")
    for danger, names in _dangers(pack).items():
        this.out.say(f"  left out, since it {danger}, until you remove its `danger`: {', '.join(names)}")
    if unknown:
        this.out.say(f"  {pluralize(len(unknown), 'effect')} unknown, which counts as write: set `effect`")
    for remark in remarks[:_MAX_REMARKS]:
        this.out.say(f"  {remark}")
    if len(remarks) > _MAX_REMARKS:
        this.out.say(f"  and {pluralize(len(remarks) - _MAX_REMARKS, 'more remark')} (--json has them all)")
    if output is not None:
        this.out.say(f'wrote `{output}`; review it, set `"reviewed": true`, and use it with `"use": "{output}"`')


def _dangers(pack: Pack) -> dict[str, list[str]]:
    """Return the flags that are held back, by what they may do."""
    found: dict[str, list[str]] = {}
    for command in pack.commands:
        for flag in command.flags:
            if flag.danger is not None:
                name = flag.name if command.name == ROOT else f"{command.name} {flag.name}"
                found.setdefault(flag.danger, []).append(name)
    return found


def _propose_effect(name: str) -> Effect:
    """Return what a command of this name probably does. What is not known well is `unknown`."""
    found = re.findall(r"[a-z]+", name)
    if any(word in _DESTRUCTIVE for word in found):
        return "destructive"
    if any(word in verbs.WRITE for word in found):
        return "write"
    if found and (found[-1] in verbs.READ or found[0] in verbs.READ):
        return "read"
    return "unknown"
