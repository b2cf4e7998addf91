"""The one exception that a user can act on."""


class HeadlabError(Exception):
    """A problem the user can solve: says what was given, what fits, and what to do."""
