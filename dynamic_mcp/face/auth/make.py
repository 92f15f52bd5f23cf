"""Creates the authenticator of a config. A provider that the next version of the config has too is kept."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from dynamic_mcp.config import auth
from dynamic_mcp.config.http import Http
from dynamic_mcp.config.issuers import issuer_of
from dynamic_mcp.face.auth.bearer import BearerProvider, TokenFile
from dynamic_mcp.face.auth.chain import AuthChain
from dynamic_mcp.face.auth.forwarded import ForwardedProvider
from dynamic_mcp.face.auth.guesses import TokenGuesses
from dynamic_mcp.face.auth.jwt import make_jwt
from dynamic_mcp.face.auth.metadata import ResourceMetadata
from dynamic_mcp.face.auth.provider import Provider
from dynamic_mcp.face.auth.token_store import token_store
from dynamic_mcp.face.http.authenticator import Authenticator, LocalAuthenticator
from dynamic_mcp.features.table import FEATURES

if TYPE_CHECKING:
    from dynamic_mcp.face.auth.kept_tokens import TokenKeeper
    from dynamic_mcp.system.shared_store import SharedStore

# What a provider depends on: its config, its URL and paths, the config file of its tokens, and what else is its own:
# settings of its pages, or the store of its tokens.
_Key = tuple[auth.Provider, str | None, str, str, Path, tuple[object, ...]]


class ProviderPool:
    """The providers of all versions of a config; those of unchanged entries are the same objects.

    With a `shared_store`, tokens that were created, and logins of clients, are those of all replicas.
    """

    shared_store: SharedStore | None = None

    def __init__(self) -> None:
        self._providers: dict[_Key, Provider] = {}
        self._guesses = TokenGuesses(time.monotonic)

    def make_authenticator(self, http: Http, config_file: Path, keeper: TokenKeeper | None = None) -> Authenticator:
        """Return the authenticator for this version, which has the `keeper` keep the tokens that it accepts.

        Providers of other versions stay open.
        """
        if not http.auth:
            return LocalAuthenticator()
        for key in self._keys(http, config_file):
            if key not in self._providers:
                self._providers[key] = _make_provider(key[0], http, config_file, self.shared_store)
        providers = [self._providers[key] for key in self._keys(http, config_file)]
        if keeper is not None:
            providers = [keeper.watch(*pair) for pair in zip(http.auth, providers, strict=True)]
        scopes = _required_scopes(http)
        self._guesses.trust(http.forwarders)
        return AuthChain(providers, _make_metadata(http, scopes), scopes=scopes, guesses=self._guesses)

    async def keep_only(self, http: Http, config_file: Path) -> None:
        """Close the providers that this version does not use."""
        kept = set(self._keys(http, config_file))
        unused = [self._providers.pop(key) for key in [*self._providers] if key not in kept]
        for each in unused:
            await each.close()

    async def close(self) -> None:
        await self.keep_only(Http(), Path())

    def _keys(self, http: Http, config_file: Path) -> list[_Key]:
        endpoint = (http.public_url, http.path, http.root_path, config_file)
        return [(each, *endpoint, self._own_needs(each, http)) for each in http.auth]

    def _own_needs(self, config: auth.Provider, http: Http) -> tuple[object, ...]:
        match config:
            case auth.LoginAuth():
                return (http.trusted_proxies, _forwarded(http), self.shared_store)
            case auth.BearerAuth():
                return (self.shared_store,)
        return ()


def _make_provider(
    config: auth.Provider, http: Http, config_file: Path, shared_store: SharedStore | None
) -> Provider:
    match config:
        case auth.BearerAuth() if shared_store is not None:
            from dynamic_mcp.face.auth.shared_tokens import SharedBearerProvider, SharedTokens

            return SharedBearerProvider(config, SharedTokens(shared_store))
        case auth.BearerAuth():
            return BearerProvider(config, TokenFile(token_store(config_file)))
        case auth.Forwarded():
            return ForwardedProvider(config)
        case auth.Jwt():
            return make_jwt(config, http)
        case _:
            return _make_by_feature(config, http, config_file, shared_store)


def _forwarded(http: Http) -> auth.Forwarded | None:
    return next((each for each in http.auth if isinstance(each, auth.Forwarded)), None)


def _make_by_feature(
    config: auth.Provider, http: Http, config_file: Path, shared_store: SharedStore | None
) -> Provider:
    kind = config.__struct_config__.tag
    feature = next(each for each in FEATURES if each.auth_kind == kind)
    provider: Provider = feature.load(feature.auth_provider).make_provider(config, http, config_file, shared_store)
    return provider


def _required_scopes(http: Http) -> tuple[str, ...]:
    return tuple(
        dict.fromkeys(scope for each in http.auth if isinstance(each, auth.Jwt) for scope in each.required_scopes)
    )


def _make_metadata(http: Http, scopes: tuple[str, ...]) -> ResourceMetadata | None:
    if http.public_url is None:
        return None
    issuers = [each.issuer for each in http.auth if isinstance(each, auth.Jwt)]
    login_issuers = [issuer_of(http) for each in http.auth if isinstance(each, auth.LoginAuth)]
    return ResourceMetadata(
        http.public_url,
        path=http.path,
        root_path=http.root_path,
        authorization_servers=[*issuers, *login_issuers],
        scopes=scopes,
    )
