"""Shows servers of registries: `registry search`, `registry show` and `registry outdated`."""

from __future__ import annotations

from collections.abc import Iterator

from dynamic_mcp.cli.entry_plan import start_plan
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.errors import NotFound, RegistryError
from dynamic_mcp.features.registry.build import build, command_line
from dynamic_mcp.features.registry.commands.adding import format_words, show_warnings
from dynamic_mcp.features.registry.commands.answers import format_question
from dynamic_mcp.features.registry.commands.inquiry import Inquiry
from dynamic_mcp.features.registry.document import ServerDocument
from dynamic_mcp.features.registry.lookup import Hit
from dynamic_mcp.features.registry.options import Option, kind_of, questions_about, usable_options
from dynamic_mcp.features.registry.origin import ServerOrigin, read_origin
from dynamic_mcp.features.registry.questions import is_unanswered
from dynamic_mcp.importer.convert.vault import to_variable
from dynamic_mcp.system.shell import format_command
from dynamic_mcp.system.text import one_line, pluralize

MOST_SHOWN = 30


def search(context: Invocation, words: tuple[str, ...], *, registry: str | None, is_all: bool) -> int:
    """Print the servers that match; return the exit code."""
    inquiry = Inquiry(context, context.config_path(may_be_new=True))
    lookup = inquiry.lookup(registry)
    hits = inquiry.ask(lookup, lookup.search(words))
    shown = hits if is_all else hits[:MOST_SHOWN]
    rows = [
        [hit.document.name, one_line(hit.document.version, 20), _kinds(hit.document), _describe(hit.document)]
        for hit in shown
    ]
    context.out.print_rows([_summarize(hit) for hit in shown], ["NAME", "VERSION", "HOW", "DESCRIPTION"], rows)
    if not shown:
        context.out.say("no server was found; a registry searches names only")
    elif len(shown) < len(hits):
        context.out.say(f"{pluralize(len(hits) - len(shown), 'more server')}; --all shows all")
    return 0


def show(context: Invocation, reference: str, *, registry: str | None) -> int:
    """Print a server's description, its options and the values it needs; return the exit code."""
    hit = Inquiry(context, context.config_path(may_be_new=True)).find(reference, registry)
    usable, refusals = usable_options(hit.document)
    if context.out.is_json:
        facts = {
            **_summarize(hit),
            "options": [_option_to_json(hit.document, each) for each in usable],
            "unusable": [{"label": each.label, "reason": each.reason} for each in refusals],
        }
        context.out.print_json(facts)
        return 0
    document = hit.document
    context.out.print_line(f"{document.name} {document.version}", "bold")
    for line in _facts(hit):
        context.out.print_line(line)
    for option in usable:
        context.out.print_line("")
        for number, line in enumerate(_option_lines(document, option)):
            context.out.print_line(line, "bold" if not number else "", indent=2 if number else 0)
    for refusal in refusals:
        context.out.print_line(f"cannot be used: {one_line(refusal.label, 100)}: {refusal.reason}")
    show_warnings(context, document, ())
    if usable and document.status != "deleted":
        context.out.say(f"next: `{format_command('add', document.name)}` adds it")
    return 0


def outdated(context: Invocation) -> int:
    """Print which servers have a newer version in their registry; return the exit code."""
    plan = start_plan(context.config_path())
    inquiry = Inquiry(context, plan.output)
    origins = {name: origin for name, entry in plan.servers.items() if (origin := read_origin(entry)) is not None}
    rows = [_row(name, origin, _newest(inquiry, origin)) for name, origin in origins.items()]
    keys = ("server", "name", "current", "latest", "state")
    context.out.print_rows(
        [dict(zip(keys, row, strict=True)) for row in rows],
        [key.upper() for key in keys],
        rows,
        if_none="no server comes from a registry\n"
        f"hint: `{format_command('registry', 'link')}` finds out which are in one",
    )
    if any(row[-1] == "outdated" for row in rows):
        context.out.say(f"next: `{format_command('registry', 'update')}` updates them")
    return 0


def _newest(inquiry: Inquiry, origin: ServerOrigin) -> ServerDocument | str:
    """Return the newest version of a server, or why it is unknown."""
    try:
        return inquiry.find(origin.name, origin.registry).document
    except NotFound:
        return "not in the registry any more"
    except RegistryError as exc:
        return str(exc.message)


def _row(server: str, origin: ServerOrigin, newest: ServerDocument | str) -> list[str]:
    if isinstance(newest, str):
        return [server, origin.name, origin.version, "", newest]
    state = "up to date" if newest.version == origin.version else "outdated"
    if newest.status != "active":
        state = f"{newest.status}{f': {newest.message}' if newest.message else ''}"
    return [server, origin.name, origin.version, newest.version, state]


def _summarize(hit: Hit) -> dict[str, object]:
    document = hit.document
    facts: dict[str, object] = {
        "name": document.name,
        "version": document.version,
        "title": document.title,
        "description": document.description,
        "status": document.status,
        "message": document.message,
        "published": document.published,
        "repository": document.repository,
        "website": document.website,
        "registry": hit.registry,
        "kinds": _kinds(document).split(),
    }
    return {key: value for key, value in facts.items() if value}


def _kinds(document: ServerDocument) -> str:
    kinds = dict.fromkeys([*("remote" for _ in document.remotes), *(each.kind for each in document.packages)])
    return " ".join(one_line(kind, 20) for kind in kinds)


def _describe(document: ServerDocument) -> str:
    status = "" if document.status == "active" else f"({document.status}) "
    return f"{status}{one_line(document.description or document.title, 200)}"


def _facts(hit: Hit) -> Iterator[str]:
    document = hit.document
    yield from filter(None, (document.title, document.description))
    status = f"{document.status}{f': {document.message}' if document.message else ''}"
    pairs = {
        "status": "" if document.status == "active" else status,
        "registry": hit.registry,
        "published": document.published,
        "repository": document.repository,
        "website": document.website,
    }
    yield from (f"{name}: {value}" for name, value in pairs.items() if value)


def _option_lines(document: ServerDocument, option: Option) -> Iterator[str]:
    yield f"{kind_of(option)} {one_line(option.label, 100)}"
    draft = build(document, option, _placeholders(option))
    words = command_line(draft.entry)
    yield f"runs: {format_words(words)}" if words else f"reaches: {draft.entry['url']}"
    yield from (one_line(format_question(each), 300) for each in questions_about(option))
    yield from (f"warning: {warning}" for warning in draft.warnings)


def _option_to_json(document: ServerDocument, option: Option) -> dict[str, object]:
    questions = [
        {
            "key": each.key,
            "description": each.input.description,
            "where": each.place.value,
            "required": each.is_required,
            "secret": each.is_secret,
            "format": each.input.format,
            "choices": list(each.input.choices),
            "default": each.input.valid_default,
            "repeated": each.is_repeated,
        }
        for each in questions_about(option)
    ]
    draft = build(document, option, _placeholders(option))
    return {"label": option.label, "kind": kind_of(option), "entry": draft.entry, "values": questions}


def _placeholders(option: Option) -> dict[str, tuple[str, ...]]:
    """Return a placeholder for each required value, so that the entry can be shown."""
    unanswered = (each.key for each in questions_about(option) if is_unanswered(each, {}))
    return {key: (f"${{{to_variable(key)}}}",) for key in unanswered}
