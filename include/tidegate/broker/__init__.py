"""The Kafka edge outside of Spark: offsets, topics, transactional publication."""

from tidegate.broker.config import PROGRESS_TOPIC, KafkaConfig
from tidegate.broker.epochs import EpochEnd
from tidegate.broker.limits import TimestampLimits
from tidegate.broker.log import KafkaLog, TopicView

__all__ = ["PROGRESS_TOPIC", "EpochEnd", "KafkaConfig", "KafkaLog", "TimestampLimits", "TopicView"]
