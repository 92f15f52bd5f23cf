"""Implements `registry update`: shows the changes of the newest versions of servers, and applies them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import unified_diff

from dynamic_mcp.cli.agreement import agree
from dynamic_mcp.cli.entry_plan import start_plan, write_plan
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.package_examiner import examine_packages
from dynamic_mcp.config.secrets import MASKED
from dynamic_mcp.errors import DynamicMcpError, NotFound
from dynamic_mcp.features.registry.build import texts_of
from dynamic_mcp.features.registry.commands.adding import build_or_refuse, kept_variables, show_warnings
from dynamic_mcp.features.registry.commands.answers import (
    CollectedAnswers,
    Prompt,
    complete,
    find_prompt,
    store_secrets,
)
from dynamic_mcp.features.registry.commands.inquiry import Inquiry
from dynamic_mcp.features.registry.document import ServerDocument
from dynamic_mcp.features.registry.identity import with_version
from dynamic_mcp.features.registry.options import Option, questions_about, usable_options
from dynamic_mcp.features.registry.origin import KEY, ServerOrigin, origin_of, read_origin
from dynamic_mcp.features.registry.questions import ServerAnswers
from dynamic_mcp.importer.convert.merge import replace_entry
from dynamic_mcp.importer.convert.plan import Plan
from dynamic_mcp.importer.convert.vault import rewritten, secrets, text_at
from dynamic_mcp.importer.model import Entry
from dynamic_mcp.system.shell import format_command
from dynamic_mcp.system.text import one_line, pluralize


@dataclass(frozen=True)
class Update:
    """One server, before and after; `public` are the texts of the registry, which are not secret."""

    server: str
    old: ServerOrigin
    new: ServerOrigin
    before: Entry
    after: Entry
    public: frozenset[str]


def update(context: Invocation, names: tuple[str, ...], *, yes: bool, is_print: bool) -> int:
    """Update servers, all that come from a registry if none is named; return the exit code."""
    plan = start_plan(context.config_path())
    planner = _Planner(context, plan, find_prompt(context, may_ask=not (yes or is_print)))
    updates = [found for name, origin in _chosen(plan, names) if (found := planner.plan(name, origin))]
    if not updates:
        context.out.say("nothing to update")
    for each in updates:
        _show(context, each)
    examine_packages(context, {each.server: each.after for each in updates})
    if context.out.is_json_requested or is_print:
        context.out.print_json([_to_json(each) for each in updates])
    if is_print or not updates:
        return 0
    if not agree(context, f"Write this to {plan.output}?", done="written", yes=yes):
        return 1
    entries = {each.server: {**each.after, KEY: each.new.to_json()} for each in updates}
    write_plan(context, plan.with_servers(entries), f"update {' '.join(each.server for each in updates)}")
    context.out.say(f"updated {pluralize(len(updates), 'server')} in `{plan.output}`")
    return 0


def _chosen(plan: Plan, names: Sequence[str]) -> Iterator[tuple[str, ServerOrigin]]:
    """Yield the servers to update with their origins. Raises NotFound and DynamicMcpError."""
    for name in names:
        if name not in plan.servers:
            raise NotFound("server", name, plan.servers)
        if read_origin(plan.servers[name]) is None:
            hint = f"`{format_command('registry', 'link', name)}` finds out whether it is in one"
            raise DynamicMcpError(f"`{name}` does not come from a registry", hint=hint)
    for name, entry in plan.servers.items():
        origin = read_origin(entry)
        if origin is not None and (not names or name in names):
            yield name, origin


class _Planner:
    """Builds the new entry of each server."""

    def __init__(self, context: Invocation, plan: Plan, prompt: Prompt | None) -> None:
        self._context = context
        self._plan = plan
        self._prompt = prompt
        self._inquiry = Inquiry(context, plan.output)

    def plan(self, server: str, old: ServerOrigin) -> Update | None:
        """Return the update of a server; None if it is up to date or cannot be updated."""
        hit = self._inquiry.find(old.name, old.registry)
        document = hit.document
        if document.status == "deleted":
            why = document.message or "as is done with what is harmful"
            self._say(f"warning: `{server}` ({old.name}) was deleted from the registry: {why}; it is not updated")
            return None
        if document.version == old.version:
            return None
        usable, _ = usable_options(document)
        option = next((each for each in usable if each.label == old.option), None)
        if option is None:
            label, replacing = one_line(old.option, 100), format_command("add", old.name, "--as", server, "--replace")
            self._say(f"warning: {document.name} {document.version} cannot be run as {label} any more")
            self._say(f"hint: `{replacing}` takes another way")
            return None
        entry = self._plan.servers[server]
        assert isinstance(entry, dict)
        before = {key: value for key, value in entry.items() if key != KEY}
        after: Entry
        if old.is_linked:
            after, answers, public = with_version(before, option), old.answers, frozenset[str]()
        else:
            answers = self._answer(server, old, option)
            after, public = self._build(document, option, answers, before)
        new = origin_of(hit.registry, document, option, answers, is_linked=old.is_linked)
        return Update(server, old, new, before, after, public)

    def _build(
        self, document: ServerDocument, option: Option, answers: ServerAnswers, before: Entry
    ) -> tuple[Entry, frozenset[str]]:
        """Return the new entry, which keeps settings such as a timeout, and the texts of the registry."""
        draft = build_or_refuse(document, option, answers)
        show_warnings(self._context, document, draft.warnings)
        return replace_entry(before, draft.entry), frozenset(texts_of(draft.entry))

    def _answer(self, server: str, old: ServerOrigin, option: Option) -> ServerAnswers:
        """Return the earlier answers that still fit, and new ones for new questions. Raises InvalidArguments."""
        collected = CollectedAnswers()
        for question in questions_about(option):
            values = old.answers.get(question.key, ())
            if values and not any(map(question.flaw_of, values)):
                collected.answers[question.key] = values
        for note in complete(collected, questions_about(option), self._prompt, kept_variables(self._plan)):
            self._say(f"warning: {note}")
        return store_secrets(collected, questions_about(option), server, self._plan.target.vault)

    def _say(self, text: str) -> None:
        self._context.out.say(text)


def _show(context: Invocation, update: Update) -> None:
    context.out.say(
        f"{update.server}: {update.old.name} {one_line(update.old.version)} -> {one_line(update.new.version)}"
    )
    before, after = (
        json.dumps(_mask(side, update.public), indent=2, ensure_ascii=False).splitlines()
        for side in (update.before, update.after)
    )
    for line in list(unified_diff(before, after, n=1, lineterm=""))[2:]:
        if not line.startswith("@@"):
            context.out.say(f"  {line}")


def _mask(entry: Entry, public: frozenset[str]) -> dict[str, object]:
    """Mask possible secrets of the user, but no text of the registry: the user must see all of those."""
    hidden = [each for each in secrets(entry) if text_at(entry, each.path) not in public]
    return rewritten(entry, [(each, MASKED) for each in hidden])


def _to_json(update: Update) -> dict[str, object]:
    return {
        "server": update.server,
        "name": update.old.name,
        "from": update.old.version,
        "to": update.new.version,
        "entry": update.after,
    }
