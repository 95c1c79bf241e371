"""What reads pages, behind one protocol: our engines, the vendor, servers, programs, folders."""
