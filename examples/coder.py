"""A coding agent.

This agent works on one folder: it reads, changes and tests files, and asks before it runs a command.

- The agent cannot access files outside the folder, even through a link. Only `shell` needs approval; you are
  responsible for the commands that you approve.
- The terminal asks about each command. Answer `a` to allow the same command for the rest of the session. Any other
  answer is passed to the model.
- `Limits` sets the budget: rounds, tokens and time. A model that asks for the same thing three times in a row gets a
  warning.
- The model sees exceptions of functions, and their tracebacks are logged, because they may be bugs. If you raise
  `Retry` instead of `ValueError`, no traceback is logged.
- A read with the same arguments does not run again until another function has run. `shell` is `repeatable`, because the
  tests must run again.

```sh
python examples/coder.py . "Make the tests pass." openai:gpt-5-mini
```

In the [recipe](coding-agent.md), the agent works in phases and cannot edit files before it has a plan.
"""

import subprocess
import sys
from pathlib import Path

from fsm_agent import Agent, Approved, Client, Denied, Function, Limits, function
from fsm_agent.cli import TerminalHook
from fsm_agent.messages import FunctionCall

MAX_CHARS = 20_000  # of a file or an output that the model sees
LIMITS = Limits(rounds=40, tokens=400_000, deadline_s=1800, identical_rounds=3, on_loop="tell")


def tools(root: Path) -> list[Function]:
    root = root.resolve()

    def inside(path: str) -> Path:
        found = (root / path).resolve()
        if not found.is_relative_to(root):
            raise ValueError(f"{path!r} is not in the folder")
        return found

    @function(needs_approval=False)
    def list_files(pattern: str = "**/*") -> list[str]:
        """List the files that match a pattern, at most 200."""
        found = sorted(path for path in root.glob(pattern) if path.is_file() and inside(str(path)))
        return [str(path.relative_to(root)) for path in found if ".git" not in path.parts][:200]

    @function(needs_approval=False)
    def read_file(path: str, first_line: int = 1) -> str:
        """Read a text file, starting at a line."""
        return "\n".join(inside(path).read_text().splitlines()[first_line - 1 :])[:MAX_CHARS]

    @function(needs_approval=False)
    def replace_in_file(path: str, old: str, new: str) -> str:
        """Replace a text that occurs exactly once in a file; an empty text makes a new file."""
        file = inside(path)
        text = file.read_text() if file.exists() else ""
        if not old and not text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(new)
            return "written"
        if not old or text.count(old) != 1:
            raise ValueError(
                f"old: expected text that the file has once, got {text.count(old) if old else 0} occurrences"
            )
        file.write_text(text.replace(old, new))
        return "replaced"

    @function(needs_approval=True, repeatable=True, timeout_s=300)  # the tests are run again after each change
    def shell(command: str) -> str:
        """Run a shell command in the folder, and return its output and exit status."""
        done = subprocess.run(command, shell=True, cwd=root, capture_output=True, text=True, timeout=280, check=False)
        return f"{(done.stdout + done.stderr)[-MAX_CHARS:]}\nexit status {done.returncode}"

    return [list_files, read_file, replace_in_file, shell]


class Terminal:
    """Asks for approval at the terminal; "a" allows the same command for the rest of the session."""

    def __init__(self) -> None:
        self.allowed: set[str] = set()

    def __call__(self, call: FunctionCall) -> Approved | Denied:
        if call.arguments_json in self.allowed:
            return Approved()
        answer = input(f"Run {call.arguments.get('command')!r}? [y]es, [a]lways, or why not: ").strip()
        if answer == "a":
            self.allowed.add(call.arguments_json)
        return Approved() if answer in ("y", "a") else Denied(answer or "the user said no")


def coder(root: Path, model: str | Client) -> Agent:
    system = "You are a careful programmer. Read before you change, change little, and run the tests after each change."
    return Agent(model, system=system, functions=tools(root), approve=Terminal(), limits=LIMITS, name="coder")


def main(folder: str, task: str, model: str = "openai:gpt-5-mini") -> None:
    agent = coder(Path(folder), model)
    agent.changed(hooks=[TerminalHook()]).call(task)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit('usage: python examples/coder.py FOLDER "Make the tests pass." [provider:model]')
    main(*sys.argv[1:])
