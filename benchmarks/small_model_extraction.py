"""Count the right typed answers of the embedded model: ``python benchmarks/small_model_extraction.py``.

The texts of ``tests/support/own_texts.py`` are asked through an agent, as it is, and then under the schema alone
(``mode="native"``).  A value is right if it is that of the text, without regard to case; made up, if it is a text that
the task does not hold.  Of texts that lack a value, it counts those that end in an error.
``--ways copied`` asks in that way only, ``--limit 4`` the first four texts, ``-v`` shows what is not right.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fsm_agent import Agent, CallFailed, Limits, Prompt, Settings

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support.own_texts import TEXTS, Text

WAYS = {"copied": None, "native": "native"}


class Counts(NamedTuple):
    """Counts of one way: texts wholly right, fields right, texts made up, texts that lack a value and are refused."""

    right: int
    fields: int
    made_up: int
    refused: int


def same(value: Any, expected: Any) -> bool:
    return (
        value.lower() == expected.lower() if isinstance(value, str) and isinstance(expected, str) else value == expected
    )


def asked(text: Text, mode: Any) -> dict[str, Any] | None:
    """Return the fields of the answer; None: there is none."""
    prompt = Prompt("{{ task }}", output=text.output, mode=mode)
    with Agent("local:", settings=Settings(temperature=0, seed=1), limits=Limits(parse_retries=1)) as agent:
        try:
            return agent.call(prompt(task=text.task)).output.model_dump()
        except CallFailed:
            return None


def counted(texts: Sequence[Text], way: str, *, verbose: bool = False) -> Counts:
    """Ask all texts in one way, and count."""
    right = fields = made_up = refused = 0
    for text in texts:
        values = asked(text, WAYS[way])
        found = [value for value in (values or {}).values() if isinstance(value, str)]
        made_up += sum(value.lower() not in text.task.lower() for value in found)
        if text.values is None:
            refused += values is None
            is_right = values is None
        else:
            are_same = [same((values or {}).get(name), value) for name, value in text.values.items()]
            fields += sum(are_same)
            right += (is_right := all(are_same))
        if verbose and not is_right:
            print(f"    {text.task!r}: {values}", flush=True)
    return Counts(right, fields, made_up, refused)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ways", nargs="+", choices=[*WAYS], default=[*WAYS])
    parser.add_argument("--limit", type=int)
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args()
    texts = TEXTS[: options.limit]
    whole = [text for text in texts if text.values is not None]
    for way in options.ways:
        begun_s = time.monotonic()
        counts = counted(texts, way, verbose=options.verbose)
        print(
            f"{way:8} {counts.right} of {len(whole)} texts right, {counts.fields} of"
            f" {sum(len(text.values or ()) for text in whole)} fields; {counts.made_up} texts made up;"
            f" {counts.refused} of {len(texts) - len(whole)} that lack a value refused"
            f" ({time.monotonic() - begun_s:.0f} s)",
            flush=True,
        )


if __name__ == "__main__":
    main()
