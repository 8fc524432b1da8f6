"""Access to Kafka: offsets, records, topics, transactional publication.

This module imports nothing: Spark's workers only read records, and must not load the rest.
"""
