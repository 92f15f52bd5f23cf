"""One question about all calls that a script names: the script as a whole, and what it may call how often.

It covers any arguments, as an approval for an hour does, and nothing else: where a rule looks at the arguments, and
where no approval for any arguments is offered, each call is asked about by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from msgspec import Raw

from dynamic_mcp.config.secrets import count_hidden, mask_text
from dynamic_mcp.errors import InvalidArguments
from dynamic_mcp.features.approvals.questions import ApprovalKey
from dynamic_mcp.features.approvals.store import SCRIPT, Scope
from dynamic_mcp.features.approvals.subject import Right, Subject
from dynamic_mcp.mcp import wire
from dynamic_mcp.proxy.request import CallPlan, Request, UpstreamRequest
from dynamic_mcp.proxy.view import GroupView
from dynamic_mcp.system.text import escape, one_line

_LONGEST_NAME = 200


class PlanSubject(Subject, frozen=True):
    """A script, its `data`, and the `subjects` that it is going to call, which `runs` describes."""

    subjects: tuple[Subject, ...] = ()
    runs: tuple[str, ...] = ()
    script: str = ""
    data: Raw = wire.NULL

    @property
    def label(self) -> str:
        return "the script"

    @property
    def group_name(self) -> str:
        return ", ".join(dict.fromkeys(each.group.name for each in self.subjects))

    def limit_scopes(self, offered: Sequence[Scope]) -> tuple[Scope, ...]:
        return ("once",)

    def check_edit(self, edited: Raw) -> None:
        raise InvalidArguments("a script cannot be changed; deny it, and say what it should do instead")

    def is_current(self, message: UpstreamRequest) -> bool:
        request = message.request
        return all(each.is_current(message_of(request, each.group, each.key.name)) for each in self.subjects)


def message_of(request: Request, group: GroupView, tool: str) -> UpstreamRequest:
    """Return a call of a tool as a script may make it, whose arguments are not known."""
    params = {"name": Raw(wire.encode(tool)), "arguments": wire.EMPTY_OBJECT}
    return UpstreamRequest(request, group, "tools/call", params, 0.0)


def describe_plan(request: Request, plan: CallPlan, planned: Sequence[tuple[Subject, int]]) -> PlanSubject:
    """Return the subject of the question about a script, with those of its calls, and how often each is made."""
    subjects = [subject for subject, _ in planned]
    keys = [each.key for each in subjects]
    allowing = [each.right for each in subjects if each.right is not None]
    runs = [_describe(*each) for each in planned]
    what = wire.encode([plan.script, plan.data, runs])
    key = ApprovalKey(
        principal=request.principal,
        server=tuple(each.server for each in keys),
        kind=SCRIPT,
        name=plan.name,
        definition=sha256(b"".join(each.definition for each in keys)).digest(),
        rules=tuple(each.rules for each in keys),
        rule=", ".join(dict.fromkeys(each.rule for each in keys)),
        arguments=sha256(what).digest(),
        session=next((each.session for each in keys if each.session is not None), None),
    )
    first = subjects[0]
    return PlanSubject(
        key=key,
        group=first.group,
        access="write" if any(each.access == "write" for each in subjects) else "read",
        description="",
        arguments=Raw(wire.encode({"runs": runs, "script": plan.script.splitlines(), "input": plan.data})),
        notes=(),
        client_name=first.client_name,
        client=first.client,
        right=Right(allowing[0].roles, ", ".join(dict.fromkeys(each.rule for each in allowing)))
        if allowing
        else None,
        subjects=tuple(subjects),
        runs=tuple(runs),
        script=plan.script,
        data=plan.data,
    )


def _join(rights: Sequence[Right]) -> Right | None:
    rules = ", ".join(dict.fromkeys(each.rule for each in rights))
    return Right(rights[0].roles, rules) if rights else None


def _describe(subject: Subject, most: int) -> str:
    """Return what a script may call, and how often."""
    name = f"{subject.group.name}.{subject.group.shown_name(subject.key.name)}"
    shown = one_line(escape(mask_text(name, count_hidden)), _LONGEST_NAME)
    return f"{shown} {'once' if most == 1 else f'up to {most} times'}, with any arguments"
