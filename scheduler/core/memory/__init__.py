"""A brake on memory: what workers hold decides what they get.

- `pausing`: the workers that report that they are paused
- `full`: the workers whose memory is nearly full, and what a task would add there
- `admission`: the room that workers have in bytes, beside their backlog in time
- `set_aside`: tasks that would add to full workers wait; those that add nothing run there
- `relief`: the newest results fail where nothing goes on, or where workers are killed for them
- `records`: the state of all this, `SchedulerState.memory`

A worker is *full* when what it uses, with the expected results of what it runs, is above
`FULL_SHARE` of its limit. It is closed to the usual lanes of assignment (`moves/taking.py`), so
these cost nothing while no worker is full.
"""
