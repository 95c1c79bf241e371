"""Input from outside: read within bounds, and shown so that it can steer nothing."""
