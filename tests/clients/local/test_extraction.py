"""Does the embedded model, held to the schema, give a valid value for each of fifty short texts?"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field
from support.embedded import needs_model
from support.own_texts import TEXTS as OWN_TEXTS

from benchmarks.small_model_extraction import counted
from fsm_agent import Agent, Limits, Prompt, Settings

BENCH = Path(__file__).parents[3] / "benchmarks"

NAMES = ("Maria", "Ken", "Aisha", "Tom", "Lena", "Omar", "Ines", "Paul", "Yuki", "Nora")
CITIES = ("Lisbon", "Oslo", "Cairo", "Paris", "Rome")
TEXTS = [  # fifty, in five forms
    form.format(name=NAMES[n % 10], age=20 + n, city=CITIES[n % 5], job=("baker", "doctor", "teacher")[n % 3])
    for n, form in enumerate(
        [
            "{name} is {age} years old, works as a {job} and lives in {city}.",
            "Meet {name}, {age}, a {job} from {city}.",
            'The {job} of our street in {city} is called {name}; "I am {age}", they say.',
            "{city}: {name} ({age}), {job}.",
            "Last week {name} turned {age}.\nStill a {job}, still in {city} & happy {{as ever}}.",
        ]
        * 10
    )
]


class Person(BaseModel):
    """The person whom a text is about."""

    name: str = Field(max_length=40)
    age: int = Field(ge=0, le=150)
    city: str = Field(max_length=40)
    job: Literal["baker", "doctor", "teacher"]


@pytest.mark.nightly
@pytest.mark.timeout(300)
@needs_model
def test_fifty_texts_give_fifty_valid_values():
    prompt = Prompt("Extract the person from this text.\nText: {{ text }}", output=Person)
    settings = Settings(temperature=0, max_tokens=96, seed=1)
    found: list[Any] = []
    with Agent("local:", settings=settings, limits=Limits(parse_retries=0)) as agent:
        for text in TEXTS:
            found.append(agent.call(prompt(text=text)))
    assert len(found) == 50
    assert all(isinstance(result.output, Person) for result in found)
    assert not any(result.repairs or result.record.parse_errors for result in found), "valid as they come"
    right = sum(result.output.age == 20 + n for n, result in enumerate(found))
    assert right >= 30, f"valid and made up: only {right} ages are those of the texts"


@pytest.mark.nightly
@pytest.mark.timeout(900)
@needs_model
def test_typed_answers_are_copied_and_nothing_is_made_up(say: Callable[[str], None]):
    counts = counted(OWN_TEXTS, "copied")
    say(f"of {len(OWN_TEXTS)} texts: {counts}")
    assert counts.made_up == 0
    assert counts.refused == sum(text.values is None for text in OWN_TEXTS)
    assert counts.right >= 14


@pytest.mark.nightly
@needs_model
@pytest.mark.timeout(240)
@pytest.mark.parametrize("script", ["small_model_functions.py", "small_model_extraction.py"])
def test_the_scripts_that_the_docs_name_run_on_two_cases(script: str, tmp_path: Path):
    function = {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "c": {"type": "integer", "default": 0}},
            "required": ["a", "b"],
        },
    }
    arguments = {name: {"accept": [value], "optional": name == "c"} for name, value in (("a", 3), ("b", 4), ("c", 0))}
    case = {
        "id": "add",
        "category": "simple",
        "question": [{"role": "user", "content": "Please add 3 and 4."}],
        "functions": [function],
        "expected_calls": [{"name": "add", "arguments": arguments}],
    }
    cases = tmp_path / "cases.jsonl"
    cases.write_text(f"{json.dumps(case)}\n" * 2)
    command = [sys.executable, str(BENCH / script), "--limit", "2"]
    command += [str(cases), "--ways", "guided"] if script == "small_model_functions.py" else ["--ways", "copied"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert " of 2 " in run.stdout
