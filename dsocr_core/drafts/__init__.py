"""Drafts: what a page probably says, so that decoding verifies it instead of reading token by token. No torch."""
