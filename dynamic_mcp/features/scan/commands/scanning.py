"""`cli scan`: shows what it will run, scans a program, and writes a pack for review."""

from __future__ import annotations

import os
import re
import shutil
import sys
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
from dynamic_mcp.features.scan.pack_builder import ROOT, BuiltPack, build_pack
from dynamic_mcp.features.scan.python_program import find_entry
from dynamic_mcp.features.scan.runner import MAX_RUNS, MAX_TOTAL_S, Runner
from dynamic_mcp.features.scan.scanner import SOURCES, Scan, Scanner, ScanTarget, select
from dynamic_mcp.features.scan.spec_files import BadSpec, read_spec_file
from dynamic_mcp.packs.model import Effect, Pack
from dynamic_mcp.policy import verbs
from dynamic_mcp.system.programs import find_program
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


def scan(context: Invocation, program: str, options: Options) -> int:
    """Scan a program and print or write its pack; return the exit code."""
    target = _make_target(program, options)
    output = None if options.output is None else Path(options.output)
    if output is not None and output.exists():
        raise InvalidArguments(f"`{output}` exists", hint="a reviewed pack is not overwritten; choose another file")
    if not _agree(context, target, yes=options.yes):
        return 1
    result, runner = run(_scan(context, target))
    built = build_pack(
        target.name,
        select(result, target.globs),
        description=result.commands[0].fact.description if result.commands else "",
        source="a scan, for review",
    )
    if built is None:
        raise DynamicMcpError(
            f"`{program}` has no readable documentation of its commands",
            hint="`--spec FILE` reads a usage or carapace spec",
        )
    _deliver(context, built, result, runner, output)
    return 0


# --- the target---------------------------------------------------------------------------------------------------


def _make_target(program: str, options: Options) -> ScanTarget:
    """Return the target of the scan. Raises NotFound and InvalidArguments."""
    if options.origin == "spec" and options.spec is None:
        raise InvalidArguments("`--from spec` needs a spec", hint="`--spec FILE` gives one")
    file = _find(program)
    try:
        spec = () if options.spec is None else tuple(read_spec_file(Path(options.spec)))
    except BadSpec as exc:
        raise InvalidArguments(str(exc), hint=exc.hint) from exc
    return ScanTarget(
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
    file = find_program(program, minimal_variables(os.environ, (), platform=sys.platform))
    if file is None:
        raise NotFound("program", program, hint="it must be on the PATH, or a path")
    return Path(file).absolute()


def _agree(context: Invocation, target: ScanTarget, *, yes: bool) -> bool:
    """Show what will be run, and ask. Raises InvalidArguments if there is no terminal."""
    plans = _plans(target)
    if not plans:
        return True
    context.out.say(f"this runs, in an empty directory and at most {MAX_RUNS} times or {MAX_TOTAL_S:g} s:")
    for plan in plans:
        context.out.say(f"  {plan}")
    return agree(context, "Run these?", done="run", yes=yes)


def _plans(target: ScanTarget) -> Sequence[str]:
    """Return the kinds of command lines that a scan may run."""
    file, plans = quote(str(target.file)), []
    has_types = all(flag.value and flag.value.type for fact in target.spec for flag in fact.flags)
    if target.spec and has_types:
        return ()
    entry = find_entry(target.file) if "python" in target.sources else None
    if entry is not None:
        plans.append(f"{quote(entry.interpreter)}, which imports `{entry.module}` and describes its parser")
    if "help" in target.sources:
        plans.append(f"{file} [COMMAND…] --help, or -h if that is documented")
    if "complete" in target.sources and is_cobra(target.file.resolve()):
        plans.append(f"{file} __complete [COMMAND…] --, for flags, and without -- for commands")
    if "complete" in target.sources and target.name == "git":
        plans.append(f"{file} COMMAND --git-completion-helper-all")
    if "man" in target.sources:
        plans.append(f"man {target.name}[-COMMAND]")
    return plans


# --- the scan ----------------------------------------------------------------------------------------------------


async def _scan(context: Invocation, target: ScanTarget) -> tuple[Scan, Runner]:
    with tempfile.TemporaryDirectory(prefix="dynamic-mcp-scan-") as folder:
        runner = Runner(Path(folder), os.environ)
        man = shutil.which("man", path=os.defpath)
        with context.out.progress(f"scanning `{target.name}`"):
            return await Scanner(target, runner, man=man).scan(), runner


# --- the result---------------------------------------------------------------------------------------------------


def _deliver(context: Invocation, built: BuiltPack, result: Scan, runner: Runner, output: Path | None) -> None:
    remarks = [*result.remarks, *built.remarks]
    if output is not None:
        output.write_bytes(encode(built.pack))
    if context.out.is_json_requested:
        context.out.print_json(_report(built.pack, remarks, runner))
        return
    if output is None:
        context.out.print_json(encode(built.pack))
    _tell(context, built.pack, remarks, output)


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
        "ran": [{"words": [word[:200] for word in each.words], "end": each.end} for each in runner.results],
    }


def _tell(context: Invocation, pack: Pack, remarks: Sequence[str], output: Path | None) -> None:
    """Print what needs a review."""
    flags = sum(len(each.flags) for each in pack.commands)
    context.out.say(
        f"{pluralize(len(pack.commands), 'command')} with {pluralize(flags, 'flag')}; review all of them:"
    )
    unknown = [each.name for each in pack.commands if each.effect == "unknown"]
    for effect in ("read", "destructive"):
        names = [name for name in unknown if _propose_effect(name) == effect]
        if names:
            context.out.say(f"  perhaps `{effect}`, by name only: {', '.join(names)}")
    for danger, names in _dangers(pack).items():
        context.out.say(f"  left out until you remove its `danger`, since it {danger}: {', '.join(names)}")
    if unknown:
        context.out.say(f"  {pluralize(len(unknown), 'effect')} unknown, which counts as `write`: set `effect`")
    for remark in remarks[:_MAX_REMARKS]:
        context.out.say(f"  {remark}")
    if len(remarks) > _MAX_REMARKS:
        context.out.say(f"  and {pluralize(len(remarks) - _MAX_REMARKS, 'more remark')} (--json has them all)")
    if output is not None:
        context.out.say(f'wrote `{output}`; review it, set `"reviewed": true`, and use it with `"use": "{output}"`')


def _dangers(pack: Pack) -> dict[str, list[str]]:
    """Return the flags that are left out, by their danger."""
    dangers: dict[str, list[str]] = {}
    for command in pack.commands:
        for flag in command.flags:
            if flag.danger is not None:
                name = flag.name if command.name == ROOT else f"{command.name} {flag.name}"
                dangers.setdefault(flag.danger, []).append(name)
    return dangers


def _propose_effect(name: str) -> Effect:
    """Return the probable effect of a command with this name, or `unknown`."""
    words = re.findall(r"[a-z]+", name)
    if any(word in _DESTRUCTIVE for word in words):
        return "destructive"
    if any(word in verbs.WRITE for word in words):
        return "write"
    if words and (words[-1] in verbs.READ or words[0] in verbs.READ):
        return "read"
    return "unknown"
