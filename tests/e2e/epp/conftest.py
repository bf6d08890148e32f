"""Tests here are coroutines."""

from tests.support.coroutines import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]
