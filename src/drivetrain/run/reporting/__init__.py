"""What a run tells at its host events: log lines, loggers, and the figures they carry."""
