"""Wrong answers: each fault yields what a broken server would write instead of one right answer.

A fault is a generator of byte pieces, and each piece is one write. `to` is the id of the request as JSON;
`size` is how many bytes, messages or levels to write, 0 for the fault's own choice.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator

FOREVER_S = 300.0  # long for a test, and yet a process that a test forgot ends

Fault = Callable[[str, int], Iterator[bytes]]

FAULTS: dict[str, Fault] = {}

RICH = (
    b'{"structuredContent":{"zeta":1, "alpha" : 2.50,"long":1234567890123456789012345678901234567890,'
    b'"fine":0.1234567890123456789012345678901234567890,"small":1E-400,"minus":-0,'
    b'"twice":"first","twice":"second","nothing":null,"":[]},'
    b'"x-first":{"b":[1,2,{"c":null}],"a":true},'
    b'"content":[ '
    b'{"text":"caf\xc3\xa9 caf\\u00e9 \\/ \xf0\x9f\x98\x80 \\ud83d\\ude00","type":"text",'
    b'"annotations":{"priority":0.50,"audience":["user"],"x-mood":"calm"},"_meta":{"vendor/a":1}},'
    b'{"type":"image","data":"iVBORw0KGgo=","mimeType":"image/png","x-width":640},'
    b'{"type":"audio","mimeType":"audio/wav","data":"UklGRg==","x-channels":2},'
    b'{"type":"resource_link","uri":"odd://a","name":"a","title":"A","size":12345678901234567890,"x-kind":[]},'
    b'{"type":"resource","resource":{"uri":"odd://b","mimeType":"text/plain","text":"b","x-etag":"7"},"x-b":0},'
    b'{"type":"resource","resource":{"uri":"odd://c","blob":"AAEC"}},'
    b'{"type":"hologram","beam":{"depth":3,"hue":"#0ff"}}],'
    b'"_meta":{"vendor.example/trace":"0af7","vendor.example/number":9007199254740993},'
    b'"isError":false,"x-last":"\\u0000\\t"}'
)
"""The result of the fault `rich`, as it is written: JSON that no re-encoder writes the same."""


def to_json(value: object) -> str:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":"))


def text_result(text: str, *, is_error: bool = False) -> bytes:
    """A tool's result with one text."""
    result: dict[str, object] = {"content": [{"type": "text", "text": text}]}
    return to_json(result | {"isError": True} if is_error else result).encode()


def result_frame(to: str, result: bytes) -> bytes:
    """The line that answers a request with this result."""
    return b'{"jsonrpc":"2.0","id":%s,"result":%s}\n' % (to.encode(), result)


def error_frame(to: str, code: int, message: str, data: object = None) -> bytes:
    """The line that answers a request with an error."""
    error = {"code": code, "message": message} | ({} if data is None else {"data": data})
    return b'{"jsonrpc":"2.0","id":%s,"error":%s}\n' % (to.encode(), to_json(error).encode())


def answer(to: str, text: str) -> bytes:
    """The line that answers a tool call right, with one text."""
    return result_frame(to, text_result(text))


def fault(function: Fault) -> Fault:
    """Register a fault under its function's name."""
    FAULTS[function.__name__.rstrip("_")] = function
    return function


# The process ends, or goes quiet.


@fault
def exit_(to: str, size: int) -> Iterator[bytes]:
    """Exits at once, with code 0."""
    yield from ()
    sys.exit(0)


@fault
def exit_code(to: str, size: int) -> Iterator[bytes]:
    """Writes two lines on stderr and exits with code 3."""
    yield from ()
    sys.stderr.write("odd: cannot go on\nodd: the disk is full\n")
    sys.exit(3)


@fault
def half_answer_then_exit(to: str, size: int) -> Iterator[bytes]:
    """Exits in the middle of the answer."""
    whole = answer(to, "cut short")
    yield whole[: len(whole) // 2]
    sys.exit(0)


@fault
def answer_without_newline_then_exit(to: str, size: int) -> Iterator[bytes]:
    """Writes the whole answer but for its newline, and exits."""
    yield answer(to, "no newline").rstrip(b"\n")
    sys.exit(0)


@fault
def sigkill(to: str, size: int) -> Iterator[bytes]:
    """Is killed."""
    yield from ()
    os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))


@fault
def segfault(to: str, size: int) -> Iterator[bytes]:
    """Dies of a segmentation fault."""
    yield from ()
    os.kill(os.getpid(), signal.SIGSEGV)


@fault
def close_stdin(to: str, size: int) -> Iterator[bytes]:
    """Answers, closes its stdin and lives on."""
    yield answer(to, "deaf from now on")
    os.close(0)
    time.sleep(FOREVER_S)


@fault
def stop_reading(to: str, size: int) -> Iterator[bytes]:
    """Answers, and reads no more."""
    yield answer(to, "not listening any more")
    time.sleep(FOREVER_S)


@fault
def spin(to: str, size: int) -> Iterator[bytes]:
    """Computes for ever."""
    yield from ()
    while True:
        pass


@fault
def never(to: str, size: int) -> Iterator[bytes]:
    """Does not answer."""
    yield from ()


@fault
def close_stdout(to: str, size: int) -> Iterator[bytes]:
    """Closes its stdout and lives on."""
    yield from ()
    os.close(1)


@fault
def sigstop(to: str, size: int) -> Iterator[bytes]:
    """Stops itself (POSIX); answers after a SIGCONT."""
    os.kill(os.getpid(), signal.SIGSTOP)
    yield answer(to, "continued")


@fault
def stderr_flood(to: str, size: int) -> Iterator[bytes]:
    """Writes 8 MB on stderr without a newline, then answers."""
    sys.stderr.write("E" * (size or 8_000_000))
    sys.stderr.flush()
    yield answer(to, "after the flood")


# JSON-RPC is broken, or bent.


@fault
def wrong_id(to: str, size: int) -> Iterator[bytes]:
    """Answers with an id that nobody asked with."""
    yield answer("987654321", "wrong id")


@fault
def string_id(to: str, size: int) -> Iterator[bytes]:
    """Answers with the id as a string of its JSON: 7 becomes "7"."""
    yield answer(to_json(to), "string id")


@fault
def null_id_error(to: str, size: int) -> Iterator[bytes]:
    """Answers with an error whose id is null, as for a line that it could not read."""
    yield error_frame("null", -32700, "parse error")


@fault
def twice(to: str, size: int) -> Iterator[bytes]:
    """Answers twice, with different texts."""
    yield answer(to, "first")
    yield answer(to, "second")


@fault
def neither(to: str, size: int) -> Iterator[bytes]:
    """Answers with neither a result nor an error."""
    yield b'{"jsonrpc":"2.0","id":%s}\n' % to.encode()


@fault
def both(to: str, size: int) -> Iterator[bytes]:
    """Answers with a result and an error."""
    error = b'"error":{"code":-32000,"message":"and an error"}'
    yield b'{"jsonrpc":"2.0","id":%s,"result":%s,%s}\n' % (to.encode(), text_result("a result"), error)


@fault
def rpc_error(to: str, size: int) -> Iterator[bytes]:
    """Answers with a JSON-RPC error that has a code of its own, and data."""
    yield error_frame(to, -32050, "the upstream said no", {"retry": False, "quota": 12345678901234567890})


@fault
def odd_result(to: str, size: int) -> Iterator[bytes]:
    """Answers with a result that is a string."""
    yield result_frame(to, b'"just a string"')


@fault
def odd_error(to: str, size: int) -> Iterator[bytes]:
    """Answers with an error that is a string."""
    yield b'{"jsonrpc":"2.0","id":%s,"error":"it is broken"}\n' % to.encode()


@fault
def batch(to: str, size: int) -> Iterator[bytes]:
    """Answers in an array."""
    yield b"[" + answer(to, "in a batch").rstrip(b"\n") + b"]\n"


@fault
def no_jsonrpc(to: str, size: int) -> Iterator[bytes]:
    """Answers without the member `jsonrpc`."""
    yield answer(to, "no jsonrpc").replace(b'"jsonrpc":"2.0",', b"")


@fault
def vendor_envelope(to: str, size: int) -> Iterator[bytes]:
    """Answers with unknown members beside the result."""
    yield b'{"x-a":{"deep":[1]},"result":%s,"x-b":7,"id":%s,"jsonrpc":"2.0","x-c":null}\n' % (
        text_result("vendor envelope"),
        to.encode(),
    )


# The bytes are odd.


@fault
def garbage_before(to: str, size: int) -> Iterator[bytes]:
    """Writes lines that are no messages, then the answer."""
    yield b"> odd@1.0.0 call\n"
    yield b'[INFO] calling {"not": json\n'
    yield b"\n  \n\r\n"
    yield b"\0\0\0\n"
    yield bytes(range(256)) * 16 + b"\n"
    yield b"42\n"
    yield answer(to, "after the garbage")


@fault
def invalid_utf8(to: str, size: int) -> Iterator[bytes]:
    """Answers with bytes inside a text that are not UTF-8."""
    yield answer(to, "bytes: <>").replace(b"<>", b"\xff\xfe\xc3(")


@fault
def lone_surrogate(to: str, size: int) -> Iterator[bytes]:
    """Answers with half of a surrogate pair, escaped."""
    yield answer(to, "half: <>").replace(b"<>", b"\\ud800")


@fault
def crlf(to: str, size: int) -> Iterator[bytes]:
    """Ends the line with CR LF."""
    yield answer(to, "crlf").replace(b"\n", b"\r\n")


@fault
def bom(to: str, size: int) -> Iterator[bytes]:
    """Starts the line with a byte order mark."""
    yield b"\xef\xbb\xbf" + answer(to, "bom")


@fault
def pieces(to: str, size: int) -> Iterator[bytes]:
    """Answers in writes of 7 bytes, cutting characters in two."""
    whole = result_frame(to, '{"content":[{"type":"text","text":"péçés 😀😀😀😀"}]}'.encode())
    for start in range(0, len(whole), 7):
        yield whole[start : start + 7]
        time.sleep(0.001)  # so that the reader sees the piece alone


@fault
def indented(to: str, size: int) -> Iterator[bytes]:
    """Answers over many lines."""
    yield json.dumps(json.loads(answer(to, "indented")), indent=2).encode() + b"\n"


@fault
def big_line(to: str, size: int) -> Iterator[bytes]:
    """Answers with a text of 50 MB."""
    yield answer(to, "A" * (size or 50_000_000))


@fault
def endless_line(to: str, size: int) -> Iterator[bytes]:
    """Answers with a text that does not end, of 300 MB, and ends it never."""
    yield answer(to, "A").partition(b'"A')[0] + b'"'
    for _ in range((size or 300_000_000) // 1_000_000):
        yield b"A" * 1_000_000
    time.sleep(FOREVER_S)


@fault
def odd_numbers(to: str, size: int) -> Iterator[bytes]:
    """Answers with NaN and infinities, which JSON does not have."""
    yield result_frame(to, b'{"content":[],"structuredContent":{"a":NaN,"b":Infinity,"c":-Infinity}}')


@fault
def big_int(to: str, size: int) -> Iterator[bytes]:
    """Answers with an integer of 5000 digits."""
    yield result_frame(to, b'{"content":[],"structuredContent":{"big":%s}}' % (b"7" * (size or 5000)))


@fault
def deep(to: str, size: int) -> Iterator[bytes]:
    """Answers with a million lists in each other, which no parser of Python reads."""
    levels = size or 1_000_000
    yield result_frame(to, b'{"content":[],"structuredContent":{"deep":%s}}' % (b"[" * levels + b"]" * levels))


@fault
def rich(to: str, size: int) -> Iterator[bytes]:
    """Answers with RICH: every content type, unknown fields everywhere, numbers that no float holds."""
    yield result_frame(to, RICH)


@fault
def storm(to: str, size: int) -> Iterator[bytes]:
    """Says 20000 times that its tools have changed, then answers."""
    for _ in range(size or 20_000):
        yield b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n'
    yield answer(to, "after the storm")


@fault
def flood(to: str, size: int) -> Iterator[bytes]:
    """Sends 10000 log notifications, then answers."""
    for number in range(size or 10_000):
        params = b'{"level":"info","data":"message %d"}' % number
        yield b'{"jsonrpc":"2.0","method":"notifications/message","params":%s}\n' % params
    yield answer(to, "after the flood")
