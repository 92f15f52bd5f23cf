"""The form of a server's `oauth`, as `form` has it for the rest of the file."""

from typing import Annotated, Literal

from msgspec import Meta

from dynamic_mcp.config.section import Section, Url


class IdentityProvider(Section, frozen=True):
    """The identity provider of an organization, which decides who may use which server."""

    token_endpoint: Annotated[Url, "The URL of its token endpoint, which is sent the `assertion`."]
    client_id: Annotated[str, "The client ID at the identity provider."]
    client_secret: Annotated[
        str | None, "The client secret there, if it has one. Write `${VARIABLE}`, not the secret itself."
    ] = None


class OAuth(Section, frozen=True):
    """Login settings that cannot be discovered automatically."""

    client_id: Annotated[str | None, "The client ID, if the client was registered manually."] = None
    client_secret: Annotated[str | None, "The client secret. Write `${VARIABLE}`, not the secret itself."] = None
    scopes: Annotated[list[str] | None, "The scopes to request. Default: those that the server asks for."] = None
    redirect_port: Annotated[
        Annotated[int, Meta(ge=1, le=65535)] | None,
        "The local port of the redirect URI. Default: any free port.",
    ] = None
    metadata_url: Annotated[
        Url | None,
        "The URL of the authorization server's metadata document, if the server does not advertise it.",
    ] = None
    issuer: Annotated[
        Url | None,
        "The only authorization server that may receive the secret or the assertion, if it is on another host.",
    ] = None
    account: Annotated[
        str | None,
        "A label of your choice. Servers with the same `url` and different labels log in separately.",
    ] = None
    grant: Annotated[
        Literal["authorization_code", "client_credentials", "jwt_bearer", "cross_app"] | None,
        "How to log in: a user in a browser; without one, the client itself (`client_credentials`), whoever the"
        " `assertion` is about (`jwt_bearer`), or the user that an identity provider knows (`cross_app`)."
        " Default: authorization_code.",
    ] = None
    assertion: Annotated[
        str | None,
        "The JWT to log in with, for `cross_app` the user's ID token. Write `${VARIABLE}`, not the token itself.",
    ] = None
    assertion_file: Annotated[
        str | None,
        "The path of a file with the `assertion`, read each time that a token is requested, relative to this file.",
    ] = None
    identity_provider: Annotated[
        IdentityProvider | None, "Where `cross_app` exchanges the `assertion` for a grant that the server accepts."
    ] = None
    private_key_file: Annotated[
        str | None,
        "The path of a PEM key that authenticates the client (private_key_jwt), relative to this file.",
    ] = None
    private_key_alg: Annotated[
        Literal["RS256", "PS256", "ES256", "ES384", "EdDSA"] | None,
        "The signature algorithm for the key. Default: RS256, or the algorithm of the key's curve.",
    ] = None
    shared: Annotated[
        bool | None,
        "One login for everybody who uses the server, instead of one for each person. Default: false.",
    ] = None
    client_metadata_url: Annotated[
        Url | None,
        "The URL of the client's metadata document, used as the client ID if the authorization server supports that.",
    ] = None
