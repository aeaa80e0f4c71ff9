"""A fake command for `CommandClient`, which follows the next script in a folder.

When it runs as a script, it imports nothing from the package.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path


def act(folder: Path) -> None:
    (folder / f"pid-{os.getpid()}").touch()
    numbers = sorted(int(file.stem) for file in folder.glob("*.json"))
    for number in numbers:
        try:
            os.mkdir(folder / f"taken-{number}")  # one of several processes does it
        except FileExistsError:
            if number == numbers[-1]:
                break
        else:
            break
    answer = json.loads((folder / f"{number}.json").read_text())
    sys.stdin.read()
    for line in answer["lines"]:
        print(json.dumps(line), flush=True)
    if answer.get("hangs"):
        time.sleep(60)
    sys.exit(answer.get("status", 0))


if __name__ == "__main__":
    act(Path(sys.argv[1]))
