"""The job of a running program on Windows, with which all that it starts from now on can be ended.

The programs go on when the job is closed. A server is in a job from its start, and ends with it, by
`upstream/process/job.py`.
"""

from __future__ import annotations

import contextlib
import sys

import pywintypes
import win32api
import win32con
import win32job

assert sys.platform == "win32"


class Job:
    """The job of the program with this process id, which its starter has not reaped."""

    def __init__(self, pid: int) -> None:
        self._job = win32job.CreateJobObject(None, "")
        with contextlib.suppress(pywintypes.error):  # it has ended
            access = win32con.PROCESS_SET_QUOTA | win32con.PROCESS_TERMINATE
            win32job.AssignProcessToJobObject(self._job, win32api.OpenProcess(access, False, pid))  # noqa: FBT003

    def terminate(self) -> None:
        """End everything in the job at once."""
        win32job.TerminateJobObject(self._job, 1)
