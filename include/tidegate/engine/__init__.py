"""What expressions mean in Spark, and how records are decoded."""
