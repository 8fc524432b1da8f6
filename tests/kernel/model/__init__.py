"""The semantics of a stage once more, record by record: slow, plain, and sharing nothing with the kernel.

Every rule stands beside the sentence that it implements. The tests hold this model against results of
Kafka Streams, and the kernel against this model.
"""

from tests.kernel.model.model import Buffered, Model
from tests.kernel.model.records import Batch, BufferFull, Emission, Record

__all__ = ["Batch", "BufferFull", "Buffered", "Emission", "Model", "Record"]
