"""An authorization server that exchanges its own access tokens (RFC 8693), with authlib's framework for servers.

It takes a token only if it has signed it for the client that shows it, and the new one says who acts for whom.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from typing import Any, cast

from authlib.oauth2 import OAuth2Error, OAuth2Request
from authlib.oauth2.rfc6749 import AuthorizationServer, BaseGrant, ClientMixin, TokenEndpointMixin
from authlib.oauth2.rfc6749.errors import InvalidGrantError, InvalidRequestError, UnauthorizedClientError
from authlib.oauth2.rfc6749.requests import BasicOAuth2Payload
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from tests.oidc_provider import TOKEN, OidcProvider
from tests.signing_keys import key_for, public_jwk
from tests.upstreams.auth_server import Answer, Request

Json = Any  # whatever JSON a test writes down

EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
TYPES = "urn:ietf:params:oauth:token-type:"
CLIENT, SECRET = "dynamic-mcp", "secret-of-dynamic-mcp"


def refusal(code: str, description: str = "") -> OAuth2Error:
    """Return an error with a code (RFC 6749, section 5.2)."""
    return OAuth2Error(description, error=code)


class InvalidTargetError(OAuth2Error):
    """The audience is unknown (RFC 8693, section 2.2.2)."""

    error = "invalid_target"


class ExchangeIssuer(OidcProvider):
    """Serves on 127.0.0.1 while it is entered as a context."""

    def __init__(self, audience: str, *targets: str) -> None:
        super().__init__()
        self.audience = audience  # of the tokens that callers show
        self.targets = {*targets}  # whom a new token may be for
        self.life_s = 600.0
        self.answer_changes: dict[str, Json] = {}  # None removes a member
        self.refuse: Callable[[dict[str, str]], OAuth2Error | None] = lambda form: None
        self.issued: dict[str, str] = {}  # the subject of each new token
        self._framework = _Server(self)
        self.manners.overrides[TOKEN] = self._exchange
        self.manners.metadata["grant_types_supported"] = ["authorization_code", EXCHANGE]

    def token_of(self, person: str, *, life_s: float = 600, **claims: Json) -> str:
        """Return the token that a client of a person shows to dynamic-mcp."""
        return self.mint(self.audience, life_s=life_s, **{"sub": person, **claims})

    def key_set(self) -> KeySet:
        """Return the public keys by which others check what it has signed."""
        keys = [public_jwk(key_for(each), kid=self.kid(each), use="sig") for each in ("RS256", "ES256")]
        return KeySet.import_key_set({"keys": keys})

    @property
    def exchanges(self) -> list[Request]:
        return self.requests_to(TOKEN)

    def _exchange(self, request: Request) -> Answer:
        return cast("Answer", self._framework.create_token_response(request))  # what `handle_response` returns

    def issue(self, form: dict[str, str], claims: dict[str, Json], client: str) -> dict[str, Json]:
        """Return the answer with a token for the subject of another one."""
        now = time.time()
        actor = {"sub": client}
        if "actor_token" in form:
            actor = {"sub": jwt.decode(form["actor_token"], self.key_set()).claims["sub"], "client_id": client}
        own = {
            "iss": self.issuer,
            "sub": claims["sub"],
            "aud": form.get("audience") or form.get("resource"),
            "scope": form.get("scope", ""),
            "act": actor,
            "iat": now,
            "exp": now + self.life_s,
            "jti": str(next(_NUMBERS)),
        }
        token = self._sign("RS256", {"typ": "at+jwt"}, own)
        self.issued[token] = claims["sub"]
        answer = {
            "access_token": token,
            "issued_token_type": form.get("requested_token_type") or f"{TYPES}access_token",
            "token_type": "Bearer",
            "expires_in": self.life_s,
            "scope": form.get("scope", ""),
            **self.answer_changes,
        }
        return {name: value for name, value in answer.items() if value is not None}


_NUMBERS = itertools.count(1)


class _Client(ClientMixin):
    """The one client, which exchanges tokens and does nothing else."""

    def get_client_id(self) -> str:
        return CLIENT

    def check_client_secret(self, client_secret: str) -> bool:
        return client_secret == SECRET

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method in ("client_secret_basic", "client_secret_post")

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type == EXCHANGE


class _Server(AuthorizationServer):
    """authlib's server, for requests as our tests have them."""

    def __init__(self, issuer: ExchangeIssuer) -> None:
        super().__init__()
        self.issuer = issuer
        self.register_grant(_TokenExchange)

    def query_client(self, client_id: str) -> ClientMixin:
        return cast("ClientMixin", _Client() if client_id == CLIENT else None)  # None is none, for it

    def save_token(self, token: Json, request: OAuth2Request) -> None:
        """Save nothing: the tokens are signed."""

    def send_signal(self, name: str, *args: object, **kwargs: object) -> None:
        """Send nothing."""

    def create_oauth2_request(self, request: Request) -> OAuth2Request:
        headers = {name.title(): value for name, value in request.headers.items()}
        made = _FormRequest(request.method, "https://issuer.example/token", headers=headers)
        made.payload = BasicOAuth2Payload(request.form)
        made.sent_form = request.form
        return made

    def handle_response(self, status: int, body: Json, headers: Json) -> Answer:
        return Answer(status, json.loads(body) if isinstance(body, str) else body)


class _FormRequest(OAuth2Request):
    sent_form: dict[str, str]

    @property
    def form(self) -> dict[str, str]:
        return self.sent_form


class _TokenExchange(BaseGrant, TokenEndpointMixin):
    """Exchanges a token that was issued for the client that shows it (RFC 8693, section 2.1)."""

    GRANT_TYPE = EXCHANGE
    TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_basic", "client_secret_post")

    def validate_token_request(self) -> None:
        client = self.authenticate_token_endpoint_client()
        if not client.check_grant_type(self.GRANT_TYPE):
            raise UnauthorizedClientError
        self.request.client = client
        form, issuer = self.request.form, self.server.issuer
        if form.get("subject_token_type") not in (f"{TYPES}access_token", f"{TYPES}jwt"):
            raise InvalidRequestError("the type of the subject's token is missing or unknown")
        if (refused := issuer.refuse(form)) is not None:
            raise refused
        self._claims = self._read(form.get("subject_token", ""), issuer)
        if (form.get("audience") or form.get("resource")) not in issuer.targets:
            raise InvalidTargetError

    def _read(self, token: str, issuer: ExchangeIssuer) -> dict[str, Json]:
        try:
            claims = jwt.decode(token, issuer.key_set(), algorithms=["RS256"]).claims
        except (JoseError, ValueError):
            raise InvalidGrantError(f"not signed by us: {token}") from None
        if claims.get("iss") != issuer.issuer or claims.get("aud") != issuer.audience:
            raise InvalidGrantError(f"not ours, or not for this client: {token}")
        if claims["exp"] <= time.time():
            raise InvalidGrantError(f"has expired: {token}")
        return dict(claims)

    def create_token_response(self) -> tuple[int, Json, Json]:
        return 200, self.server.issuer.issue(self.request.form, self._claims, CLIENT), self.TOKEN_RESPONSE_HEADER
