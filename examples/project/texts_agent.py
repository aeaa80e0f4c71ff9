"""The agent `texts`."""

from pydantic import BaseModel, Field

from fsm_agent import AgentBase, function


class Answer(BaseModel):
    """An answer to a question."""

    text: str
    confidence: float = Field(ge=0, le=1)


@function
def count_words(text: str) -> int:
    """Count the words in a text.

    Args:
        text: Any text.
    """
    return len(text.split())


class Texts(AgentBase[Answer]):
    agent_type = "texts"
    expertise = "Answer questions about texts."
    capabilities = ("count words",)
    functions = (count_words,)
    output = Answer
