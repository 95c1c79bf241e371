"""Drafts: what a page probably says, for decoding to verify instead of reading it anew. No torch."""
