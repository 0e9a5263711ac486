"""The tests mirror the folders; what several of them share lies here and in conftest.py."""
