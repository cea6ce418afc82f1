"""Commands of the demos, which are printed and then run."""

import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console

_SLEEPER = Path(sys.executable).parent / "sleeper"

console = Console(highlight=False, soft_wrap=True)


def print_heading(text: str) -> None:
    console.print(f"\n[bold]{text}[/bold]")


def run_shell(command: str) -> None:
    """Prints a shell command and runs it, with this `sleeper`. Exits if it fails."""
    console.print(f"\n[bold green]$ {command}[/bold green]")
    path = f"{_SLEEPER.parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    status = subprocess.run(["bash", "-c", command], env=environment, check=False).returncode
    if status != 0:
        sys.exit(f"demo: command failed with status {status}")


def run_sleeper(instance: Path, *arguments: str) -> None:
    """Prints a `sleeper` command and runs it. Exits if it fails."""
    text = " ".join(f'"{a}"' if " " in a else a for a in arguments)
    console.print(f"\n[bold green]$ sleeper {text}[/bold green]")
    environment = {**os.environ, "SLEEPER_INSTANCE": str(instance)}
    status = subprocess.run([_SLEEPER, *arguments], env=environment, check=False).returncode
    if status != 0:
        sys.exit(f"demo: command failed with status {status}")
