"""Tests of the project, a package so that `python -m tests.campaigns` finds it before another of that name."""
