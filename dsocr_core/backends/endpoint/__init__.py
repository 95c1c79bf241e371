"""Servers of OpenAI's chat completions, each in its own flavour."""
