"""The common part of codecs whose responses are JSON."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from fsm_agent.lifecycle.effects import Request
from fsm_agent.messages.reply import Reply
from fsm_agent.providers.adaptations import adaptations, choose_form, taken_settings
from fsm_agent.providers.chunks import ChunkDecoder, ReplyParts
from fsm_agent.providers.codec import Codec, Profile, RequestForm, read_json
from fsm_agent.providers.failures import failure, unreadable


class JsonCodec(Codec):
    """A codec whose responses are JSON: one document, or the events of a stream.

    A subclass has `name`, `path`, `headers`, `encode` and `reply_parts`.
    """

    @abstractmethod
    def reply_parts(self, headers: Mapping[str, str]) -> ReplyParts:
        """Return what collects the reply of one response."""

    def request_form(self, request: Request, profile: Profile) -> RequestForm:
        """Return the request as `encode` writes it, with the mode in which it asks for the output."""
        return choose_form(request, profile)

    def adapted(self, request: Request, profile: Profile) -> tuple[str, ...]:
        """Return descriptions of the changes to the request that the model needs."""
        return adaptations(self.request_form(request, profile), profile, taken_settings=taken_settings(profile))

    def request_headers(self, request: Request, profile: Profile) -> dict[str, str]:
        """Return {}: most APIs need no more than `headers`."""
        return {}

    def decode(self, status: int, headers: Mapping[str, str], body: bytes) -> Reply:
        """Return the reply in a whole response, also if it is a stream that was not requested.

        Raises:
            ProviderError: The response is an error, or not a reply.
        """
        if not 200 <= status < 300:
            raise failure(status, headers, body)
        try:
            document = read_json(body)
        except ValueError:
            if body.lstrip().startswith((b"data:", b"event:", b": ")):
                decoder = self.decoder(headers)
                decoder.feed(body)
                return decoder.finish()
            raise unreadable("the reply is no JSON", headers, body) from None
        reply = self.reply_parts(headers)
        reply.take_whole(document)
        reply.end(is_cut=False)
        return reply.finished()

    def decoder(self, headers: Mapping[str, str]) -> ChunkDecoder:
        """Return a decoder for one streamed response of status 200."""
        return ChunkDecoder(self, self.reply_parts(headers), headers)
