"""The exactly-once sink under real Spark: drivers, tasks and brokers that die at chosen moments, and a count."""
