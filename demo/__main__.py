"""`python -m demo`: prepares the demo's data under .demo."""

from pathlib import Path

from demo.flights import report

if __name__ == "__main__":
    report(Path(".demo/data"))
