"""Does the embedded model, held to the schema, give a valid value for each of fifty short texts?"""

from __future__ import annotations

import importlib.util
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from fsm_agent import Agent, Limits, Prompt, Settings
from fsm_agent.clients.local.model import command_to_fetch, find_model

needs_model = pytest.mark.skipif(
    find_model() is None or importlib.util.find_spec("xllamacpp") is None,
    reason=f"no local model or engine: {command_to_fetch()}",
)

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


@pytest.mark.long
@needs_model
def test_fifty_texts_give_fifty_valid_values():
    prompt = Prompt("Extract the person from this text.\nText: {{ text }}", output=Person)
    settings = Settings(temperature=0, max_tokens=96, seed=1)
    found: list[Any] = []
    with Agent("local:", settings=settings, limits=Limits(parse_retries=0)) as agent:
        for text in TEXTS:
            found.append(agent.call(prompt, text=text))
    assert len(found) == 50
    assert all(isinstance(result.output, Person) for result in found)
    assert not any(result.repairs or result.record.parse_errors for result in found), "valid as they come"
    right = sum(result.output.age == 20 + n for n, result in enumerate(found))
    assert right >= 30, f"valid and made up: only {right} ages are those of the texts"
