"""Providers' wire formats: code that writes requests and reads replies.  Nothing here opens a connection.

A `Codec` writes requests, and makes a `Decoder` for each response.  `providers` lists the named providers.
"""

import fsm_agent.call  # before its modules; see CONTRIBUTING.md
from fsm_agent.providers.anthropic import AnthropicCodec, AnthropicProfile
from fsm_agent.providers.catalog import Api, Provider, providers, register_provider
from fsm_agent.providers.codec import (
    Codec,
    Decoder,
    Profile,
    check_settings,
    merged_body,
    offered_functions,
    taken_settings,
)
from fsm_agent.providers.gemini import GeminiCodec, GeminiProfile
from fsm_agent.providers.openai_chat import OpenAIChatCodec
from fsm_agent.providers.openai_responses import OpenAIResponsesCodec

__all__ = [
    "AnthropicCodec",
    "AnthropicProfile",
    "Api",
    "Codec",
    "Decoder",
    "GeminiCodec",
    "GeminiProfile",
    "OpenAIChatCodec",
    "OpenAIResponsesCodec",
    "Profile",
    "Provider",
    "check_settings",
    "merged_body",
    "offered_functions",
    "providers",
    "register_provider",
    "taken_settings",
]
