"""Text to model: pipeline files, their defaults and their case files, with all mistakes at once."""
