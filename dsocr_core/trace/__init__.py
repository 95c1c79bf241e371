"""Two readings of a page compared tensor by tensor: the first output that differs, and its cause."""
