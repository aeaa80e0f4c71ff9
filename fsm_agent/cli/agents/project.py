"""The first project that ``fsm-agent agents new`` writes: a class, its prompts, its configuration and a test."""

from __future__ import annotations

import json
import keyword
import re
from pathlib import Path

from fsm_agent.agents.config.agent_config import AgentConfig
from fsm_agent.errors import ConfigError, UsageError
from fsm_agent.providers.catalog import split_model

SCHEMA = "agent.schema.json"

_AGENT = '''"""The agent NAME."""

from pydantic import BaseModel, Field

from fsm_agent import AgentBase, function


class Answer(BaseModel):
    """An answer to a question."""

    text: str
    confidence: float = Field(ge=0, le=1)


@function
def count_words(text: str) -> int:
    """Count the words of a text.

    Args:
        text: Any text.
    """
    return len(text.split())


class CLASS(AgentBase[Answer]):
    agent_type = "NAME"
    expertise = "Answer questions about texts."
    capabilities = ("count words",)
    functions = [count_words]
    output = Answer
'''
_CONFIG = """#:schema ./SCHEMA
agent_type = "NAME_agent:CLASS"
model = MODEL
prompts = "prompts"
system_path = "NAME/system"
prompt = "NAME/task"
profile = "balanced"

[limits]
rounds = 3
"""
_SYSTEM = """You answer questions about texts.  Count with the function, never by yourself.
"""
_TASK = """Answer this question: {{ task }}
"""
_TEST = '''"""Does the agent answer, without a model?"""

from pathlib import Path

import NAME_agent
import pytest

from fsm_agent import CallFailed, build_agent
from fsm_agent.messages import FunctionResult
from fsm_agent.testing import Script, call

CONFIG = Path(__file__).with_name("NAME.toml")


def test_it_counts_with_its_function_and_answers() -> None:
    script = Script(call("count_words", text="one two"), '{"text": "Two.", "confidence": 0.9}')
    agent = build_agent(NAME_agent.CLASS, CONFIG, client=script)
    answer = agent("How many words has 'one two'?")
    assert answer.text == "Two."
    assert script.requests[0].messages[0].text.startswith("You answer questions about texts.")
    assert script.requests[0].messages[1].text == "Answer this question: How many words has 'one two'?"
    results = [part.text for part in script.requests[1].messages[-1].parts if isinstance(part, FunctionResult)]
    assert results == ["2"]


def test_an_answer_that_cannot_be_used_is_asked_for_again() -> None:
    script = Script('{"text": "Two.", "confidence": 7}', '{"text": "Two.", "confidence": 0.7}')
    assert build_agent(NAME_agent.CLASS, CONFIG, client=script)("How many?").confidence == 0.7


def test_a_model_that_never_answers_is_a_failure() -> None:
    script = Script(*["nothing"] * 4)
    with pytest.raises(CallFailed):
        build_agent(NAME_agent.CLASS, CONFIG, client=script)("How many?")
'''


def write_project(name: str, folder: Path, model: str) -> list[Path]:
    """Write the project; nothing that is there is overwritten.

    Returns:
        The files.

    Raises:
        ConfigError: The name or the model cannot be used, or a file is there already.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name) or keyword.iskeyword(name):
        raise ConfigError(f"name: expected lower-case letters, digits and '_', such as 'weather', got {name!r:.80}")
    if f"{name}_agent" == __name__.partition(".")[0]:
        raise ConfigError(f"name: expected one whose module does not hide this package, got {name!r}")
    split_model(model)
    class_name = "".join(part.capitalize() for part in name.split("_"))
    texts = {
        f"{name}_agent.py": _AGENT,
        f"{name}.toml": _CONFIG,
        f"prompts/{name}/system.jinja": _SYSTEM,
        f"prompts/{name}/task.jinja": _TASK,
        f"test_{name}.py": _TEST,
        SCHEMA: json.dumps(AgentConfig.model_json_schema(), indent=2) + "\n",
    }
    files = {folder / path: text for path, text in texts.items()}
    for file in files:
        if file.exists():
            raise ConfigError(f"expected a new file, got {str(file)!r}, which exists; pass another --folder")
    words = {"NAME": name, "CLASS": class_name, "MODEL": json.dumps(model), "SCHEMA": SCHEMA}
    try:
        for file, text in files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            if file.name != SCHEMA:
                text = re.sub(r"NAME|CLASS|MODEL|SCHEMA", lambda word: words[word[0]], text)
            file.write_text(text, "utf-8")
    except NotADirectoryError as error:
        raise UsageError(f"expected a folder, got {error.filename!r}; pass another --folder") from error
    except FileExistsError as error:
        raise UsageError(f"expected a folder, got the file {error.filename!r}; pass another --folder") from error
    except (OSError, RecursionError) as error:  # the latter: of a path with a thousand names
        raise UsageError(f"the project cannot be written: {error}") from error
    return list(files)
