"""Prompts: their templates, parsers, dialogs, and folders of prompt files; values and types as a model reads them.

All of it is pure, except that templates are read from files.  Nothing here knows a provider or a state.  The names are
loaded when they are first used, since some of them are models of pydantic, which takes longer to load than all else.
"""

from typing import TYPE_CHECKING

from fsm_agent._internal.exports import exports

if TYPE_CHECKING:
    from fsm_agent.prompts.actions import Action as Action
    from fsm_agent.prompts.actions import ActionSet as ActionSet
    from fsm_agent.prompts.actions import Attribute as Attribute
    from fsm_agent.prompts.actions import InnerText as InnerText
    from fsm_agent.prompts.dialog import Dialog as Dialog
    from fsm_agent.prompts.dialog import Dialogs as Dialogs
    from fsm_agent.prompts.fields import PromptChoice as PromptChoice
    from fsm_agent.prompts.fields import PromptField as PromptField
    from fsm_agent.prompts.intents import IntentExtractor as IntentExtractor
    from fsm_agent.prompts.intents import IntentFrame as IntentFrame
    from fsm_agent.prompts.intents import intent as intent
    from fsm_agent.prompts.library import Prompts as Prompts
    from fsm_agent.prompts.library import register_prompt as register_prompt
    from fsm_agent.prompts.models import PromptEnum as PromptEnum
    from fsm_agent.prompts.models import PromptModel as PromptModel
    from fsm_agent.prompts.models import TypeMarked as TypeMarked
    from fsm_agent.prompts.output import Output as Output
    from fsm_agent.prompts.output import Parsed as Parsed
    from fsm_agent.prompts.output import Parser as Parser
    from fsm_agent.prompts.output import ParserInput as ParserInput
    from fsm_agent.prompts.output import parser as parser
    from fsm_agent.prompts.parsers import TagContent as TagContent
    from fsm_agent.prompts.parsers import TagParser as TagParser
    from fsm_agent.prompts.parsers import code as code
    from fsm_agent.prompts.parsers import extract_json as extract_json
    from fsm_agent.prompts.parsers import first_of as first_of
    from fsm_agent.prompts.parsers import json_anywhere as json_anywhere
    from fsm_agent.prompts.parsers import json_block as json_block
    from fsm_agent.prompts.parsers import keyword as keyword
    from fsm_agent.prompts.parsers import regex as regex
    from fsm_agent.prompts.parsers import tagged as tagged
    from fsm_agent.prompts.parsers import verbatim as verbatim
    from fsm_agent.prompts.prompt import Prompt as Prompt
    from fsm_agent.prompts.prompt import Task as Task
    from fsm_agent.prompts.type_text import examples_section as examples_section
    from fsm_agent.prompts.type_text import prompt_example as prompt_example
    from fsm_agent.prompts.type_text import prompt_guide as prompt_guide
    from fsm_agent.prompts.type_text import prompt_schema as prompt_schema
    from fsm_agent.prompts.values import prompt_parts as prompt_parts
    from fsm_agent.prompts.values import prompt_text as prompt_text
else:
    __all__, __getattr__, __dir__ = exports(
        __name__,
        {
            "actions": "Action ActionSet Attribute InnerText",
            "dialog": "Dialog Dialogs",
            "fields": "PromptChoice PromptField",
            "intents": "IntentExtractor IntentFrame intent",
            "library": "Prompts register_prompt",
            "models": "PromptEnum PromptModel TypeMarked",
            "output": "Output Parsed Parser ParserInput parser",
            "parsers": (
                "TagContent TagParser code extract_json first_of json_anywhere json_block keyword regex tagged verbatim"
            ),
            "prompt": "Prompt Task",
            "type_text": "examples_section prompt_example prompt_guide prompt_schema",
            "values": "prompt_parts prompt_text",
        },
    )
