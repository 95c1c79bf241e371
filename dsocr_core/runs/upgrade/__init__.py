"""Runs of earlier versions as runs of this one; nothing else reads what they wrote."""
