"""The codecs of OpenAI's two APIs: Chat Completions, which many other services offer, and Responses."""
