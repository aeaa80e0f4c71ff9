"""OpenAI's two wires: chat completions, which many others speak, and responses."""
