"""What runs inside of the server, at once: the operations of a shared store, in Lua.

The first key is the one of the epoch, and the first argument the epoch that the caller knows. Another one, or none,
says that the server has lost its entries, or was replaced: the answer is `reset`, and nothing has been changed. Times
are the server's, in microseconds, so clocks of replicas do not matter.
"""

from __future__ import annotations

import hashlib

from msgspec import Struct

_CHECK = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {'reset'} end
local function now()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000000 + tonumber(t[2])
end
"""

# The fourth key is the number of changes.
_RECORD_CHANGE = """
local function record_change(channel, message)
  local at = now()
  local last = tonumber(redis.call('GET', KEYS[4]) or '0')
  if at <= last then at = last + 1 end
  redis.call('SET', KEYS[4], string.format('%.0f', at), 'PX', 34560000000)
  redis.call('PUBLISH', channel, message)
end
"""
# KEYS: the epoch, the entry, the index, the number of changes. ARGV: the epoch, the most entries (0: not listed), the
# name's hash, the channel, the message. Sorted sets keep numbers of 53 bits, enough for microseconds.
_LISTED = (
    _CHECK
    + _RECORD_CHANGE
    + """
local most = tonumber(ARGV[2])
local function is_full()
  redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now())
  return redis.call('ZCARD', KEYS[3]) >= most and not redis.call('ZSCORE', KEYS[3], ARGV[3])
end
local function remove()
  redis.call('DEL', KEYS[2])
  if most > 0 then
    redis.call('ZREM', KEYS[3], ARGV[3])
    record_change(ARGV[4], ARGV[5])
  end
end
"""
)


class Script(Struct, frozen=True):
    """A script, and the name that the server knows it by once it has run it."""

    text: str
    digest: str


def _script(text: str) -> Script:
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


# KEYS: the epoch, the key of names. ARGV: an epoch and a sealed key, which count if there are none.
BEGIN = _script("""
local epoch, names = redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2])
if epoch and names then return {'kept', epoch, names} end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], ARGV[2])
return {'new', ARGV[1], ARGV[2]}
""")
# KEYS: the epoch, the key of names. ARGV: the epoch, the sealed key that is there, and another one for it.
RESEAL_NAMES = _script(
    _CHECK
    + """
if redis.call('GET', KEYS[2]) == ARGV[2] then redis.call('SET', KEYS[2], ARGV[3]) end
return {'ok'}
"""
)
# KEYS: the epoch, the entry, the index, the number of changes. ARGV: the epoch, the head of the entry that is there,
# another one for it, the name's hash, the channel, the message.
RESEAL = _script(
    _CHECK
    + _RECORD_CHANGE
    + """
if redis.call('GETRANGE', KEYS[2], 0, 16) ~= ARGV[2] then return {'other'} end
redis.call('SET', KEYS[2], ARGV[3], 'KEEPTTL')
if redis.call('ZSCORE', KEYS[3], ARGV[4]) then record_change(ARGV[5], ARGV[6]) end
return {'ok'}
"""
)
# KEYS: the epoch, a key that is written. ARGV: the epoch.
LOOK = _script(
    _CHECK
    + """
redis.call('SET', KEYS[2], '1', 'PX', 60000)
return {'ok'}
"""
)
# ARGV after those of listed entries: the value, milliseconds, the expected head of the present one, '-' for any.
WRITE = _script(
    _LISTED
    + """
if ARGV[8] ~= '-' then
  local found = redis.call('GETRANGE', KEYS[2], 0, 16)
  if found ~= ARGV[8] then return {'other'} end
end
if most > 0 and is_full() then return {'full'} end
redis.call('SET', KEYS[2], ARGV[6], 'PX', ARGV[7])
if most > 0 then
  redis.call('ZADD', KEYS[3], string.format('%.0f', now() + tonumber(ARGV[7]) * 1000), ARGV[3])
  local last = redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')
  redis.call('PEXPIREAT', KEYS[3], string.format('%.0f', tonumber(last[2]) / 1000 + 1000))
  record_change(ARGV[4], ARGV[5])
end
return {'ok'}
"""
)
# ARGV after those of listed entries: the expected head, '-' for any.
DELETE = _script(
    _LISTED
    + """
local found = redis.call('GET', KEYS[2])
if not found then return {'none'} end
if ARGV[6] ~= '-' and string.sub(found, 1, 17) ~= ARGV[6] then return {'other'} end
remove()
return {'ok', found}
"""
)
# KEYS: the epoch, the index. ARGV: the epoch, what keys of entries begin with. An entry may have been evicted. What
# is returned is bounded, so that it can be sent in time.
LIST = _script(
    _CHECK
    + """
local names = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. string.format('%.0f', now()), '+inf')
local found, bytes = {'ok'}, 0
for i = 1, #names do
  local value = redis.call('GET', ARGV[2] .. names[i])
  if value then
    bytes = bytes + #value
    if bytes > 4194304 then return {'large'} end
    found[#found + 1] = names[i]
    found[#found + 1] = value
  end
end
return found
"""
)
# KEYS: the epoch, the rates. ARGV: the epoch, and for each rate its interval and its slack, in microseconds. A rate
# is kept as the time at which it will be full again.
COUNT = _script(
    _CHECK
    + """
local at, worst, worst_wait, taken = now(), 0, 0, {}
for i = 2, #KEYS do
  local interval, slack = tonumber(ARGV[2 * i - 2]), tonumber(ARGV[2 * i - 1])
  local full_at = tonumber(redis.call('GET', KEYS[i]) or '0')
  if full_at < at then full_at = at end
  local wait = full_at - at - slack
  if wait > 0 and wait > worst_wait then worst, worst_wait = i, wait end
  taken[i] = full_at + interval
end
if worst > 0 then return {'wait', worst - 2, string.format('%.0f', worst_wait)} end
for i = 2, #KEYS do
  redis.call('SET', KEYS[i], string.format('%.0f', taken[i]), 'PX', string.format('%.0f', (taken[i] - at) / 1000 + 1))
end
return {'ok'}
"""
)
# KEYS: the epoch, the leases. ARGV: the epoch, the holder, microseconds, and for each lease how many places it has.
ACQUIRE = _script(
    _CHECK
    + """
local at, holder, lasts = now(), ARGV[2], tonumber(ARGV[3])
for i = 2, #KEYS do
  redis.call('ZREMRANGEBYSCORE', KEYS[i], '-inf', at)
  local others = redis.call('ZCARD', KEYS[i])
  if redis.call('ZSCORE', KEYS[i], holder) then others = others - 1 end
  if others >= tonumber(ARGV[i + 2]) then
    local first = redis.call('ZRANGE', KEYS[i], 0, 0, 'WITHSCORES')
    return {'wait', i - 2, string.format('%.0f', tonumber(first[2]) - at)}
  end
end
for i = 2, #KEYS do
  redis.call('ZADD', KEYS[i], string.format('%.0f', at + lasts), holder)
  local last = redis.call('ZRANGE', KEYS[i], -1, -1, 'WITHSCORES')
  redis.call('PEXPIREAT', KEYS[i], string.format('%.0f', tonumber(last[2]) / 1000 + 1000))
end
return {'ok'}
"""
)
# KEYS: the epoch, the leases. ARGV: the epoch, the holder, microseconds.
RENEW = _script(
    _CHECK
    + """
local at, lasts, all = now(), tonumber(ARGV[3]), 1
for i = 2, #KEYS do
  local ends = tonumber(redis.call('ZSCORE', KEYS[i], ARGV[2]) or '0')
  if ends > at then
    redis.call('ZADD', KEYS[i], string.format('%.0f', at + lasts), ARGV[2])
    local last = redis.call('ZRANGE', KEYS[i], -1, -1, 'WITHSCORES')
    redis.call('PEXPIREAT', KEYS[i], string.format('%.0f', tonumber(last[2]) / 1000 + 1000))
  else
    all = 0
  end
end
return {'ok', all}
"""
)
# KEYS: the epoch, the leases. ARGV: the epoch, the holder, the channel, the message.
RELEASE = _script(
    _CHECK
    + """
for i = 2, #KEYS do redis.call('ZREM', KEYS[i], ARGV[2]) end
redis.call('PUBLISH', ARGV[3], ARGV[4])
return {'ok'}
"""
)
