"""weft in the place of other systems, for libraries that ask these by themselves.

`distributed` is for libraries that import dask.distributed. Nothing here is imported by
`import weft`, unless `$WEFT_AS_DISTRIBUTED` says so (docs/design/compat.md).
"""

from __future__ import annotations
