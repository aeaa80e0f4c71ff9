"""The conformance suite of codecs."""

from __future__ import annotations

from fsm_agent.testing.encoding_conformance import EncodingConformance


class CodecConformance(EncodingConformance):
    """The tests that every `Codec` passes.

    A test class derives from it, with the codec and three ways to write what its service would send::

        class TestAcme(CodecConformance):
            codec = Acme()

            def events(self, turn, *, interleaved=False): ...   # the `ServerEvent`s of a stream of this turn
            def response(self, turn): ...                       # the bytes of a whole response with this turn
            def error_event(self, message): ...                 # a `ServerEvent` that reports an error

    The cases are drawn by hypothesis, which has to be installed, and nothing is sent anywhere.

    Attributes:
        codec: The codec.
        profile: The model's capabilities; all that it claims is checked.
        model: The model's name.
        kinds: The kinds of parts that the wire can tell.
        interleaves_calls: The pieces of parallel calls may come in turns; `events` is then asked for that too.
        cuts_characters: The service may cut a text between the halves of a surrogate pair, as those do that count in
            UTF-16 units.
    """
