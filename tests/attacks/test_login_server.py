"""Our own authorization server gives codes and tokens to nobody but the client and person that they are for."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from ipaddress import ip_network
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from tests.attacks.target import McpClient, Target, bearer, office, serving
from tests.attacks.wire import Answer, Json
from tests.journeys.remote_server import free_port
from tests.windows import is_private, is_wine

REDIRECT = "http://localhost:3030/callback"
VERIFIER = "v" * 43
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()
FORM = "Content-Type: application/x-www-form-urlencoded"
AS_JSON = "Content-Type: application/json"
_addresses = map(str, itertools.cycle(ip_network("203.0.113.0/24")))  # one for each test: what it does counts


class LoginTarget:
    """The program, and what clients, browsers and attackers do at it, from an address behind a proxy."""

    def __init__(self, target: Target, address: str, client: str | None = None) -> None:
        self.target = target
        self._from = f"X-Forwarded-For: {address}"
        self.client = client or self.register()

    def at(self, address: str) -> LoginTarget:
        """Return what is done from another address, which has done nothing yet that counts against it."""
        return LoginTarget(self.target, address, self.client)

    def register(self, **changes: Json) -> str:
        """Register a client, and return its id."""
        answer = self.try_to_register(**changes)
        assert answer.status == 201, answer
        return str(answer.json["client_id"])

    def try_to_register(self, **changes: Json) -> Answer:
        metadata = {"redirect_uris": [REDIRECT], "client_name": "Client", **changes}
        return self.target.request("POST", "/register", AS_JSON, self._from, body=json.dumps(metadata).encode())

    def open(self, user: str = "ann", /, **changes: str | None) -> Answer:
        """Open the page where a login begins; a parameter that is None is left out."""
        given: Json = {
            "client_id": self.client,
            "redirect_uri": REDIRECT,
            "response_type": "code",
            "code_challenge": CHALLENGE,
            "code_challenge_method": "S256",
            "state": "of-the-client",
            "resource": f"{self.target.origin}/mcp",
            **changes,
        }
        query = urlencode({name: value for name, value in given.items() if value is not None})
        return self.target.request("GET", f"/authorize?{query}", f"X-Forwarded-User: {user}", self._from)

    def decide(self, page: Answer, *lines: str, user: str = "ann", **changes: str) -> Answer:
        """Send the form of a page as a browser does, with these lines in place of its own."""
        tags = [dict(re.findall(r'(\w+)="([^"]*)"', tag)) for tag in re.findall(r"<input [^>]*>", page.text)]
        fields = {tag["name"]: unescape(tag["value"]) for tag in tags if "name" in tag}
        cookie = page.headers.get("set-cookie", "").split(";")[0]
        own = lines or (f"Origin: {self.target.origin}", f"Cookie: {cookie}", "Sec-Fetch-Site: same-origin")
        body = urlencode({**fields, "decision": "allow", **changes}).encode()
        return self.target.request("POST", "/consent", FORM, f"X-Forwarded-User: {user}", self._from, *own, body=body)

    def code(self, **changes: str | None) -> str:
        """Log in, and return the code that the client gets."""
        answer = self.decide(self.open(**changes))
        assert answer.status == 303, answer
        return parse_qs(urlsplit(answer.headers["location"]).query)["code"][0]

    def ask_for_tokens(self, **fields: str | None) -> Answer:
        given = {name: value for name, value in {"client_id": self.client, **fields}.items() if value is not None}
        return self.target.request("POST", "/token", FORM, self._from, body=urlencode(given).encode())

    def redeem(self, code: str, **changes: str | None) -> Answer:
        own = {"grant_type": "authorization_code", "code": code, "redirect_uri": REDIRECT, "code_verifier": VERIFIER}
        return self.ask_for_tokens(**{**own, **changes})

    def refresh(self, token: str, **changes: str | None) -> Answer:
        return self.ask_for_tokens(**{"grant_type": "refresh_token", "refresh_token": token, **changes})

    def log_in(self, **changes: str | None) -> Json:
        answer = self.redeem(self.code(**changes))
        assert answer.status == 200, answer
        return answer.json

    def is_let_in(self, token: str, path: str = "/mcp") -> bool:
        client = McpClient(self.target, bearer(token), path=path)
        return client.post(client.message("ping")).status != 401


@pytest.fixture(scope="module")
def office_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoginTarget]:
    folder, port = tmp_path_factory.mktemp("logins"), free_port()
    auth: Json = [{"kind": "login"}, {"kind": "forwarded", "trusted_proxies": ["127.0.0.1"]}]
    http = {"public_url": f"http://127.0.0.1:{port}/mcp", "auth": auth}
    with serving(folder, {"office": office(folder)}, port=port, http=http, access={"default": "allow"}) as target:
        yield LoginTarget(target, next(_addresses))


@pytest.fixture
def site(office_site: LoginTarget) -> LoginTarget:
    return office_site.at(next(_addresses))


def test_a_login_lets_its_person_in(site: LoginTarget) -> None:
    tokens = site.log_in()
    assert "has run" in json.dumps(
        McpClient(site.target, bearer(tokens["access_token"])).begin().call("office", "query")
    )


# --- redirects and requests ----------------------------------------------------------------------------

REDIRECTS = {
    "another site": "https://evil.example/callback",
    "a host that begins alike": "http://localhost.evil.example:3030/callback",
    "a user": "http://localhost:3030@evil.example/callback",
    "a backslash": "http://localhost:3030\\@evil.example/callback",
    "another path": "http://localhost:3030/callback/evil",
    "dot segments": "http://localhost:3030/callback/../evil",
    "a query": f"{REDIRECT}?next=https://evil.example",
    "a fragment": f"{REDIRECT}#evil",
    "another scheme": "https://localhost:3030/callback",
    "a script": "javascript:alert(1)//localhost:3030/callback",
    "data": "data:text/html,<script>1</script>",
    "no scheme": "//evil.example/callback",
    "a new line": f"{REDIRECT}\r\nX: y",
    "a blank before it": f" {REDIRECT}",
}


@pytest.mark.parametrize("redirect", REDIRECTS.values(), ids=REDIRECTS)
def test_no_browser_is_sent_where_the_client_did_not_register(site: LoginTarget, redirect: str) -> None:
    answer = site.open(redirect_uri=redirect)
    assert answer.status == 400
    assert "location" not in answer.headers


@pytest.mark.parametrize(
    "redirect",
    [
        "javascript:alert(1)",
        "data:text/html,a",
        "file:///etc/passwd",
        "http://evil.example/cb",
        "https://a@evil.example/cb",
        "https://evil.example/cb#f",
        "vbscript:a",
        "about:blank",
    ],
)
def test_no_client_registers_a_redirect_that_is_not_for_clients(site: LoginTarget, redirect: str) -> None:
    assert site.try_to_register(redirect_uris=[redirect]).status == 400


REQUESTS: dict[str, dict[str, str | None]] = {
    "no challenge": {"code_challenge": None},
    "an empty challenge": {"code_challenge": ""},
    "a plain challenge": {"code_challenge": VERIFIER, "code_challenge_method": "plain"},
    "no method": {"code_challenge_method": None},
    "a token instead of a code": {"response_type": "token"},
    "a token beside a code": {"response_type": "code token"},
    "the resource of others": {"resource": "https://evil.example/mcp"},
    "an unknown client": {"client_id": "nobody"},
}


@pytest.mark.parametrize("changes", REQUESTS.values(), ids=REQUESTS)
def test_a_request_that_could_be_misused_gets_no_page_to_allow_it(
    site: LoginTarget, changes: dict[str, str | None]
) -> None:
    answer = site.open(**changes)
    assert "decision" not in answer.text
    assert "code=" not in answer.headers.get("location", "")


def test_a_parameter_that_is_there_twice_is_refused(site: LoginTarget) -> None:
    query = urlencode(
        [("client_id", site.client), ("redirect_uri", REDIRECT), ("redirect_uri", "https://evil.example")]
    )
    assert site.target.request("GET", f"/authorize?{query}", "X-Forwarded-User: ann").status == 400


# --- the page ------------------------------------------------------------------------------------------


def test_a_page_of_another_site_cannot_decide(site: LoginTarget) -> None:
    for lines in (
        ("Origin: https://evil.example",),
        ("Origin: null",),
        ("Sec-Fetch-Site: cross-site",),
        (f"Origin: {site.target.origin}", "Sec-Fetch-Site: same-site"),
    ):
        page = site.open()
        cookie = page.headers["set-cookie"].split(";")[0]
        for sent in (lines, (*lines, f"Cookie: {cookie}")):
            assert site.decide(page, *sent).status in (400, 403), sent


def test_the_page_of_one_person_decides_nothing_for_another(site: LoginTarget) -> None:
    assert site.decide(site.open("eve"), user="ann").status == 400


def test_a_decision_counts_once(site: LoginTarget) -> None:
    page = site.open()
    assert [site.decide(page).status, site.decide(page).status] == [303, 400]


def test_nobody_without_a_name_sees_the_page(site: LoginTarget) -> None:
    query = urlencode(
        {
            "client_id": site.client,
            "redirect_uri": REDIRECT,
            "response_type": "code",
            "code_challenge": CHALLENGE,
            "code_challenge_method": "S256",
        }
    )
    answer = site.target.request("GET", f"/authorize?{query}")
    assert "decision" not in answer.text


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", '"><img src=x onerror=1>', "{{7*7}}", "a\u202eb"])
def test_the_name_of_a_client_is_text_in_a_page_that_cannot_be_framed(site: LoginTarget, name: str) -> None:
    page = site.open(client_id=site.register(client_name=name))
    assert name not in page.text or name == "{{7*7}}"
    assert "<script" not in page.text
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    assert page.headers["cache-control"] == "no-store"


# --- codes ---------------------------------------------------------------------------------------------

CODES: dict[str, dict[str, str | None]] = {
    "another verifier": {"code_verifier": "w" * 43},
    "no verifier": {"code_verifier": None},
    "an empty verifier": {"code_verifier": ""},
    "the challenge as the verifier": {"code_verifier": CHALLENGE},
    "another redirect": {"redirect_uri": "https://evil.example/callback"},
    "another client": {"client_id": "nobody"},
    "no client": {"client_id": None},
    "another grant": {"grant_type": "client_credentials"},
    "a password": {"grant_type": "password", "username": "ann", "password": "x"},
    "the resource of others": {"resource": "https://evil.example/mcp"},
}


@pytest.mark.parametrize("changes", CODES.values(), ids=CODES)
def test_a_stolen_code_gives_no_tokens(site: LoginTarget, changes: dict[str, str | None]) -> None:
    answer = site.redeem(site.code(), **changes)
    assert answer.status in (400, 401)
    assert "access_token" not in answer.text


def test_a_code_is_worth_nothing_to_another_registered_client(site: LoginTarget) -> None:
    assert site.redeem(site.code(), client_id=site.register()).status == 400


def test_a_code_that_is_used_twice_ends_what_it_gave(site: LoginTarget) -> None:
    code = site.code()
    tokens = site.redeem(code).json
    assert site.redeem(code).status == 400
    assert not site.is_let_in(tokens["access_token"])
    assert site.refresh(tokens["refresh_token"]).status == 400


def test_of_ten_that_redeem_a_code_at_once_one_gets_tokens(site: LoginTarget) -> None:
    code = site.code()
    with ThreadPoolExecutor(10) as threads:
        answers = list(threads.map(lambda _: site.redeem(code).status, range(10)))
    assert sorted(answers) == [200, *[400] * 9]


@pytest.mark.parametrize("code", ["", "a", "A" * 43, "' OR 1=1 --", "\x00", "é", "A" * 100_000])
def test_a_guessed_code_gives_nothing(site: LoginTarget, code: str) -> None:
    assert site.redeem(code).status in (400, 413)


# --- tokens --------------------------------------------------------------------------------------------


def test_a_refresh_token_that_is_used_again_later_ends_the_login_of_the_thief_too(site: LoginTarget) -> None:
    first = site.log_in()
    second = site.refresh(first["refresh_token"]).json
    third = site.refresh(second["refresh_token"]).json
    assert site.refresh(first["refresh_token"]).status == 400
    assert site.refresh(third["refresh_token"]).status == 400
    assert not site.is_let_in(third["access_token"])


def test_a_refresh_token_is_worth_nothing_to_another_client_and_lets_nobody_in(site: LoginTarget) -> None:
    tokens = site.log_in()
    assert site.refresh(tokens["refresh_token"], client_id=site.register()).status == 400
    assert not site.is_let_in(tokens["refresh_token"])
    assert not site.is_let_in(site.code())


def test_a_refreshed_token_has_no_more_scopes_and_no_other_resource(site: LoginTarget) -> None:
    token = site.log_in()["refresh_token"]
    assert site.refresh(token, resource="https://evil.example/mcp").status == 400
    widened = site.refresh(token, scope="admin everything")
    assert widened.status == 400 or "admin" not in widened.json.get("scope", "")


def test_a_token_for_one_group_is_for_that_group(site: LoginTarget) -> None:
    token = site.log_in(resource=f"{site.target.origin}/mcp/office")["access_token"]
    assert (site.is_let_in(token, "/mcp/office"), site.is_let_in(token)) == (True, False)


def test_nothing_that_is_kept_on_disk_lets_anybody_in(site: LoginTarget) -> None:
    tokens = site.log_in()
    renewed = site.refresh(tokens["refresh_token"]).json
    code = site.code()
    secrets = [each[name] for each in (tokens, renewed) for name in ("access_token", "refresh_token")]
    files = [path for path in site.target.folder.rglob("*") if path.is_file()]
    assert any(path.suffix == ".sqlite" for path in files)
    found = {path.name for path in files for secret in (*secrets, code) if secret.encode() in path.read_bytes()}
    assert found == set()


def test_nothing_of_a_login_is_in_the_log(site: LoginTarget) -> None:
    tokens = site.log_in()
    assert not [secret for secret in (tokens["access_token"], tokens["refresh_token"]) if secret in site.target.log()]


def test_a_key_that_others_can_read_is_not_on_disk(site: LoginTarget) -> None:
    files = [*site.target.folder.rglob("*.sqlite*")]
    assert any(path.suffix == ".sqlite" for path in files)
    shared = {path.suffix for path in files if not is_private(path)}
    # A file inherits the access list of its directory on Windows, and not in Wine:
    # https://learn.microsoft.com/windows/win32/secauthz/ace-inheritance
    assert shared <= ({".sqlite-wal", ".sqlite-shm"} if is_wine() else set())
    assert all(is_private(path.parent) for path in files)


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "multipart/form-data; boundary=a"])
def test_tokens_are_asked_for_by_forms_only(site: LoginTarget, kind: str) -> None:
    body = json.dumps({"grant_type": "authorization_code", "code": site.code(), "client_id": site.client}).encode()
    assert site.target.request("POST", "/token", f"Content-Type: {kind}", body=body).status in (400, 415)


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/consent"), ("POST", "/token"), ("POST", "/register"), ("GET", "/authorize")]
)
def test_pages_of_other_origins_send_nothing_to_it(site: LoginTarget, method: str, path: str) -> None:
    answer = site.target.request(method, path, "Origin: https://evil.example")
    assert answer.status == 403
    assert "access-control-allow-origin" not in answer.headers


# --- documents of clients ------------------------------------------------------------------------------

DOCUMENTS = [
    "https://127.0.0.1:{port}/client.json",
    "https://localhost:{port}/client.json",
    "https://[::1]:{port}/client.json",
    "https://[::ffff:127.0.0.1]:{port}/client.json",
    "https://127.1:{port}/client.json",
    "https://2130706433:{port}/client.json",
    "https://0.0.0.0:{port}/client.json",
    "https://127.0.0.1.:{port}/client.json",
    "https://LOCALHOST:{port}/client.json",
    "http://127.0.0.1:{port}/client.json",
    "https://user@127.0.0.1:{port}/client.json",
]


@pytest.mark.parametrize("url", DOCUMENTS)
def test_no_client_has_a_document_fetched_from_this_machine(site: LoginTarget, url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        answer = site.open(client_id=url.format(port=listener.getsockname()[1]))
        assert "decision" not in answer.text
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
