"""The codec of Anthropic's Messages API."""
