"""What Redis does in one step, in Lua. KEYS are the hash of a session's fields and the list of its frames.

A session has one owner at a time, the connection that may write. Whoever takes it becomes its owner; what an older
one still writes is refused. The hash's ``num`` counts the frames that were ever appended.
"""

from __future__ import annotations

STORED, TAKEN, GAP = "stored", "taken", "gap"

# ARGV: owner, ttl in ms, frames that the writer believes stored (-1: write everything anew), frames of the session,
# where the kept ones begin (from the end: -1 is the last), number of fields, their names and values, the new frames.
WRITE = f"""
local owner = redis.call('HGET', KEYS[1], 'owner')
if owner and owner ~= ARGV[1] then return '{TAKEN}' end
if ARGV[3] == '-1' then
  redis.call('DEL', KEYS[1], KEYS[2])
elseif redis.call('HGET', KEYS[1], 'num') ~= ARGV[3] then
  return '{GAP}'
end
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'num', ARGV[4])
local first_frame = 7 + 2 * tonumber(ARGV[6])
for i = 7, first_frame - 1, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
for i = first_frame, #ARGV do redis.call('RPUSH', KEYS[2], ARGV[i]) end
redis.call('LTRIM', KEYS[2], ARGV[5], -1)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return '{STORED}'
"""

# ARGV: the key's label, the new owner, ttl in ms. Nothing for a session that is not there, or is another key's.
TAKE = """
if redis.call('HGET', KEYS[1], 'principal') ~= ARGV[1] then return nil end
redis.call('HSET', KEYS[1], 'owner', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return {redis.call('HGETALL', KEYS[1]), redis.call('LRANGE', KEYS[2], 0, -1)}
"""

# ARGV: owner.
FORGET = """
if redis.call('HGET', KEYS[1], 'owner') == ARGV[1] then redis.call('DEL', KEYS[1], KEYS[2]) end
"""
