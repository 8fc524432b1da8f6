"""Imported last by a process whose forks do the work, such as multiprocessing's forkserver.

Garbage collection in them leaves alone what they have inherited: it would cost each a third of a second,
again and again.
"""

from __future__ import annotations

import gc

gc.freeze()
