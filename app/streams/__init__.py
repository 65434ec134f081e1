"""From one job's events to any number of followers."""
