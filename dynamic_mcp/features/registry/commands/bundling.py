"""Implements `add FILE.mcpb|URL`: checks a bundle, asks for its values, shows what runs, unpacks and writes it."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from msgspec import Struct

from dynamic_mcp.cli.agreement import agree
from dynamic_mcp.cli.entry_plan import start_plan, write_plan
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.runner import run
from dynamic_mcp.config import form
from dynamic_mcp.config.types import NAME_LENGTH
from dynamic_mcp.errors import DynamicMcpError, InvalidArguments
from dynamic_mcp.features.registry.build import command_line
from dynamic_mcp.features.registry.bundle import BadBundle, Bundle, bundles_dir, copy_bounded, folder_of
from dynamic_mcp.features.registry.bundle_entry import Site, ask_about, build_entry, check_answers, programs_of
from dynamic_mcp.features.registry.commands.adding import AddOptions, format_words, kept_variables
from dynamic_mcp.features.registry.commands.answers import complete, find_prompt, parse_answers, store_secrets
from dynamic_mcp.importer.convert.plan import Plan
from dynamic_mcp.importer.model import Entry
from dynamic_mcp.system.programs import find_program
from dynamic_mcp.system.shell import format_command
from dynamic_mcp.system.text import one_line, os_reason

KEY = "x-bundle"
_SUFFIX = ".mcpb"


class BundleOrigin(Struct, frozen=True):
    """What an entry says of its bundle; `folder` is the name of the folder that it was unpacked into."""

    name: str
    version: str
    sha256: str
    folder: str


def is_bundle(reference: str) -> bool:
    """Return whether `add` is to add a bundle."""
    return reference.partition("?")[0].partition("#")[0].endswith(_SUFFIX)


def add_bundle(context: Invocation, options: AddOptions, sha256: str | None) -> int:
    """Add the server of a bundle to the config; return the exit code. Raises DynamicMcpError."""
    if "://" in options.reference and options.yes and sha256 is None:
        raise InvalidArguments(
            "nobody would see what is downloaded", hint="with --yes, `--sha256 DIGEST` says what it must be"
        )
    with tempfile.TemporaryFile() as file:
        _get(context, options.reference, file)
        bundle = Bundle(file)
        if sha256 is not None and sha256.lower() != bundle.digest:
            raise BadBundle(f"its SHA-256 is not the one that was given, but {bundle.digest}")
        return _add(context, options, bundle)


def remove_files(context: Invocation, entry: Mapping[str, object]) -> None:
    """Delete the files of a bundle whose entry was removed."""
    origin = entry.get(KEY)
    folder = folder_of(origin.get("folder")) if isinstance(origin, Mapping) else None
    if folder is None or not folder.is_dir() or folder.is_symlink():
        return
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        context.out.say(f"warning: `{folder}` could not be deleted as a whole")
    else:
        context.out.say(f"deleted `{folder}`; to have the server again, add its bundle again")


def _add(context: Invocation, options: AddOptions, bundle: Bundle, *, platform: str = sys.platform) -> int:
    plan = start_plan(context.config_path(may_be_new=True))
    manifest = bundle.manifest
    server = options.server or one_line(manifest.name, NAME_LENGTH)
    if server in plan.servers and not (options.may_replace or options.is_print):
        hint = "--replace overwrites it, --as NAME gives this one another name"
        raise InvalidArguments(f"`{plan.output}` already has a server `{server}`", hint=hint)
    author = one_line(manifest.author.name, 100)
    context.out.say(f"{one_line(manifest.name, 200)} {one_line(manifest.version, 100)}, a bundle by {author}")
    context.out.say(f"  sha256: {bundle.digest}")
    questions = ask_about(bundle)
    collected = parse_answers(options.values, questions)
    notes = complete(collected, questions, find_prompt(context, may_ask=not options.yes), kept_variables(plan))
    answers = store_secrets(collected, questions, server, plan.target.vault)
    check_answers(bundle, answers)
    folder = bundles_dir() / secrets.token_hex(8)
    site = Site(folder, Path.home(), platform, lambda program: find_program(program, os.environ) is not None)
    origin = BundleOrigin(one_line(manifest.name), one_line(manifest.version), bundle.digest, folder.name)
    entry: Entry = {
        **build_entry(bundle, answers, site),
        **({"description": options.description} if options.description else {}),
        **_confinement(platform),
        KEY: {name: getattr(origin, name) for name in origin.__struct_fields__},
    }
    for note in notes:
        context.out.say(f"warning: {note}")
    replaced = plan.servers.get(server)
    plan = plan.with_servers({server: entry})
    if options.is_print:
        context.out.print_json({"mcpServers": {server: entry}})
        return 0
    _show(context, plan, entry, folder)
    if not agree(context, f"Unpack it, and add it to {plan.output}?", done="written", yes=options.yes):
        return 1
    _write(context, plan, bundle, folder, server)
    if replaced is not None:
        remove_files(context, replaced)
    context.out.say(f"added `{server}` to `{plan.output}`")
    if context.out.is_json_requested:
        context.out.print_json({"file": str(plan.output), "server": server, "entry": entry})
    else:
        context.out.say(f"next: `{format_command('doctor', server)}` checks that it works")
    return 0


def _write(context: Invocation, plan: Plan, bundle: Bundle, folder: Path, server: str) -> None:
    """Unpack a bundle and write the config, or do neither."""
    bundle.unpack(folder, programs=programs_of(bundle))
    try:
        write_plan(context, plan, f"add {server}")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _confinement(platform: str) -> dict[str, object]:
    """Return the sandbox of a server whose code nobody here has read, where this program and the system have one."""
    has_sandbox = "sandbox" in form.ProgramEntry.__struct_fields__ and platform == "linux"
    return {"sandbox": "write"} if has_sandbox else {}


def _show(context: Invocation, plan: Plan, entry: Entry, folder: Path) -> None:
    context.out.say(f"  unpacks into: {folder}")
    context.out.say(f"  runs: {format_words(command_line(entry))}")
    env = entry.get("env")
    for name, value in env.items() if isinstance(env, Mapping) else ():
        context.out.say(f"  with: {one_line(name, 100)}={one_line(value, 300)}")
    if plan.variables:
        names = ", ".join(f"`{name}`" for name in plan.variables)
        context.out.say(f"  secrets: {names} in {plan.env_file}, which only you can read")
    if "sandbox" not in entry:
        context.out.say("  warning: it runs with all that you may do; a bundle is a program like any other")


def _get(context: Invocation, reference: str, file: IO[bytes]) -> None:
    """Read a bundle into a file. Raises DynamicMcpError."""
    if "://" in reference:
        from dynamic_mcp.features.registry.download import download

        with context.out.progress("downloading"):
            run(download(reference, file))
        return
    try:
        with Path(reference).open("rb") as source:
            copy_bounded(source.read, file)
    except OSError as exc:
        raise DynamicMcpError(f"`{reference}` cannot be read: {os_reason(exc)}") from exc
