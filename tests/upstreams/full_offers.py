"""What the server of full.py offers, as the bytes that it writes: JSON that no re-encoder writes the same.

Vendor fields stand at every level, numbers have 40 digits, keys come twice and in odd orders, white space is odd.
What stands between two `@` is filled in: the server's name and scheme, the long number, what a request gave.
"""

from __future__ import annotations

LONG = b"1234567890123456789012345678901234567890"

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

CAPABILITIES: dict[str, bytes] = {
    "tools": b'{"listChanged":true,"x-tools":1}',
    "resources": b'{"subscribe":true , "listChanged":true}',
    "prompts": b'{"listChanged":true}',
    "completions": b"{}",
    "logging": b"{}",
    "tasks": b'{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}',
    "experimental": b'{"vendor.example/full":{"depth":3}}',
}

INSTRUCTIONS = b'"Use @name@ with care. It has more to say.\\n\\nThis is the second paragraph."'

HELLO = (
    b'{"protocolVersion":@version@,"capabilities":{@known@},"serverInfo":{"name":"@name@","x-n":@long@,"version":"1",'
    b'"icons":[ ],"websiteUrl":"https://vendor.example"},"instructions":@instructions@,'
    b'"_meta":{"twice":1,"twice":2},"x-hello":{"n":1.0}}'
)

# The members of a list result beside the list itself.
LIST_REST = b'"x-list":{"z":1,"a":@long@},"_meta":{"vendor.example/list":"@name@","twice":1,"twice":2}'

RICH_TOOL = (
    b'{"x-first":{"b":[1, 2],"a":0.10},"name":"rich","title":"R\\u00efch \\/ r\xc3\xafch",'
    b'"description":"Answers with every type of content, and with unknown ones.",'
    b'"inputSchema":{"type":"object","x-order":["z","a"],"properties":{"n":{"maximum":@long@,"type":"integer"}}},'
    b'"outputSchema":{"type":"object","x-out":1E2},"annotations":{"readOnlyHint":true,"x-hint":[]},'
    b'"icons":[{"src":"data:image/png;base64,iVBORw0KGgo=","mimeType":"image/png","sizes":["48x48"],"x-icon":0}],'
    b'"_meta":{"vendor.example/a":{"twice":1,"twice":2}},"x-twice":1,"x-twice":2}'
)

RICH = (
    b'{"structuredContent":{"zeta":1, "alpha" : 2.50,"long":@long@,"fine":0.@long@,"small":1E-400,"minus":-0,'
    b'"twice":"first","twice":"second","nothing":null,"":[]},"x-first":{"b":[1,2,{"c":null}],"a":true},'
    b'"content":[ {"text":"caf\xc3\xa9 caf\\u00e9 \\/ \xf0\x9f\x98\x80 \\ud83d\\ude00 by @name@","type":"text",'
    b'"annotations":{"priority":0.50,"audience":["user"],"x-mood":"calm"},"_meta":{"vendor.example/a":1}},'
    b'{"type":"image","data":"iVBORw0KGgo=","mimeType":"image/png","x-width":640},'
    b'{"type":"audio","mimeType":"audio/wav","data":"UklGRg==","x-channels":2},'
    b'{"type":"resource_link","uri":"@scheme@://text","name":"text","size":12345678901234567890,"x-kind":[]},'
    b'{"type":"resource","resource":{"uri":"@scheme@://b","mimeType":"text/plain","text":"b","x-etag":"7"},"x-b":0},'
    b'{"type":"resource","resource":{"uri":"@scheme@://c","blob":"AAEC"}},'
    b'{"type":"hologram","beam":{"depth":3,"hue":"#0ff"}}],'
    b'"_meta":{"vendor.example/trace":"0af7","vendor.example/number":9007199254740993},'
    b'"isError":false,"x-last":"\\u0000\\t"}'
)

# Only content that every client knows, which strict ones insist on.
PLAIN = (
    b'{"content":[{"type":"text","text":"by @name@"},{"type":"image","data":"iVBORw0KGgo=","mimeType":"image/png"},'
    b'{"type":"audio","data":"UklGRg==","mimeType":"audio/wav"},'
    b'{"type":"resource_link","uri":"@scheme@://text","name":"text"},'
    b'{"type":"resource","resource":{"uri":"@scheme@://c","blob":"AAEC"}}],'
    b'"structuredContent":{"by":"@name@"},"_meta":{"vendor.example/a":1}}'
)

FAILED = b'{"isError":true,"x-why":{"z":1,"a":@long@},"content":[{"type":"text","text":"@name@ failed","x-code":7}]}'

URL_REQUIRED = (
    b'{"code":-32042,"message":"@name@ wants a look at a page","x-error":1,"data":{"elicitations":[{"mode":"url",'
    b'"elicitationId":"e-0","url":"https://example.com/@name@","message":"m","x-e":@long@}]}}'
)

RESOURCES = (
    (
        b'{"x-first":@long@,"uri":"@scheme@://text","name":"text","title":"A text","description":"Text of @name@",'
        b'"mimeType":"text/plain","size":12345678901234567890,"icons":[{"src":"https://example.com/i.png","x-icon":1}],'
        b'"annotations":{"audience":["user", "assistant"],"priority":0.50,"lastModified":"2025-01-12T15:00:58Z",'
        b'"x-mood":"calm"},"_meta":{"vendor.example/r":{"twice":1,"twice":2}},"x-last":[ ]}'
    ),
    b'{"uri":"@scheme@://blob","name":"blob","mimeType":"application/octet-stream","size":3}',
    b'{ "uri" : "@scheme@://caf\\u00e9/a%20b", "name" : "odd\\/name" }',
    b'{"uri":"@scheme@://@name@/only","name":"only","x-twice":1,"x-twice":2}',
)

TEMPLATES = (
    b'{"uriTemplate":"@scheme@://item/{id}","name":"item","title":"An item","x-t":{"b":1,"a":@long@}}',
    (
        b'{"x-first":1,"uriTemplate":"@scheme@://@name@/files{/path*}{?rev}","name":"files","mimeType":"text/plain",'
        b'"annotations":{"priority":1.0},"_meta":{"twice":1,"twice":2}}'
    ),
)

# What `resources/read` answers, by the URI as it is after JSON is decoded; the hidden ones are in no list.
READABLE: dict[str, bytes] = {
    "@scheme@://text": (
        b'{"x-first":1,"contents":[ {"text":"t\xc3\xa9xt \\u00e9 of @name@","uri":"@scheme@://text",'
        b'"mimeType":"text/plain","size":@long@,"_meta":{"twice":1,"twice":2}},'
        b'{"uri":"@scheme@://text#2","text":"","x-kind":{"type":"hologram"}} ],"_meta":{"vendor.example/ttl":1E3}}'
    ),
    "@scheme@://blob": b'{"contents":[{"uri":"@scheme@://blob","blob":"AAEC","x-bits":24}]}',
    "@scheme@://café/a%20b": b'{"contents":[{"uri":"@scheme@://caf\\u00e9/a%20b","text":"odd"}],"x-read":1E2}',
    "@scheme@://@name@/only": b'{"contents":[{"uri":"@scheme@://@name@/only","text":"only"}],"x-read":{"z":1}}',
    "@scheme@://hidden": b'{"contents":[{"uri":"@scheme@://hidden","text":"of @name@","x-etag":1}]}',
    "@scheme@://hidden/@name@": b'{"contents":[{"uri":"@scheme@://hidden/@name@","text":"of @name@","x-etag":2}]}',
}
ITEM = b'{"contents":[{"text":"@name@","uri":@uri@,"x-item":1.0}]}'
NOT_READABLE = b'{"data":{"uri":@uri@,"x":1},"code":-32002,"message":"@name@ has no such resource"}'

LONG_PROMPT = "A prompt, whose näme is long: " + "and goes on " * 6

PROMPTS = (
    (
        b'{"name":"greet","title":"Greet","description":"d","x-first":@long@,"arguments":[{"name":"city",'
        b'"required":true,"title":"City","x-arg":1},{"name":"style","description":"How","_meta":{"twice":1,"twice":2}}],'
        b'"icons":[{"src":"https://example.com/i.png"}],"_meta":{"vendor.example/p":[1, 2]}}'
    ),
    b'{"name":"only_@name@"}',
    b'{"description":"first","name":"' + LONG_PROMPT.encode() + b'1"}',
    b'{"description":"second","name":"' + LONG_PROMPT.encode() + b'2"}',
)

PROMPT = (
    b'{"description":"by @name@","x-first":{"b":1,"a":@long@},"messages":['
    b'{"role":"user","content":{"type":"text","text":@greeting@,"x-t":1},"x-m":2},'
    b'{"content":{"type":"image","data":"iVBORw0KGgo=","mimeType":"image/png","annotations":{"x":1}},"role":"assistant"},'
    b'{"role":"user","content":{"type":"audio","data":"UklGRg==","mimeType":"audio/wav"}},'
    b'{"role":"user","content":{"type":"resource","resource":{"uri":"@scheme@://text","text":"t","twice":1,"twice":2}}}'
    b'@more@],"_meta":{"vendor.example/x":0.10}}'
)
ODD_MESSAGE = b',{"role":"user","content":{"type":"hologram","beam":{}}}'

COMPLETION = b'{"x-first":1,"completion":{"values":["@name@",@value@],"total":12,"hasMore":false,"x-c":@long@}}'

# Requests to the client; the tool that sends one is called with the key.
ELICIT = (
    b'{"x-first":@key@,"message":"@name@ asks","mode":"form","requestedSchema":{"type":"object","x-s":1,"properties":'
    b'{"answer":{"type":"string","title":"\\u00c4nswer"}},"required":["answer"]},'
    b'"_meta":{"vendor.example/number":@long@,"twice":1,"twice":2}}'
)
ELICIT_FOR_TASK = b'{"message":"@name@ asks","requestedSchema":{"type":"object","properties":{}},"_meta":{@related@}}'
ELICIT_URL = (
    b'{"mode":"url","elicitationId":@key@,"url":"https://example.com/@name@?q=\\u00e4","message":"look",'
    b'"x-twice":1,"x-twice":2}'
)
SAMPLE = (
    b'{"messages":[{"role":"user","content":{"type":"text","text":"@name@ \\u00e4"},"x-m":1}],"maxTokens":100,'
    b'"x-first":@key@,"modelPreferences":{"hints":[{"name":"any"}],"costPriority":0.10},"temperature":0.70,'
    b'"_meta":{"x-z":1,"progressToken":"tok\\u00e9n @name@","x-a":2}}'
)
ROOTS = b'{"_meta":{"vendor.example/roots":@key@}}'

# Notifications.
PROGRESS = b'{"x-first":1,"progress":@step@,"progressToken":@token@,"total":@long@,"message":"@name@"}'
LOG = b'{"x-first":1,@logger@"level":@level@,"data":{"b":"@name@","a":@long@},"twice":1,"twice":2}'
UPDATED = b'{"x-first":1.0,"uri":@uri@,"x-last":2}'
VENDOR = b'{"z":"@name@","a":@long@, "twice":1,"twice":2,"d":"\\u00e4"}'

# Tasks.
TASK = (
    b'{"x-first":{"b":1,"a":1.50},"status":@status@,"taskId":@task@,"statusMessage":"@name@ is at it","ttl":@ttl@,'
    b'"createdAt":"2025-11-25T10:30:00Z","lastUpdatedAt":"2025-11-25T10:40:00Z","pollInterval":5000,"x-last":1}'
)
RELATED = b'"io.modelcontextprotocol/related-task":{"x-r":1,"taskId":@task@}'
TASK_BEGAN = b'{"x-first":1,"task":@shown@,"_meta":{"x":1.0}}'
TASK_RESULT = (
    b'{"x-first":1,"content":[{"type":"text","text":"@name@ ran it as a task","x":1.50}],"_meta":{"x":1,@related@}}'
)
