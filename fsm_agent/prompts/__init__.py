"""Prompts, templates, parsers, dialogs and prompt files, and the text that shows values and types to a model.

Apart from reading template files, everything here is pure.  Nothing here depends on a provider or on call state.
"""

import fsm_agent.functions  # before its modules; see CONTRIBUTING.md
from fsm_agent.prompts.actions import Action, ActionSet, Attribute, InnerText
from fsm_agent.prompts.dialog import Dialog, Dialogs
from fsm_agent.prompts.fields import PromptChoice, PromptField
from fsm_agent.prompts.intents import IntentExtractor, IntentFrame, intent
from fsm_agent.prompts.library import Prompts, register_prompt
from fsm_agent.prompts.models import PromptEnum, PromptModel, TypeMarked
from fsm_agent.prompts.output import Output, Parsed, Parser, ParserInput, parser
from fsm_agent.prompts.parsers import (
    TagContent,
    TagParser,
    code,
    extract_json,
    first_of,
    json_anywhere,
    json_block,
    keyword,
    regex,
    tagged,
    verbatim,
)
from fsm_agent.prompts.prompt import Prompt, Task
from fsm_agent.prompts.type_text import examples_section, prompt_example, prompt_guide, prompt_schema
from fsm_agent.prompts.values import prompt_parts, prompt_text

__all__ = [
    "Action",
    "ActionSet",
    "Attribute",
    "Dialog",
    "Dialogs",
    "InnerText",
    "IntentExtractor",
    "IntentFrame",
    "Output",
    "Parsed",
    "Parser",
    "ParserInput",
    "Prompt",
    "PromptChoice",
    "PromptEnum",
    "PromptField",
    "PromptModel",
    "Prompts",
    "TagContent",
    "TagParser",
    "Task",
    "TypeMarked",
    "code",
    "examples_section",
    "extract_json",
    "first_of",
    "intent",
    "json_anywhere",
    "json_block",
    "keyword",
    "parser",
    "prompt_example",
    "prompt_guide",
    "prompt_parts",
    "prompt_schema",
    "prompt_text",
    "regex",
    "register_prompt",
    "tagged",
    "verbatim",
]
