"""An answer of a type: python examples/person.py "Maria Silva is 34 years old and lives in Lisbon." [provider:model]

Without a model it is the small embedded one, which needs no key.
"""

import sys

from pydantic import BaseModel, Field

from fsm_agent import Agent, Prompt, Settings


class Person(BaseModel):
    name: str = Field(max_length=40)  # a greatest length, or a small model might never end the string
    age: int = Field(ge=0, le=150)
    city: str = Field(max_length=40)


EXTRACT = Prompt("Extract the name, age and city from the text as JSON.\nText: {{ text }}", output=Person)


def main(text: str = "Maria Silva is 34 years old and lives in Lisbon.", model: str = "local:") -> None:
    settings = Settings(temperature=0, seed=1, max_tokens=64) if model == "local:" else Settings()
    with Agent(model, system="You are a helpful assistant.", settings=settings) as agent:
        result = agent.call(EXTRACT, text=text)
    print(result.output)
    print(result.usage)


if __name__ == "__main__":
    main(*sys.argv[1:])
