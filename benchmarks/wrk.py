"""HTTP requests by wrk, a load generator of Debian, each response checked by a script."""

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_SECONDS = 10
_WARM_SECONDS = 3
# The script sees no request of a response, so it checks that the parts of a response belong
# together.
_LOOKUPS = """
wrk.headers["Content-Type"] = "application/json"
function init(args) wrong = 0; math.randomseed(os.time()) end
function request()
  return wrk.format(nil, nil, nil, '{"keys": [' .. math.random(0, ROWS - 1) .. ']}')
end
function response(status, headers, body)
  if status ~= 200 or not body:match('^{"k":(%d+),"v":"value %1"}\\n$') then wrong = wrong + 1 end
end
"""
_ROWS = """
wrk.headers["Content-Type"] = "application/x-ndjson"
wrk.headers["Authorization"] = "Bearer " .. TOKEN
local count = 0
function init(args) wrong = 0; accepted = 0 end
function request()
  count = count + 1
  wrk.headers["Idempotency-Key"] = PREFIX .. count
  return wrk.format(nil, nil, nil, '{"k": ' .. count .. ', "v": "' .. PREFIX .. count .. '"}')
end
function response(status, headers, body)
  if status == 200 and body:match('^{"number":%d+,"rows":1,"alreadyDone":false}$') then
    accepted = accepted + 1
  else
    wrong = wrong + 1
  end
end
"""
_COUNTS = """
wrk.method = "POST"
local threads = {}
function setup(thread) table.insert(threads, thread) end
function done(summary, latency, requests)
  local wrong, accepted = 0, 0
  for _, thread in ipairs(threads) do
    wrong = wrong + thread:get("wrong")
    accepted = accepted + (thread:get("accepted") or 0)
  end
  local errors = summary.errors
  io.write(string.format(
    '\\n{"requests": %d, "microseconds": %d, "p50": %d, "p99": %d, "wrong": %d, "accepted": %d}\\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    wrong + errors.connect + errors.read + errors.write + errors.timeout, accepted))
end
"""


@dataclass(frozen=True, slots=True)
class Load:
    """The responses to a load: their rate, their times, and how many were wrong or missing.

    `accepted` counts the rows that were acknowledged.
    """

    requests: int
    rate: float
    p50_ms: float
    p99_ms: float
    wrong: int
    accepted: int


def is_installed() -> bool:
    """Returns whether the command exists (`apt-get install wrk`)."""
    return shutil.which("wrk") is not None


def look_up(url: str, rows: int, callers: int, folder: Path) -> Load:
    """Looks up random keys, one per request, over as many connections as callers."""
    script = f"ROWS = {rows}\n{_LOOKUPS}"
    _run(url, script, callers, folder, _WARM_SECONDS)
    return _run(url, script, callers, folder, _SECONDS)


def post_rows(url: str, token: str, callers: int, folder: Path) -> tuple[Load, Load]:
    """Posts rows, one per request, each with a key of its own. Also returns the load before it."""
    names = f'TOKEN = "{token}"\nPREFIX = '
    warm, load = (
        _run(url, f'{names}"{prefix}"\n{_ROWS}', callers, folder, seconds)
        for prefix, seconds in (("warm-", _WARM_SECONDS), ("row-", _SECONDS))
    )
    return load, warm


def _run(url: str, script: str, callers: int, folder: Path, seconds: int) -> Load:
    file = folder / "load.lua"
    file.write_text(f"{script}{_COUNTS}")
    command = ["wrk", "-t1", f"-c{callers}", f"-d{seconds}s", "-s", str(file), url]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout.splitlines()[-1])
    return Load(
        answer["requests"],
        answer["requests"] / answer["microseconds"] * 1e6,
        answer["p50"] / 1e3,
        answer["p99"] / 1e3,
        answer["wrong"],
        answer["accepted"],
    )
