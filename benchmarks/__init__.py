"""Measurements. Each module is a command of its own; nothing here is a test."""
