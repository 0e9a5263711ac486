"""The tests mirror the folders; helpers of several of them are here and in conftest.py."""
