"""Implements `add NAME` for a server of a registry: finds it, asks for values, shows the entry, and writes it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dynamic_mcp.cli.agreement import agree
from dynamic_mcp.cli.entry_plan import start_plan, write_plan
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.package_examiner import examine_packages
from dynamic_mcp.config.types import NAME_LENGTH
from dynamic_mcp.errors import DynamicMcpError, InvalidArguments
from dynamic_mcp.features.registry.build import EntryDraft, build, command_line
from dynamic_mcp.features.registry.commands.answers import (
    Prompt,
    complete,
    find_prompt,
    format_question,
    parse_answers,
    store_secrets,
)
from dynamic_mcp.features.registry.commands.inquiry import Inquiry
from dynamic_mcp.features.registry.document import ServerDocument
from dynamic_mcp.features.registry.options import Kind, Option, best, matching, questions_about, usable_options
from dynamic_mcp.features.registry.origin import KEY, origin_of
from dynamic_mcp.features.registry.questions import ServerAnswers
from dynamic_mcp.features.registry.runtimes import UnusableOption
from dynamic_mcp.importer.convert.plan import Plan
from dynamic_mcp.importer.model import Entry
from dynamic_mcp.system.programs import find_program
from dynamic_mcp.system.shell import format_command, quote
from dynamic_mcp.system.text import one_line, replace_unprintable
from dynamic_mcp.web.address_policy import is_same_host


@dataclass(frozen=True)
class AddOptions:
    """The options of the command line."""

    reference: str
    server: str | None = None
    registry: str | None = None
    kind: Kind | None = None
    pick: str | None = None
    values: tuple[str, ...] = ()
    description: str | None = None
    yes: bool = False
    is_print: bool = False
    may_replace: bool = False
    pin: bool = False


@dataclass(frozen=True)
class Origin:
    """Where a document comes from, in `words`: from a registry, or from the card of the server at a URL.

    `hint` says where to read on if nothing of it can be used.
    """

    words: str
    hint: str = ""
    registry: str = ""
    url: str = ""


def add_from_registry(context: Invocation, options: AddOptions) -> int:
    """Add a server of a registry to the config; return the exit code."""
    file = context.config_path(may_be_new=True)
    hit = Inquiry(context, file).find(options.reference, options.registry)
    hint = f"`{format_command('registry', 'show', hit.document.name)}`"
    origin = Origin(f"of registry `{hit.registry}`", hint, hit.registry)
    return add_document(context, options, hit.document, origin)


def add_document(context: Invocation, options: AddOptions, document: ServerDocument, origin: Origin) -> int:
    """Add the server of a document to the config; return the exit code."""
    plan = start_plan(context.config_path(may_be_new=True))
    prompt = find_prompt(context, may_ask=not options.yes)
    server = options.server or document.name.rpartition("/")[2][:NAME_LENGTH]
    if server in plan.servers and not options.may_replace and not options.is_print:
        hint = "--replace overwrites it, --as NAME gives this one another name"
        raise InvalidArguments(f"`{plan.output}` already has a server `{server}`", hint=hint)
    refuse_deleted(document)
    context.out.say(f"{document.name} {one_line(document.version)} {origin.words}")
    option = _choose(context, document, options, prompt, origin.hint)
    _doubt(context, options, option, origin)
    collected = parse_answers(options.values, questions_about(option))
    taken = complete(collected, questions_about(option), prompt, kept_variables(plan))
    answers = store_secrets(collected, questions_about(option), server, plan.target.vault)
    draft = build_or_refuse(document, option, answers)
    description = {"description": options.description} if options.description else {}
    program = examine_packages(context, {server: draft.entry}, pin=options.pin)[server]
    entry: Entry = {**program, **description, **_written_origin(origin, document, option, answers)}
    plan = plan.with_servers({server: entry})
    show_warnings(context, document, (*taken, *draft.warnings))
    if options.is_print:
        context.out.print_json({"mcpServers": {server: entry}})
        return 0
    _show(context, plan, option, answers, program)
    if not agree(context, f"Add it to {plan.output}?", done="written", yes=options.yes):
        return 1
    write_plan(context, plan, f"add {server}")
    _report(context, plan, server)
    return 0


def _written_origin(
    origin: Origin, document: ServerDocument, option: Option, answers: ServerAnswers
) -> dict[str, object]:
    """Return what an entry says of its origin. A card has no versions to follow."""
    return {KEY: origin_of(origin.registry, document, option, answers).to_json()} if origin.registry else {}


def _doubt(context: Invocation, options: AddOptions, option: Option, origin: Origin) -> None:
    """Warn of a card that leads elsewhere, before anything is asked.

    Raises DynamicMcpError if nobody would read the warning.
    """
    if not origin.url or is_same_host(origin.url, option.label):
        return
    label = one_line(option.label, 200)
    doubt = f"the card leads to another host than `{one_line(origin.url, 200)}`: `{label}`"
    if options.yes and options.pick is None:
        raise DynamicMcpError(doubt, hint=f"`--pick {quote(label)}` says that you want this one")
    context.out.say(f"warning: {doubt}")


def build_or_refuse(document: ServerDocument, option: Option, answers: ServerAnswers) -> EntryDraft:
    """Build an entry. Raises DynamicMcpError if these answers do not suffice."""
    try:
        return build(document, option, answers)
    except UnusableOption as exc:
        raise DynamicMcpError(f"`{document.name}` cannot be used like this: {exc}") from exc


def refuse_deleted(document: ServerDocument) -> None:
    """Refuse a server that its registry has withdrawn. Raises DynamicMcpError."""
    if document.status == "deleted":
        why = f": {document.message}" if document.message else ", as is done with what is harmful"
        raise DynamicMcpError(f"`{document.name}` {document.version} was deleted from the registry{why}")


def kept_variables(plan: Plan) -> Mapping[str, str]:
    """Return the variables that already have a value."""
    return {name: value for name, value in {**os.environ, **plan.target.vault.values}.items() if value}


def show_warnings(context: Invocation, document: ServerDocument, warnings: Iterable[str]) -> None:
    """Print what the user should know before using a server."""
    if document.status == "deprecated":
        why = f": {document.message}" if document.message else ""
        context.out.say(f"warning: `{document.name}` is deprecated{why}")
    for warning in dict.fromkeys(warnings):
        context.out.say(f"warning: {warning}")


def format_words(words: Sequence[str]) -> str:
    """Return a command line on one line, with special characters quoted."""
    return quote(*(replace_unprintable(word) for word in words))


def _choose(
    context: Invocation, document: ServerDocument, options: AddOptions, prompt: Prompt | None, hint: str
) -> Option:
    usable, refusals = usable_options(document)
    found = matching(usable, options.kind, options.pick)
    if not found:
        reasons = "".join(f"\n  {one_line(each.label, 100)}: {each.reason}" for each in refusals)
        shown = ", ".join(f"`{one_line(each.label, 100)}`" for each in usable)
        hint = f"these can be used: {shown}" if shown else hint
        what = "nothing that was asked for" if usable else "nothing that can be used here"
        raise DynamicMcpError(f"`{document.name}` {document.version} has {what}{reasons}", hint=hint)
    if len(found) > 1 and prompt is not None:
        return prompt.choose(found)
    chosen = best(found, lambda program: find_program(program, os.environ) is not None)
    if len(found) > 1:
        context.out.say(f"takes {one_line(chosen.label, 100)}; --pick takes another of its {len(found)} ways to run")
    return chosen


def _show(
    context: Invocation, plan: Plan, option: Option, answers: ServerAnswers, entry: Mapping[str, object]
) -> None:
    words = command_line(entry)
    context.out.say(f"  runs: {format_words(words)}" if words else f"  reaches: {entry['url']}")
    for kind, verb in (("env", "with"), ("headers", "sends")):
        values = entry.get(kind)
        for name, value in values.items() if isinstance(values, Mapping) else ():
            context.out.say(f"  {verb}: {name}={value}")
    if plan.variables:
        names = ", ".join(f"`{name}`" for name in plan.variables)
        context.out.say(f"  secrets: {names} in {plan.env_file}, which only you can read")
    for question in questions_about(option):
        if not question.is_required and question.key not in answers:
            context.out.say(f"  optional: {one_line(format_question(question), 200)}")


def _report(context: Invocation, plan: Plan, server: str) -> None:
    context.out.say(f"added `{server}` to `{plan.output}`")
    if context.out.is_json_requested:
        context.out.print_json({"file": str(plan.output), "server": server, "entry": plan.servers[server]})
    else:
        context.out.say(f"next: `{format_command('doctor', server)}` checks that it works")
