"""What the parent sends to others. The HTTP client only here."""
