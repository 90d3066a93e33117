"""The steps of a trial, one each, and the arithmetic on results."""
