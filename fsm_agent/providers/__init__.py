"""The wire formats of providers: requests and replies translated, without a connection.

`codec` is the interface, `catalog` the list of named providers; OpenAI, Anthropic and Gemini have a folder each.
Nothing here opens a socket.
"""

from typing import TYPE_CHECKING

from fsm_agent._internal.exports import exports

if TYPE_CHECKING:
    from fsm_agent.providers.anthropic.messages import Anthropic as Anthropic
    from fsm_agent.providers.anthropic.profile import AnthropicProfile as AnthropicProfile
    from fsm_agent.providers.catalog import providers as providers
    from fsm_agent.providers.catalog import register_provider as register_provider
    from fsm_agent.providers.codec import Codec as Codec
    from fsm_agent.providers.codec import JsonCodec as JsonCodec
    from fsm_agent.providers.codec import Profile as Profile
    from fsm_agent.providers.codec import ReplyParts as ReplyParts
    from fsm_agent.providers.gemini.generate_content import Gemini as Gemini
    from fsm_agent.providers.gemini.profile import GeminiProfile as GeminiProfile
    from fsm_agent.providers.openai.chat import OpenAIChat as OpenAIChat
    from fsm_agent.providers.openai.responses import OpenAIResponses as OpenAIResponses
    from fsm_agent.providers.provider import Provider as Provider
    from fsm_agent.providers.provider import Wire as Wire
else:
    __all__, __getattr__, __dir__ = exports(
        __name__,
        {
            "anthropic.messages": "Anthropic",
            "anthropic.profile": "AnthropicProfile",
            "catalog": "providers register_provider",
            "codec": "Codec JsonCodec Profile ReplyParts",
            "gemini.generate_content": "Gemini",
            "gemini.profile": "GeminiProfile",
            "openai.chat": "OpenAIChat",
            "openai.responses": "OpenAIResponses",
            "provider": "Provider Wire",
        },
    )
