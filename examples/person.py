"""A typed answer: python examples/person.py "Maria Silva is 34 years old and lives in Lisbon." [provider:model]

By default, the model is the small embedded one, which needs no key.
"""

import sys

from pydantic import BaseModel, Field

from fsm_agent import Agent, Prompt


class Person(BaseModel):
    name: str
    age: int = Field(ge=0, le=150)
    city: str


EXTRACT = Prompt("Extract the name, age and city from the text as JSON.\nText: {{ text }}", output=Person)


def main(text: str = "Maria Silva is 34 years old and lives in Lisbon.", model: str = "local:") -> None:
    with Agent(model, system="You are a helpful assistant.") as agent:
        result = agent.call(EXTRACT(text=text))
    print(result.output)
    print(result.usage)


if __name__ == "__main__":
    main(*sys.argv[1:])
