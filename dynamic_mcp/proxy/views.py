"""The views of all clients: one for each place, profile and set of roles, however many clients have it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from dynamic_mcp.client import Client
from dynamic_mcp.config.access import Profile
from dynamic_mcp.config.resolved import Config, Presentation
from dynamic_mcp.groups.assignment import Place
from dynamic_mcp.groups.group import Group
from dynamic_mcp.groups.groups import Groups
from dynamic_mcp.identity import Authentication
from dynamic_mcp.proxy.gates import Gates
from dynamic_mcp.proxy.view import GroupViews, View, ViewScope, make_view
from dynamic_mcp.system.bounded import BoundedDict

if TYPE_CHECKING:  # loaded with the first access rule, and the first message of a server
    from dynamic_mcp.policy.access import AccessRules, Policy
    from dynamic_mcp.proxy.message_rules import MessageRules

# Views that are remembered. One that is forgotten is made again.
_MAX_VIEWS = 10_000


class Views:
    """Finds the view of a client on these groups, which get their `gates` before any client can see them."""

    def __init__(self, configs: Mapping[Place, Config], groups: Groups, gates: Gates) -> None:
        self._groups = groups
        self._gates = gates
        self._pool = GroupViews()
        self._has_had_profiles = False
        self._messages: MessageRules | None = None
        self.apply(configs)

    def __iter__(self) -> Iterator[View]:
        """Yield each view once."""
        return iter([*self._views.values()])

    @property
    def are_governed(self) -> bool:
        """True if clients of one workspace may have different views."""
        return self._policy is not None or self._has_had_profiles

    @property
    def have_rules(self) -> bool:
        """True if access rules decide what clients see."""
        return self._policy is not None

    @property
    def messages(self) -> MessageRules:
        """The rules on messages that servers send by themselves."""
        if self._messages is None:
            from dynamic_mcp.proxy.message_rules import MessageRules

            self._messages = MessageRules(self._configs.values())
        return self._messages

    def apply(self, configs: Mapping[Place, Config]) -> None:
        """Make the views of other configs from now on; lists that stay the same stay the same objects."""
        self._configs = dict(configs)
        self._gates.apply(self._configs, self._groups)
        self._messages = None
        self._policy = _read_policy(configs[None])
        # a client that has chosen one keeps it, also once the config has none any more
        self._has_had_profiles |= bool(configs[None].profiles)
        self._views: BoundedDict[Hashable, View] = BoundedDict(_MAX_VIEWS)
        self._by_client: WeakKeyDictionary[Client, tuple[Authentication, View]] = WeakKeyDictionary()
        self._pool = self._pool.renew()
        self._nothing = View((), ViewScope())  # for clients that have gone, and their place with them

    def add(self, place: Place, config: Config) -> None:
        """Add views for a workspace or a user."""
        self._configs[place] = config
        self._gates.add(config.presentations, self._groups.of(place).values())
        self._messages = None

    def remove(self, place: Place, ended: Iterable[Group]) -> None:
        """Forget a workspace or a user, and the groups that have ended with it."""
        self._configs.pop(place, None)
        for key in [key for key, view in self._views.items() if view.scope.place == place]:
            del self._views[key]
        self._pool.forget(ended)

    def view_for(self, client: Client) -> View:
        """Return what a client may see."""
        place: Place = client.workspace
        if place is None and self._groups.has_user_logins:
            place = self._groups.place_of(client)
        if self._policy is None and not self._has_had_profiles and client.profile is None:
            view = self._views.get((place, None, None)) or self._find(place, None, None)
        else:
            entry = self._by_client.get(client)
            if entry is None or entry[0] is not client.authentication:
                view = self._find_for(client.authentication, client.profile, place)
                entry = self._by_client[client] = client.authentication, view
            view = entry[1]
        return view if client.only is None else view.single(client.only)

    def view_of(self, authentication: Authentication, profile: str | None = None, *, place: Place = None) -> View:
        """Return the view of clients without a workspace that have chosen this profile, or none."""
        return self._find_for(authentication, profile, place)

    def roles_of(self, authentication: Authentication) -> tuple[str, ...]:
        """Return a principal's roles in the config, where there are access rules."""
        return authentication.roles if self._policy is None else tuple(sorted(self._policy.roles_of(authentication)))

    def rules_for(self, client: Client) -> AccessRules | None:
        """Return the access rules for a client, if there are any."""
        return None if self._policy is None else self._policy.rules_for(client.authentication)

    def presented_to(self, client: Client) -> Iterator[tuple[Group, Presentation]]:
        """Yield the groups that there are where a client is, with what the config presents, whatever is hidden."""
        place = self._groups.place_of(client)
        config = self._configs.get(place)
        for group in self._groups.of(place).values():
            if config is not None and group.name in config.presentations:
                yield group, config.presentations[group.name]

    def has_profile(self, name: str) -> bool:
        """Return whether there is a profile of this name."""
        return name in self._configs[None].profiles

    def _find_for(self, authentication: Authentication, profile: str | None, place: Place) -> View:
        rules = None if self._policy is None else self._policy.rules_for(authentication)
        profiles = self._configs[None].profiles
        if profile is None and not profiles:
            return self._find(place, rules, None)
        from dynamic_mcp.proxy.profiles import choose

        roles = (*authentication.roles, *(() if rules is None else rules.roles))
        return self._find(place, rules, choose(profiles, profile, roles))

    def _find(self, place: Place, rules: AccessRules | None, profile: Profile | None) -> View:
        key = (place, rules, None if profile is None else profile.name)
        found = self._views.get(key)
        if found is None:
            config = self._configs.get(place)
            if config is None:
                return self._nothing
            groups = self._groups.of(place).values()
            found = make_view(groups, config, self._pool, rules=rules, profile=profile, place=place)
            self._views[key] = found
        return found


def _read_policy(config: Config) -> Policy | None:
    if config.access is None:
        return None
    from dynamic_mcp.policy.access import Policy

    return Policy(config.access)
