"""Logins on disk: private, whole, apart from each other; what is broken is set aside."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.errors import PasswordDeleteError
from msgspec.structs import replace as with_fields

from dynamic_mcp.identity import Principal
from dynamic_mcp.oauth.credentials import ClientCredentials, Login, Token
from dynamic_mcp.oauth.keychain import delete, read, write
from dynamic_mcp.oauth.store import LoginStore, key
from dynamic_mcp.system.paths import FileLock
from tests.oauth.parts import remote
from tests.windows import grant, is_private

URL = "https://mcp.example.com/mcp"
LOGIN = Login(
    URL,
    "https://as.example.com",
    "https://as.example.com/token",
    client=ClientCredentials("c", "registered", "client_secret_post", "SECRET-client"),
    token=Token("SECRET-access", 1.0, 2.0, "SECRET-refresh", "a b"),
)


def only_file(folder: Path, end: str = ".json") -> Path:
    (file,) = folder.glob(f"*{end}")
    return file


def test_a_login_comes_back_as_it_was(tmp_path: Path) -> None:
    store = LoginStore(tmp_path, remote(URL))
    assert (store.load(), store.stamp()) == (None, None)

    store.save(LOGIN)

    assert store.load() == LOGIN
    store.delete()
    assert store.load() is None


def test_only_the_owner_can_read_the_file_and_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "logins"
    folder.mkdir(mode=0o755)
    LoginStore(folder, remote(URL)).save(LOGIN)

    assert is_private(folder)
    assert is_private(only_file(folder))
    only_file(folder).chmod(0o644)
    grant(only_file(folder), "RX")
    assert LoginStore(folder, remote(URL)).load() == LOGIN
    assert is_private(only_file(folder))


@pytest.mark.posix_only("links need a privilege on Windows")
def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    store = LoginStore(tmp_path / "logins", remote(URL))
    store.save(LOGIN)
    file = only_file(tmp_path / "logins")
    elsewhere = file.rename(tmp_path / "elsewhere")
    file.symlink_to(elsewhere)
    before = elsewhere.read_bytes()

    with pytest.raises(OSError, match="symbolic links"):
        store.load()
    store.save(replace(LOGIN, token=None))

    assert elsewhere.read_bytes() == before
    assert not file.is_symlink()


@pytest.mark.parametrize(
    "content", [b"", b"{", b"null", b"[]", b'{"server": 1}', b"\xff", b"[" * 100_000, b"x" * 2**21]
)
def test_an_invalid_file_is_set_aside_and_not_lost(tmp_path: Path, content: bytes) -> None:
    store = LoginStore(tmp_path, remote(URL))
    store.save(LOGIN)
    only_file(tmp_path).write_bytes(content)

    assert store.load() is None
    assert only_file(tmp_path, ".bad").read_bytes() == content


def test_the_file_of_a_newer_version_is_not_changed(tmp_path: Path) -> None:
    store = LoginStore(tmp_path, remote(URL))
    store.save(LOGIN)
    newer = only_file(tmp_path).rename(tmp_path / f"{key(remote(URL))}.v2.json")

    assert store.load() is None
    assert newer.exists()


@pytest.mark.parametrize("other", [remote(URL + "/"), remote(URL, client_id="a"), remote(URL, account="work")])
def test_each_server_client_and_account_has_its_own_login(tmp_path: Path, other: object) -> None:
    LoginStore(tmp_path, remote(URL)).save(LOGIN)

    assert LoginStore(tmp_path, other).load() is None  # type: ignore[arg-type]


def test_a_hostile_url_stays_inside_the_folder(tmp_path: Path) -> None:
    LoginStore(tmp_path / "logins", remote("https://h/../../../x\0y")).save(LOGIN)

    assert only_file(tmp_path / "logins").parent == tmp_path / "logins"


def test_a_repr_shows_no_secret() -> None:
    assert "SECRET" not in repr(LOGIN)


def test_a_lock_has_one_holder_and_is_free_afterwards(tmp_path: Path) -> None:
    one, other = FileLock(tmp_path / "logins" / "a.lock"), FileLock(tmp_path / "logins" / "a.lock")

    assert one.try_acquire()
    assert not other.try_acquire()
    one.release()
    assert other.try_acquire()
    other.release()


class WindowsError1783(Exception):
    """What keyring passes on from Windows: no class of its own."""

    winerror = 1783


class Keychain(KeyringBackend):
    """A keychain in memory, or one that does not open."""

    priority = 1
    kept: dict[tuple[str, str], str]
    is_locked = False
    most_characters = 1 << 20

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kept = {}

    def set_password(self, service: str, username: str, password: str) -> None:
        if self.is_locked:
            raise keyring.errors.KeyringLocked("locked")
        if len(password) > self.most_characters:
            raise WindowsError1783("CredWrite", "The stub received bad data")
        self.kept[service, username] = password

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def delete_password(self, service: str, username: str) -> None:
        try:
            del self.kept[service, username]
        except KeyError:
            raise PasswordDeleteError("not there") from None


@pytest.fixture
def keychain(monkeypatch: pytest.MonkeyPatch) -> Keychain:
    chain = Keychain()
    monkeypatch.setattr("keyring.core._keyring_backend", chain)
    return chain


def test_with_a_keychain_the_file_holds_no_secret(tmp_path: Path, keychain: Keychain) -> None:
    store = LoginStore(tmp_path, remote(URL, token_store="keyring"))

    store.save(LOGIN)

    assert b"SECRET" not in only_file(tmp_path).read_bytes()
    assert store.load() == replace(LOGIN, is_in_keyring=True)
    assert LoginStore(tmp_path, remote(URL)).load() == store.load()  # also when the config says `file` again
    store.delete()
    assert keychain.kept == {}


def test_the_keychain_of_windows_keeps_a_long_token_in_parts(tmp_path: Path, keychain: Keychain) -> None:
    keychain.most_characters = 1280
    name = "a login"
    for secret in ("x" * 5000, "y" * 3000, "short", "z" * 1201):
        write(name, secret, platform="win32")
        assert read(name) == secret
        assert len(keychain.kept) == (1 if len(secret) <= 1200 else 1 + -(-len(secret) // 1200))
    delete(name)
    assert keychain.kept == {}


def test_a_secret_whose_parts_are_replaced_while_it_is_read_is_read_again(keychain: Keychain) -> None:
    write("a login", "x" * 3000, platform="win32")
    reads: list[str] = []

    def get_password(service: str, username: str) -> str | None:
        if len(reads) == 2:  # after the head and one part
            keychain.get_password = original  # type: ignore[method-assign]
            write("a login", "y" * 3000, platform="win32")
        reads.append(username)
        return original(service, username)

    original = keychain.get_password
    keychain.get_password = get_password  # type: ignore[method-assign]
    assert read("a login") == "y" * 3000


def test_an_error_of_windows_keychain_is_one_of_the_system(keychain: Keychain) -> None:
    keychain.most_characters = 10
    with pytest.raises(OSError, match="bad data"):
        write("a login", "x" * 100, platform="win32")


def test_a_keychain_that_does_not_open_is_an_error(tmp_path: Path, keychain: Keychain) -> None:
    keychain.is_locked = True

    with pytest.raises(OSError, match="locked"):
        LoginStore(tmp_path, remote(URL, token_store="keyring")).save(LOGIN)


def test_without_the_keychain_package_the_error_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)

    with pytest.raises(OSError, match="pip install"):
        LoginStore(tmp_path, remote(URL, token_store="keyring")).save(LOGIN)


def test_each_person_has_a_file_of_its_own_and_no_names_can_be_taken_for_others(tmp_path: Path) -> None:
    persons = [None, *(Principal(*names) for names in (("a", "bc"), ("ab", "c"), ("", "abc"), ('a","b', "c")))]
    remotes = [with_fields(remote(URL), login_of=person) for person in persons]

    for config in remotes:
        LoginStore(tmp_path, config).save(replace(LOGIN, issuer=key(config)))

    assert len({key(config) for config in remotes}) == len(persons)
    loaded = [LoginStore(tmp_path, config).load() for config in remotes]
    assert [login and login.issuer for login in loaded] == [key(config) for config in remotes]
    assert all(is_private(file) for file in tmp_path.glob("*.json"))
