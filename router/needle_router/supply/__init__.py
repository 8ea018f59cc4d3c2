"""Fetching engines: from the model hub onto this machine, pinned by hash."""
