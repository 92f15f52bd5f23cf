"""The access control lists of files on Windows: makes files private, and tells which other users can use them.

Private is what the user, Administrators and SYSTEM can use. Other systems have modes, and none of this.
"""

from __future__ import annotations

import errno
import sys
from pathlib import Path

from msgspec import Struct

from dynamic_mcp.system.os_user import os_user


class OtherUsers(Struct, frozen=True):
    """The names of other users and groups that can read or change a file, and of its owner if that is another."""

    readers: tuple[str, ...] = ()
    writers: tuple[str, ...] = ()
    owner: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(filter(None, [*self.readers, *self.writers, self.owner])))

    def __bool__(self) -> bool:
        return bool(self.names)


def private_command(path: Path) -> str:
    """Return the command that lets only this user, SYSTEM and Administrators use a file or directory."""
    rights = "(OI)(CI)F" if path.is_dir() else "F"
    grants = " ".join(f'/grant:r "{user}:{rights}"' for user in (os_user(), "*S-1-5-18", "*S-1-5-32-544"))
    return f'icacls "{path}" /inheritance:r {grants}'


if sys.platform == "win32":
    import ntsecuritycon
    import win32api
    import win32file
    import win32security

    from dynamic_mcp.system.named_pipe import own_user

    # SYSTEM, Administrators and TrustedInstaller, who can do anything; CREATOR OWNER and OWNER RIGHTS are the owner.
    # https://learn.microsoft.com/windows/win32/secauthz/well-known-sids
    _TRUSTED = (
        "S-1-5-18",
        "S-1-5-32-544",
        "S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464",
        "S-1-3-0",
        "S-1-3-4",
    )
    _READ = ntsecuritycon.FILE_READ_DATA | ntsecuritycon.GENERIC_READ | ntsecuritycon.GENERIC_ALL
    _WRITE = (
        ntsecuritycon.FILE_WRITE_DATA
        | ntsecuritycon.FILE_APPEND_DATA
        | ntsecuritycon.FILE_DELETE_CHILD
        | ntsecuritycon.DELETE
        | ntsecuritycon.WRITE_DAC
        | ntsecuritycon.WRITE_OWNER
        | ntsecuritycon.GENERIC_WRITE
        | ntsecuritycon.GENERIC_ALL
    )
    _ALLOWING = (win32security.ACCESS_ALLOWED_ACE_TYPE, win32security.ACCESS_ALLOWED_OBJECT_ACE_TYPE)

    # Of a volume: https://learn.microsoft.com/windows/win32/api/fileapi/nf-fileapi-getvolumeinformationw
    _FILE_PERSISTENT_ACLS = 8

    def are_kept(path: Path) -> bool:
        """Return whether the file system of a path has access control lists, as FAT and exFAT have not."""
        try:
            volume = win32api.GetVolumeInformation(win32file.GetVolumePathName(str(path)))
        except win32api.error:
            return True
        return bool(volume[3] & _FILE_PERSISTENT_ACLS)

    def make_private(path: Path) -> None:
        """Let only this user, Administrators and SYSTEM use a file, or a directory and what is created in it.

        Raises OSError, also for a file system without access control lists.
        """
        inherited = "OICI" if path.is_dir() else ""
        users = "".join(f"(A;{inherited};FA;;;{each})" for each in ("SY", "BA", own_user()))
        descriptor = win32security.ConvertStringSecurityDescriptorToSecurityDescriptor(
            f"D:P{users}", win32security.SDDL_REVISION_1
        )
        protected = win32security.DACL_SECURITY_INFORMATION | win32security.PROTECTED_DACL_SECURITY_INFORMATION
        try:
            win32security.SetFileSecurity(str(path), protected, descriptor)
        except win32security.error as exc:
            raise _to_os_error(exc, path) from exc

    def copy_access(file: Path, copy: Path) -> None:
        """Let the same users use a copy of a file, which takes its place. Raises OSError."""
        wanted = win32security.DACL_SECURITY_INFORMATION
        try:
            descriptor = win32security.GetFileSecurity(str(file), wanted)
            if descriptor.GetSecurityDescriptorControl()[0] & win32security.SE_DACL_PROTECTED:
                wanted |= win32security.PROTECTED_DACL_SECURITY_INFORMATION
            # which adds nothing of the directory to the list, as `SetNamedSecurityInfo` does
            win32security.SetFileSecurity(str(copy), wanted, descriptor)
        except win32security.error as exc:
            raise _to_os_error(exc, copy) from exc

    def find_others(path: Path) -> OtherUsers:
        """Return who else can use a file. Raises OSError."""
        wanted = win32security.OWNER_SECURITY_INFORMATION | win32security.DACL_SECURITY_INFORMATION
        try:
            descriptor = win32security.GetNamedSecurityInfo(str(path), win32security.SE_FILE_OBJECT, wanted)
        except win32security.error as exc:
            raise _to_os_error(exc, path) from exc
        trusted = {*_TRUSTED, own_user()}
        owner = descriptor.GetSecurityDescriptorOwner()
        owner_name = "" if owner is None or _to_text(owner) in trusted else _name_of(owner)
        acl = descriptor.GetSecurityDescriptorDacl()
        if acl is None:  # everyone can do everything
            return OtherUsers(("Everyone",), ("Everyone",), owner_name)
        readers, writers = dict[str, None](), dict[str, None]()
        for (kind, flags), mask, *_, sid in map(acl.GetAce, range(acl.GetAceCount())):
            if kind in _ALLOWING and not flags & win32security.INHERIT_ONLY_ACE and _to_text(sid) not in trusted:
                readers |= dict.fromkeys([_name_of(sid)] if mask & _READ else [])
                writers |= dict.fromkeys([_name_of(sid)] if mask & _WRITE else [])
        return OtherUsers(tuple(readers), tuple(writers), owner_name)

    def _to_text(sid: win32security.PySID) -> str:
        return str(win32security.ConvertSidToStringSid(sid))

    def _name_of(sid: win32security.PySID) -> str:
        """Return the name of a user or group, as `icacls` takes it."""
        try:
            name, domain, _ = win32security.LookupAccountSid("", sid)
        except win32security.error:
            return f"*{_to_text(sid)}"
        return f"{domain}\\{name}" if domain else name

    def _to_os_error(exc: win32security.error, path: Path) -> OSError:
        return OSError(errno.EACCES, exc.strerror, str(path), exc.winerror)

else:

    def are_kept(path: Path) -> bool:
        """Return True: what a file system has instead of modes is its driver's."""
        return True

    def make_private(path: Path) -> None:
        """Do nothing: a mode makes a file private."""

    def copy_access(file: Path, copy: Path) -> None:
        """Do nothing: the mode is copied."""

    def find_others(path: Path) -> OtherUsers:
        """Return nobody: a mode says who can use a file."""
        return OtherUsers()
