"""The groups that a client may see. A group that is not in a view cannot be told from none at all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, TypeVar, cast

from msgspec import Raw, Struct, structs

from dynamic_mcp.client import Client
from dynamic_mcp.config.access import AccessKind, Profile
from dynamic_mcp.config.resolved import Config, DirectLimit, Features, GroupConfig, Presentation, Timeouts, ToolFilter
from dynamic_mcp.errors import Disabled, NotFound
from dynamic_mcp.features.table import Feature, features_with_extensions
from dynamic_mcp.groups.assignment import Place
from dynamic_mcp.groups.catalog import Catalog, ListKind
from dynamic_mcp.groups.group import Group
from dynamic_mcp.groups.lifecycle import DOWN, State
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.system.text import one_line

if TYPE_CHECKING:  # loaded with the first rule or filter
    from dynamic_mcp.policy.access import AccessRules, GroupRules, Judgement
    from dynamic_mcp.policy.call_rules import RuleSet, ShownTool, ToolRules
    from dynamic_mcp.proxy.allowed_lists import AllowedLists

R = TypeVar("R", bound="RuleSet")
D = TypeVar("D")

_FEATURES = ("tools", "resources", "prompts")
_METHODS = {AccessKind.TOOL: "tools/call", AccessKind.PROMPT: "prompts/get"}


class GroupView:
    """One group as it is presented: its filtered catalog, its description, and how its calls are treated.

    `config` is what is run for it, `switched_off` the features that it does not let through. `rules` decide what of
    it may be used; None is everything. `call_rules` are the config's rules on its calls, by their features, and
    `overridden` those by which tools are shown in another way. With a `base`, it is another view of the
    same group with the same rules, which both use.
    """

    def __init__(
        self,
        group: Group,
        presentation: Presentation,
        rules: GroupRules | None = None,
        *,
        base: GroupView | None = None,
    ) -> None:
        self.group = group
        self.rules = rules
        self.name = group.name
        self.config: GroupConfig = group.config if base is None else base.config
        self.presentation = presentation
        self.call_rules: dict[str, RuleSet] = {}
        self.overridden: ToolRules | None = None
        if base is not None:
            self.call_rules, self.overridden = base.call_rules, base.overridden
        elif presentation.rules:
            self._compile_rules()
        self.switched_off = frozenset(name for name in _FEATURES if not presentation.features.allows(name))
        self._whole: Catalog | None = None
        self._catalog: Catalog | None = None
        self.chain: Callable[..., Awaitable[Frame]] | None = None  # compiled by `Chains` with the first request
        self.allowed_lists: AllowedLists | None = (
            _filter_lists(presentation, rules) if base is None else base.allowed_lists
        )

    def _compile_rules(self) -> None:
        from dynamic_mcp.policy.call_rules import ToolRules, compile_rules

        self.call_rules = compile_rules(self.presentation, self.name)
        found = (each for each in self.call_rules.values() if isinstance(each, ToolRules))
        self.overridden = next(found, None)

    def find_rules(self, feature: str, kind: type[R]) -> R | None:
        """Return the rules of a feature on calls of this server, which are of this kind, if there are any."""
        found = self.call_rules.get(feature)
        assert found is None or isinstance(found, kind)
        return found

    def __repr__(self) -> str:
        return f"<GroupView of {self.group!r}>"

    @property
    def state(self) -> State:
        return self.group.state

    @property
    def is_down(self) -> bool:
        """True if every instance of the group has failed."""
        return self.group.state in DOWN

    @property
    def reason(self) -> str:
        """The reason why the group is down, in one line; empty otherwise."""
        return self.group.reason

    @property
    def description(self) -> str:
        """One line for a model: the config's, else from the upstream's own words, else from how it is started."""
        if self.presentation.description:
            return " ".join(self.presentation.description.split())
        derived = self.catalog.summary if self.catalog else ""
        return derived or f"Tools from `{one_line(self.config.label)}`"

    @property
    def catalog(self) -> Catalog | None:
        """The catalog in this view; None while unknown."""
        whole = self.group.admission.catalog()
        if whole is not self._whole:
            self._catalog = None if whole is None else self._present(whole)
            self._whole = whole
        return self._catalog

    def adapt(self, timeouts: Timeouts, result_limit: int) -> GroupView:
        """Return the group with other timeouts for its calls, and another limit on their results."""
        answers = structs.replace(self.presentation.answers, limit=result_limit)
        if (timeouts, answers) == (self.config.timeouts, self.presentation.answers):
            return self  # with all that is remembered of it
        adapted = GroupView(self.group, structs.replace(self.presentation, answers=answers), self.rules, base=self)
        adapted.config = structs.replace(self.config, timeouts=timeouts)
        return adapted

    def own_name(self, tool: str) -> str:
        """Return the server's name of a tool that is shown by this name; one that is not shown has no other."""
        shown = self.find_shown(tool)
        return tool if shown is None else shown.own_name

    def shown_name(self, tool: str) -> str:
        """Return by which name clients see a tool, of which this is the server's name."""
        return tool if self.overridden is None or self.catalog is None else self.overridden.shown_name(tool)

    def present_arguments(self, tool: str, sent: Raw) -> Raw:
        """Return what a client may see of the arguments that a tool is sent, of which this is the server's name."""
        shown = self.find_shown(self.shown_name(tool))
        return sent if shown is None else shown.present(sent)

    def mark_text(self, text: str) -> str:
        """Return a text of a tool's result, as long as a model gets it, with the marks that rules put there."""
        for rules in self.call_rules.values():
            text = rules.mark_text(text)
        return text

    def find_shown(self, tool: str) -> ShownTool | None:
        """Return the tool that is shown by this name; None where there are no overrides."""
        if self.overridden is None:
            return None
        _ = self.catalog  # names are those of the catalog of the moment
        return self.overridden.find(tool)

    def judge(self, kind: AccessKind, name: str) -> Judgement:
        """Say what the rules, which there must be, say of a tool or prompt, also of one that is in no list.

        `name` is the server's.
        """
        assert self.allowed_lists is not None
        return self.allowed_lists.judge(kind, name, self.group.catalog)

    @property
    def may_hide(self) -> bool:
        """True if something may be hidden, so that the server's own words must not reveal it."""
        return self.rules is not None

    def refuse_held(self, kind: AccessKind, name: str) -> None:
        """Raise DefinitionHeld for a tool or a prompt that is held back, unless it must not be known here.

        `name` is the one that clients would know it by.
        """
        gate = self.group.admission.gate
        if gate is None:
            return
        for own in self._own_names(kind, name):
            if self.rules is None or self.judge(kind, own).is_visible:
                gate.check(_METHODS[kind], {"name": Raw(wire.encode(own))}, shown=name)

    def refuse_held_request(self, method: str, params: Mapping[str, Raw] | None) -> None:
        """Raise DefinitionHeld for a request about something that is held back; `params` have the server's names."""
        if self.group.admission.gate is not None:
            self.group.admission.gate.check(method, params)

    def _own_names(self, kind: AccessKind, name: str) -> Iterable[str]:
        """Return the server's names of what would be shown by a name, if it were not held back."""
        if kind is not AccessKind.TOOL:
            return (name,)
        own_names = (name,) if self.overridden is None else self.overridden.own_names(name)
        return filter(self.presentation.tools.allows, own_names)

    def refuse_held_resource(self, uri: str) -> None:
        """Raise DefinitionHeld for a resource of a template that is held back."""
        if self.group.admission.gate is not None and self.may_read(uri):
            self.refuse_held_request("resources/read", {"uri": Raw(wire.encode(uri))})

    def may_have(self, kind: ListKind, key: str) -> bool:
        """Return whether something may be asked for that is in no list, because its list could not be read.

        The server knows best what it has. Tools that are shown in another way must be known first, and what is hidden
        stays hidden.
        """
        if self.catalog is None or not self.catalog.may_have_more(kind):
            return False
        match kind:
            case ListKind.TOOLS if self.overridden is not None or not self.presentation.tools.allows(key):
                return False
            case ListKind.TOOLS if key in self.catalog.app_tools:
                return key in self.catalog.model_tools
            case ListKind.TOOLS | ListKind.PROMPTS:
                named = AccessKind.TOOL if kind is ListKind.TOOLS else AccessKind.PROMPT
                return self.rules is None or self.judge(named, key).is_visible
            case _:
                return self.may_read(key)

    def may_read(self, uri: str) -> bool:
        """Return whether a resource exists for this view, if there is one."""
        return self.rules is None or self.rules.may_see_resource(uri)

    def offers(self, feature: str) -> bool:
        """Return whether the config lets this feature through."""
        return feature not in self.switched_off

    def complaint(self, kinds: Iterable[ListKind]) -> str:
        """Return which of these lists are incomplete and why; empty if none is."""
        complaint, catalog = self.group.complaint(kinds), self.catalog
        if catalog is None or not catalog.knows(kinds):
            return complaint
        if complaint and self.rules is not None:
            from dynamic_mcp.proxy.allowed_lists import INCOMPLETE

            return INCOMPLETE if any(catalog.lists[kind].complaints for kind in kinds) else ""
        return complaint if self.overridden is None else catalog.complaint(kinds) or ""

    async def learn_hello(self, client: Client) -> Mapping[str, Raw] | None:
        """Return what the upstream says of itself, connecting if need be; None if the group was replaced meanwhile.

        Raises UpstreamError.
        """
        said = await self.group.learn_hello(client)
        if said is None:
            return None
        if self.group.admission.gate is not None:
            said = await self.group.admission.gate.admit_hello(said)
        return said if self.allowed_lists is None else self.allowed_lists.filter_hello(said, self.group.catalog)

    async def learn_catalog(self, client: Client, kinds: Iterable[ListKind] = (ListKind.TOOLS,)) -> Catalog:
        """Return what the group offers here, connecting to learn it only if need be. Raises UpstreamError."""
        return await self._filter(await self.group.learn_catalog(client, kinds))

    async def reread(self, client: Client, kinds: Iterable[ListKind] = (ListKind.TOOLS,)) -> Catalog:
        """Read these lists again, for a name that is not among them. Raises UpstreamError."""
        return await self._filter(await self.group.reread(client, kinds))

    async def _filter(self, whole: Catalog) -> Catalog:
        """Return a catalog without what is held back, what is not presented, and what is not allowed."""
        whole = await self.group.admission.admit(whole)
        if whole is self._whole and self._catalog is not None:
            return self._catalog
        return self._present(whole)

    def _present(self, whole: Catalog) -> Catalog:
        """Return the admitted catalog, filtered by presentation and access rules."""
        allowed = whole if self.allowed_lists is None else self.allowed_lists.filter(whole)
        return allowed if self.overridden is None else self.overridden.show(allowed)


def _filter_lists(presentation: Presentation, rules: GroupRules | None) -> AllowedLists | None:
    """Return the filter of a group's lists; None where everything is presented and allowed."""
    if rules is None and presentation.features == Features() and presentation.tools == ToolFilter():
        return None
    from dynamic_mcp.proxy.allowed_lists import AllowedLists

    return AllowedLists(presentation, rules)


class GroupViews:
    """The group views that there are, so that views of different roles share those that are the same.

    `former` are those of the config before.
    """

    def __init__(self, former: dict[Group, list[GroupView]] | None = None) -> None:
        self._former = former or {}
        self._current: dict[Group, list[GroupView]] = {}

    def __iter__(self) -> Iterator[GroupView]:
        return chain.from_iterable(self._current.values())

    def renew(self) -> GroupViews:
        """Return an empty pool that takes over from this one what is still the same."""
        return GroupViews(self._current)

    def forget(self, groups: Iterable[Group]) -> None:
        """Forget the views of groups that have ended."""
        for group in groups:
            self._former.pop(group, None)
            self._current.pop(group, None)

    def find(self, group: Group, presentation: Presentation, rules: GroupRules | None) -> GroupView:
        """Return the view of a group with this presentation and these rules."""
        current = self._current.setdefault(group, [])
        wanted = (group.config, presentation, rules)
        candidates = (*current, *self._former.get(group, ()))
        found = next((each for each in candidates if (each.config, each.presentation, each.rules) == wanted), None)
        view = found or GroupView(group, presentation, rules)
        if view not in current:
            current.append(view)
        return view


class ViewScope(Struct, frozen=True):
    """A view's settings besides its groups: `instructions` are the profile's, the first three the config's.

    `access_rules` None is that everything is allowed. `extensions` are the features that serve one. `emptiness` says
    why there is no group. Clients of a view that `is_single` see one group as if there were no proxy.
    """

    split_calls: bool = False
    max_direct: DirectLimit | None = None
    roots: tuple[str, ...] = ()
    place: Place = None
    access_rules: AccessRules | None = None
    extensions: tuple[Feature, ...] = ()
    instructions: str = ""
    emptiness: str = "no group is configured"
    is_single: bool = False
    profile: Profile | None = None


class View:
    """The groups that a client may see, in the order of the config.

    `differs_by_surface`: which tools are listed depends on what a client makes of them.
    """

    def __init__(self, groups: Iterable[GroupView], scope: ViewScope) -> None:
        self.scope = scope
        self.access_rules = scope.access_rules
        self._groups = {group.name: group for group in groups}
        self.differs_by_surface = not scope.is_single and any(
            group.presentation.direct.is_auto for group in self._groups.values()
        )
        self._singles: dict[str, View] = {}
        self._derived: dict[object, object] = {}

    def __iter__(self) -> Iterator[GroupView]:
        return iter(self._groups.values())

    def __getitem__(self, name: str) -> GroupView:
        """Return the group of this name. Raises NotFound with the closest names and all that there are."""
        try:
            return self._groups[name]
        except KeyError:
            raise NotFound("group", name, self.names, hint=self.names_in_words()) from None

    def get(self, name: str) -> GroupView | None:
        """Return the group of this name, if there is one."""
        return self._groups.get(name)

    def derive(self, make: Callable[[View], D]) -> D:
        """Return what is made of this view, the same while there is the view; it must not hold on to the view."""
        found = self._derived.get(make)
        if found is None:
            found = self._derived[make] = make(self)
        return cast("D", found)

    def has_tool(self, group: str, tool: str) -> bool:
        """Return whether a tool may be used, as far as that is known of its group."""
        found = self._groups.get(group)
        if found is None:
            return self.access_rules is None  # what it said is still there when the config has no such group any more
        return found.rules is None or found.judge(AccessKind.TOOL, tool).is_visible

    def has_group(self, group: Group) -> bool:
        """Return whether this very group is in the view, and not another one of its name."""
        found = self._groups.get(group.name)
        return found is not None and found.group is group

    @property
    def names(self) -> list[str]:
        return list(self._groups)

    def names_in_words(self, feature: str = "") -> str:
        """Return the names of the groups, or of those that offer a feature, as a text."""
        names = ", ".join(f"`{group.name}`" for group in self if group.offers(feature))
        if self.scope.is_single and names:
            return ""  # other groups do not exist here
        return f"the groups are {names}" if names else self.scope.emptiness

    def offering(self, feature: str) -> list[GroupView]:
        """Return the groups that let this feature through."""
        return [group for group in self if group.offers(feature)]

    def group(self, name: str, feature: str) -> GroupView:
        """Return a group that lets a feature through. Raises NotFound and Disabled."""
        group = self._groups.get(name)
        if group is None:
            return self[name]
        if feature in group.switched_off:
            raise Disabled(feature, name)
        return group

    def single(self, name: str) -> View:
        """Return one group of this view alone, in the same view while there is such a group; else an empty view."""
        found = self._singles.get(name)
        if found is not None:
            return found
        emptiness = "this group is no longer in the config"
        scope = structs.replace(
            self.scope, split_calls=False, extensions=(), instructions="", emptiness=emptiness, is_single=True
        )
        group = self._groups.get(name)
        if group is None:
            return View((), scope)  # not remembered, because a client may ask for any name
        return self._singles.setdefault(name, View((group,), scope))


def make_view(
    groups: Iterable[Group],
    config: Config,
    pool: GroupViews | None = None,
    *,
    rules: AccessRules | None = None,
    profile: Profile | None = None,
    place: Place = None,
) -> View:
    """Return what a config shows of groups by these access rules, in this profile.

    `pool` has the group views of other views.
    """
    pool = pool or GroupViews()
    presentations = config.presentations
    scope = ViewScope(
        config.split_calls, config.max_direct, config.roots, place, rules, features_with_extensions(config)
    )
    if profile is not None:
        from dynamic_mcp.proxy.profiles import describe_emptiness, narrow

        presentations = narrow(presentations, profile)
        emptiness = describe_emptiness(profile, config)
        scope = structs.replace(scope, instructions=profile.instructions, emptiness=emptiness, profile=profile)
    shown: list[GroupView] = []
    for group in groups:
        presentation = presentations.get(group.name)
        if presentation is None:
            continue
        own = None if rules is None else rules.for_group(group.name)
        if own is None or own.is_visible:
            own = None if own is None or own.allows_everything else own
            shown.append(pool.find(group, presentation, own))
    return View(shown, scope)
