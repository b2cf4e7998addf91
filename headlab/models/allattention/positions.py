"""The two ways in which a language model of this family is told of places in a text."""

RELATIVE, LEARNED = "relative", "learned"
POSITIONS = (RELATIVE, LEARNED)
