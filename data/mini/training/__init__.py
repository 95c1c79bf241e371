"""Renderer and trainer of the embedded checkpoint. Run as `python -m data.mini.training`."""
