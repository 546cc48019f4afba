"""Deferral on stored answers of people; see README.md."""
