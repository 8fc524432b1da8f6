"""Take all objects that are imported so far out of garbage collection. Import this module last.

It is for a process that is about to work, or to fork workers. With Great Expectations, imports leave half a
million objects, and each full collection would take a third of a second.
"""

from __future__ import annotations

import gc

gc.freeze()
