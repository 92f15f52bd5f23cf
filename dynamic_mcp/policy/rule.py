"""One compiled rule: the objects that it applies to, and its conditions."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from dynamic_mcp.config.access import AccessKind, AccessRule, Effect
from dynamic_mcp.identity import Authentication
from dynamic_mcp.policy.arguments import Arguments, ConditionError
from dynamic_mcp.policy.conditions import Conditions
from dynamic_mcp.policy.globs import Globs
from dynamic_mcp.policy.uris import UriGlobs, variants


class AccessSubject(Struct, frozen=True):
    """An authenticated caller, with its roles."""

    authentication: Authentication
    roles: frozenset[str]


class AccessTarget(Struct, frozen=True):
    """The object of a request; a resource is named by its URI. `access` is `read` or `write`."""

    group: str
    kind: AccessKind
    name: str
    access: str = "read"


class CompiledRule:
    """A rule with compiled globs, conditions and expression."""

    def __init__(self, source: AccessRule) -> None:
        self.source = source
        self.servers = Globs(source.servers)
        self._tools = None if source.tools is None else Globs(source.tools)
        self._prompts = None if source.prompts is None else Globs(source.prompts)
        self._resources = None if source.resources is None else UriGlobs(source.resources)
        self._conditions = Conditions(source.arguments) if source.arguments else None
        self._expression = None
        if source.when is not None:
            from dynamic_mcp.policy.expression import Expression

            self._expression = Expression(source.when)

    def __repr__(self) -> str:
        return f"<CompiledRule {self.source.id}: {self.source.effect.value}>"

    @property
    def needs_arguments(self) -> bool:
        """Return whether it depends on the arguments of a call."""
        return self._conditions is not None or (self._expression is not None and self._expression.uses_arguments)

    @property
    def uses_caller(self) -> bool:
        """Return whether it depends on more of a client than its roles and scopes."""
        return self._expression is not None and self._expression.uses_caller

    @property
    def uses_class(self) -> bool:
        """Return whether its expression may depend on whether a tool only reads."""
        return self._expression is not None

    @property
    def is_about_everything(self) -> bool:
        """Return whether it applies to all objects of its servers, unconditionally."""
        return all(self.is_about_all(kind) for kind in AccessKind)

    def is_about_all(self, kind: AccessKind) -> bool:
        """Return whether it applies to all objects of a kind, unconditionally."""
        has_conditions = self._conditions is not None or self._expression is not None
        return "*" in (self._patterns(kind) or ()) and self.source.only is None and not has_conditions

    def is_about(self, kind: AccessKind) -> bool:
        """Return whether it applies to some objects of a kind; prompts and resources can only be read."""
        return self._patterns(kind) is not None and (kind is AccessKind.TOOL or self.source.only != "write")

    def _patterns(self, kind: AccessKind) -> tuple[str, ...] | None:
        match kind:
            case AccessKind.TOOL:
                return self.source.tools
            case AccessKind.PROMPT:
                return self.source.prompts
            case AccessKind.RESOURCE:
                return self.source.resources

    def lacks_scope(self, caller: AccessSubject) -> bool:
        """Return whether it would allow the target if the client's token had its scope."""
        scope, scopes = self.source.scope, caller.authentication.scopes
        return self.source.effect is Effect.ALLOW and scope is not None and scopes is not None and scope not in scopes

    def matches(self, target: AccessTarget, caller: AccessSubject) -> bool:
        """Return whether it matches the target, regardless of arguments."""
        return not self._find_static_mismatch(target, caller)

    def accepts(self, target: AccessTarget, caller: AccessSubject, arguments: Arguments) -> bool:
        """Return whether the arguments fulfil its conditions. If they cannot be evaluated, it never allows."""
        return not self._find_mismatch_in_arguments(target, caller, arguments)

    def find_mismatch(self, target: AccessTarget, caller: AccessSubject, arguments: Arguments) -> str:
        """Return why it does not match; empty if it does."""
        if self.lacks_scope(caller):
            return f"the token lacks the scope `{self.source.scope}`"
        return self._find_static_mismatch(target, caller) or self._find_mismatch_in_arguments(
            target, caller, arguments
        )

    def covers_template(self, template: str) -> bool:
        """Return whether it applies to every URI of a template, unconditionally."""
        covers = self._resources is not None and self._resources.covers(template)
        return covers and self.source.only != "write" and self._expression is None and self._conditions is None

    def may_match_template(self, template: str) -> bool:
        """Return whether it may apply to some URI of a template."""
        may_match = self._resources is not None and self._resources.may_match(template)
        return may_match and self.source.only != "write" and not self.needs_arguments

    def _find_static_mismatch(self, target: AccessTarget, caller: AccessSubject) -> str:
        if not self.is_about(target.kind):
            return f"it is not about {target.kind.value}s"
        if not self._names(target):
            return self._describe_other_name(target)
        if self.source.only not in (None, target.access):
            return f"the {target.kind.value} counts as `{target.access}`"
        if self._expression is None or self._expression.uses_arguments:
            return ""
        return self._find_mismatch_in_expression(target, caller, Arguments(None))

    def _describe_other_name(self, target: AccessTarget) -> str:
        if target.kind is AccessKind.RESOURCE:
            try:
                variants(target.name)
            except ConditionError as exc:
                return f"it cannot be judged: {exc}"
        return f"its {target.kind.value}s do not match"

    def _names(self, target: AccessTarget) -> bool:
        """Return whether the globs match. Another spelling of a name cannot evade a rule that denies or asks."""
        allows = self.source.effect is Effect.ALLOW
        if target.kind is AccessKind.RESOURCE:
            assert self._resources is not None
            return (self._resources.match_all if allows else self._resources.match_any)(target.name)
        globs = self._tools if target.kind is AccessKind.TOOL else self._prompts
        assert globs is not None
        return (globs.matches if allows else globs.matches_variant)(target.name)

    def _find_mismatch_in_arguments(self, target: AccessTarget, caller: AccessSubject, arguments: Arguments) -> str:
        if self._conditions is not None:
            try:
                if not self._conditions.evaluate(arguments, self.source.effect):
                    return "its conditions on the arguments are not fulfilled"
            except ConditionError as exc:
                if self.source.effect is Effect.ALLOW:
                    return f"its conditions cannot be evaluated: {exc}"
        if self._expression is not None and self._expression.uses_arguments:
            return self._find_mismatch_in_expression(target, caller, arguments)
        return ""

    def _find_mismatch_in_expression(self, target: AccessTarget, caller: AccessSubject, arguments: Arguments) -> str:
        assert self._expression is not None
        is_enough = all if self.source.effect is Effect.ALLOW else any
        try:
            targets = (replace(target, name=name) for name in _readings(target))
            if is_enough(self._expression.evaluate(variables_of(each, caller, arguments)) for each in targets):
                return ""
        except ConditionError as exc:
            return f"`when` cannot be evaluated: {exc}" if self.source.effect is Effect.ALLOW else ""
        return "`when` is false"


def _readings(target: AccessTarget) -> Iterable[str]:
    """Return the possible readings of a name. For a URI, only those in its original case, which expressions compare.

    Raises ConditionError for a URI that cannot be judged.
    """
    if target.kind is not AccessKind.RESOURCE:
        return (target.name,)
    folded = target.name.casefold()
    return [each for each in variants(target.name) if each == target.name or each.casefold() != folded]


def variables_of(target: AccessTarget, caller: AccessSubject, arguments: Arguments) -> dict[str, object]:
    """Return the variables of an expression. Raises ConditionError if the arguments cannot be read."""
    authentication = caller.authentication
    return {
        "subject": authentication.principal.subject,
        "issuer": authentication.principal.issuer,
        "provider": authentication.provider,
        "roles": sorted(caller.roles),
        "scopes": sorted(authentication.scopes or ()),
        "claims": {name: list(texts) for name, texts in authentication.claims},
        "server": target.group,
        "kind": target.kind.value,
        "name": target.name,
        "access": target.access,
        "arguments": arguments.value or {},
    }
