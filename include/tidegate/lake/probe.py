"""Whether a store can refuse to write a file that is there. Tables for others need that of it."""

from __future__ import annotations

import os
from uuid import uuid4

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import from_url

from tidegate.errors import LakeUnavailable
from tidegate.lake.store import Store


def puts_if_absent(store: Store) -> bool:
    """Put a small file twice, both times only if it is absent; it is removed again.

    On a disk that always works. Raises LakeUnavailable.
    """
    if not store.is_remote:
        return True
    name = f".tidegate-probe-{uuid4().hex}"
    plain = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
    try:
        objects = from_url(store.root, client_options={"allow_http": plain})
        for _ in range(2):
            obstore.put(objects, name, b"", mode="create")
    except AlreadyExistsError:
        return True
    except (BaseError, OSError) as error:
        raise LakeUnavailable(
            f"The lake {store.root} cannot be written: {str(error).splitlines()[0][:300]}",
            "Check rights, space and TIDEGATE_LAKE; then run again, nothing is lost.",
        ) from error
    finally:
        store.delete(name)
    return False
