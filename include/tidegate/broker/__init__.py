"""The Kafka edge: offsets, records, topics, transactional publication.

It imports nothing, since Spark's workers read records, and need no more than that.
"""
