"""Sections of a report: a module for each kind of result."""
