"""What a run tells: log lines, loggers, summary, pictures, README."""
