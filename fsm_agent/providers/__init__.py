"""The wires of providers: requests and replies translated, without a connection.

`codec` is the interface, `catalog` the list of those that have names; a folder each for OpenAI, Anthropic and Gemini.
Nothing here opens a socket.
"""
