"""The wire formats of providers: requests and replies translated, without a connection.

A `Codec` writes requests, and makes a `Decoder` for each response; `catalog` is the list of named providers.  Of each
wire, one module has what is sent and one what comes back.
Nothing here opens a socket.
"""

from typing import TYPE_CHECKING

from fsm_agent._internal.exports import exports

if TYPE_CHECKING:
    from fsm_agent.providers.anthropic import Anthropic as Anthropic
    from fsm_agent.providers.anthropic import AnthropicProfile as AnthropicProfile
    from fsm_agent.providers.catalog import providers as providers
    from fsm_agent.providers.catalog import register_provider as register_provider
    from fsm_agent.providers.codec import Codec as Codec
    from fsm_agent.providers.codec import Profile as Profile
    from fsm_agent.providers.decoder import Decoder as Decoder
    from fsm_agent.providers.gemini import Gemini as Gemini
    from fsm_agent.providers.gemini import GeminiProfile as GeminiProfile
    from fsm_agent.providers.openai_chat import OpenAIChat as OpenAIChat
    from fsm_agent.providers.openai_responses import OpenAIResponses as OpenAIResponses
    from fsm_agent.providers.provider import Provider as Provider
    from fsm_agent.providers.provider import Wire as Wire
else:
    __all__, __getattr__, __dir__ = exports(
        __name__,
        {
            "anthropic": "Anthropic AnthropicProfile",
            "catalog": "providers register_provider",
            "codec": "Codec Profile",
            "decoder": "Decoder",
            "gemini": "Gemini GeminiProfile",
            "openai_chat": "OpenAIChat",
            "openai_responses": "OpenAIResponses",
            "provider": "Provider Wire",
        },
    )
