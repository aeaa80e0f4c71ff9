"""Anthropic's wire: messages."""
