"""The wire formats of providers: requests and replies translated, without a connection.

`codec` is the interface, `catalog` the list of named providers; a folder each for OpenAI, Anthropic and Gemini.
Nothing here opens a socket.
"""
