"""Prompts: their templates, parsers, dialogs, and folders of prompt files.

`rendering` prints values and types.  All of it is pure, except that templates are read from files.  Nothing here knows
a provider or a state.
"""

from typing import TYPE_CHECKING

from fsm_agent._internal.exports import exports

if TYPE_CHECKING:
    from fsm_agent.prompts.dialog import Dialog as Dialog
    from fsm_agent.prompts.dialogs import Dialogs as Dialogs
    from fsm_agent.prompts.extraction.first_of import first_of as first_of
    from fsm_agent.prompts.extraction.parsing import Parsed as Parsed
    from fsm_agent.prompts.extraction.parsing import Parser as Parser
    from fsm_agent.prompts.extraction.parsing import ParserInput as ParserInput
    from fsm_agent.prompts.extraction.parsing import parser as parser
    from fsm_agent.prompts.extraction.strategies import code as code
    from fsm_agent.prompts.extraction.strategies import extract_json as extract_json
    from fsm_agent.prompts.extraction.strategies import json_anywhere as json_anywhere
    from fsm_agent.prompts.extraction.strategies import json_block as json_block
    from fsm_agent.prompts.extraction.strategies import keyword as keyword
    from fsm_agent.prompts.extraction.strategies import regex as regex
    from fsm_agent.prompts.extraction.strategies import tagged as tagged
    from fsm_agent.prompts.extraction.strategies import verbatim as verbatim
    from fsm_agent.prompts.extraction.tags import TagContent as TagContent
    from fsm_agent.prompts.extraction.tags import TagParser as TagParser
    from fsm_agent.prompts.intents.action import Action as Action
    from fsm_agent.prompts.intents.action import Attribute as Attribute
    from fsm_agent.prompts.intents.action import InnerText as InnerText
    from fsm_agent.prompts.intents.action_set import ActionSet as ActionSet
    from fsm_agent.prompts.intents.declared import intent as intent
    from fsm_agent.prompts.intents.frame import IntentExtractor as IntentExtractor
    from fsm_agent.prompts.intents.frame import IntentFrame as IntentFrame
    from fsm_agent.prompts.library import Prompts as Prompts
    from fsm_agent.prompts.library import register_prompt as register_prompt
    from fsm_agent.prompts.output import Output as Output
    from fsm_agent.prompts.prompt import Prompt as Prompt
    from fsm_agent.prompts.prompt import Task as Task
    from fsm_agent.prompts.rendering.choices import PromptChoice as PromptChoice
    from fsm_agent.prompts.rendering.example import examples_section as examples_section
    from fsm_agent.prompts.rendering.example import prompt_example as prompt_example
    from fsm_agent.prompts.rendering.fields import PromptField as PromptField
    from fsm_agent.prompts.rendering.guide import prompt_guide as prompt_guide
    from fsm_agent.prompts.rendering.model import PromptEnum as PromptEnum
    from fsm_agent.prompts.rendering.model import PromptModel as PromptModel
    from fsm_agent.prompts.rendering.model import TypeMarked as TypeMarked
    from fsm_agent.prompts.rendering.parts import prompt_parts as prompt_parts
    from fsm_agent.prompts.rendering.schema import prompt_schema as prompt_schema
    from fsm_agent.prompts.rendering.text import prompt_text as prompt_text
else:
    __all__, __getattr__, __dir__ = exports(
        __name__,
        {
            "dialog": "Dialog",
            "dialogs": "Dialogs",
            "extraction.first_of": "first_of",
            "extraction.parsing": "Parsed Parser ParserInput parser",
            "extraction.strategies": "code extract_json json_anywhere json_block keyword regex tagged verbatim",
            "extraction.tags": "TagContent TagParser",
            "intents.action": "Action Attribute InnerText",
            "intents.action_set": "ActionSet",
            "intents.declared": "intent",
            "intents.frame": "IntentExtractor IntentFrame",
            "library": "Prompts register_prompt",
            "output": "Output",
            "prompt": "Prompt Task",
            "rendering.choices": "PromptChoice",
            "rendering.example": "examples_section prompt_example",
            "rendering.fields": "PromptField",
            "rendering.guide": "prompt_guide",
            "rendering.model": "PromptEnum PromptModel TypeMarked",
            "rendering.parts": "prompt_parts",
            "rendering.schema": "prompt_schema",
            "rendering.text": "prompt_text",
        },
    )
