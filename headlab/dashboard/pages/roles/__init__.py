"""Roles: what heads do."""
