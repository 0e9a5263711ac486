"""A cluster in virtual time: the cores of the scheduler and of its workers are the real ones."""
