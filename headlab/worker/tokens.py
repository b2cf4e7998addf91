"""The token that app and worker share: long enough that nobody guesses it, plain enough that a header carries it."""

from __future__ import annotations

import os

from headlab.errors import HeadlabError

VARIABLE = "HEADLAB_TOKEN"
MIN_LENGTH = 16
MIN_DIFFERENT = 6


def token_of_environment() -> str | None:
    """$HEADLAB_TOKEN; None if it is not set. Raises HeadlabError if it could be guessed or not be sent."""
    return checked_token(os.environ.get(VARIABLE))


def checked_token(token: str | None) -> str | None:
    """The token a worker is to ask for; None for none. Raises HeadlabError if it could be guessed or not be sent."""
    if not token:
        return None
    advice = 'make one with: python -c "import secrets; print(secrets.token_urlsafe(32))"'
    if not token.isascii() or not token.isprintable() or " " in token:
        raise HeadlabError(
            f"{VARIABLE} may hold letters, digits and signs only, no spaces; {advice}", code="token.characters_invalid"
        )
    if len(token) < MIN_LENGTH or len(set(token)) < MIN_DIFFERENT:
        raise HeadlabError(
            f"{VARIABLE} is too easy to guess: it needs {MIN_LENGTH} characters, {MIN_DIFFERENT} of them different; "
            f"{advice}",
            code="token.too_weak",
        )
    return token
