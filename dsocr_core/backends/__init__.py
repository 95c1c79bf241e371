"""Backends behind one protocol: our engines, the vendor, servers, programs, folders."""
