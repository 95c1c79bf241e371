"""Helpers of several rooms of the tests; nothing here is collected."""
