"""Two runs of a page compared tensor by tensor: the first output that differs, and why."""
