"""Is every output that the toolkit's guide prints for values and types what is printed here?

The guide puts the comma of a schema's line behind its comment; here it comes before, and none behind the last field.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import pytest
from pydantic import BaseModel, Field

from fsm_agent import Image, PromptModel
from fsm_agent.messages import Text
from fsm_agent.prompts import (
    PromptChoice,
    PromptEnum,
    PromptField,
    examples_section,
    prompt_example,
    prompt_guide,
    prompt_parts,
    prompt_schema,
    prompt_text,
)

PNG = b"\x89PNG\r\n\x1a\n"


class UserProfile(PromptModel):
    __prompt_template__ = "USER PROFILE:\nName: {{name}}\nRole: {{role}}"

    name: str
    role: str


def format_id(id: int) -> str:
    return f"user-{id}"


class AdvancedUser(PromptModel):
    id: Annotated[int, Field(description="The user's unique identifier")]
    name: Annotated[str, PromptField(rename="full_name")]
    internal_hash: Annotated[str, PromptField(skip=True)]
    formatted_id: Annotated[int, PromptField(format_with=format_id)]


class Color(PromptModel):
    __prompt_template__ = '{"color": "#FFFFFF"}'


class UserFromTemplate(PromptModel):
    __prompt_file__ = "user_profile.jinja"

    name: str
    email: str


class UserIntent(PromptEnum):
    """Represents different user intents for a chatbot"""

    GREETING = PromptChoice("Greeting", "User wants to greet or say hello")
    HELP = PromptChoice("Help", "User is asking for help or assistance")


class UserAction(PromptEnum):
    """Represents different actions a user can take in the system"""

    CREATE = PromptChoice("CreateDocument", "User wants to create a new document")
    SEARCH = PromptChoice("Search", "User is searching for existing content")
    UPDATE = PromptChoice("UpdateProfile", "Custom: User is updating their profile settings and preferences")
    DEBUG = PromptChoice("InternalDebugAction", skip=True)
    DELETE = "DeleteItem"


class Task(PromptModel):
    __prompt_for__: ClassVar = {"Visual": "## {{title}}\n\n> {{description}}"}

    title: str
    description: str
    priority: Annotated[int, PromptField(target="Agent")]
    id: Annotated[int, PromptField(target="Agent", rename="internal_id")]
    is_dirty: Annotated[bool, PromptField(skip=True)]


class FormattedTask(PromptModel):
    title: str
    priority: Annotated[
        int, PromptField(target="Human", format_with=lambda level: ["Unknown", "Low", "Medium", "High"][level])
    ]


class ImageTask(PromptModel):
    __prompt_for__: ClassVar = {"Multimodal": "Analyzing image: {{caption}}"}

    caption: str
    image: Annotated[bytes, PromptField(target="Multimodal", image=True)]


class AgentInfo(BaseModel):
    name: str
    role: str


class Tool(PromptModel):
    """A tool that can be used by an agent."""

    __prompt_for__: ClassVar = {
        AgentInfo: """
Hello, {{ target.name }}. As a {{ target.role }}, you can use the following tool.

### Tool Schema
{self:schema_only}

### Tool Example
{self:example_only}

The tool's name is '{{ self.name }}'.
"""
    }

    name: Annotated[str, Field(description="The name of the tool."), PromptField(example="file_writer")]
    description: Annotated[
        str, Field(description="A description of what the tool does."), PromptField(example="Writes content to a file.")
    ] = ""


class User(BaseModel):
    """Represents a user of the system."""

    id: Annotated[str, Field(description="A unique identifier for the user."), PromptField(example="user-12345")]
    name: Annotated[str, Field(description="The user's full name."), PromptField(example="Taro Yamada")]


class Concept(BaseModel):
    """Defines a concept for image generation."""

    prompt: Annotated[str, PromptField(example="a futuristic city at night")]
    style: Annotated[str, PromptField(example="anime")]


class EvaluationResult(BaseModel):
    rule: str = Field(description="The rule being checked")
    passed: bool = Field(description="Whether this specific rule passed")


class ProducerOutput(BaseModel):
    evaluation_passed: bool = Field(description="Whether the evaluation passed all checks")
    results: list[EvaluationResult] = Field(description="List of evaluation results for each rule")


advanced_user = AdvancedUser(id=123, name="Mai", internal_hash="abcdef", formatted_id=123)
task = Task(title="Implement feature", description="Add new functionality", priority=1, id=42, is_dirty=False)
tool = Tool(name="file_writer_tool")
image_task = ImageTask(caption="a cat", image=PNG)

TOOL_SCHEMA = """### Schema for `Tool`
A tool that can be used by an agent.
{
  "name": "string", // The name of the tool.
  "description": "string" // A description of what the tool does.
}"""
TOOL_EXAMPLE = """{
  "name": "file_writer",
  "description": "Writes content to a file."
}"""

PRINTED: dict[str, tuple[pytest.MarkDecorator, Any, Any]] = {  # what it proves, what is printed, what the guide prints
    "a template on a type": (
        pytest.mark.spec(
            "2.7: fields are the variables of a template on their type",
        ),
        lambda: UserProfile(name="Yui", role="World-Class Pro Engineer").to_prompt(),
        "USER PROFILE:\nName: Yui\nRole: World-Class Pro Engineer",
    ),
    "keys and values": (
        pytest.mark.spec(
            "2.8: a line for each field, in order",
            "2.8: a key is the new name, the description or the field's name",
            "2.8: skipped fields are left out",
            "2.8: a format for the value alone",
        ),
        advanced_user.to_prompt,
        "The user's unique identifier: 123\nfull_name: Mai\nformatted_id: user-123",
    ),
    "special characters": (
        pytest.mark.spec(
            "2.9: hashes, braces and quotes stay as they are",
        ),
        Color().to_prompt,
        '{"color": "#FFFFFF"}',
    ),
    "a template in a file": (
        pytest.mark.spec(
            "2.10: a template from a file",
        ),
        lambda: UserFromTemplate(name="Yui", email="yui@example.com").to_prompt(),
        "Name: Yui\nEmail: yui@example.com",
    ),
    "a member": (
        pytest.mark.spec(
            "2.12: a member with its description",
        ),
        UserIntent.GREETING.to_prompt,
        "Greeting: User wants to greet or say hello",
    ),
    "a member with its description": (
        pytest.mark.spec(
            "2.12: a member with its description",
        ),
        UserAction.CREATE.to_prompt,
        "CreateDocument: User wants to create a new document",
    ),
    "a skipped member": (
        pytest.mark.spec(
            "2.12: a skipped member is its name alone",
        ),
        UserAction.DEBUG.to_prompt,
        "InternalDebugAction",
    ),
    "an enumeration": (
        pytest.mark.spec(
            "2.13: name, description and possible values, in order",
        ),
        UserIntent.prompt_schema,
        """UserIntent: Represents different user intents for a chatbot

Possible values:
- Greeting: User wants to greet or say hello
- Help: User is asking for help or assistance""",
    ),
    "an enumeration with a skipped member": (
        pytest.mark.spec(
            "2.13: skipped members are absent",
        ),
        UserAction.prompt_schema,
        """UserAction: Represents different actions a user can take in the system

Possible values:
- CreateDocument: User wants to create a new document
- Search: User is searching for existing content
- UpdateProfile: Custom: User is updating their profile settings and preferences
- DeleteItem""",
    ),
    "a target with a template": (
        pytest.mark.spec(
            "2.15: a template for a target",
        ),
        lambda: task.to_prompt_for("Visual"),
        "## Implement feature\n\n> Add new functionality",
    ),
    "a target of keys and values": (
        pytest.mark.spec(
            "2.15: fields for a target and those for all",
            "2.15: fields of other targets and skipped ones are left out",
            "2.15: names and formats of a target",
        ),
        lambda: task.to_prompt_for("Agent"),
        "title: Implement feature\ndescription: Add new functionality\npriority: 1\ninternal_id: 42",
    ),
    "a format of a target": (
        pytest.mark.spec(
            "2.15: names and formats of a target",
        ),
        lambda: FormattedTask(title="Tests", priority=3).to_prompt_for("Human"),
        "title: Tests\npriority: High",
    ),
    "parts": (
        pytest.mark.spec(
            "2.16: images first, then one text",
        ),
        lambda: image_task.to_prompt_parts_for("Multimodal"),
        (Image(data=PNG, media_type="image/png"), Text("Analyzing image: a cat")),
    ),
    "a value for another": (
        pytest.mark.spec(
            "2.17: a template sees the value and its target",
            "2.17: schema and example of the value in a template",
        ),
        lambda: tool.to_prompt_for(AgentInfo(name="Yui", role="Pro Engineer")),
        f"""
Hello, Yui. As a Pro Engineer, you can use the following tool.

### Tool Schema
{TOOL_SCHEMA}

### Tool Example
{TOOL_EXAMPLE}

The tool's name is 'file_writer_tool'.
""",
    ),
    "the schema of a structure": (
        pytest.mark.spec("2.19: the printed schema of a structure", "2.19: structures in structures, to any depth"),
        lambda: prompt_schema(ProducerOutput),
        """### Schema for `ProducerOutput`
{
  "evaluation_passed": "boolean", // Whether the evaluation passed all checks
  "results": [
    {
      "rule": "string", // The rule being checked
      "passed": "boolean" // Whether this specific rule passed
    }
  ] // List of evaluation results for each rule
}""",
    ),
    "the schema alone": (
        pytest.mark.spec(
            "2.18: schema alone",
        ),
        lambda: tool.to_prompt(mode="schema_only"),
        TOOL_SCHEMA,
    ),
    "the example alone": (
        pytest.mark.spec(
            "2.18: example alone",
        ),
        lambda: tool.to_prompt(mode="example_only"),
        TOOL_EXAMPLE,
    ),
    "both": (
        pytest.mark.spec(
            "2.18: both, by default",
        ),
        lambda: tool.to_prompt(mode="full"),
        f"{TOOL_SCHEMA}\n\n### Example\nHere is an example of a valid `Tool` object:\n{TOOL_EXAMPLE}",
    ),
    "examples of several types": (
        pytest.mark.spec(
            "2.21: the section with its headings",
        ),
        lambda: examples_section(User, Concept),
        """### Examples

Here are examples of the data structures you should use.

---
#### `User`
{
  "id": "user-12345",
  "name": "Taro Yamada"
}
---
#### `Concept`
{
  "prompt": "a futuristic city at night",
  "style": "anime"
}
---""",
    ),
}


@pytest.mark.parametrize(
    ("made", "expected"),
    [pytest.param(*case, id=title, marks=proves) for title, (proves, *case) in PRINTED.items()],
)
def test_values_are_printed_as_in_the_guide(made, expected):
    assert made() == expected


@pytest.mark.spec("2.12: a member without one is its name")
def test_a_member_without_a_description_is_its_word():
    assert UserAction.DELETE.to_prompt() == "DeleteItem"


def test_functions_and_methods_say_the_same():
    assert tool.to_prompt() == prompt_text(tool)
    assert task.to_prompt_for("Agent") == prompt_text(task, "Agent")
    assert tool.to_prompt(mode="full") == prompt_guide(tool)
    assert Tool.prompt_schema() == prompt_schema(Tool)
    assert Tool.prompt_example() == prompt_example(Tool)
    assert tool.to_prompt_parts() == prompt_parts(tool)
    assert UserIntent.HELP.to_prompt() == prompt_text(UserIntent.HELP)
    assert UserIntent.prompt_schema() == prompt_schema(UserIntent)
