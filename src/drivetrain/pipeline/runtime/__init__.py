"""Stages at work: their passes, the messages between them, any schedule table carried out."""
