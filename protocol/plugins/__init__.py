"""Plugins: code of users that workers and supervisors run beside the tasks, and ready-made ones."""
