"""`registry update`: merges the newest version of servers into the config, and keeps what a person has changed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff

from msgspec.structs import replace

from dynamic_mcp.cli.agreement import agree
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.config.keys import format_path
from dynamic_mcp.config.secrets import MASKED
from dynamic_mcp.errors import DynamicMcpError, NotFound
from dynamic_mcp.features.registry.build import VISIBLE_VARIABLE, texts_of
from dynamic_mcp.features.registry.commands.adding import build_or_refuse, kept_variables, show_warnings
from dynamic_mcp.features.registry.commands.answers import Given, Person, complete, find_person, store_secrets
from dynamic_mcp.features.registry.commands.inquiry import Inquiry
from dynamic_mcp.features.registry.commands.plan import ConfigPlan, Entry, start_plan, write_plan
from dynamic_mcp.features.registry.document import Document
from dynamic_mcp.features.registry.identity import align
from dynamic_mcp.features.registry.merge import NOTHING, Clash, merge
from dynamic_mcp.features.registry.options import Option, find_same, questions_about, usable_options
from dynamic_mcp.features.registry.origin import KEY, Origin, origin_of, read_origin
from dynamic_mcp.features.registry.questions import Answers, Question, is_unanswered
from dynamic_mcp.importer.convert.vault import rewritten, secrets, text_at
from dynamic_mcp.system.shell import format_command
from dynamic_mcp.system.text import one_line, pluralize

# Stands for a value that the config has somewhere, in both versions of an entry.
_STAND_IN = "${X_REGISTRY_STAND_IN}"
# The members of an entry that name its version.
_WHAT_RUNS = ("command", "args", "url")


@dataclass(frozen=True)
class Update:
    """What becomes of one server; `public` are the texts that the registry has made, which hide nothing."""

    server: str
    old: Origin
    new: Origin
    before: Entry
    after: Entry
    clashes: tuple[Clash, ...]
    public: frozenset[str]


def update(this: Invocation, names: tuple[str, ...], *, yes: bool, is_print: bool) -> int:
    """Update servers, all that come from a registry if none is named; return the exit code."""
    plan = start_plan(this.config_path())
    person = find_person(this, may_ask=not (yes or is_print))
    planner = _Planner(this, plan, person)
    updates = [found for name, origin in _chosen(plan, names) if (found := planner.plan(name, origin))]
    if not updates:
        this.out.say("nothing to update")
    for each in updates:
        _show(this, each)
    if this.out.is_json_requested or is_print:
        this.out.print_json([_to_json(each) for each in updates])
    if is_print or not updates:
        return 0
    if not agree(this, f"Write this to {plan.file}?", done="written", yes=yes):
        return 1
    write_plan(this, plan, f"update {' '.join(each.server for each in updates)}")
    this.out.say(f"updated {pluralize(len(updates), 'server')} in `{plan.file}`")
    return 0


def _chosen(plan: ConfigPlan, names: Sequence[str]) -> Iterator[tuple[str, Origin]]:
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
    """Works out what becomes of each server, and puts that into the plan."""

    def __init__(self, this: Invocation, plan: ConfigPlan, person: Person | None) -> None:
        self._this = this
        self._plan = plan
        self._person = person
        self._inquiry = Inquiry(this, plan.file)

    def plan(self, server: str, old: Origin) -> Update | None:
        """Put the new entry of a server into the plan; None if there is nothing to do, or nothing can be done."""
        hit = self._inquiry.find_newest(old)
        document = hit.document
        if document.status == "deleted":
            why = document.message or "as is done with what is harmful"
            self._say(f"warning: `{server}` ({old.name}) was deleted from the registry: {why}; it is not updated")
            return None
        if document.version == old.version:
            return None
        option = find_same(usable_options(document)[0], old.option)
        if option is None:
            label = one_line(old.option, 100)
            self._say(f"warning: {document.name} {document.version} cannot be run as {label} any more")
            self._say_replace(server, old, "takes another way")
            return None
        earlier = self._find_earlier(old)
        answers = self._answer(server, old, option, earlier)
        draft = build_or_refuse(document, option, answers)
        show_warnings(self._this, document, _without_stand_ins(draft.warnings, answers))
        before = self._plan.servers[server]
        assert isinstance(before, Mapping)
        mine = {key: value for key, value in before.items() if key != KEY}
        base = _base(old, earlier, answers)
        result = merge(base, mine if old.digest else align(mine, base, option), draft.entry)
        if base is NOTHING and any(clash.at[0] in _WHAT_RUNS for clash in result.clashes):
            self._say(f"warning: `{server}` stays as it is, since nothing tells what of it you have changed")
            self._say_replace(server, old, "takes the new version as the registry has it")
            return None
        assert isinstance(result.value, dict)
        kept = {key: values for key, values in answers.items() if values != (_STAND_IN,)}
        new = origin_of(hit.registry, document, option, kept)
        new = new if old.digest else replace(new, digest="")
        self._plan.entries[server] = {**result.value, KEY: new.to_json()}
        made = {*texts_of(draft.entry), *(texts_of(base) if isinstance(base, Mapping) else ())}
        return Update(server, old, new, mine, result.value, result.clashes, frozenset(made))

    def _find_earlier(self, old: Origin) -> Document | None:
        """Return the document that a server was made from, unless it is gone or has been changed since."""
        try:
            document = self._inquiry.find(f"{old.name}@{old.version}", old.registry).document
        except NotFound:
            return None
        if old.digest and document.digest != old.digest:
            self._say(f"warning: the registry has changed what it says of {old.name} {old.version}")
            return None
        return document

    def _answer(self, server: str, old: Origin, option: Option, earlier: Document | None) -> Answers:
        """Return the earlier answers that still fit, and new ones for what is new. Raises InvalidArguments."""
        given = Given()
        known = set() if old.digest else {each.key for each in _questions_of(earlier, old.option)}
        for question in questions_about(option):
            values = old.answers.get(question.key, ())
            if values and not any(map(question.flaw_of, values)):
                given.answers[question.key] = values
            elif question.key in known and is_unanswered(question, {}):
                # linked, not added by us: the config has the value somewhere, and the merge leaves it there
                given.answers[question.key] = (_STAND_IN,)
        for taken in complete(given, option, self._person, kept_variables(self._plan)):
            self._say(f"warning: {taken}")
        return store_secrets(given, option, server, self._plan.vault)

    def _say_replace(self, server: str, old: Origin, why: str) -> None:
        self._say(f"hint: `{format_command('add', old.name, '--as', server, '--replace')}` {why}")

    def _say(self, text: str) -> None:
        self._this.out.say(text)


def _questions_of(document: Document | None, label: str) -> list[Question]:
    option = None if document is None else find_same([*document.packages, *document.remotes], label)
    return [] if option is None else questions_about(option)


def _without_stand_ins(warnings: Sequence[str], answers: Answers) -> list[str]:
    has_stand_ins = (_STAND_IN,) in answers.values()
    return [each for each in warnings if not (has_stand_ins and each == VISIBLE_VARIABLE)]


def _base(old: Origin, earlier: Document | None, answers: Answers) -> object:
    """Return the entry as it was made, or NOTHING if that is not known."""
    option = None if earlier is None else find_same([*earlier.packages, *earlier.remotes], old.option)
    if earlier is None or option is None:
        return NOTHING
    stand_ins = {key: values for key, values in answers.items() if values == (_STAND_IN,)}
    try:
        return build_or_refuse(earlier, option, {**stand_ins, **old.answers}).entry
    except DynamicMcpError:
        return NOTHING


def _show(this: Invocation, made: Update) -> None:
    this.out.say(f"{made.server}: {made.old.name} {one_line(made.old.version)} -> {one_line(made.new.version)}")
    before, after = (
        json.dumps(_mask(side, made.public), indent=2, ensure_ascii=False).splitlines()
        for side in (made.before, made.after)
    )
    for line in list(unified_diff(before, after, n=1, lineterm=""))[2:]:
        if not line.startswith("@@"):
            this.out.say(f"  {line}")
    for clash in made.clashes:
        new = "nothing" if clash.theirs is None else f"`{_shorten(clash.theirs)}`"
        this.out.say(f"  kept as you have it: `{format_path(clash.at)}`; the new version has {new}")


def _mask(entry: Entry, public: frozenset[str]) -> dict[str, object]:
    """Hide what may be a secret of the person, but nothing that the registry says: all of that must be seen."""
    own = [each for each in secrets(entry) if text_at(entry, each.path) not in public]
    return rewritten(entry, [(each, MASKED) for each in own])


def _shorten(value: object) -> str:
    return one_line(json.dumps(value, ensure_ascii=False), 200)


def _to_json(made: Update) -> dict[str, object]:
    return {
        "server": made.server,
        "name": made.old.name,
        "from": made.old.version,
        "to": made.new.version,
        "entry": made.after,
        "kept": [format_path(each.at) for each in made.clashes],
    }
