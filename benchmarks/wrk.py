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
_SCRIPT = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local threads = {}
function setup(thread) table.insert(threads, thread) end
function init(args) wrong = 0; math.randomseed(os.time()) end
function request()
  return wrk.format(nil, nil, nil, '{"keys": [' .. math.random(0, ROWS - 1) .. ']}')
end
function response(status, headers, body)
  if status ~= 200 or not body:match('^{"k":(%d+),"v":"value %1"}\\n$') then wrong = wrong + 1 end
end
function done(summary, latency, requests)
  local wrong = 0
  for _, thread in ipairs(threads) do wrong = wrong + thread:get("wrong") end
  local errors = summary.errors
  io.write(string.format(
    '\\n{"requests": %d, "microseconds": %d, "p50": %d, "p99": %d, "wrong": %d}\\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    wrong + errors.connect + errors.read + errors.write + errors.timeout))
end
"""


@dataclass(frozen=True, slots=True)
class Load:
    """The responses to a load: their rate, their times, and how many were wrong or missing."""

    requests: int
    rate: float
    p50_ms: float
    p99_ms: float
    wrong: int


def is_installed() -> bool:
    """Returns whether the command exists (`apt-get install wrk`)."""
    return shutil.which("wrk") is not None


def look_up(url: str, rows: int, callers: int, folder: Path) -> Load:
    """Looks up random keys, one per request, over as many connections as callers."""
    script = folder / "lookups.lua"
    script.write_text(f"ROWS = {rows}\n{_SCRIPT}")
    for seconds in (_WARM_SECONDS, _SECONDS):
        command = ["wrk", "-t1", f"-c{callers}", f"-d{seconds}s", "-s", str(script), url]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout.splitlines()[-1])
    return Load(
        answer["requests"],
        answer["requests"] / answer["microseconds"] * 1e6,
        answer["p50"] / 1e3,
        answer["p99"] / 1e3,
        answer["wrong"],
    )
